"""Do readings follow the declared laws, without memory? A test that `exact` and `robust` plans must pass.

Under the declared laws U = F_s(x - 1) + V f_s(x), with V uniform from a seed, is uniform and independent over
households and time, given occupancy. The test looks for any departure from that. Proofs and limits: `law_test.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import betainc

from murmurate.errors import ModelError
from murmurate.household.memory import (
    Levels,
    RepeatChance,
    correlated_lags,
    make_scores,
    move_together,
    occupancy_lags,
    repeated_lags,
)
from murmurate.quantities import QUARTER_HOURS_PER_DAY, BoolArray, FloatArray, IntArray

SIGNIFICANCE = 0.001  # a sample that follows its laws fails with at most this chance, all statistics together
MAX_LAG_DAYS = 7
MIN_COMMON_CORRELATION = 0.1  # rank correlation at lag 1 in every household that must be seen
MIN_SINGLE_CORRELATION = 0.3  # the same in one household alone
MIN_LAW_SHIFT = 0.1  # share of a kind's readings in one state that must be seen in the wrong place
_MISSED = 0.01  # chance to miss any one of these three in a sample of the least size
_Z_MISSED = 2.326348
_SPREAD = 1.25  # standard deviation of a sum of products with a rank correlation up to 0.3, over that without
_BINS = 20


class LawTest(NamedTuple):
    """The result of the test. Only whether it passed goes into a plan."""

    passed: bool
    enough: bool  # whether the sample is large enough to see what it must see
    reason: str


class LeastSize(NamedTuple):
    """What a sample must have to be tested."""

    pairs: int  # of successive readings, over all households
    pairs_of_one: int  # of successive readings, in each household
    readings: int  # of each kind in each state


def law_test(
    energy_wh: IntArray,
    occupied: BoolArray,
    kind: Sequence[str],
    laws: Mapping[str, tuple[FloatArray, FloatArray]],
    *,
    day: int = QUARTER_HOURS_PER_DAY,
    eta: float = 0.0,
    seed: int = 0,
) -> LawTest:
    """Test readings [interval, household] with known occupancy against the laws (away, home) of each household's kind.

    `eta` is the share by which the laws may be wrong (`robust`); it excuses no memory. Readings above the bound of a
    kind count as the bound, as they do in a zone's demand. `day` is the number of intervals in a day.

    >>> rng = np.random.default_rng(1)
    >>> laws = {"flat": (np.repeat([0.01, 0.0], 100), np.full(200, 0.005))}
    >>> home = rng.random((1200, 8)) < 0.5
    >>> right = np.where(home, rng.integers(0, 200, home.shape), rng.integers(0, 100, home.shape))
    >>> law_test(right, home, ["flat"] * 8, laws).passed
    True
    >>> law_test(right[:96], home[:96], ["flat"] * 8, laws).enough
    False
    """
    _refuse_shapes(energy_wh, occupied, kind, laws)
    names = sorted(set(kind))
    number = np.array([names.index(name) for name in kind], np.int64)
    lags = max(1, min(MAX_LAG_DAYS * day, 3 * len(occupied) // 4))
    levels = make_levels(len(names), len(kind), lags, min(day, lags))
    small = _too_small(occupied, number, names, least_size(levels))
    if small:
        return LawTest(passed=False, enough=False, reason=small)
    state = np.ascontiguousarray(occupied.T)
    pairs = [laws[name] for name in names]
    clipped, uniform, mass = _transform(energy_wh.T, state, number, pairs, seed)
    wrong = _wrong_law(uniform, mass, state, number, names, levels, eta)
    known = not eta and not wrong  # a wrong law must not be taken for memory
    squares = np.array([[law @ law for law in pair] for pair in pairs])[number]
    chance = RepeatChance(mass, squares) if known else _own_chance(clipped, state)
    scores = make_scores(uniform, state, laws_known=known)
    memory = _memory(clipped, scores, chance, state, levels, (lags, min(day, lags)), laws_known=known)
    reason = "; ".join(words for words in (wrong, memory) if words)
    return LawTest(passed=not reason, enough=True, reason=reason or "no departure from the declared laws was found")


def make_levels(kinds: int, households: int, lags: int, reach: int) -> Levels:
    """SIGNIFICANCE shared (Bonferroni): half by statistics of all households together, half by those of single ones.

    One-sided events of each: 8 products and one count of repeats a lag; 16 answers to occupancy a lag up to `reach`;
    158 counts of readings for a law pair; 4 products for each pair of households, and for all pairs together.
    """
    pooled = 9 * lags + 16 * reach + 158 * kinds + 4
    single = households * (9 * lags + 16 * reach + 158 + 2 * (households - 1))
    return Levels(*(float(np.log(2 * max(events, 1) / SIGNIFICANCE)) for events in (pooled, single)))


def least_size(levels: Levels) -> LeastSize:
    """The least sample that sees each of the three MIN_ departures with a chance of 99 %.

    Pairs: n rho >= (z + 1.25 * 2.33) sqrt(n), z = sqrt(2 level). Readings: by Hoeffding's inequality.
    """
    common, single = (
        ((np.sqrt(2 * level) + _SPREAD * _Z_MISSED) / rho) ** 2
        for level, rho in ((levels.pooled, MIN_COMMON_CORRELATION), (levels.single, MIN_SINGLE_CORRELATION))
    )
    readings = ((np.sqrt(levels.pooled) + np.sqrt(-np.log(_MISSED))) / MIN_LAW_SHIFT) ** 2 / 2
    return LeastSize(*(int(np.ceil(number)) for number in (common, single, readings)))


def _refuse_shapes(
    energy_wh: IntArray, occupied: BoolArray, kind: Sequence[str], laws: Mapping[str, tuple[FloatArray, FloatArray]]
) -> None:
    if energy_wh.ndim != 2 or occupied.shape != energy_wh.shape or len(kind) != energy_wh.shape[1]:
        found = (energy_wh.shape, occupied.shape, len(kind))
        raise ModelError("sample", found, "must be [interval, household] with occupancy, and a kind for each household")
    unknown = sorted(set(kind) - set(laws))
    if unknown:
        raise ModelError("kind", unknown, f"must be one of {', '.join(sorted(laws))}")


def _too_small(occupied: BoolArray, number: IntArray, names: Sequence[str], least: LeastSize) -> str:
    """What is missing for the least power, from the shape of the sample and the states seen; empty if nothing."""
    intervals, households = occupied.shape
    if intervals - 1 < least.pairs_of_one or (intervals - 1) * households < least.pairs:
        return (
            f"{intervals} intervals of {households} households are too few: each needs {least.pairs_of_one + 1} "
            f"intervals, and all together {least.pairs} pairs of successive ones"
        )
    for place, name in enumerate(names):
        home = int(occupied[:, number == place].sum())
        away = int((number == place).sum()) * intervals - home
        if min(home, away) < least.readings:
            return (
                f"{home} readings at home and {away} away of kind {name!r} are too few: it needs {least.readings} each"
            )
    return ""


def _transform(
    energy_wh: IntArray,
    occupied: BoolArray,
    number: IntArray,
    laws: Sequence[tuple[FloatArray, FloatArray]],
    seed: int,
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Clipped readings, their randomised places U in the law of their state, and their probabilities."""
    clipped, mass = np.zeros(energy_wh.shape, np.int64), np.zeros(energy_wh.shape)
    below = np.zeros(energy_wh.shape)
    for place, (away, home) in enumerate(laws):
        rows = number == place
        reading = np.clip(energy_wh[rows], 0, len(away) - 1)
        clipped[rows] = reading
        for state, law in ((False, away), (True, home)):
            here = rows[:, None] & (occupied == state)
            at = clipped[here]
            mass[here], below[here] = law[at], (np.cumsum(law) - law)[at]
    uniform = below + np.random.default_rng(seed).random(below.shape) * mass
    return clipped, np.clip(uniform, 0.0, np.nextafter(1.0, 0.0)), mass


def _wrong_law(
    uniform: FloatArray,
    mass: FloatArray,
    occupied: BoolArray,
    number: IntArray,
    names: Sequence[str],
    levels: Levels,
    eta: float,
) -> str:
    """Which kind and state has readings in places that its declared law does not allow; empty if none."""
    place = np.where(mass > 0, (uniform * _BINS).astype(np.int64), _BINS)
    for state, word in ((False, "away"), (True, "home")):
        key = np.where(occupied == state, place, _BINS + 1) + (_BINS + 2) * np.arange(len(place))[:, None]
        counts = np.bincount(key.ravel(), minlength=len(place) * (_BINS + 2)).reshape(len(place), -1)[:, : _BINS + 1]
        single = _counts_wrong(counts, eta, levels.single)
        for kind, name in enumerate(names):
            pooled = _counts_wrong(counts[number == kind].sum(axis=0)[None], eta, levels.pooled)
            if pooled.any() or single[number == kind].any():
                return f"readings of kind {name!r} do not follow its law {word}"
    return ""


def _counts_wrong(counts: IntArray, eta: float, level: float) -> BoolArray:
    """Whether some set of places has more or fewer readings than binomial chance allows [group].

    Sets: each of 20 places of equal probability, all up to each, and readings that the law excludes. A share `eta` of
    readings may lie anywhere.
    """
    total = counts.sum(axis=1, keepdims=True).astype(np.float64)
    sets = np.hstack([counts, np.cumsum(counts[:, : _BINS - 1], axis=1)]).astype(np.float64)
    share = np.hstack([np.full(_BINS, 1 / _BINS), [0.0], np.arange(1, _BINS) / _BINS])
    above = np.where(sets > 0, betainc(np.maximum(sets, 1), total - sets + 1, (1 - eta) * share + eta), 1.0)
    lower = betainc(np.maximum(total - sets, 1), sets + 1, 1 - (1 - eta) * share)
    below = np.where(sets < total, lower, 1.0)
    return np.asarray((np.minimum(above, below) < np.exp(-level)).any(axis=1))


def _memory(
    energy_wh: IntArray,
    scores: tuple[FloatArray, FloatArray],
    chance: RepeatChance,
    occupied: BoolArray,
    levels: Levels,
    reach: tuple[int, int],
    *,
    laws_known: bool,
) -> str:
    """What readings remember beyond the occupancy of their own interval; empty if nothing was found."""
    past, future = occupancy_lags(scores, occupied, reach[1], levels)
    if future.any() and not past.any():
        return f"readings answer to the occupancy {int(future.argmax()) + 1} intervals later"
    for found, words in (
        (past, "answer to the occupancy"),
        (correlated_lags(scores, occupied, reach[0], levels, laws_known=laws_known), "are correlated with those"),
        (repeated_lags(energy_wh, occupied, chance, reach[0], levels), "repeat those"),
    ):
        if found.any():
            return f"memory was found: readings {words} {int(found.argmax()) + 1} intervals before"
    return "readings of different households are correlated" if move_together(scores, levels) else ""


def _own_chance(energy_wh: IntArray, occupied: BoolArray) -> RepeatChance:
    """The share of a household's other readings in the same state that have the same value."""
    key = (energy_wh * 2 + occupied) * len(energy_wh) + np.arange(len(energy_wh))[:, None]
    _, inverse, alike = np.unique(key, return_inverse=True, return_counts=True)
    home = occupied.sum(axis=1, keepdims=True)
    counts = np.hstack([occupied.shape[1] - home, home])
    others = np.take_along_axis(counts, occupied.astype(np.int64), axis=1) - 1
    share = (alike[inverse.reshape(key.shape)] - 1) / np.maximum(others, 1)
    usual = [np.where(occupied == state, share, 0.0).sum(axis=1) for state in (False, True)]
    return RepeatChance(share, np.stack(usual, axis=1) / np.maximum(counts, 1))
