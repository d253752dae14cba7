"""What an operator promises, in words that a resident can read and a plan can prove.

interval: 0.5                        each interval on its own costs a household at most epsilon 0.5
any 24 h: epsilon 1, delta 1e-6      any stretch of 24 hours, for ever, costs at most (1, 1e-6)
any moment, habits known: 1          all prices, past and future, tell at most 1 about one moment to somebody who knows
                                     the household's habits already (prices may teach those; a window bounds how much)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from murmurate.errors import PrivacyError
from murmurate.quantities import fraction

_NUMBER = r"([0-9][0-9.eE/+-]*)"
_INTERVAL = re.compile(rf"interval:\s*(?:epsilon\s*)?{_NUMBER}")
_MOMENT = re.compile(rf"any moment(?:,\s*habits known)?:\s*(?:leakage\s*)?{_NUMBER}")
_WINDOW = re.compile(
    rf"any\s+{_NUMBER}\s*(h|hours?|d|days?|intervals?):\s*epsilon\s*{_NUMBER}(?:,\s*delta\s*{_NUMBER})?"
)
FORMS = '"interval: 0.5", "any 24 h: epsilon 1, delta 1e-6" or "any moment, habits known: 1"'


@dataclass(frozen=True, slots=True)
class IntervalPromise:
    """Each interval on its own: epsilon."""

    epsilon: Fraction

    def __str__(self) -> str:
        return f"interval: {float(self.epsilon):g}"


@dataclass(frozen=True, slots=True)
class WindowPromise:
    """Any `intervals` successive intervals, for ever: (epsilon, delta)."""

    intervals: int
    epsilon: Fraction
    delta: Fraction
    words: str

    def __str__(self) -> str:
        delta = f", delta {float(self.delta):g}" if self.delta else ""
        return f"any {self.words}: epsilon {float(self.epsilon):g}{delta}"


@dataclass(frozen=True, slots=True)
class MomentPromise:
    """One moment's occupancy under all releases, past and future, given the household's habits: leakage.

    Posterior odds of the moment, given the prices and the habits, are within e^leakage of the odds given the habits
    alone. Who does not know the habits learns them from prices over months, and through them about a moment as well:
    that is bounded by windows, not by this.
    """

    leakage: Fraction

    def __str__(self) -> str:
        return f"any moment, habits known: {float(self.leakage):g}"


Promise = IntervalPromise | WindowPromise | MomentPromise


class Habits(NamedTuple):
    """The largest chance that somebody is right who guesses between two habits from `days` of prices, 0.5 before."""

    days: int
    any_habits: float  # whatever the two habits are
    home_by_day: float  # home from 08:00 to 16:00 every day, or away then, and otherwise alike


def parse_promise(text: str, intervals_per_day: int) -> Promise:
    """Read one promise.

    >>> str(parse_promise("any 24 h: epsilon 1, delta 1e-6", 96)), parse_promise("any 6 hours: epsilon 1", 96).intervals
    ('any 24 h: epsilon 1, delta 1e-06', 24)
    """
    words = text.strip()
    if found := _INTERVAL.fullmatch(words):
        return IntervalPromise(_positive(found[1], "epsilon"))
    if found := _MOMENT.fullmatch(words):
        return MomentPromise(_positive(found[1], "leakage"))
    if found := _WINDOW.fullmatch(words):
        length, unit, epsilon, delta = found.groups()
        per_unit = {"h": Fraction(intervals_per_day, 24), "d": Fraction(intervals_per_day), "i": Fraction(1)}[unit[0]]
        intervals = fraction(length, "window") * per_unit
        if intervals.denominator != 1 or intervals < 1:
            raise PrivacyError("promise", repr(text), "the window must be a whole number of intervals")
        tolerance = Fraction(0) if delta is None else _positive(delta, "delta")
        if tolerance and not Fraction(1, 10**12) <= tolerance < 1:
            raise PrivacyError("delta", delta, "must lie between 1e-12 and 1, for example 1e-6")
        return WindowPromise(int(intervals), _positive(epsilon, "epsilon"), tolerance, f"{length} {unit}")
    raise PrivacyError("promise", repr(text), f"must read like {FORMS}")


def _positive(text: str, field: str) -> Fraction:
    value = fraction(text, field)
    if value <= 0:
        raise PrivacyError(field, text, "must be positive")
    return value
