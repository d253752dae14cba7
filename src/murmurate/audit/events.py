"""Which event tells two worlds apart best: candidates, choice and measurement from separate samples.

The samples of each world are split. A quarter proposes events, a quarter picks one of them, and the other half measures
the one that was picked. The measured half had no part in the choice, so the bound holds whatever was chosen, among
however many candidates. A candidate is a pair of worlds and a statistic of their outputs, counted into cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from murmurate.errors import MurmurateError
from murmurate.quantities import BoolArray, FloatArray, IntArray, refuse_where

_KNOTS = 1024  # the most values that are looked at one by one, apart from the outermost
_EVENTS_PER_CELL = 10  # five orders of the cells, each both ways round
LEAST_SAMPLES = 4  # so that each part of a split has one
_PARTS = (slice(0, None, 4), slice(2, None, 4), slice(1, None, 2))  # interleaved: a drift changes all three alike


class CellCounts(NamedTuple):
    """How many outputs fell into each cell, in each part of the samples [candidate, world, cell].

    World 0 is away, world 1 is home. All candidates of one object have the same number of cells.
    """

    proposing: IntArray
    picking: IntArray
    measuring: IntArray


class Proof(NamedTuple):
    """A lower bound on epsilon, and the candidate that gave it."""

    epsilon: float
    counts: int  # number of the CellCounts among those handed in
    candidate: int  # number of the candidate in it


def count_values(away: Any, home: Any) -> CellCounts:
    """One candidate: the outputs themselves, as single values and as the gaps between them.

    Knots are all values where they are few. Otherwise they are quantiles, the values repeated most often and the
    outermost values of each world, at which the support of a world may end.
    """
    worlds = as_sample(away, "away", LEAST_SAMPLES), as_sample(home, "home", LEAST_SAMPLES)
    knots = _knots([world[_PARTS[0]] for world in worlds])
    cells = [_cell(knots, world) for world in worlds]
    return _count(cells, 2 * len(knots) + 1)


def count_residues(away: IntArray, homes: Sequence[IntArray], modulus: int) -> CellCounts:
    """One candidate for each of `homes`: the outputs modulo `modulus`, against those of `away`."""
    known = _count([away % modulus], modulus)
    found = [_count([home % modulus], modulus) for home in homes]
    return CellCounts(
        *(np.concatenate([np.concatenate([known[part], each[part]], axis=1) for each in found]) for part in range(3))
    )


def prove_epsilon(candidates: Iterable[CellCounts], failure: float, delta: float = 0.0) -> Proof:
    """A lower bound on epsilon at `delta` that fails with chance `failure` at most.

    epsilon >= log((Pr[E | one] - delta) / Pr[E | other]) for every event E and both ways round. Events are half lines,
    single cells and the sets of largest and smallest likelihood ratio. The picking quarter chooses by quick
    intervals, at a price for having many events. The measuring half gets exact one-sided bounds (Clopper and Pearson).
    """
    counted = list(candidates)
    events = _EVENTS_PER_CELL * sum(each.picking[:, 0].size for each in counted)
    z = float(-special.ndtri(failure / 2 / events))
    choices = [(number, choice) for number, each in enumerate(counted) for choice in _choices(each, z, delta)]
    number, best = max(choices, key=lambda pair: pair[1].promise)
    measured = counted[number].measuring[best.candidate]
    hits = measured[:, best.cells].sum(axis=1)[best.order]
    trials = measured.sum(axis=1)[best.order]
    return Proof(max(0.0, log_ratio(hits, trials, failure, delta)), number, best.candidate)


def log_ratio(hits: IntArray, trials: IntArray, failure: float, delta: float = 0.0) -> float:
    """log((low - delta) / high) of an event's chance in [the world where it is likely, the other].

    Both exact one-sided bounds hold together but for a chance of `failure`; -inf where nothing is left.
    """
    above = float(lower(hits[:1], int(trials[0]), failure / 2)[0]) - delta
    below = float(upper(hits[1:], int(trials[1]), failure / 2)[0])
    return float(np.log(above) - np.log(below)) if above > 0 else -np.inf


def lower(successes: IntArray, trials: int, failure: float) -> FloatArray:
    """The exact lower bound of a binomial chance that fails with chance `failure`."""
    some: BoolArray = successes > 0
    k = np.where(some, successes, 1)
    low: FloatArray = np.where(some, special.betaincinv(k, trials - k + 1, failure), 0.0)
    return low


def upper(successes: IntArray, trials: int, failure: float) -> FloatArray:
    """The exact upper bound of a binomial chance that fails with chance `failure`."""
    return 1 - lower(trials - successes, trials, failure)


def as_sample(values: Any, field: str, least: int = 1) -> FloatArray:
    """Scores as doubles; a NaN, too few of them, or integers that a double would blur are refused."""
    given = np.asarray(values)
    if given.ndim != 1 or len(given) < least:
        raise MurmurateError(field, f"shaped {given.shape}", f"must be a list of scores, at least {least}")
    sample = given.astype(np.float64)
    refuse_where(np.isnan(sample), field, sample, "must be a number", MurmurateError)
    if given.dtype.kind in "iu" and np.abs(sample).max() >= 2.0**53:
        raise MurmurateError(field, given.dtype, "must be whole numbers below 2**53, which a double tells apart")
    return sample


class _Choice(NamedTuple):
    promise: float  # the bound that the picking quarter gives
    candidate: int
    cells: IntArray  # of which the event consists
    order: list[int]  # [the world in which it is likely, the other]


def _knots(worlds: list[FloatArray]) -> FloatArray:
    values = np.sort(np.concatenate(worlds))
    distinct, count = np.unique(values, return_counts=True)
    if len(distinct) <= _KNOTS:
        return distinct
    quantiles = values[np.linspace(0, len(values) - 1, _KNOTS // 2).astype(np.int64)]
    frequent = distinct[np.argsort(-count, kind="stable")[: _KNOTS // 2]]
    repeated = frequent[np.isin(frequent, distinct[count > 1])]
    return np.unique(np.concatenate([quantiles, repeated, *(_outermost(world) for world in worlds)]))


def _outermost(values: FloatArray) -> FloatArray:
    """The 1st, 2nd, 4th, 8th, .. value from either end."""
    ordered = np.sort(values)
    places = 2 ** np.arange(len(values).bit_length()) - 1
    return np.concatenate([ordered[places], ordered[::-1][places]])


def _cell(knots: FloatArray, values: FloatArray) -> IntArray:
    """Cell 2j + 1 is the value of knot j alone, cell 2j the open gap below it; together, the real line."""
    edges = np.stack([knots, np.nextafter(knots, np.inf)], axis=1).ravel()
    found: IntArray = np.searchsorted(edges, values, side="right")
    return found


def _count(worlds: list[IntArray], cells: int) -> CellCounts:
    parts = ([np.bincount(world[part], minlength=cells) for world in worlds] for part in _PARTS)
    return CellCounts(*(np.stack(part)[None] for part in parts))


def _choices(counts: CellCounts, z: float, delta: float) -> Iterator[_Choice]:
    """The most promising event of each order of the cells, each way round."""
    trials = counts.picking.sum(axis=2, keepdims=True)
    for order, beginnings in _orders(counts.proposing):
        hits = np.take_along_axis(counts.picking, order[:, None, :], axis=2)
        hits = np.cumsum(hits, axis=2) if beginnings else hits
        low, high = _interval(hits, trials, z)
        for ways in ([1, 0], [0, 1]):
            with np.errstate(divide="ignore"):
                promise = np.log(np.maximum(low[:, ways[0]] - delta, 0)) - np.log(high[:, ways[1]])
            candidate, last = np.unravel_index(int(promise.argmax()), promise.shape)
            first = 0 if beginnings else last
            cells = order[candidate, first : last + 1]
            yield _Choice(float(promise[candidate, last]), int(candidate), cells, ways)


def _orders(counts: IntArray) -> Iterator[tuple[IntArray, bool]]:
    """Orders of cells [candidate, cell], and whether their beginnings are meant or their single cells."""
    line = np.broadcast_to(np.arange(counts.shape[2]), (len(counts), counts.shape[2]))
    ratio = np.argsort(np.log(counts[:, 1] + 0.5) - np.log(counts[:, 0] + 0.5), axis=1, kind="stable")
    for order in (line, line[:, ::-1], ratio, ratio[:, ::-1]):
        yield order, True
    yield line, False


def _interval(hits: IntArray, trials: IntArray, z: float) -> tuple[FloatArray, FloatArray]:
    """Bounds to choose by, quick and near the exact ones: Wilson's, or Wilson and Hilferty's where hits are few."""
    p, spread = hits / trials, z**2 / trials
    half = np.sqrt(spread * (p * (1 - p) + spread / 4))
    low, high = (p + spread / 2 - half) / (1 + spread), (p + spread / 2 + half) / (1 + spread)
    k = np.maximum(hits, 1)
    few_low = k * np.maximum(1 - 1 / (9 * k) - z / (3 * np.sqrt(k)), 0) ** 3 / trials
    k = hits + 1
    few_high = k * (1 - 1 / (9 * k) + z / (3 * np.sqrt(k))) ** 3 / trials
    return np.where(hits > 0, np.maximum(low, few_low), 0.0), np.minimum(high, few_high)
