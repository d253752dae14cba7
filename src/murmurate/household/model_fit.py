"""The model test: do readings follow the declared distributions, without memory? `exact` and `robust` plans need it.

Under the declared distributions U = F_s(x - 1) + V f_s(x), with V uniform from a seed, is uniform and independent over
households and time, given occupancy. The test detects departures from that. Proofs and limits: `model_fit.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import betainc

from murmurate.errors import ModelError
from murmurate.household.serial_dependence import (
    BonferroniLevels,
    RepeatProbability,
    are_cross_correlated,
    correlated_lags,
    make_scores,
    occupancy_dependent_lags,
    repeated_lags,
)
from murmurate.units import QUARTER_HOURS_PER_DAY, BoolArray, FloatArray, IntArray

SIGNIFICANCE = 0.001  # largest chance that a sample from the declared model fails, over all statistics
MAX_LAG_DAYS = 7
MIN_COMMON_CORRELATION = 0.1  # rank correlation at lag 1 in every household that must be detected
MIN_SINGLE_CORRELATION = 0.3  # the same in a single household
MIN_DISTRIBUTION_SHIFT = 0.1  # misplaced share of a kind's readings in one state that must be detected
_MISS_PROBABILITY = 0.01  # chance to miss any one of these three in a sample of the minimum size
_MISS_Z_SCORE = 2.326348
_PRODUCT_SUM_SPREAD = 1.25  # standard deviation of a sum of products at rank correlation 0.3, relative to that at 0
_BINS = 20


class ModelTestResult(NamedTuple):
    """The result of the test. A plan contains only whether it passed."""

    passed: bool
    sample_large_enough: bool  # whether the sample has the minimum size
    reason: str


class MinSampleSize(NamedTuple):
    """The minimum size of a sample."""

    total_pairs: int  # of successive readings, over all households
    pairs_per_household: int  # of successive readings, in each household
    readings_per_state: int  # of each kind in each state


def consumption_model_test(
    energy_wh: IntArray,
    occupied: BoolArray,
    kind: Sequence[str],
    distributions: Mapping[str, tuple[FloatArray, FloatArray]],
    *,
    day: int = QUARTER_HOURS_PER_DAY,
    eta: float = 0.0,
    seed: int = 0,
) -> ModelTestResult:
    """Test readings [interval, household] with known occupancy against the declared distributions.

    `distributions` maps the kind of a household to (away, home). `eta` is the share by which they may be wrong
    (`robust`); memory is never allowed. Readings above the bound of a kind are clipped to it, as in the demand of a
    zone. `day` is the number of intervals in a day.

    >>> rng = np.random.default_rng(1)
    >>> declared = {"flat": (np.repeat([0.01, 0.0], 100), np.full(200, 0.005))}
    >>> home = rng.random((1200, 8)) < 0.5
    >>> right = np.where(home, rng.integers(0, 200, home.shape), rng.integers(0, 100, home.shape))
    >>> consumption_model_test(right, home, ["flat"] * 8, declared).passed
    True
    >>> consumption_model_test(right[:96], home[:96], ["flat"] * 8, declared).sample_large_enough
    False
    """
    _check_shapes(energy_wh, occupied, kind, distributions)
    names = sorted(set(kind))
    number = np.array([names.index(name) for name in kind], np.int64)
    lags = max(1, min(MAX_LAG_DAYS * day, 3 * len(occupied) // 4))
    levels = bonferroni_levels(len(names), len(kind), lags, min(day, lags))
    small = _too_small(occupied, number, names, min_sample_size(levels))
    if small:
        return ModelTestResult(passed=False, sample_large_enough=False, reason=small)
    state = np.ascontiguousarray(occupied.T)
    pairs = [distributions[name] for name in names]
    clipped, uniform, mass = _probability_transform(energy_wh.T, state, number, pairs, seed)
    wrong = _distribution_mismatch(uniform, mass, state, number, names, levels, eta)
    known = not eta and not wrong  # a wrong distribution must not be reported as memory
    squares = np.array([[pmf @ pmf for pmf in pair] for pair in pairs])[number]
    chance = RepeatProbability(mass, squares) if known else _empirical_repeats(clipped, state)
    scores = make_scores(uniform, state, distributions_known=known)
    memory = _find_dependence(clipped, scores, chance, state, levels, (lags, min(day, lags)), distributions_known=known)
    reason = "; ".join(part for part in (wrong, memory) if part)
    return ModelTestResult(
        passed=not reason,
        sample_large_enough=True,
        reason=reason or "no departure from the declared distributions was found",
    )


def bonferroni_levels(kinds: int, households: int, lags: int, max_occupancy_lag: int) -> BonferroniLevels:
    """Divide SIGNIFICANCE by Bonferroni: half to statistics of all households, half to those of single households.

    One-sided events of each: 8 products and one count of repeats per lag; 16 responses to occupancy per lag up to
    `max_occupancy_lag`; 158 counts of readings per pair of distributions; 4 products for each pair of households, and
    for all pairs together.
    """
    pooled = 9 * lags + 16 * max_occupancy_lag + 158 * kinds + 4
    single = households * (9 * lags + 16 * max_occupancy_lag + 158 + 2 * (households - 1))
    return BonferroniLevels(*(float(np.log(2 * max(events, 1) / SIGNIFICANCE)) for events in (pooled, single)))


def min_sample_size(levels: BonferroniLevels) -> MinSampleSize:
    """Return the minimum size of a sample that detects each of the three MIN_ departures with probability 99 %.

    Pairs: n rho >= (z + 1.25 * 2.33) sqrt(n), z = sqrt(2 level). Readings: by Hoeffding's inequality.
    """
    common, single = (
        ((np.sqrt(2 * level) + _PRODUCT_SUM_SPREAD * _MISS_Z_SCORE) / rho) ** 2
        for level, rho in ((levels.pooled, MIN_COMMON_CORRELATION), (levels.single, MIN_SINGLE_CORRELATION))
    )
    readings = ((np.sqrt(levels.pooled) + np.sqrt(-np.log(_MISS_PROBABILITY))) / MIN_DISTRIBUTION_SHIFT) ** 2 / 2
    return MinSampleSize(*(int(np.ceil(number)) for number in (common, single, readings)))


def _check_shapes(
    energy_wh: IntArray,
    occupied: BoolArray,
    kind: Sequence[str],
    distributions: Mapping[str, tuple[FloatArray, FloatArray]],
) -> None:
    if energy_wh.ndim != 2 or occupied.shape != energy_wh.shape or len(kind) != energy_wh.shape[1]:
        shapes = (energy_wh.shape, occupied.shape, len(kind))
        raise ModelError(
            "sample", shapes, "must be [interval, household] with occupancy, and a kind for each household"
        )
    unknown = sorted(set(kind) - set(distributions))
    if unknown:
        raise ModelError("kind", unknown, f"must be one of {', '.join(sorted(distributions))}")


def _too_small(occupied: BoolArray, number: IntArray, names: Sequence[str], min_size: MinSampleSize) -> str:
    """Return why the sample is below the minimum size, from its shape and its states; empty if it is not."""
    intervals, households = occupied.shape
    if intervals - 1 < min_size.pairs_per_household or (intervals - 1) * households < min_size.total_pairs:
        return (
            f"{intervals} intervals of {households} households are too few: "
            f"each needs {min_size.pairs_per_household + 1} "
            f"intervals, and all together {min_size.total_pairs} pairs of successive ones"
        )
    for place, name in enumerate(names):
        home = int(occupied[:, number == place].sum())
        away = int((number == place).sum()) * intervals - home
        if min(home, away) < min_size.readings_per_state:
            needed = min_size.readings_per_state
            return f"{home} readings at home and {away} away of kind {name!r} are too few: it needs {needed} each"
    return ""


def _probability_transform(
    energy_wh: IntArray,
    occupied: BoolArray,
    number: IntArray,
    distributions: Sequence[tuple[FloatArray, FloatArray]],
    seed: int,
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return clipped readings, their randomised probability transforms U, and their probabilities."""
    clipped, mass = np.zeros(energy_wh.shape, np.int64), np.zeros(energy_wh.shape)
    below = np.zeros(energy_wh.shape)
    for place, (away, home) in enumerate(distributions):
        rows = number == place
        reading = np.clip(energy_wh[rows], 0, len(away) - 1)
        clipped[rows] = reading
        for state, pmf in ((False, away), (True, home)):
            here = rows[:, None] & (occupied == state)
            at = clipped[here]
            mass[here], below[here] = pmf[at], (np.cumsum(pmf) - pmf)[at]
    uniform = below + np.random.default_rng(seed).random(below.shape) * mass
    return clipped, np.clip(uniform, 0.0, np.nextafter(1.0, 0.0)), mass


def _distribution_mismatch(
    uniform: FloatArray,
    mass: FloatArray,
    occupied: BoolArray,
    number: IntArray,
    names: Sequence[str],
    levels: BonferroniLevels,
    eta: float,
) -> str:
    """Return which kind and state does not follow its declared distribution; empty if all do."""
    place = np.where(mass > 0, (uniform * _BINS).astype(np.int64), _BINS)
    for state, label in ((False, "away"), (True, "home")):
        key = np.where(occupied == state, place, _BINS + 1) + (_BINS + 2) * np.arange(len(place))[:, None]
        counts = np.bincount(key.ravel(), minlength=len(place) * (_BINS + 2)).reshape(len(place), -1)[:, : _BINS + 1]
        single = _counts_deviate(counts, eta, levels.single)
        for kind, name in enumerate(names):
            pooled = _counts_deviate(counts[number == kind].sum(axis=0)[None], eta, levels.pooled)
            if pooled.any() or single[number == kind].any():
                return f"readings of kind {name!r} do not follow its distribution {label}"
    return ""


def _counts_deviate(counts: IntArray, eta: float, level: float) -> BoolArray:
    """Whether a set of bins has more or fewer readings than the binomial distribution allows [group].

    Sets: each of 20 bins of equal probability, all bins up to each, and readings of probability 0. A share `eta` of
    readings may lie anywhere.
    """
    total = counts.sum(axis=1, keepdims=True).astype(np.float64)
    sets = np.hstack([counts, np.cumsum(counts[:, : _BINS - 1], axis=1)]).astype(np.float64)
    share = np.hstack([np.full(_BINS, 1 / _BINS), [0.0], np.arange(1, _BINS) / _BINS])
    above = np.where(sets > 0, betainc(np.maximum(sets, 1), total - sets + 1, (1 - eta) * share + eta), 1.0)
    lower = betainc(np.maximum(total - sets, 1), sets + 1, 1 - (1 - eta) * share)
    below = np.where(sets < total, lower, 1.0)
    return np.asarray((np.minimum(above, below) < np.exp(-level)).any(axis=1))


def _find_dependence(
    energy_wh: IntArray,
    scores: tuple[FloatArray, FloatArray],
    chance: RepeatProbability,
    occupied: BoolArray,
    levels: BonferroniLevels,
    max_lags: tuple[int, int],
    *,
    distributions_known: bool,
) -> str:
    """Return the dependence of readings on other intervals; empty if the test found none."""
    past, future = occupancy_dependent_lags(scores, occupied, max_lags[1], levels)
    if future.any() and not past.any():
        return f"readings depend on the occupancy {int(future.argmax()) + 1} intervals later"
    for lags, label in (
        (past, "depend on the occupancy"),
        (
            correlated_lags(scores, occupied, max_lags[0], levels, distributions_known=distributions_known),
            "are correlated with those",
        ),
        (repeated_lags(energy_wh, occupied, chance, max_lags[0], levels), "repeat those"),
    ):
        if lags.any():
            return f"memory was found: readings {label} {int(lags.argmax()) + 1} intervals before"
    return "readings of different households are correlated" if are_cross_correlated(scores, levels) else ""


def _empirical_repeats(energy_wh: IntArray, occupied: BoolArray) -> RepeatProbability:
    """Return the share of a household's other readings in the same state that have the same value."""
    key = (energy_wh * 2 + occupied) * len(energy_wh) + np.arange(len(energy_wh))[:, None]
    _, inverse, equal_count = np.unique(key, return_inverse=True, return_counts=True)
    home = occupied.sum(axis=1, keepdims=True)
    counts = np.hstack([occupied.shape[1] - home, home])
    other_readings = np.take_along_axis(counts, occupied.astype(np.int64), axis=1) - 1
    share = (equal_count[inverse.reshape(key.shape)] - 1) / np.maximum(other_readings, 1)
    usual = [np.where(occupied == state, share, 0.0).sum(axis=1) for state in (False, True)]
    return RepeatProbability(share, np.stack(usual, axis=1) / np.maximum(counts, 1))
