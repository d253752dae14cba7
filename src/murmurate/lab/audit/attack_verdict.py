"""The bounds that a plan claims about an attack, and whether its result exceeds them.

A verdict against a plan is wrong with probability at most `failure`. It uses exact binomial bounds for an epsilon
(`adversaries.event_search`) and Hoeffding's bound for an AUC. Each attack gets a share of the error probability, so
that the probability of any wrong verdict in a run is below `FAMILYWISE_ERROR_RATE`. A posterior shift is exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from murmurate.adversaries.adversary import auc_bound, max_log_odds_shift, refutes_auc_bound
from murmurate.adversaries.event_search import CellCounts, bound_epsilon_below, log_ratio_bound
from murmurate.lab.audit.attack import AttackResult, Estimate
from murmurate.lab.audit.simulated_zone import AuditScenario, noise_log_pmf
from murmurate.planning.privacy_cost import kind_leakage, kind_losses
from murmurate.privacy.accountant import PldAccountant, PrivacyEvent
from murmurate.privacy.divergence import GaussianCurve
from murmurate.privacy.promise import IntervalPromise, MomentPromise, WindowPromise
from murmurate.units import BoolArray, FloatArray, IntArray

FAMILYWISE_ERROR_RATE = 1e-5  # probability that any verdict of a run is against a plan that keeps its promise
MAX_AUC_SAMPLES = 1_000_000  # of each distribution, for the estimate of an AUC
_MAX_SAMPLES = 10**12
_SHIFT_TOLERANCE = 1e-9

Candidate = tuple[list[str], CellCounts]  # a description of each candidate, and its counts


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


def judge_posterior_shift(scene: AuditScenario, attack: AttackResult, odds: FloatArray, failure: float) -> AttackResult:
    """Compare posterior log odds of the target [day, interval] with the leakage bound of a moment."""
    leakage, auc_limit = stream_bounds(scene) if scene.plan.scale_wh.any() else (None, None)
    hidden = scene.hidden
    shift = np.zeros(odds.shape)
    shift[:, hidden] = odds[:, hidden] - scene.prior[hidden]
    measured = max_log_odds_shift(odds[:, hidden], scene.prior[hidden])
    judged = replace(
        attack,
        auc_bound=auc_limit,
        quantity="posterior shift",
        measured=measured,
        bound=leakage,
        ok=leakage is None or measured <= leakage * (1 + _SHIFT_TOLERANCE) + _SHIFT_TOLERANCE,
        note="" if leakage is not None else "this noise has no bound on what one moment may leak",
        shift_by_interval=tuple(np.abs(shift).max(axis=0).tolist()),
    )
    return judge_auc(judged, estimate_auc(shift, scene.history.occupied, hidden), failure)


class IntervalBound(NamedTuple):
    """The largest allowed leakage of one release about the target."""

    t: int  # the interval of the day with the least noise
    epsilon: float
    delta: float


def max_auc(epsilon: float, delta: float) -> float:
    """Return the largest AUC against (epsilon, delta): the area under y = e^eps x + delta, its mirror image and 1."""
    if not delta:
        return auc_bound(epsilon)
    x = (1 - delta) * (1 - auc_bound(epsilon))  # where the two lines meet, at y = 1 - x
    return x * (delta + 1 - x) / 2 + (1 - delta - x) * (2 - x) / 2 + delta


def interval_loss_bounds(scene: AuditScenario) -> FloatArray:
    """Return the largest loss of each release under pure noise: the loss at its scale, or the promise if smaller."""
    plan = scene.plan
    losses = kind_losses(plan.zone, plan.noise, scene.kind)
    promised = [cost.spent for cost in plan.costs if isinstance(cost.promise, IntervalPromise)]
    return np.where(scene.kind.public, 0.0, np.minimum(losses, min(promised, default=np.inf)))


def interval_bound(scene: AuditScenario) -> IntervalBound:
    """Return the interval of the day with the least noise, and the (epsilon, delta) that the plan allows it."""
    plan = scene.plan
    t = int(np.where(scene.hidden, plan.scale_wh, np.inf).argmin())
    pure = [cost.spent for cost in plan.costs if isinstance(cost.promise, IntervalPromise | MomentPromise)]
    if plan.noise.is_pure:
        pure.append(float(interval_loss_bounds(scene)[t]))
    if pure:
        return IntervalBound(t, min(pure), 0.0)
    delta = max(float(cost.promise.delta) for cost in plan.costs if isinstance(cost.promise, WindowPromise))
    sigma = float(plan.scale_wh[t])
    curve = GaussianCurve(scene.kind.range_wh, sigma)
    return IntervalBound(t, PldAccountant().epsilon([(PrivacyEvent((curve,)), 1)], delta), delta)


def stream_bounds(scene: AuditScenario) -> tuple[float | None, float | None]:
    """Return bounds on the leakage and the AUC of a day of prices about one moment; None if there is no bound.

    Both hold against an attacker who knows the habits of the target. A window of a day or more bounds the AUC too,
    because it protects all occupancies of the day together.
    """
    plan, leakage = scene.plan, np.inf
    moments = [cost.spent for cost in plan.costs if isinstance(cost.promise, MomentPromise)]
    if moments:
        leakage = min(moments)
    elif plan.noise.is_pure:
        leakage = kind_leakage(plan.zone, scene.kind, interval_loss_bounds(scene))
    windows = [
        max_auc(cost.spent, float(cost.promise.delta))
        for cost in plan.costs
        if isinstance(cost.promise, WindowPromise) and cost.promise.intervals >= plan.zone.intervals_per_day
    ]
    auc_limit = min(auc_bound(leakage), *windows, 1.0)
    return leakage if np.isfinite(leakage) else None, auc_limit if auc_limit < 1 else None


def samples_to_detect_skipped_noise(scene: AuditScenario, chance: float, failure: float) -> int | None:
    """Return the samples per distribution that usually detect noise that is skipped with this probability.

    The event is that the noisy reading equals the reading. The function uses expected counts. The result is None if
    10**12 samples do not detect it, because the skipped noise stays within the bound.
    """
    t, epsilon, delta = interval_bound(scene)
    noise_wh = np.array([0, scene.kind.range_wh])
    reach = int(40 * scene.plan.scale_wh[t] + scene.plan.core_wh[t]) + 1
    log_pmf = noise_log_pmf(scene.plan, t)
    at_zero, at_bound = np.exp(log_pmf(noise_wh)) / np.exp(log_pmf(np.arange(-reach, reach + 1))).sum()
    chances = np.array([chance + (1 - chance) * at_zero, (1 - chance) * at_bound])
    samples = 1000
    while samples < _MAX_SAMPLES:
        if log_ratio_bound((chances * samples).astype(np.int64), np.full(2, samples), failure, delta) > epsilon:
            return samples
        samples += samples // 10
    return None
