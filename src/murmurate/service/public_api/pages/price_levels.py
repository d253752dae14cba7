"""When electricity is cheap and when it is dear: the level of a price, and the cheapest and dearest hours ahead.

A level compares a price with the mean of its local day. Prices that are not decided yet count as the plan expects them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from itertools import accumulate
from math import lcm

from murmurate.service.log_reader.zone_view import ZoneView
from murmurate.units import SECONDS_PER_DAY

LEVEL_DISTANCE = Fraction(1, 10)  # from the mean of the day, from which a price is called cheap or dear
WINDOW_HOURS = (1, 2, 3)
_SECONDS_PER_HOUR = 3600


class PriceLevel(StrEnum):
    """How a price compares with the mean of its day."""

    CHEAP = "cheap"
    NORMAL = "normal"
    DEAR = "dear"


@dataclass(frozen=True, slots=True)
class PriceWindow:
    """Successive intervals and their mean price [currency/kWh]."""

    intervals: range
    mean: Fraction
    is_final: bool  # whether every price in it is decided


@dataclass(frozen=True, slots=True)
class WindowPair:
    """The cheapest and the dearest stretch of a number of hours."""

    hours: int
    cheapest: PriceWindow
    dearest: PriceWindow


@dataclass(frozen=True, slots=True)
class DayLevels:
    """The mean price of a day [currency/kWh], and the level of each interval that has a price."""

    prices: Mapping[int, Fraction]
    mean: Fraction
    levels: Mapping[int, PriceLevel]


def known_prices(view: ZoneView, intervals: Iterable[int]) -> dict[int, Fraction]:
    """Return the final price of each interval, or the expected one where it is not decided [currency/kWh].

    An interval whose price was withheld, or is too old to be in the view, has none.
    """
    recent, found = view.prices, {}
    for n in intervals:
        price = recent.get(n)
        if price is not None and price.ticks is not None:
            found[n] = price.ticks * price.tick
        elif view.is_expected(n):
            found[n] = view.expected_ticks(n) * view.tick
    return found


def price_level(price: Fraction, mean: Fraction, distance: Fraction) -> PriceLevel:
    """Return the level of a price that is cheap or dear at some distance from the mean of its day.

    >>> [price_level(Fraction(price), Fraction(100), Fraction(10)).value for price in (90, 91, 109, 110)]
    ['cheap', 'normal', 'normal', 'dear']
    """
    if price == mean or abs(price - mean) < distance:
        return PriceLevel.NORMAL
    return PriceLevel.CHEAP if price < mean else PriceLevel.DEAR


def day_levels(view: ZoneView, intervals: range) -> DayLevels:
    """Return the levels of the prices of a day, final or expected."""
    prices = known_prices(view, intervals)
    mean = sum(prices.values(), Fraction(0)) / max(len(prices), 1)
    distance = LEVEL_DISTANCE * abs(mean)
    return DayLevels(prices, mean, {n: price_level(price, mean, distance) for n, price in prices.items()})


def windows_ahead(view: ZoneView, at: int) -> tuple[WindowPair, ...]:
    """Return the cheapest and the dearest hours of the 24 that follow the interval `at`; of equal ones the first."""
    ahead = range(at + 1, at + 1 + SECONDS_PER_DAY // view.interval_s)
    prices = known_prices(view, ahead)
    unit = lcm(*(price.denominator for price in prices.values()))
    pairs = []
    for hours in WINDOW_HOURS:
        count, rest = divmod(hours * _SECONDS_PER_HOUR, view.interval_s)
        sums = {} if rest else _window_sums(prices, ahead, count, unit)
        if sums:
            ends = min(sums, key=sums.__getitem__), max(sums, key=sums.__getitem__)
            cheapest, dearest = (
                PriceWindow(
                    range(first, first + count),
                    Fraction(sums[first], unit * count),
                    is_final=first + count - 1 <= view.last_decided,
                )
                for first in ends
            )
            pairs.append(WindowPair(hours, cheapest, dearest))
    return tuple(pairs)


def _window_sums(prices: Mapping[int, Fraction], ahead: range, count: int, unit: int) -> dict[int, int]:
    """Return the sum of each run of `count` intervals that all have a price, by its first interval, times `unit`."""
    own = (prices.get(n, Fraction(0)) for n in ahead)
    sums = [0, *accumulate(price.numerator * (unit // price.denominator) for price in own)]
    missing = [0, *accumulate(n not in prices for n in ahead)]
    return {
        n: sums[k + count] - sums[k]
        for k, n in enumerate(ahead[: len(ahead) - count + 1])
        if missing[k + count] == missing[k]
    }
