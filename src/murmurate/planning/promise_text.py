"""The promises of a plan in words, with the plan's own numbers. Pages and `murmurate plan` say what stands here.

`describe_promises` makes every sentence about a promise. Numbers are rounded against the operator: right guesses up to
a whole percent, probabilities and costs up to some digits. So no page claims more than the plan proves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from itertools import zip_longest
from math import ceil
from typing import NamedTuple

from murmurate.errors import MurmurateError
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.privacy.promise import (
    HabitGuessBound,
    IntervalPromise,
    MomentPromise,
    Promise,
    WindowPromise,
    max_guess_probability,
    parse_promise,
    promise_epsilon,
    round_up_percent,
)
from murmurate.translations.language import Language
from murmurate.units import SECONDS_PER_DAY

_TEXT_PRECISION = Fraction(1, 100_000)  # the text of a promise has six digits; what it leaves out counts in full
_AFTER = {1: "promise.after_day", 7: "promise.after_week", 365: "promise.after_year"}
_MICRO = 1_000_000
_NOTHING = "–"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class EarlierPlan(NamedTuple):
    """A plan that was in force before the one that is described."""

    terms: ReleaseTerms
    end: int  # the first interval under the next plan


class PlanChanges(NamedTuple):
    """The recent changes of a zone's plan. A stretch of time across a change keeps the weaker of two promises."""

    earlier: tuple[EarlierPlan, ...] = ()
    now: int = 0  # the interval of the moment at which the promises are read
    format_start: Callable[[int], str] = str  # the local time at which an interval begins


NO_CHANGES = PlanChanges()


class PromiseRow(NamedTuple):
    """A line of the table of promises."""

    scope: str
    guesses: str  # of 100 that are right at most
    promised: str
    spent: str
    holds: str  # for how long


class PromiseText(NamedTuple):
    """All that a page says about the promises of a plan, as plain text."""

    sentences: list[str]  # each promise, for a resident
    beyond: list[str]  # what prices of a longer time tell: about an absence, about habits
    basis: list[str]  # what the promises stand on, and what they hide
    rows: list[PromiseRow]
    notes: list[str]  # about the numbers of the rows
    limits: list[str]  # what is not promised


class _Stated(NamedTuple):
    """A promise of a plan, what its noise costs of it, and how likely it costs more than epsilon."""

    text: str
    promise: Promise | None  # none: it is stated in other words
    spent: float | None
    above_epsilon: float | None
    right_guesses: float | None


def describe_promises(terms: ReleaseTerms, language: Language, changes: PlanChanges = NO_CHANGES) -> PromiseText:
    """Return the promises of a plan in words, stretches of time first, the shortest one before the others.

    A plan that reads no meter promises nothing about prices before it. While those of an earlier plan count, all that
    is said of them stands there too.
    """
    read_before = [number for number, plan in enumerate(changes.earlier) if plan.terms.reads_meters]
    if read_before and not terms.reads_meters:
        last = changes.earlier[read_before[-1]]
        before = describe_promises(last.terms, language, changes._replace(earlier=changes.earlier[: read_before[-1]]))
        note = language.plain("promise.read_before", changed=changes.format_start(last.end))
        return before._replace(sentences=[language.plain("promise.public"), note, *before.sentences])
    stated = _stated_promises(terms)
    has_moment = any(isinstance(one.promise, MomentPromise) for one in stated)
    sentences = [_sentence(one, terms, language, changes) for one in stated]
    notes = list(_notes(stated, terms, language, has_moment=has_moment))
    if not terms.reads_meters:
        sentences = [language.plain("promise.public")]
        notes = [language.plain("promise.public_rows"), language.plain("promise.rounding")]
    return PromiseText(
        sentences=sentences,
        beyond=list(_beyond(terms, language)) if terms.reads_meters else [],
        basis=list(_basis(terms, language, has_moment=has_moment)),
        rows=[*_promise_rows(stated, terms, language, changes), *_noise_rows(terms, language)],
        notes=notes,
        limits=list(_limits(terms, language, has_moment=has_moment)),
    )


def _stated_promises(terms: ReleaseTerms) -> list[_Stated]:
    count = len(terms.promises)
    found = [
        _Stated(text, _parse(text, terms), *numbers)
        for text, *numbers in zip_longest(
            terms.promises, terms.spent[:count], terms.above_epsilon[:count], terms.right_guesses[:count]
        )
    ]
    if not terms.reads_meters:  # nothing is spent, and prices help no guess
        found = [one._replace(spent=0.0, above_epsilon=None, right_guesses=0.5) for one in found]
    order = (WindowPromise, MomentPromise, IntervalPromise, type(None))
    return sorted(found, key=lambda one: (order.index(type(one.promise)), getattr(one.promise, "intervals", 0)))


def _parse(text: str, terms: ReleaseTerms) -> Promise | None:
    try:
        return parse_promise(text, len(terms.scale_wh))
    except MurmurateError:
        return None


def longest_window(terms: ReleaseTerms) -> int:
    """Return the number of intervals of the longest stretch of time that a plan promises something about."""
    windows = [one.promise.intervals for one in _stated_promises(terms) if isinstance(one.promise, WindowPromise)]
    return max(windows, default=0)


def _sentence(stated: _Stated, terms: ReleaseTerms, language: Language, changes: PlanChanges) -> str:
    promise = stated.promise
    if isinstance(promise, WindowPromise):
        duration = format_length(promise.intervals * terms.interval_s, language)
        weaker, moments = _weaker_for_now(promise, changes)
        right = _window_guesses(stated, promise, changes)
        odds = f"{right}:{100 - right}" if weaker is None else format_odds(weaker)
        sentence = language.plain("promise.window", duration=duration, odds=odds)
        if weaker is None:
            return sentence
        return " ".join([sentence, language.plain("promise.changed", odds=format_odds(promise), **moments)])
    if promise is None:
        return stated.text
    key = "promise.moment" if isinstance(promise, MomentPromise) else "promise.interval"
    return " ".join([language.plain(key, odds=format_odds(promise)), *_since(promise, language, changes)])


def _window_guesses(stated: _Stated, promise: WindowPromise, changes: PlanChanges) -> int:
    """Return how many of 100 guesses from the prices of a stretch are right at most, rounded up.

    The noise of a plan gives fewer than its epsilon allows. While a stretch may reach back to an earlier plan, with
    other noise, it is what epsilon allows.
    """
    reading = (plan for plan in changes.earlier if plan.terms.reads_meters)
    reaches_back = any(changes.now < plan.end + promise.intervals - 1 for plan in reading)
    if stated.right_guesses is None or reaches_back:
        return guess_percent(promise)
    return min(guess_percent(promise), _percent(stated.right_guesses))


def _weaker_for_now(promise: WindowPromise, changes: PlanChanges) -> tuple[WindowPromise | None, dict[str, str]]:
    """Return the weakest promise of the same length and delta that a stretch which ends now or later may still have.

    A change is proven for that one (`plan_change`). A plan without such a promise does not weaken it, nor does one that
    reads no meter. The times are when the last such plan was changed, and until when a stretch that ends reaches back
    before that.
    """
    found = [
        (before, plan.end)
        for plan in changes.earlier
        for before in (_parse(text, plan.terms) for text in plan.terms.promises)
        if plan.terms.reads_meters
        and isinstance(before, WindowPromise)
        and (before.intervals, before.delta) == (promise.intervals, promise.delta)
        and before.epsilon > promise.epsilon
        and changes.now < plan.end + promise.intervals - 1
    ]
    if not found:
        return None, {}
    weakest, changed = max((before for before, _ in found), key=promise_epsilon), max(end for _, end in found)
    until = changed + promise.intervals - 1
    return weakest, {"changed": changes.format_start(changed), "until": changes.format_start(until)}


def _since(promise: IntervalPromise | MomentPromise, language: Language, changes: PlanChanges) -> list[str]:
    """Return from when on the promise of one moment or interval counts, if an earlier plan promised less."""
    ends = [
        plan.end
        for plan in changes.earlier
        if not any(
            isinstance(before, type(promise)) and promise_epsilon(before) <= promise_epsilon(promise)
            for before in (_parse(text, plan.terms) for text in plan.terms.promises)
        )
    ]
    return [language.plain("promise.since", changed=changes.format_start(max(ends)))] if ends else []


def guess_percent(promise: Promise) -> int:
    """Return how many of 100 guesses between two equal chances are right at most, rounded up."""
    delta = promise.delta if isinstance(promise, WindowPromise) else Fraction(0)
    widened = 1 + _TEXT_PRECISION
    return int(round_up_percent(max_guess_probability(promise_epsilon(promise) * widened, delta * widened)))


def format_odds(promise: Promise) -> str:
    """Return what 50:50 becomes at worst.

    >>> format_odds(IntervalPromise(Fraction(1))), format_odds(MomentPromise(Fraction(50)))
    ('74:26', '100:0')
    """
    right = guess_percent(promise)
    return f"{right}:{100 - right}"


def _beyond(terms: ReleaseTerms, language: Language) -> Iterator[str]:
    """Yield what prices of a longer time tell about an absence, and about habits where a moment is promised."""
    if terms.absence is not None:
        right = _percent(terms.absence.right_guesses)
        yield language.plain("promise.absence", days=terms.absence.days, odds=f"{right}:{100 - right}")
    if terms.habits:
        bounds = [
            language.plain("promise.habits_after", count=_percent(bound.home_by_day), time=_time_after(bound, language))
            for bound in terms.habits
        ]
        *rest, last = bounds
        listed = ", ".join(rest) + language.plain("promise.and") + last if rest else last
        yield language.plain("promise.habits", bounds=listed)


def _percent(probability: float) -> int:
    return int(round_up_percent(Fraction(probability)))


def _time_after(bound: HabitGuessBound, language: Language) -> str:
    key = _AFTER.get(bound.days)
    return language.plain("promise.after_days", count=bound.days) if key is None else language.plain(key)


def format_length(seconds: int, language: Language) -> str:
    """Return a stretch of time in the largest unit of which it has at least two."""
    for key, unit_s in (("promise.days", SECONDS_PER_DAY), ("promise.hours", 3600)):
        if seconds % unit_s == 0 and seconds >= 2 * unit_s:
            return language.plain(key, count=seconds // unit_s)
    return language.plain("promise.minutes", count=seconds // 60)


def _basis(terms: ReleaseTerms, language: Language, *, has_moment: bool) -> Iterator[str]:
    count = language.whole(sum(kind.count for kind in terms.households))
    is_rounded = any(kind.is_from_table for kind in terms.households)
    public = language.plain("basis.count_rounded" if is_rounded else "basis.count", count=count)
    feeds_in = any(kind.export_bound_wh for kind in terms.households)
    covered = language.plain("basis.net_range" if feeds_in else "basis.range")
    yield f"{covered} {public}" if terms.reads_meters else public
    sample = None if terms.prediction is None else terms.prediction.model.public.sample
    if sample is not None:
        households = language.whole(sample.households)
        epsilon, delta = (_format_number(value, language) for value in (sample.epsilon, sample.delta))
        yield language.plain("basis.sample", households=households, epsilon=epsilon, delta=delta)
    if not has_moment or not terms.reads_meters:
        return
    yield language.plain("basis.moment")
    for habits in terms.learned:
        confidence = Context(prec=4, rounding=ROUND_FLOOR).create_decimal(Decimal(habits.confidence))
        yield language.plain(
            "basis.learned_proven" if habits.proven else "basis.learned_tested",
            name=habits.name,
            households=language.whole(habits.households),
            epsilon=_format_number(habits.epsilon, language),
            confidence=language.decimal(f"{confidence:f}"),
        )


def _promise_rows(
    stated: list[_Stated], terms: ReleaseTerms, language: Language, changes: PlanChanges
) -> Iterator[PromiseRow]:
    """Yield a row for each promise, and one for a release where the plan promises nothing about it."""
    spent_micro = int(terms.epsilon_micro.max())
    if (
        spent_micro
        and terms.reads_meters
        and not terms.rho_micro.any()
        and not any(isinstance(one.promise, IntervalPromise) for one in stated)
    ):
        epsilon = Fraction(spent_micro, _MICRO)  # what one release tells at most; a predicted price is made from many
        right_guesses = str(round_up_percent(max_guess_probability(epsilon)))
        scope, holds = language.plain("promise.scope_release"), language.plain("promise.holds_release")
        yield PromiseRow(scope, right_guesses, _NOTHING, _format_spent(epsilon, language), holds)
    for one in stated:
        promise, spent = one.promise, _format_spent(one.spent, language)
        if promise is None:
            continue
        if isinstance(promise, WindowPromise):
            duration = format_length(promise.intervals * terms.interval_s, language)
            scope, holds = language.plain("promise.scope_window", duration=duration), "promise.holds_ever"
            weaker, moments = _weaker_for_now(promise, changes)
            if weaker is not None:
                until = language.plain("promise.holds_until", **moments)
                yield _row(scope, weaker, guess_percent(weaker), _NOTHING, until, language)
                later = language.plain("promise.holds_from", **moments)
                yield _row(scope, promise, guess_percent(promise), spent, later, language)
                continue
            since, right = [], _window_guesses(one, promise, changes)
        elif isinstance(promise, MomentPromise):
            scope, holds = language.plain("promise.scope_moment"), "promise.holds_model"
        else:
            scope, holds = language.plain("promise.scope_release"), "promise.holds_release"
        if not isinstance(promise, WindowPromise):
            right = guess_percent(promise) if terms.reads_meters else _percent(0.5)
            since = _since(promise, language, changes)
        yield _row(scope, promise, right, spent, " ".join([language.plain(holds), *since]), language)


def _row(scope: str, promise: Promise, right: int, spent: str, holds: str, language: Language) -> PromiseRow:
    promised = f"ε = {_format_number(promise_epsilon(promise), language)}"
    if isinstance(promise, WindowPromise) and promise.delta:
        promised += f", δ = {_format_number(promise.delta, language)}"
    return PromiseRow(scope, str(right), promised, spent, holds)


def _noise_rows(terms: ReleaseTerms, language: Language) -> Iterator[PromiseRow]:
    """Yield what the noise of the plan bounds without a promise: guesses about an absence, and about habits."""
    if not terms.reads_meters:
        return
    holds = language.plain("promise.holds_noise")
    if terms.absence is not None:
        scope = language.plain("promise.scope_absence", days=terms.absence.days)
        yield PromiseRow(scope, str(_percent(terms.absence.right_guesses)), _NOTHING, _NOTHING, holds)
    for bound in terms.habits:
        scope = language.plain("promise.scope_habits", time=_time_after(bound, language))
        yield PromiseRow(scope, str(_percent(bound.home_by_day)), _NOTHING, _NOTHING, holds)


def _notes(stated: list[_Stated], terms: ReleaseTerms, language: Language, *, has_moment: bool) -> Iterator[str]:
    if not has_moment:
        yield language.plain("promise.no_forever")
    for one in stated:
        if isinstance(one.promise, WindowPromise) and one.above_epsilon is not None:
            above = Context(prec=3, rounding=ROUND_CEILING).create_decimal(Decimal(one.above_epsilon))
            yield language.plain(
                "promise.above_epsilon",
                duration=format_length(one.promise.intervals * terms.interval_s, language),
                epsilon=_format_number(one.promise.epsilon, language),
                probability=_format_number(Fraction(above), language),
            )
    yield language.plain("promise.rounding")


def _limits(terms: ReleaseTerms, language: Language, *, has_moment: bool) -> Iterator[str]:
    if not terms.reads_meters:
        yield language.plain("limits.channels_public")
        yield language.plain("limits.general")
        return
    yield language.plain("limits.operator")
    yield language.plain("limits.channels")
    yield language.plain("limits.together")
    if any(kind.public_share for kind in terms.households):
        yield language.plain("limits.public_hours")
    yield language.plain("limits.habits")
    if has_moment:
        yield language.plain("limits.other_hours")
    yield language.plain("limits.general")


def _format_number(value: Fraction, language: Language) -> str:
    """Return a number to six digits, a small one with a power of ten.

    >>> from murmurate.translations.language import GERMAN
    >>> _format_number(Fraction(1, 10**6), GERMAN), _format_number(Fraction("2.5e-7"), GERMAN)
    ('10⁻⁶', '2,5·10⁻⁷')
    """
    digits, _, power = f"{float(value):g}".partition("e")
    if not power:
        return language.decimal(digits)
    factor = "" if digits == "1" else f"{language.decimal(digits)}·"
    return f"{factor}10{str(int(power)).translate(_SUPERSCRIPTS)}"


def _format_spent(spent: Fraction | float | None, language: Language) -> str:
    """Return a cost, rounded up to four digits after the point."""
    return _NOTHING if spent is None else language.decimal(f"ε = {ceil(Fraction(spent) * 10_000) / 10_000:g}")
