"""What others would promise for the same chain: comparisons only, no release stands on them."""

from __future__ import annotations

from itertools import permutations
from math import inf

import numpy as np

from murmurate.errors import PrivacyError
from murmurate.household.occupancy import Chains
from murmurate.privacy.evidence import carry, chain_product
from murmurate.privacy.leakage import periodic_laws
from murmurate.quantities import FloatArray

_MOST_DAYS = 10_000


def cao_leakage(chains: Chains, epsilon: FloatArray) -> FloatArray:
    """Temporal privacy leakage [interval of the day, kind] of Cao, Yoshikawa, Xiao and Xiong (ICDE 2017), endless.

        BPL[t] = L_B(BPL[t-1]) + epsilon[t],  FPL[t] = L_F(FPL[t+1]) + epsilon[t],  TPL = BPL + FPL - epsilon

    L(a) is the largest log[(q (e^a - 1) + 1) / (d (e^a - 1) + 1)] over two rows of the backward (forward) transition
    and subsets of states with probabilities q > d in them. Of two states a subset is one state, so
    L(a) = max(|phi(a)|, |phi(-a)|): the worse sign in every interval, which no single output reaches; hence looser than
    the exact leakage. `epsilon` [interval of the day].

    >>> still = Chains.independent(initial=[0.5], arrive=[[0.5]], leave=[[0.5]])
    >>> cao_leakage(still, np.array([0.5])).tolist()
    [[0.5]]
    """
    laws, never = periodic_laws(chains, len(epsilon))
    backward = -np.arange(len(epsilon)) % len(epsilon)
    before = _accumulated(laws.past, epsilon)
    after = _accumulated(laws.future[backward], epsilon[backward])[backward]
    return np.where(never, inf, before + after - epsilon[:, None])


def _accumulated(laws: FloatArray, epsilon: FloatArray) -> FloatArray:
    """BPL [interval, kind]: days are repeated until one adds nothing."""
    found = np.tile(epsilon[:, None], laws.shape[-1])
    for _ in range(_MOST_DAYS):
        last = found[-1].copy()
        for t, law in enumerate(laws):
            found[t] = epsilon[t] + np.maximum(abs(carry(law, found[t - 1])), abs(carry(law, -found[t - 1])))
        if (found[-1] - last <= 1e-12).all():
            return found
    return np.full_like(found, inf)


def group_privacy_scale(epsilon: float, intervals: int) -> float:
    """b [u = 1] when one epsilon covers a trajectory of so many intervals: T u / epsilon; no promise beyond them.

    >>> group_privacy_scale(1, 96)
    96.0
    """
    return intervals / epsilon


def markov_quilt_scale(chains: Chains, epsilon: float) -> float:
    """b [u = 1] of the Markov quilt mechanism (Song, Wang and Chaudhuri, SIGMOD 2017, MQMExact) on an endless stream.

    A quilt {S^(t-a), S^(t+c)} leaves n = a + c - 1 moments near t, and the moments beyond it tell of S^t at most

        e = max over states x, y of S^t of  i(t-a) + i(t+c),  i(r) = max over s of log P(S^r=s | x)/P(S^r=s | y)

    so that Lap(n/(epsilon - e)) on each of them suffices. The best quilt of each moment, the worst moment, the worst
    kind, in the periodic regime. The model is a single one, with its periodic prior.

    >>> independent = Chains.independent(initial=[0.5], arrive=[[0.5]], leave=[[0.5]])
    >>> markov_quilt_scale(independent, 1.0)
    1.0
    """
    day = len(chains.period)
    laws, _ = periodic_laws(chains, day)
    reach = 2 * day + 16
    past, future = _influence(laws.past, -1, reach), _influence(laws.future, 1, reach)
    near = np.add.outer(np.arange(reach), np.arange(reach))[..., None] + 1
    worst = 0.0
    for before, after in zip(past, future, strict=True):
        left = epsilon - (before[:, :, None] + after[:, None, :]).max(axis=0)
        score = np.divide(near, left, out=np.full(left.shape, inf), where=left > 0)
        worst = max(worst, float(score.min(axis=(0, 1)).max()))
    if worst == inf:
        raise PrivacyError("chains", chains, f"must tell less than {epsilon} of a moment {reach} intervals away")
    return worst


def _influence(laws: FloatArray, onward: int, reach: int) -> FloatArray:
    """[interval, pair of states, distance - 1, kind]: how well a state so far away tells x from y here."""
    found, reached = [], laws
    for distance in range(1, reach + 1):
        with np.errstate(invalid="ignore"):
            ratios = np.stack([reached[:, x] - reached[:, y] for x, y in permutations((0, 1))], axis=1)
        found.append(np.where(np.isnan(ratios), -inf, ratios).max(axis=2))
        reached = chain_product(np.stack([reached, np.roll(laws, -onward * distance, axis=0)]))
    return np.stack(found, axis=2)
