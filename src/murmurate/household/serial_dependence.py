"""Statistics that detect memory in readings. Their scores should be independent over time. Proofs: `model_fit.md`.

Arrays are [household, interval]. Each function returns, for each lag, whether it detects memory: in all households
together, or in a single household. A level l bounds the chance of each one-sided error by e^(-l), for any sample size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import lambertw

from murmurate.units import BoolArray, FloatArray, IntArray

_SQRT3 = np.sqrt(3.0)
_HOUSEHOLDS_PER_BLOCK = 256  # households per block of products with all others
_FFT_TOLERANCE = 1e-6  # upper bound on the error of integer sums by Fourier transform
ThresholdTest = Callable[..., BoolArray]
FloatOrArray = FloatArray | np.float64


class BonferroniLevels(NamedTuple):
    """-log of the chance of one false alarm, for statistics of all households and of a single household."""

    pooled: float
    single: float


def make_scores(
    uniform: FloatArray, occupied: BoolArray, *, distributions_known: bool
) -> tuple[FloatArray, FloatArray]:
    """Return rank and distance from the middle: uniform, mean 0 and variance 1 if `uniform` is uniform on 0..1.

    If the distributions are known only up to a share, scores are standardised within each household and state.
    """
    centred = 2 * uniform - 1
    scores = (centred * _SQRT3, (2 * np.abs(centred) - 1) * _SQRT3)
    return scores if distributions_known else (_standardise(scores[0], occupied), _standardise(scores[1], occupied))


def _standardise(score: FloatArray, occupied: BoolArray) -> FloatArray:
    standardised = np.zeros_like(score)
    for state in (occupied, ~occupied):
        count = np.maximum(state.sum(axis=1, keepdims=True), 1)
        centred = np.where(state, score - (score * state).sum(axis=1, keepdims=True) / count, 0.0)
        spread = np.sqrt((centred**2).sum(axis=1, keepdims=True) / count)
        standardised += np.where(spread > _FFT_TOLERANCE, centred / np.maximum(spread, _FFT_TOLERANCE), 0.0)
    return standardised


def lagged_sums(now: FloatArray | BoolArray, before: FloatArray | BoolArray, lags: int) -> FloatArray:
    """Return the sum over t of now[t] before[t - k], for k = 1 to `lags` [household, lag].

    >>> lagged_sums(np.array([[1.0, 2.0, 4.0]]), np.array([[1.0, 2.0, 4.0]]), 2).round(9).tolist()
    [[10.0, 4.0]]
    """
    size = next_fast_len(now.shape[1] + lags, real=True)
    now_spectrum, before_spectrum = (rfft(np.asarray(array, np.float64), size, axis=1) for array in (now, before))
    return np.asarray(irfft(now_spectrum * before_spectrum.conj(), size, axis=1)[:, 1 : lags + 1])


def correlated_lags(
    scores: tuple[FloatArray, FloatArray],
    occupied: BoolArray,
    lags: int,
    levels: BonferroniLevels,
    *,
    distributions_known: bool,
) -> BoolArray:
    """Return the lags at which scores (rank or distance) are correlated with earlier scores (rank or distance)."""
    correlated = np.zeros(lags, np.bool_)
    pairs = np.broadcast_to(occupied.shape[1] - np.arange(1, lags + 1.0), (len(occupied), lags))
    same = [lagged_sums(state, state, lags) for state in (occupied, ~occupied)] if not distributions_known else []
    for before in scores:
        squares = np.cumsum(before**2, axis=1)[:, -2 : -lags - 2 : -1]
        for now in scores:
            total = lagged_sums(now, before, lags)
            for state, together in zip((occupied, ~occupied), same, strict=False):
                count = state.sum(axis=1)  # centred scores of one state have this expectation over all orders
                total += ((now * before * state).sum(axis=1) / np.maximum(count * (count - 1), 1))[:, None] * together
            correlated |= _pooled_or_single(_products_exceed, (total, squares, pairs), levels)
    return correlated


def _pooled_or_single(exceeds: ThresholdTest, parts: tuple[FloatArray, ...], levels: BonferroniLevels) -> BoolArray:
    """Return where all households together, or one of them, exceed their level. `parts` are [household, lag]."""
    pooled = exceeds(*(part.sum(axis=0) for part in parts), levels.pooled)
    single = exceeds(*parts, levels.single)
    return np.asarray(pooled | single.any(axis=0))


def _products_exceed(total: FloatOrArray, squares: FloatOrArray, pairs: FloatOrArray, level: float) -> BoolArray:
    """|sum of products| > z sqrt(n) (1 + V/n)/2, z = sqrt(2 level), V the sum of squares of the earlier factors."""
    return np.asarray(np.abs(total) > np.sqrt(level * pairs / 2) * (1 + squares / pairs))


class RepeatProbability(NamedTuple):
    """The chance that another reading of the same household and state has the same value."""

    per_reading: FloatArray  # [household, interval] the value of that reading
    mean_per_state: FloatArray  # [household, state] the value of any reading


def repeated_lags(
    energy_wh: IntArray, occupied: BoolArray, probability: RepeatProbability, lags: int, levels: BonferroniLevels
) -> BoolArray:
    """Return the lags at which a household repeats a reading of the same state more often than by chance."""
    key = (2 * energy_wh + occupied).astype(np.int32 if energy_wh.max(initial=0) < 2**30 else np.int64)
    repeats = np.empty((len(key), lags))
    for lag in range(1, lags + 1):
        repeats[:, lag - 1] = np.count_nonzero(key[:, lag:] == key[:, :-lag], axis=1)
    expected, planned = np.zeros_like(repeats), np.zeros_like(repeats)
    for state, usual in ((~occupied, probability.mean_per_state[:, :1]), (occupied, probability.mean_per_state[:, 1:])):
        expected += lagged_sums(state, np.where(state, probability.per_reading, 0.0), lags)
        planned += usual * lagged_sums(state, state, lags)
    return _pooled_or_single(_repeats_exceed, (repeats, expected, planned), levels)


def _repeats_exceed(repeats: FloatArray, expected: FloatArray, planned: FloatArray, level: float) -> BoolArray:
    """a N - (e^a - 1) A > level; a is optimal for the planned A: e^a (a - 1) + 1 = level/planned."""
    effort = 1 + np.real(lambertw((level / np.maximum(planned, _FFT_TOLERANCE) - 1) / np.e))
    return np.asarray(effort * repeats - np.expm1(effort) * (expected + _FFT_TOLERANCE) > level)


def occupancy_dependent_lags(
    scores: tuple[FloatArray, FloatArray], occupied: BoolArray, lags: int, levels: BonferroniLevels
) -> tuple[BoolArray, BoolArray]:
    """Return the lags at which scores in one state depend on earlier occupancy, and on later occupancy."""
    later = occupied[:, ::-1], tuple(score[:, ::-1] for score in scores)
    return _occupancy_dependence(scores, occupied, lags, levels), _occupancy_dependence(
        later[1], later[0], lags, levels
    )


def _occupancy_dependence(
    scores: tuple[FloatArray, ...], occupied: BoolArray, lags: int, levels: BonferroniLevels
) -> BoolArray:
    dependent = np.zeros(lags, np.bool_)
    ones = np.ones(occupied.shape)
    for state in (occupied, ~occupied):
        count = np.maximum(np.rint(lagged_sums(state, ones, lags)), 1)
        share = np.rint(lagged_sums(state, occupied, lags)) / count
        for score in scores:
            within = np.where(state, score, 0.0)
            total = lagged_sums(within, occupied, lags) - share * lagged_sums(within, ones, lags)
            dependent |= _pooled_or_single(_covariance_exceeds, (total, count * share * (1 - share)), levels)
    return dependent


def _covariance_exceeds(total: FloatArray, variance: FloatArray, level: float) -> BoolArray:
    return np.asarray((variance > _FFT_TOLERANCE) & (np.abs(total) > np.sqrt(2 * level * variance)))


def are_cross_correlated(scores: tuple[FloatArray, FloatArray], levels: BonferroniLevels) -> bool:
    """Whether scores of different households in the same interval are correlated: over all pairs, or in one pair."""
    households, intervals = scores[0].shape
    correlated = False
    for score in scores:
        preceding_sum = np.cumsum(score, axis=0) - score  # of the preceding households
        pairs = max(intervals * households * (households - 1) / 2, 1.0)
        correlated |= bool(
            _products_exceed(np.sum(score * preceding_sum), np.sum(preceding_sum**2), np.float64(pairs), levels.pooled)
        )
        squares = (score**2).sum(axis=1)
        for first in range(0, households, _HOUSEHOLDS_PER_BLOCK):
            total = np.tril(
                score[first : first + _HOUSEHOLDS_PER_BLOCK] @ score.T, first - 1
            )  # each with the preceding ones
            correlated |= bool(_products_exceed(total, squares, np.float64(intervals), levels.single).any())
    return correlated
