"""The privacy guarantees (promises) of an operator, as text that a resident can read and a plan can prove.

A promise also bounds how often an observer guesses right between two secrets that are equally likely before.

interval: 0.5                        each interval alone costs a household at most epsilon 0.5
any 24 h: epsilon 1, delta 1e-6      any 24 successive hours cost at most (1, 1e-6)
any moment, habits known: 1          all prices, past and future, leak at most 1 about one moment to an attacker who
                                     knows the household's habits (a window promise bounds the leakage about habits)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from murmurate.errors import PrivacyError
from murmurate.units import parse_fraction

_NUMBER_PATTERN = r"([0-9][0-9.eE/+-]*)"
_INTERVAL_PROMISE_PATTERN = re.compile(rf"interval:\s*(?:epsilon\s*)?{_NUMBER_PATTERN}")
_MOMENT_PROMISE_PATTERN = re.compile(rf"any moment(?:,\s*habits known)?:\s*(?:leakage\s*)?{_NUMBER_PATTERN}")
_WINDOW_PROMISE_PATTERN = re.compile(
    rf"any\s+{_NUMBER_PATTERN}\s*(h|hours?|d|days?|intervals?):\s*epsilon\s*{_NUMBER_PATTERN}(?:,\s*delta\s*{_NUMBER_PATTERN})?"
)
_MAX_GUESS_EPSILON = 40  # above, the bound is 1 to 17 digits
_MIN_EXP_TERMS = 24
PROMISE_EXAMPLES = '"interval: 0.5", "any 24 h: epsilon 1, delta 1e-6" or "any moment, habits known: 1"'


@dataclass(frozen=True, slots=True)
class IntervalPromise:
    """Each interval on its own: epsilon."""

    epsilon: Fraction

    def __str__(self) -> str:
        return f"interval: {float(self.epsilon):g}"


@dataclass(frozen=True, slots=True)
class WindowPromise:
    """Any `intervals` successive intervals, at any time: (epsilon, delta)."""

    intervals: int
    epsilon: Fraction
    delta: Fraction
    duration: str

    def __str__(self) -> str:
        delta = f", delta {float(self.delta):g}" if self.delta else ""
        return f"any {self.duration}: epsilon {float(self.epsilon):g}{delta}"


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


def promise_epsilon(promise: Promise) -> Fraction:
    """Return the epsilon of a promise; of a moment it is the leakage."""
    return promise.leakage if isinstance(promise, MomentPromise) else promise.epsilon


class HabitGuessBound(NamedTuple):
    """The largest probability of a right guess between two habits from `days` of prices; without prices it is 0.5."""

    days: int
    any_habits: float  # between any two habits
    home_by_day: float  # home from 08:00 to 16:00 every day, or away then, and otherwise alike


class AbsenceGuessBound(NamedTuple):
    """The largest probability of a right guess whether a household was away for all of `days`, or there throughout."""

    days: int
    right_guesses: float  # without prices it is 0.5


def parse_promise(text: str, intervals_per_day: int) -> Promise:
    """Return the promise that a text states: of one interval, of any window, or of any moment.

    - `interval: 0.5`: each interval on its own costs a household at most epsilon 0.5.
    - `any 24 h: epsilon 1, delta 1e-6`: any 24 hours in a row cost at most (1, 1e-6). `h`, `d` and
      `intervals` are units of the window. Without a delta the promise is pure.
    - `any moment, habits known: 1`: all prices together change the log-odds of one moment by at most 1 for a reader who
      knows the habits of the household.

    Args:
        text: The promise in words.
        intervals_per_day: Number of intervals of a day, which gives the window its length.

    Returns:
        An `IntervalPromise` (epsilon), a `WindowPromise` (intervals, epsilon, delta) or a `MomentPromise` (leakage).
        All numbers are exact fractions without unit.

    Raises:
        PrivacyError: The text has another form, a number is not positive, the window is not a whole number of
            intervals, or delta is not between 1e-12 and 1.

    Example:
        >>> import murmurate as mm
        >>> promise = mm.parse_promise("any 6 hours: epsilon 1, delta 1e-6", intervals_per_day=96)
        >>> promise.intervals, promise.epsilon, str(promise)
        (24, Fraction(1, 1), 'any 6 hours: epsilon 1, delta 1e-06')
    """
    stripped = text.strip()
    if match := _INTERVAL_PROMISE_PATTERN.fullmatch(stripped):
        return IntervalPromise(_positive_fraction(match[1], "epsilon"))
    if match := _MOMENT_PROMISE_PATTERN.fullmatch(stripped):
        return MomentPromise(_positive_fraction(match[1], "leakage"))
    if match := _WINDOW_PROMISE_PATTERN.fullmatch(stripped):
        length, unit, epsilon, delta = match.groups()
        per_unit = {"h": Fraction(intervals_per_day, 24), "d": Fraction(intervals_per_day), "i": Fraction(1)}[unit[0]]
        intervals = parse_fraction(length, "window") * per_unit
        if intervals.denominator != 1 or intervals < 1:
            raise PrivacyError("promise", repr(text), "the window must be a whole number of intervals")
        tolerance = Fraction(0) if delta is None else _positive_fraction(delta, "delta")
        if tolerance and not Fraction(1, 10**12) <= tolerance < 1:
            raise PrivacyError("delta", delta, "must lie between 1e-12 and 1, for example 1e-6")
        return WindowPromise(int(intervals), _positive_fraction(epsilon, "epsilon"), tolerance, f"{length} {unit}")
    raise PrivacyError("promise", repr(text), f"must read like {PROMISE_EXAMPLES}")


def _positive_fraction(text: str, field: str) -> Fraction:
    value = parse_fraction(text, field)
    if value <= 0:
        raise PrivacyError(field, text, "must be positive")
    return value


def max_guess_probability(epsilon: Fraction, delta: Fraction = Fraction(0)) -> Fraction:
    """Return an upper bound, exact to 15 digits, of the probability of a right guess between two equal chances.

    A test with error probabilities a and b against an (epsilon, delta) private release has

        a + e^epsilon b >= 1 - delta    and    e^epsilon a + b >= 1 - delta

    (Wasserman and Zhou 2010, Kairouz, Oh and Viswanath 2015), so a + b >= 2 (1 - delta)/(1 + e^epsilon). The guess is
    right with probability 1 - (a + b)/2, which is at most (e^epsilon + delta)/(1 + e^epsilon).

    >>> float(max_guess_probability(Fraction(1))), float(max_guess_probability(Fraction(0)))
    (0.7310585786300049, 0.5)
    """
    if epsilon >= _MAX_GUESS_EPSILON or delta >= 1:
        return Fraction(1)
    x = max(epsilon, Fraction(0))
    count = _MIN_EXP_TERMS + 4 * ceil(x)
    term = odds = Fraction(1)
    for n in range(1, count):
        term *= x / n
        odds += term
    odds += term * x / count / (1 - x / (count + 1))  # above e^x: a geometric series above what the sum leaves out
    return (odds + delta) / (1 + odds)


def round_up_percent(probability: Fraction, digits: int = 0) -> Fraction:
    """Return a probability in percent, rounded up to `digits` decimals: never better than what is proven.

    >>> round_up_percent(Fraction(1, 2)), round_up_percent(Fraction(7311, 10_000))
    (Fraction(50, 1), Fraction(74, 1))
    """
    unit = 10**digits
    return min(Fraction(100), Fraction(ceil(100 * unit * probability), unit))
