"""How well two worlds can be told apart: what samples prove, and the most that a promise allows.

Away is the world in which a household is not occupied, home the one in which it is. A mechanism that promises epsilon
has Pr[E | one] <= e^epsilon Pr[E | other] + delta for every event E, so a single event that is seen to break this
refutes the promise. What is measured here is a lower bound: it convicts, and never acquits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from murmurate.errors import MurmurateError, PrivacyError
from murmurate.quantities import BoolArray, FloatArray, IntArray, refuse_where

_KNOTS = 1024  # the most values that are looked at one by one
_EVENTS_PER_CELL = 10  # five orders of the cells, each both ways round
_LEAST_SAMPLES = 4  # so that each part of a split has one


def auc(away: Any, home: Any) -> float:
    """Area under the ROC curve: Pr[score of home > score of away] + Pr[equal]/2.

    1/2 is guessing, 1 is certainty. Unlike accuracy it does not depend on how often the household is home.

    >>> auc(away=[1, 2], home=[2, 3])
    0.875
    """
    low, high = np.sort(_sample(away, "away")), _sample(home, "home")
    beaten = np.searchsorted(low, high, side="left") + np.searchsorted(low, high, side="right")
    return float(beaten.mean() / (2 * len(low)))


def auc_bound(epsilon: float) -> float:
    """The largest AUC that any test can reach against pure epsilon: e^epsilon / (1 + e^epsilon).

    The ROC curve lies below y = e^eps x and below y = 1 - e^-eps (1 - x). They meet at x = 1/(1+e^eps), y = 1 - x = q;
    the area under both is (1-q) q/2 + q (q+1)/2 = q. Randomised response that tells the truth with chance q reaches it.

    >>> auc_bound(0.0), round(auc_bound(0.5), 4)
    (0.5, 0.6225)
    """
    return float(special.expit(epsilon))


class Interval(NamedTuple):
    """A confidence interval of a probability."""

    low: float
    high: float


def clopper_pearson(successes: int, trials: int, confidence: float) -> Interval:
    """The exact interval of a binomial probability: each side fails with chance at most (1 - confidence)/2.

    low and high are the (1-c)/2 quantile of Beta(k, n-k+1) and the (1+c)/2 quantile of Beta(k+1, n-k).

    >>> tuple(round(edge, 4) for edge in clopper_pearson(0, 10, 0.95))
    (0.0, 0.3085)
    """
    if not 0 <= successes <= trials or trials < 1:
        raise PrivacyError("successes", f"{successes} of {trials}", "must be between 0 and at least 1 trial")
    failure = _failure(confidence) / 2
    k = np.array([successes])
    return Interval(float(_low(k, trials, failure)[0]), float(_high(k, trials, failure)[0]))


def epsilon_lower_bound(away: Any, home: Any, confidence: float = 0.999, delta: float = 0.0) -> float:
    """A lower bound on epsilon that is true with chance `confidence` or more, from independent outputs of both worlds.

    epsilon >= log((Pr[E | one] - delta) / Pr[E | other]) for every event E and both ways round. Half of the samples
    choose E and the way round: a quarter proposes half lines, single values and the sets of largest and of smallest
    likelihood ratio, another picks the one that promises most, at a price for having many. The other half measures it,
    by a one-sided Clopper-Pearson bound on each probability, so the bound holds whatever was chosen. A value that is
    never seen in one of the worlds counts as any other.

    Outputs may be integers, floats or infinite; of several releases pass one score, such as the log-likelihood ratio.

    >>> truth = np.random.default_rng(1).random((2, 40_000)) < 0.75  # randomised response, epsilon = log 3 = 1.0986
    >>> round(epsilon_lower_bound(away=~truth[0], home=truth[1]), 2)
    1.03
    """
    worlds = _sample(away, "away", _LEAST_SAMPLES), _sample(home, "home", _LEAST_SAMPLES)
    failure = _failure(confidence) / 2  # one bound on each probability
    proposing, picking, measuring = ([world[part] for world in worlds] for part in _PARTS)
    knots = _knots(np.concatenate(proposing))
    proposed, picked, measured = (
        np.stack([np.bincount(_cell(knots, world), minlength=2 * len(knots) + 1) for world in part])
        for part in (proposing, picking, measuring)
    )
    careful = failure / (_EVENTS_PER_CELL * picked.shape[1])  # else luck on a rare event outbids a common one
    best = max((_best(event, picked, careful, delta) for event in _events(proposed)), key=lambda choice: choice.promise)
    hits = measured[:, best.event].sum(axis=1)[best.order]
    likely, rare = hits[:1], hits[1:]
    trials = measured.sum(axis=1)[best.order]
    return max(0.0, float(_log_ratio(likely, rare, trials, failure, delta)[0]))


_PARTS = (slice(0, None, 4), slice(2, None, 4), slice(1, None, 2))  # interleaved: a drift strikes all three alike


class _Choice(NamedTuple):
    promise: float  # the bound that the picking quarter gives
    event: IntArray  # the cells of which it consists
    order: list[int]  # [the world in which it is likely, the other]


def _sample(values: Any, field: str, least: int = 1) -> FloatArray:
    """Scores as doubles; a NaN, too few of them, or integers that a double would blur are refused."""
    given = np.asarray(values)
    if given.ndim != 1 or len(given) < least:
        raise MurmurateError(field, f"shaped {given.shape}", f"must be a list of scores, at least {least}")
    sample = given.astype(np.float64)
    refuse_where(np.isnan(sample), field, sample, "must be a number", MurmurateError)
    if given.dtype.kind in "iu" and np.abs(sample).max() >= 2.0**53:
        raise MurmurateError(field, given.dtype, "must be whole numbers below 2**53, which a double tells apart")
    return sample


def _failure(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise PrivacyError("confidence", confidence, "must lie between 0 and 1")
    return 1 - confidence


def _knots(values: FloatArray) -> FloatArray:
    """The values that events are made of: all where they are few, else quantiles and the values most often repeated."""
    distinct, count = np.unique(values, return_counts=True)
    if len(distinct) <= _KNOTS:
        return distinct
    quantiles = np.sort(values)[np.linspace(0, len(values) - 1, _KNOTS // 2).astype(np.int64)]
    frequent = distinct[np.argsort(-count, kind="stable")[: _KNOTS // 2]]
    return np.union1d(quantiles, frequent[np.isin(frequent, distinct[count > 1])])


def _cell(knots: FloatArray, values: FloatArray) -> IntArray:
    """Cell 2j + 1 is the value of knot j alone, cell 2j the open gap below it; together, the real line."""
    found: IntArray = np.searchsorted(knots, values, side="left") + np.searchsorted(knots, values, side="right")
    return found


def _events(counts: IntArray) -> Iterator[tuple[IntArray, bool]]:
    """Orders of cells, and whether their beginnings are meant or their single cells; `counts` is [world, cell]."""
    line = np.arange(counts.shape[1])
    away, home = counts + 0.5
    ratio = np.argsort(np.log(home) - np.log(away), kind="stable")
    for order in (line, line[::-1], ratio, ratio[::-1]):
        yield order, True
    yield line, False


def _best(event: tuple[IntArray, bool], counts: IntArray, failure: float, delta: float) -> _Choice:
    """The beginning (or the single cell) of one order of cells that promises the largest bound, either way round."""
    cells, beginnings = event
    hits = np.cumsum(counts[:, cells], axis=1) if beginnings else counts[:, cells]
    trials = counts.sum(axis=1)
    found = []
    for order in ([1, 0], [0, 1]):
        promise = _log_ratio(hits[order[0]], hits[order[1]], trials[order], failure, delta)
        last = int(promise.argmax())
        chosen = cells[: last + 1] if beginnings else cells[last : last + 1]
        found.append(_Choice(float(promise[last]), chosen, order))
    return max(found, key=lambda choice: choice.promise)


def _log_ratio(likely: IntArray, rare: IntArray, trials: IntArray, failure: float, delta: float) -> FloatArray:
    """log((low(likely) - delta) / high(rare)), each edge failing with chance `failure`; -inf where nothing is left."""
    above = _low(likely, int(trials[0]), failure) - delta
    with np.errstate(divide="ignore"):
        ratio: FloatArray = np.log(np.maximum(above, 0)) - np.log(_high(rare, int(trials[1]), failure))
    return ratio


def _low(successes: IntArray, trials: int, failure: float) -> FloatArray:
    some: BoolArray = successes > 0
    k = np.where(some, successes, 1)
    low: FloatArray = np.where(some, special.betaincinv(k, trials - k + 1, failure), 0.0)
    return low


def _high(successes: IntArray, trials: int, failure: float) -> FloatArray:
    return 1 - _low(trials - successes, trials, failure)
