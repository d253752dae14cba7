"""The number of households of a meter table is published coarsely, and compared with that of a plan."""

from hypothesis import given
from hypothesis import strategies as st

from murmurate.planning.household_bounds import MAX_COUNT_ERROR, is_count_off, round_household_count


@given(st.integers(1, 10**8))
def test_a_number_is_published_with_two_digits_or_in_fives(count):
    rounded = round_household_count(count)
    assert rounded >= 5
    if count < 100:
        assert rounded % 5 == 0
        assert abs(rounded - count) <= 2 or (count < 3 and rounded == 5)
    else:
        assert not str(rounded)[2:].strip("0")
        assert abs(rounded - count) <= 0.05 * count


@given(st.integers(100, 10**6))
def test_most_moves_do_not_show_in_the_published_number(count):
    numbers = {round_household_count(count + moves) for moves in range(-2, 3)}
    assert len(numbers) <= 2


@given(st.integers(1, 10**6))
def test_a_plan_from_a_table_is_never_off_from_that_table(count):
    assert not is_count_off(round_household_count(count), count)


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_a_plan_is_off_where_more_than_a_quarter_is_missing_or_too_much(plan, table):
    is_far = abs(plan - table) > MAX_COUNT_ERROR * plan
    assert is_count_off(plan, table) == (is_far and plan != round_household_count(table))
