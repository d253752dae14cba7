"""The promise of a plan in words, with the plan's own numbers: how often a guess about a household is right at most.

Every number is rounded against the operator, so that a page never claims more than the plan proves.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import zip_longest
from math import ceil
from typing import NamedTuple

from murmurate.errors import MurmurateError
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.privacy.guess_bound import max_guess_probability, round_up_percent
from murmurate.privacy.promise import (
    HabitGuessBound,
    IntervalPromise,
    MomentPromise,
    Promise,
    WindowPromise,
    parse_promise,
)
from murmurate.service.public_api.pages.language import Language
from murmurate.units import SECONDS_PER_DAY

_TEXT_PRECISION = Fraction(1, 100_000)  # the text of a promise has six digits; what it leaves out counts in full
_AFTER = {1: "promise.after_day", 7: "promise.after_week", 365: "promise.after_year"}
_MICRO = 1_000_000
_NOTHING = "–"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class StatedPromise(NamedTuple):
    """A promise of a plan, and what its noise costs of it."""

    text: str
    promise: Promise | None  # none: it is stated in other words
    spent: float | None = None


class PromiseRow(NamedTuple):
    """A line of the table of promises."""

    scope: str
    guesses: str  # [%] that are right at most
    promised: str
    spent: str
    holds: str  # for how long


def stated_promises(terms: ReleaseTerms) -> list[StatedPromise]:
    """Return the promises of a plan: stretches of time first, the shortest one before the others."""
    found = [
        StatedPromise(text, _parse(text, len(terms.scale_wh)), spent)
        for text, spent in zip_longest(terms.promises, terms.spent[: len(terms.promises)])
    ]
    order = (WindowPromise, MomentPromise, IntervalPromise, type(None))
    return sorted(found, key=lambda one: (order.index(type(one.promise)), getattr(one.promise, "intervals", 0)))


def _parse(text: str, intervals_per_day: int) -> Promise | None:
    try:
        return parse_promise(text, intervals_per_day)
    except MurmurateError:
        return None


def promise_sentences(terms: ReleaseTerms, language: Language) -> list[str]:
    """Return each promise as one sentence for a resident. One in other words is shown as it is."""
    return [_sentence(stated, terms, language) for stated in stated_promises(terms)]


def _sentence(stated: StatedPromise, terms: ReleaseTerms, language: Language) -> str:
    match stated.promise:
        case WindowPromise(intervals=intervals) as promise:
            duration = format_length(intervals * terms.interval_s, language)
            return language.text("promise.window", duration=duration, odds=format_odds(promise))
        case MomentPromise() as promise:
            return language.text("promise.moment", odds=format_odds(promise))
        case IntervalPromise() as promise:
            return language.text("promise.interval", odds=format_odds(promise))
    return stated.text


def guess_percent(promise: Promise, digits: int = 0) -> Fraction:
    """Return how many of 100 guesses between two equal chances are right at most, rounded up."""
    epsilon = promise.leakage if isinstance(promise, MomentPromise) else promise.epsilon
    delta = promise.delta if isinstance(promise, WindowPromise) else Fraction(0)
    widened = 1 + _TEXT_PRECISION
    return round_up_percent(max_guess_probability(epsilon * widened, delta * widened), digits)


def format_odds(promise: Promise) -> str:
    """Return what 50:50 becomes at worst.

    >>> format_odds(IntervalPromise(Fraction(1))), format_odds(MomentPromise(Fraction(50)))
    ('74:26', '100:0')
    """
    right = int(guess_percent(promise))
    return f"{right}:{100 - right}"


def habits_sentence(terms: ReleaseTerms, language: Language) -> str | None:
    """Return how many of 100 guesses about habits are right at most; None: the plan does not bound it."""
    if not terms.habits:
        return None
    bounds = [
        language.plain("promise.habits_after", count=ceil(100 * bound.home_by_day), time=_time_after(bound, language))
        for bound in terms.habits
    ]
    *rest, last = bounds
    listed = ", ".join(rest) + language.plain("promise.and") + last if rest else last
    return language.text("promise.habits", bounds=listed)


def _time_after(bound: HabitGuessBound, language: Language) -> str:
    key = _AFTER.get(bound.days)
    return language.plain("promise.after_days", count=bound.days) if key is None else language.plain(key)


def format_length(seconds: int, language: Language) -> str:
    """Return a stretch of time in the largest unit of which it has at least two."""
    for key, unit_s in (("promise.days", SECONDS_PER_DAY), ("promise.hours", 3600)):
        if seconds % unit_s == 0 and seconds >= 2 * unit_s:
            return language.plain(key, count=seconds // unit_s)
    return language.plain("promise.minutes", count=seconds // 60)


def promise_rows(terms: ReleaseTerms, language: Language) -> list[PromiseRow]:
    """Return the table of promises: of one price, of stretches of time, for ever, and about habits."""
    stated = [one for one in stated_promises(terms) if one.promise is not None]
    rows = [_promise_row(one.promise, one.spent, terms, language) for one in stated if one.promise is not None]
    if not any(isinstance(one.promise, IntervalPromise) for one in stated):
        rows = [*_price_row(terms, language), *rows]
    return [*rows, *_habit_rows(terms, language)]


def _promise_row(promise: Promise, spent: float | None, terms: ReleaseTerms, language: Language) -> PromiseRow:
    epsilon = promise.leakage if isinstance(promise, MomentPromise) else promise.epsilon
    number = f"ε = {_format_small(epsilon, language)}"
    if isinstance(promise, WindowPromise):
        duration = format_length(promise.intervals * terms.interval_s, language)
        scope, holds = language.text("plan.scope_window", duration=duration), language.text("plan.holds_ever")
        number += f", δ = {_format_small(promise.delta, language)}" if promise.delta else ""
    elif isinstance(promise, MomentPromise):
        scope, holds = language.text("plan.scope_moment"), language.text("plan.holds_model")
    else:
        scope, holds = language.text("plan.scope_interval"), language.text("plan.holds_price")
    return PromiseRow(
        scope=scope,
        guesses=language.decimal(f"{float(guess_percent(promise, 1)):.1f}"),
        promised=number,
        spent=_NOTHING if spent is None else _format_spent(Fraction(spent), language),
        holds=holds,
    )


def _price_row(terms: ReleaseTerms, language: Language) -> Iterator[PromiseRow]:
    """What one price tells at most, where the plan promises nothing about one and its noise bounds it."""
    spent = Fraction(int(terms.epsilon_micro.max()), _MICRO)
    if spent and not terms.rho_micro.any():
        guesses = round_up_percent(max_guess_probability(spent), 1)
        yield PromiseRow(
            scope=language.text("plan.scope_interval"),
            guesses=language.decimal(f"{float(guesses):.1f}"),
            promised=_NOTHING,
            spent=_format_spent(spent, language),
            holds=language.text("plan.holds_price"),
        )


def _habit_rows(terms: ReleaseTerms, language: Language) -> Iterator[PromiseRow]:
    for bound in terms.habits:
        yield PromiseRow(
            scope=language.text("plan.scope_habits", time=_time_after(bound, language)),
            guesses=language.decimal(f"{float(round_up_percent(Fraction(bound.home_by_day), 1)):.1f}"),
            promised=_NOTHING,
            spent=_NOTHING,
            holds="",
        )


def _format_small(value: Fraction, language: Language) -> str:
    """A number to six digits, a small one with a power of ten.

    >>> from murmurate.service.public_api.pages.language import GERMAN
    >>> _format_small(Fraction(1, 10**6), GERMAN), _format_small(Fraction("2.5e-7"), GERMAN)
    ('10⁻⁶', '2,5·10⁻⁷')
    """
    digits, _, power = f"{float(value):g}".partition("e")
    if not power:
        return language.decimal(digits)
    factor = "" if digits == "1" else f"{language.decimal(digits)}·"
    return f"{factor}10{str(int(power)).translate(_SUPERSCRIPTS)}"


def _format_spent(spent: Fraction, language: Language) -> str:
    """A cost, rounded up to four digits after the point."""
    return language.decimal(f"ε = {ceil(spent * 10_000) / 10_000:g}")
