"""The number of households of a plan beside that of a meter table."""

from __future__ import annotations

MAX_COUNT_ERROR = 0.25  # of the plan's number; beyond that its forecast and rate curve are those of another zone


def round_household_count(count: int) -> int:
    """Return the number of households of a meter table as a plan publishes it.

    It has two significant digits from 100 on, and is a multiple of 5 below, at least 5. A plan is public, and its noise
    hides whether a household is in the zone at all. The exact number of a table, published again with the next plan,
    would show that a household has moved in or out. Prices hardly depend on the rest: it is 5 % at most from 100 on.

    >>> [round_household_count(count) for count in (1, 7, 8, 99, 339, 104_999)]
    [5, 5, 10, 100, 340, 100000]
    """
    step = 5 if count < 100 else 10 ** (len(str(count)) - 2)
    return max((count + step // 2) // step * step, 5)


def is_count_off(plan_count: int, table_count: int) -> bool:
    """Return whether a plan is made for another number of households than the table has, beyond rounding.

    >>> is_count_off(300, 360), is_count_off(500, 300), is_count_off(5, 2)
    (False, True, False)
    """
    rounded = plan_count == round_household_count(table_count)
    return not rounded and abs(table_count - plan_count) > MAX_COUNT_ERROR * plan_count
