"""Search the event that separates two distributions best: proposal, choice and measurement use separate samples.

The samples of each distribution are split. A quarter proposes events, a quarter picks one of them, and the other half
measures the picked event. The measured half is independent of the choice, so the bound holds for any number of
candidates. A candidate is a pair of distributions and a statistic of their outputs, counted into cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from murmurate.errors import MurmurateError
from murmurate.units import BoolArray, FloatArray, IntArray, raise_where

_MAX_CELL_KNOTS = 1024  # largest number of single-value cells, besides the extreme values
_EVENTS_PER_CELL = 10  # five orders of the cells, each in both directions
MIN_AUDIT_SAMPLES = 4  # each part of a split has at least one
_SAMPLE_SPLITS = (
    slice(0, None, 4),
    slice(2, None, 4),
    slice(1, None, 2),
)  # interleaved: a drift changes all three alike


class CellCounts(NamedTuple):
    """The number of outputs in each cell, for each part of the samples [candidate, occupied, cell].

    Index 0 is away, index 1 is home. All candidates of one object have the same number of cells.
    """

    proposing: IntArray
    picking: IntArray
    measuring: IntArray


class EpsilonLowerBound(NamedTuple):
    """A lower bound on epsilon and its candidate."""

    epsilon: float
    counts_index: int  # position of the CellCounts in the input
    candidate_index: int  # position of the candidate in it


def count_values(away: Any, home: Any) -> CellCounts:
    """Count one candidate: the outputs as single values and as the gaps between them.

    Knots are all values if there are few. Otherwise they are quantiles, the most frequent values and the extreme values
    of each sample, where the support of a distribution may end.
    """
    samples = as_sample(away, "away", MIN_AUDIT_SAMPLES), as_sample(home, "home", MIN_AUDIT_SAMPLES)
    proposing = [np.sort(sample[_SAMPLE_SPLITS[0]]) for sample in samples]
    values = np.sort(np.concatenate(proposing))
    knots, count = np.unique(values, return_counts=True)
    if len(knots) > _MAX_CELL_KNOTS:
        quantiles = values[np.linspace(0, len(values) - 1, _MAX_CELL_KNOTS // 2).astype(np.int64)]
        frequent = knots[np.argsort(-count, kind="stable")[: _MAX_CELL_KNOTS // 2]]
        repeated = frequent[np.isin(frequent, knots[count > 1])]
        ends = []  # the 1st, 2nd, 4th, 8th, .. value from either end
        for ordered in proposing:
            positions = 2 ** np.arange(len(ordered).bit_length()) - 1
            ends += [ordered[positions], ordered[::-1][positions]]
        knots = np.unique(np.concatenate([quantiles, repeated, *ends]))
    # cell 2j + 1 is the value of knot j alone, cell 2j the open gap below it; together, the real line
    edges = np.stack([knots, np.nextafter(knots, np.inf)], axis=1).ravel()
    cells = [np.searchsorted(edges, sample, side="right") for sample in samples]
    return _count_cells(cells, 2 * len(knots) + 1)


def count_residues(away: IntArray, homes: Sequence[IntArray], modulus: int) -> CellCounts:
    """Count one candidate for each of `homes`: the outputs modulo `modulus`, against those of `away`."""
    away_counts = _count_cells([away % modulus], modulus)
    home_counts = [_count_cells([home % modulus], modulus) for home in homes]
    return CellCounts(
        *(
            np.concatenate([np.concatenate([away_counts[part], counts[part]], axis=1) for counts in home_counts])
            for part in range(3)
        )
    )


def bound_epsilon_below(candidates: Iterable[CellCounts], failure: float, delta: float = 0.0) -> EpsilonLowerBound:
    """Return a lower bound on epsilon at `delta` that fails with probability `failure` at most.

    epsilon >= log((Pr[E | away] - delta) / Pr[E | home]) for every event E, and the reverse. Events are half lines,
    single cells and the sets of largest and smallest likelihood ratio. The picking quarter chooses by
    approximate intervals, corrected for the number of events. The measuring half gets exact one-sided
    bounds (Clopper and Pearson).
    """
    counted = list(candidates)
    events = _EVENTS_PER_CELL * sum(counts.picking[:, 0].size for counts in counted)
    z = float(-special.ndtri(failure / 2 / events))
    choices = [(number, *event) for number, counts in enumerate(counted) for event in _best_events(counts, z, delta)]
    number, _, candidate, cells, order = max(choices, key=lambda choice: choice[1])
    measured = counted[number].measuring[candidate]
    hits, trials = measured[:, cells].sum(axis=1)[order], measured.sum(axis=1)[order]
    return EpsilonLowerBound(max(0.0, log_ratio_bound(hits, trials, failure, delta)), number, candidate)


def log_ratio_bound(hits: IntArray, trials: IntArray, failure: float, delta: float = 0.0) -> float:
    """Return log((low - delta) / high) for the probabilities of an event [likely distribution, other distribution].

    Both exact one-sided bounds hold together except with probability `failure`. The result is -inf if low <= delta.
    """
    above = float(clopper_pearson_lower(hits[:1], int(trials[0]), failure / 2)[0]) - delta
    below = float(clopper_pearson_upper(hits[1:], int(trials[1]), failure / 2)[0])
    return float(np.log(above) - np.log(below)) if above > 0 else -np.inf


def clopper_pearson_lower(successes: IntArray, trials: int, failure: float) -> FloatArray:
    """Return the exact lower bound of a binomial probability that fails with probability `failure`."""
    positive: BoolArray = successes > 0
    k = np.where(positive, successes, 1)
    low: FloatArray = np.where(positive, special.betaincinv(k, trials - k + 1, failure), 0.0)
    return low


def clopper_pearson_upper(successes: IntArray, trials: int, failure: float) -> FloatArray:
    """Return the exact upper bound of a binomial probability that fails with probability `failure`."""
    return 1 - clopper_pearson_lower(trials - successes, trials, failure)


def as_sample(values: Any, field: str, min_size: int = 1) -> FloatArray:
    """Return scores as doubles. Raises MurmurateError for a NaN, too few scores, or integers beyond 2**53."""
    scores = np.asarray(values)
    if scores.ndim != 1 or len(scores) < min_size:
        raise MurmurateError(field, f"shaped {scores.shape}", f"must be a list of scores, at least {min_size}")
    sample = scores.astype(np.float64)
    raise_where(np.isnan(sample), field, sample, "must be a number", MurmurateError)
    if scores.dtype.kind in "iu" and np.abs(sample).max() >= 2.0**53:
        raise MurmurateError(field, scores.dtype, "must be whole numbers below 2**53, which a double tells apart")
    return sample


def _count_cells(worlds: list[IntArray], cells: int) -> CellCounts:
    parts = ([np.bincount(world[part], minlength=cells) for world in worlds] for part in _SAMPLE_SPLITS)
    return CellCounts(*(np.stack(part)[None] for part in parts))


def _best_events(counts: CellCounts, z: float, delta: float) -> Iterator[tuple[float, int, IntArray, list[int]]]:
    """Yield the best event of each order of the cells, in each direction.

    An event is its bound from the picking quarter, the number of its candidate, its cells, and the two distributions,
    the one in which it is likely first.
    """
    trials, proposing = counts.picking.sum(axis=2, keepdims=True), counts.proposing
    line = np.broadcast_to(np.arange(proposing.shape[2]), (len(proposing), proposing.shape[2]))
    ratio = np.argsort(np.log(proposing[:, 1] + 0.5) - np.log(proposing[:, 0] + 0.5), axis=1, kind="stable")
    orders = [(order, True) for order in (line, line[:, ::-1], ratio, ratio[:, ::-1])]
    for order, prefixes in [*orders, (line, False)]:  # events are prefixes of an order, or single cells
        hits = np.take_along_axis(counts.picking, order[:, None, :], axis=2)
        hits = np.cumsum(hits, axis=2) if prefixes else hits
        low, high = _approximate_interval(hits, trials, z)
        for directions in ([1, 0], [0, 1]):
            with np.errstate(divide="ignore"):
                bound = np.log(np.maximum(low[:, directions[0]] - delta, 0)) - np.log(high[:, directions[1]])
            candidate, last = np.unravel_index(int(bound.argmax()), bound.shape)
            first = 0 if prefixes else last
            cells = order[candidate, first : last + 1]
            yield float(bound[candidate, last]), int(candidate), cells, directions


def _approximate_interval(hits: IntArray, trials: IntArray, z: float) -> tuple[FloatArray, FloatArray]:
    """Return fast approximate bounds: Wilson, or Wilson-Hilferty if hits are few."""
    p, spread = hits / trials, z**2 / trials
    half = np.sqrt(spread * (p * (1 - p) + spread / 4))
    low, high = (p + spread / 2 - half) / (1 + spread), (p + spread / 2 + half) / (1 + spread)
    k = np.maximum(hits, 1)
    few_low = k * np.maximum(1 - 1 / (9 * k) - z / (3 * np.sqrt(k)), 0) ** 3 / trials
    k = hits + 1
    few_high = k * (1 - 1 / (9 * k) + z / (3 * np.sqrt(k))) ** 3 / trials
    return np.where(hits > 0, np.maximum(low, few_low), 0.0), np.minimum(high, few_high)
