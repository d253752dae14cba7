"""Other mechanisms for the same chain, for comparison. No release uses them."""

from __future__ import annotations

from itertools import permutations
from math import inf

import numpy as np

from murmurate.errors import PrivacyError
from murmurate.household.occupancy import OccupancyChains
from murmurate.privacy.leakage import chain_product, periodic_distributions, propagate_evidence
from murmurate.units import FloatArray

_MAX_REPEATED_DAYS = 10_000


def cao_leakage(chains: OccupancyChains, epsilon: FloatArray) -> FloatArray:
    """Return the temporal privacy leakage [interval of the day, kind] of endless releases.

    After Cao, Yoshikawa, Xiao and Xiong (ICDE 2017):

        BPL[t] = L_B(BPL[t-1]) + epsilon[t],  FPL[t] = L_F(FPL[t+1]) + epsilon[t],  TPL = BPL + FPL - epsilon

    L(a) is the largest log[(q (e^a - 1) + 1) / (d (e^a - 1) + 1)] over two rows of the backward (forward) transition
    and subsets of states with probabilities q > d in them. With two states a subset is one state, so
    L(a) = max(|phi(a)|, |phi(-a)|). This takes the worse sign in every interval. No single output reaches that, so the
    bound is looser than the exact leakage. `epsilon` is [interval of the day].

    >>> still = OccupancyChains.independent(initial=[0.5], arrive=[[0.5]], leave=[[0.5]])
    >>> cao_leakage(still, np.array([0.5])).tolist()
    [[0.5]]
    """
    laws, never = periodic_distributions(chains, len(epsilon))
    backward = -np.arange(len(epsilon)) % len(epsilon)
    before = _backward_leakage(laws.backward, epsilon)
    after = _backward_leakage(laws.forward[backward], epsilon[backward])[backward]
    return np.where(never, inf, before + after - epsilon[:, None])


def _backward_leakage(transitions: FloatArray, epsilon: FloatArray) -> FloatArray:
    """Return BPL [interval, kind]. The day is repeated until it adds nothing."""
    found = np.tile(epsilon[:, None], transitions.shape[-1])
    for _ in range(_MAX_REPEATED_DAYS):
        last = found[-1].copy()
        for t, law in enumerate(transitions):
            found[t] = epsilon[t] + np.maximum(
                abs(propagate_evidence(law, found[t - 1])), abs(propagate_evidence(law, -found[t - 1]))
            )
        if (found[-1] - last <= 1e-12).all():
            return found
    return np.full_like(found, inf)


def group_privacy_scale(epsilon: float, intervals: int) -> float:
    """Return b [u = 1] when one epsilon covers a trajectory of T intervals: T u / epsilon.

    It promises nothing beyond these intervals.

    >>> group_privacy_scale(1, 96)
    96.0
    """
    return intervals / epsilon


def markov_quilt_scale(chains: OccupancyChains, epsilon: float) -> float:
    """Return b [u = 1] of the Markov quilt mechanism for endless releases.

    After Song, Wang and Chaudhuri (SIGMOD 2017, MQMExact).

    A quilt {S^(t-a), S^(t+c)} leaves n = a + c - 1 moments near t. The moments beyond it reveal about S^t at most

        e = max over states x, y of S^t of  i(t-a) + i(t+c),  i(r) = max over s of log P(S^r=s | x)/P(S^r=s | y)

    so that Lap(n/(epsilon - e)) on each of them suffices. The result takes the best quilt of each moment, and of these
    the worst moment and kind. It holds for one model with its periodic prior.

    >>> independent = OccupancyChains.independent(initial=[0.5], arrive=[[0.5]], leave=[[0.5]])
    >>> markov_quilt_scale(independent, 1.0)
    1.0
    """
    day = len(chains.period)
    laws, _ = periodic_distributions(chains, day)
    reach = 2 * day + 16
    past, future = _influence(laws.backward, -1, reach), _influence(laws.forward, 1, reach)
    near = np.add.outer(np.arange(reach), np.arange(reach))[..., None] + 1
    worst = 0.0
    for before, after in zip(past, future, strict=True):
        left = epsilon - (before[:, :, None] + after[:, None, :]).max(axis=0)
        score = np.divide(near, left, out=np.full(left.shape, inf), where=left > 0)
        worst = max(worst, float(score.min(axis=(0, 1)).max()))
    if worst == inf:
        raise PrivacyError("chains", chains, f"must tell less than {epsilon} of a moment {reach} intervals away")
    return worst


def _influence(transitions: FloatArray, direction: int, max_distance: int) -> FloatArray:
    """Return the influence of a distant state on the present one [interval, pair of states, distance - 1, kind]."""
    found, reached = [], transitions
    for distance in range(1, max_distance + 1):
        with np.errstate(invalid="ignore"):
            ratios = np.stack([reached[:, x] - reached[:, y] for x, y in permutations((0, 1))], axis=1)
        found.append(np.where(np.isnan(ratios), -inf, ratios).max(axis=2))
        reached = chain_product(np.stack([reached, np.roll(transitions, -direction * distance, axis=0)]))
    return np.stack(found, axis=2)
