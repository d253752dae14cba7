"""Statistics that find memory in readings whose scores should be independent over time. Proofs: `law_test.md`.

Arrays are [household, interval]. Each function returns, for each lag, whether memory was found: in all households
together, or in a single one. A level l bounds the chance of each one-sided error by e^(-l), for any number of readings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import lambertw

from murmurate.quantities import BoolArray, FloatArray, IntArray

_SQRT3 = np.sqrt(3.0)
_BLOCK = 256  # households whose products with all others are held at once
_NOTHING = 1e-6  # sums of whole numbers by Fourier transform are off by less
Found = Callable[..., BoolArray]
Numbers = FloatArray | np.float64


class Levels(NamedTuple):
    """-log of the chance of one false alarm, for statistics of all households together and of a single one."""

    pooled: float
    single: float


def make_scores(uniform: FloatArray, occupied: BoolArray, *, laws_known: bool) -> tuple[FloatArray, FloatArray]:
    """Place and distance from the middle, each uniform with mean 0 and variance 1 if `uniform` is uniform on 0..1.

    Where the laws are known up to a share only, scores are standardised within each household and state.
    """
    centred = 2 * uniform - 1
    scores = (centred * _SQRT3, (2 * np.abs(centred) - 1) * _SQRT3)
    return scores if laws_known else (_standardise(scores[0], occupied), _standardise(scores[1], occupied))


def _standardise(score: FloatArray, occupied: BoolArray) -> FloatArray:
    done = np.zeros_like(score)
    for state in (occupied, ~occupied):
        count = np.maximum(state.sum(axis=1, keepdims=True), 1)
        centred = np.where(state, score - (score * state).sum(axis=1, keepdims=True) / count, 0.0)
        spread = np.sqrt((centred**2).sum(axis=1, keepdims=True) / count)
        done += np.where(spread > _NOTHING, centred / np.maximum(spread, _NOTHING), 0.0)
    return done


def lagged_sums(now: FloatArray | BoolArray, before: FloatArray | BoolArray, lags: int) -> FloatArray:
    """Sum over t of now[t] before[t - k], for k = 1 to `lags` [household, lag].

    >>> lagged_sums(np.array([[1.0, 2.0, 4.0]]), np.array([[1.0, 2.0, 4.0]]), 2).round(9).tolist()
    [[10.0, 4.0]]
    """
    size = next_fast_len(now.shape[1] + lags, real=True)
    one, other = (rfft(np.asarray(array, np.float64), size, axis=1) for array in (now, before))
    return np.asarray(irfft(one * other.conj(), size, axis=1)[:, 1 : lags + 1])


def correlated_lags(
    scores: tuple[FloatArray, FloatArray], occupied: BoolArray, lags: int, levels: Levels, *, laws_known: bool
) -> BoolArray:
    """Lags at which scores are correlated with earlier ones: place or distance, with place or distance."""
    found = np.zeros(lags, np.bool_)
    pairs = np.broadcast_to(occupied.shape[1] - np.arange(1, lags + 1.0), (len(occupied), lags))
    same = [lagged_sums(state, state, lags) for state in (occupied, ~occupied)] if not laws_known else []
    for before in scores:
        squares = np.cumsum(before**2, axis=1)[:, -2 : -lags - 2 : -1]
        for now in scores:
            total = lagged_sums(now, before, lags)
            for state, together in zip((occupied, ~occupied), same, strict=False):
                count = state.sum(axis=1)  # centred scores of one state have this expectation over all orders
                total += ((now * before * state).sum(axis=1) / np.maximum(count * (count - 1), 1))[:, None] * together
            found |= _either(_products_found, (total, squares, pairs), levels)
    return found


def _either(found: Found, parts: tuple[FloatArray, ...], levels: Levels) -> BoolArray:
    """Where all households together, or one of them, are beyond their level; `parts` are [household, lag]."""
    pooled = found(*(part.sum(axis=0) for part in parts), levels.pooled)
    single = found(*parts, levels.single)
    return np.asarray(pooled | single.any(axis=0))


def _products_found(total: Numbers, squares: Numbers, pairs: Numbers, level: float) -> BoolArray:
    """|sum of products| > z sqrt(n) (1 + V/n)/2, z = sqrt(2 level), V the sum of squares of the earlier factors."""
    return np.asarray(np.abs(total) > np.sqrt(level * pairs / 2) * (1 + squares / pairs))


class RepeatChance(NamedTuple):
    """The chance that another reading of the same household and state has the same value."""

    of_reading: FloatArray  # [household, interval] as that reading
    usual: FloatArray  # [household, state] as any reading


def repeated_lags(
    energy_wh: IntArray, occupied: BoolArray, chance: RepeatChance, lags: int, levels: Levels
) -> BoolArray:
    """Lags at which a household repeats a reading of the same state more often than chance allows."""
    key = (2 * energy_wh + occupied).astype(np.int32 if energy_wh.max(initial=0) < 2**30 else np.int64)
    repeats = np.empty((len(key), lags))
    for lag in range(1, lags + 1):
        repeats[:, lag - 1] = np.count_nonzero(key[:, lag:] == key[:, :-lag], axis=1)
    expected, planned = np.zeros_like(repeats), np.zeros_like(repeats)
    for state, usual in ((~occupied, chance.usual[:, :1]), (occupied, chance.usual[:, 1:])):
        expected += lagged_sums(state, np.where(state, chance.of_reading, 0.0), lags)
        planned += usual * lagged_sums(state, state, lags)
    return _either(_repeats_found, (repeats, expected, planned), levels)


def _repeats_found(repeats: FloatArray, expected: FloatArray, planned: FloatArray, level: float) -> BoolArray:
    """a N - (e^a - 1) A > level; a is the best for A as planned: e^a (a - 1) + 1 = level/planned."""
    effort = 1 + np.real(lambertw((level / np.maximum(planned, _NOTHING) - 1) / np.e))
    return np.asarray(effort * repeats - np.expm1(effort) * (expected + _NOTHING) > level)


def occupancy_lags(
    scores: tuple[FloatArray, FloatArray], occupied: BoolArray, lags: int, levels: Levels
) -> tuple[BoolArray, BoolArray]:
    """Lags at which scores in one state answer to earlier, and to later, occupancy."""
    later = occupied[:, ::-1], tuple(score[:, ::-1] for score in scores)
    return _answers(scores, occupied, lags, levels), _answers(later[1], later[0], lags, levels)


def _answers(scores: tuple[FloatArray, ...], occupied: BoolArray, lags: int, levels: Levels) -> BoolArray:
    found = np.zeros(lags, np.bool_)
    everywhere = np.ones(occupied.shape)
    for state in (occupied, ~occupied):
        count = np.maximum(np.rint(lagged_sums(state, everywhere, lags)), 1)
        share = np.rint(lagged_sums(state, occupied, lags)) / count
        for score in scores:
            within = np.where(state, score, 0.0)
            total = lagged_sums(within, occupied, lags) - share * lagged_sums(within, everywhere, lags)
            found |= _either(_answers_found, (total, count * share * (1 - share)), levels)
    return found


def _answers_found(total: FloatArray, variance: FloatArray, level: float) -> BoolArray:
    return np.asarray((variance > _NOTHING) & (np.abs(total) > np.sqrt(2 * level * variance)))


def move_together(scores: tuple[FloatArray, FloatArray], levels: Levels) -> bool:
    """Whether scores of different households are correlated at the same time: all of them, or two."""
    households, intervals = scores[0].shape
    found = False
    for score in scores:
        others = np.cumsum(score, axis=0) - score  # of the households before
        pairs = max(intervals * households * (households - 1) / 2, 1.0)
        found |= bool(_products_found(np.sum(score * others), np.sum(others**2), np.float64(pairs), levels.pooled))
        squares = (score**2).sum(axis=1)
        for first in range(0, households, _BLOCK):
            total = np.tril(score[first : first + _BLOCK] @ score.T, first - 1)  # each with those before
            found |= bool(_products_found(total, squares, np.float64(intervals), levels.single).any())
    return found
