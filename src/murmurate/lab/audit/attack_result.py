"""The result of one attack, and whether it exceeds the bound of the plan.

A verdict against a plan is wrong with probability at most `failure`. It uses exact binomial bounds for an epsilon
(`audit.event_search`) and Hoeffding's bound for an AUC. Each attack gets a share of the error probability, so that the
probability of any wrong verdict in a run is below `FAMILYWISE_ERROR_RATE`. A posterior shift is exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from murmurate.audit.adversary import refutes_auc_bound
from murmurate.audit.event_search import CellCounts, bound_epsilon_below
from murmurate.lab.audit.claimed_bounds import max_auc
from murmurate.lab.metrics import Estimate
from murmurate.units import BoolArray, FloatArray, IntArray

FAMILYWISE_ERROR_RATE = 1e-5  # probability that any verdict of a run is against a plan that keeps its promise
MAX_AUC_SAMPLES = 1_000_000  # of each distribution, for the estimate of an AUC

Candidate = tuple[list[str], CellCounts]  # a description of each candidate, and its counts


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackResult:
    """The result of one attacker, and the bound of the plan. None: not measured, or no bound exists."""

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
    best_statistic: str = ""  # the candidate with the largest epsilon
    note: str = ""
    noise: bool = True  # False: the same attack on demand without noise
    auc_by_interval: tuple[float | None, ...] = ()  # of the day
    shift_by_interval: tuple[float, ...] = ()  # largest of all days

    @property
    def was_run(self) -> bool:
        return self.auc is not None or self.measured is not None

    @property
    def better_than_guessing(self) -> bool:
        """Whether the 95 % interval of the AUC lies above 1/2."""
        return self.auc is not None and self.auc.low > 0.5

    @property
    def severity(self) -> tuple[bool, float]:
        """Sort key of attacks of one name: broken bounds first, then by the measured share of the bound."""
        share = self.measured / self.bound if self.measured is not None and self.bound else 0.0
        return not self.ok, share


class AucEstimate(NamedTuple):
    """The AUC of scores for home against away, over days at the same time of day."""

    auc: Estimate
    by_interval: FloatArray  # NaN if a state has no day
    min_class_days: IntArray  # [interval] days of the rarer state


def estimate_auc(score: FloatArray, home: BoolArray, scored: BoolArray) -> AucEstimate | None:
    """Return the AUC of each interval and its mean weighted by pairs of days, or None if there is no pair.

    Only the same time of day is compared, because the daily habits are public. The standard error is
    that of a U-statistic over days (DeLong's, summed over intervals), so days may be correlated within themselves.
    """
    days, intervals = score.shape
    by_interval, min_class_days = np.full(intervals, np.nan), np.zeros(intervals, np.int64)
    won, compared, pairs, wins = np.zeros(days), np.zeros(days), 0.0, 0.0
    for t in np.flatnonzero(scored):
        here, at = home[:, t], score[:, t]
        n1 = int(here.sum())
        n0 = days - n1
        min_class_days[t] = min(n0, n1)
        if not min_class_days[t]:
            continue
        low, high = np.sort(at[~here]), np.sort(at[here])
        above, below = (np.searchsorted(v, at, "left") + np.searchsorted(v, at, "right") for v in (low, high))
        beats = np.where(here, above / 2, n1 - below / 2)
        won, compared = won + beats, compared + np.where(here, n0, n1)
        wins, pairs = wins + float(beats[here].sum()), pairs + n0 * n1
        by_interval[t] = beats[here].mean() / n0
    if not pairs:
        return None
    mean = wins / pairs
    half = float(ndtri(0.975) * np.sqrt(((won - mean * compared) ** 2).sum()) / pairs)
    return AucEstimate(Estimate(mean, max(0.0, mean - half), min(1.0, mean + half)), by_interval, min_class_days)


def judge_auc(attack: AttackResult, estimate: AucEstimate | None, failure: float) -> AttackResult:
    """Compare the AUC of each interval with its bound. Each interval gets an equal share of `failure`."""
    if estimate is None:
        return replace(attack, note=attack.note or "too few days to rank")
    ranked = np.flatnonzero(estimate.min_class_days)
    limit = attack.auc_bound
    refuted = limit is not None and any(
        refutes_auc_bound(float(estimate.by_interval[t]), limit, int(estimate.min_class_days[t]), failure / len(ranked))
        for t in ranked
    )
    by_interval = tuple(None if np.isnan(value) else float(value) for value in estimate.by_interval)
    return replace(attack, auc=estimate.auc, auc_by_interval=by_interval, ok=attack.ok and not refuted)


def judge_epsilon(attack: AttackResult, candidates: Iterable[Candidate], failure: float) -> AttackResult:
    """Compare the largest lower bound on epsilon over all candidates with the bound of the plan."""
    labels, counts = zip(*candidates, strict=True)
    proof = bound_epsilon_below(counts, failure, attack.delta)
    ok = attack.ok and (attack.bound is None or proof.epsilon <= attack.bound)
    statistic = labels[proof.counts_index][proof.candidate_index]
    return replace(attack, quantity="epsilon", measured=proof.epsilon, ok=ok, best_statistic=statistic)


def judge_score_auc(attack: AttackResult, away: FloatArray, home: FloatArray, failure: float) -> AttackResult:
    """Compare the AUC of scores with the largest AUC that (epsilon, delta) allows."""
    parts = away[:MAX_AUC_SAMPLES], home[:MAX_AUC_SAMPLES]
    state = np.repeat([False, True], [len(part) for part in parts])[:, None]
    estimate = estimate_auc(np.concatenate(parts)[:, None], state, np.array([True]))
    limit = None if attack.bound is None else max_auc(attack.bound, attack.delta)
    judged = judge_auc(replace(attack, auc_bound=limit), estimate, failure)
    return replace(judged, auc_by_interval=())
