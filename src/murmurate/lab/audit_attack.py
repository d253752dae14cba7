"""What one attack found out, and whether it is more than the plan allows.

Every verdict is statistical evidence against the plan that is wrong with a chance of at most `failure`: exact binomial
bounds for an epsilon (`audit.events`), Hoeffding's bound for an AUC. The audit hands each attack its share, so that
the chance of one wrong verdict in a whole run is below `FALSE_CONVICTION`. A posterior shift is no matter of chance.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from murmurate.audit.bound import auc_refuted
from murmurate.audit.events import CellCounts, prove_epsilon
from murmurate.lab.audit_bounds import most_auc
from murmurate.lab.metrics import Estimate
from murmurate.quantities import BoolArray, FloatArray, IntArray

FALSE_CONVICTION = 1e-5  # the chance that any verdict of a run convicts a plan that keeps its promise
RANKED = 1_000_000  # of each world, when an AUC is estimated

Candidate = tuple[list[str], CellCounts]  # what is compared, in words for each candidate of the counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """What one adversary found out, beside the most that the plan allows. None: not measured, or no bound exists."""

    name: str
    knows: str
    target: str
    auc: Estimate | None = None  # of pairs of days at the same time of day, with its 95 % interval
    auc_bound: float | None = None
    quantity: str = ""  # "posterior shift" or "epsilon", in natural logarithms
    measured: float | None = None
    bound: float | None = None
    delta: float = 0.0  # at which an epsilon is measured and bounded
    ok: bool = True
    worlds: str = ""  # the candidate that told most
    note: str = ""
    noise: bool = True  # False: the same attack where nothing was added to the demand
    auc_by_interval: tuple[float | None, ...] = ()  # of the day
    shift_by_interval: tuple[float, ...] = ()  # largest of all days

    @property
    def ran(self) -> bool:
        return self.auc is not None or self.measured is not None

    @property
    def better_than_guessing(self) -> bool:
        """Whether the 95 % interval of the AUC lies above 1/2."""
        return self.auc is not None and self.auc.low > 0.5

    @property
    def severity(self) -> tuple[bool, float]:
        """Orders attacks of one name: the broken first, then by the share of the bound that was measured."""
        share = self.measured / self.bound if self.measured is not None and self.bound else 0.0
        return not self.ok, share


class Ranking(NamedTuple):
    """How well scores rank home above away, among days at the same time of day."""

    auc: Estimate
    by_interval: FloatArray  # NaN where days of one state are missing
    fewest: IntArray  # [interval] days of the rarer state


def rank(score: FloatArray, home: BoolArray, scored: BoolArray) -> Ranking | None:
    """AUC within each interval, and its mean weighted by pairs of days; None where no pair can be formed.

    Only days at the same time of day are compared: that a household sleeps at night is no news. The standard error is
    that of a U-statistic over days (DeLong's, summed over intervals), so days may be correlated within themselves.
    """
    days, intervals = score.shape
    by_interval, fewest = np.full(intervals, np.nan), np.zeros(intervals, np.int64)
    won, met, pairs, wins = np.zeros(days), np.zeros(days), 0.0, 0.0
    for t in np.flatnonzero(scored):
        here, at = home[:, t], score[:, t]
        n1 = int(here.sum())
        n0 = days - n1
        fewest[t] = min(n0, n1)
        if not fewest[t]:
            continue
        low, high = np.sort(at[~here]), np.sort(at[here])
        above, below = (np.searchsorted(v, at, "left") + np.searchsorted(v, at, "right") for v in (low, high))
        beats = np.where(here, above / 2, n1 - below / 2)
        won, met = won + beats, met + np.where(here, n0, n1)
        wins, pairs = wins + float(beats[here].sum()), pairs + n0 * n1
        by_interval[t] = beats[here].mean() / n0
    if not pairs:
        return None
    mean = wins / pairs
    half = float(ndtri(0.975) * np.sqrt(((won - mean * met) ** 2).sum()) / pairs)
    return Ranking(Estimate(mean, max(0.0, mean - half), min(1.0, mean + half)), by_interval, fewest)


def judge_ranking(attack: Attack, found: Ranking | None, failure: float) -> Attack:
    """Hold the AUC of each interval against its bound, which gets its share of `failure` for each interval."""
    if found is None:
        return replace(attack, note=attack.note or "too few days to rank")
    seen = np.flatnonzero(found.fewest)
    most = attack.auc_bound
    refuted = most is not None and any(
        auc_refuted(float(found.by_interval[t]), most, int(found.fewest[t]), failure / len(seen)) for t in seen
    )
    by_interval = tuple(None if np.isnan(value) else float(value) for value in found.by_interval)
    return replace(attack, auc=found.auc, auc_by_interval=by_interval, ok=attack.ok and not refuted)


def judge_epsilon(attack: Attack, candidates: Iterable[Candidate], failure: float) -> Attack:
    """Hold the epsilon that samples of two worlds prove against its bound, whichever candidate tells most."""
    words, counts = zip(*candidates, strict=True)
    proof = prove_epsilon(counts, failure, attack.delta)
    ok = attack.ok and (attack.bound is None or proof.epsilon <= attack.bound)
    worlds = words[proof.counts][proof.candidate]
    return replace(attack, quantity="epsilon", measured=proof.epsilon, ok=ok, worlds=worlds)


def rank_worlds(attack: Attack, away: FloatArray, home: FloatArray, failure: float) -> Attack:
    """Hold the AUC of scores of two worlds against the largest that (epsilon, delta) allows."""
    parts = away[:RANKED], home[:RANKED]
    state = np.repeat([False, True], [len(part) for part in parts])[:, None]
    found = rank(np.concatenate(parts)[:, None], state, np.array([True]))
    most = None if attack.bound is None else most_auc(attack.bound, attack.delta)
    judged = judge_ranking(replace(attack, auc_bound=most), found, failure)
    return replace(judged, auc_by_interval=())
