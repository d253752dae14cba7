"""Attacks on several releases: two successive releases, and all releases of a window.

Releases are simulated as days [day, interval], in the order of publication. So the attacks detect noise that is
repeated or correlated with earlier noise.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from murmurate.audit.event_search import count_values
from murmurate.lab.audit.attack_result import AttackResult, Candidate, judge_epsilon, judge_score_auc
from murmurate.lab.audit.claimed_bounds import interval_bound
from murmurate.lab.audit.noise_model import group_intervals_by_noise, log_likelihood_ratio
from murmurate.lab.audit.simulated_zone import AuditScenario, noisy_demand
from murmurate.privacy.promise import WindowPromise
from murmurate.units import BoolArray, FloatArray, IntArray

_PAIR_SAMPLE_DIVISOR = 4  # each pattern of releases gets this fraction of the samples
_FULL_SAMPLE_INTERVALS = 20  # a longer window gets fewer samples
_MAX_BATCH_RELEASES = 2_000_000  # releases


def successive_releases_attack(scene: AuditScenario, failure: float) -> Iterator[AttackResult]:
    """Attack by differences and sums of two releases 1 interval, 2 intervals or a day apart.

    The hypotheses differ in the later one. Equal noise makes the difference exact, opposite noise the sum.
    """
    day = scene.plan.zone.intervals_per_day
    _, epsilon, delta = interval_bound(scene)
    candidates: list[Candidate] = []
    for lag in sorted({1, 2, day}):
        for offset in sorted({0, lag % day}):
            away, home = (_release_pairs(scene, lag, offset, differ=differ) for differ in (False, True))
            for words, sign in (("difference", -1), ("sum", 1)):
                scores = (later + sign * earlier for earlier, later in (away, home))
                candidates.append(([f"{words} of releases {lag} apart"], count_values(*scores)))
    knows = "all but the target; two noised demands"
    attack = AttackResult(name="successive", knows=knows, target=scene.kind.name, bound=epsilon, delta=delta)
    yield judge_epsilon(attack, candidates, failure)


def _release_pairs(scene: AuditScenario, lag: int, offset: int, *, differ: bool) -> tuple[IntArray, IntArray]:
    """Return disjoint pairs of releases (earlier, later) `lag` apart. The later readings are of home if they differ.

    Only pairs whose later interval is hidden are used, in an order independent of the time of day.
    """
    day = scene.plan.zone.intervals_per_day
    blocks = max(8, scene.samples // _PAIR_SAMPLE_DIVISOR // (2 * lag))
    days = -(-(offset + blocks * 2 * lag) // day)
    late = (np.arange(days * day) - offset) // lag % 2 == 1
    demand_wh = np.where(late & differ, scene.kind.bound_wh, 0)
    noisy_wh = noisy_demand(scene, demand_wh.reshape(days, day)).ravel()
    whole = slice(offset, offset + (days * day - offset) // (2 * lag) * 2 * lag)
    earlier, later = np.moveaxis(noisy_wh[whole].reshape(-1, 2, lag), 1, 0).reshape(2, -1)
    usable = np.resize(scene.hidden, days * day)[whole].reshape(-1, 2, lag)[:, 1].ravel()
    shuffled = np.random.default_rng(lag).permutation(np.flatnonzero(usable))
    return earlier[shuffled], later[shuffled]


def window_attack(scene: AuditScenario, failure: float) -> Iterator[AttackResult]:
    """Attack by all releases of each promised window, for a target at home always, or every other interval."""
    day = scene.plan.zone.intervals_per_day
    for cost in scene.plan.costs:
        if not isinstance(cost.promise, WindowPromise):
            continue
        length = cost.promise.intervals
        telling = np.tile(np.where(scene.hidden, 1 / scene.plan.noise_variance, 0.0), 2)
        first = max(range(day), key=lambda start: telling[start : start + length % day].sum())
        times = np.arange(first, first + length) % day
        samples = max(16, min(scene.samples, _FULL_SAMPLE_INTERVALS * scene.samples // length))
        never = np.zeros(length, bool)
        always = scene.hidden[times]
        sometimes = always & (np.arange(length) % 2 == 1)
        scores = [_window_scores(scene, times, state, samples) for state in (never, always, sometimes)]
        attack = AttackResult(
            name=f"window {cost.promise.duration}",
            knows="all but the target; every noised demand of it",
            target=scene.kind.name,
            bound=cost.spent,
            delta=float(cost.promise.delta),
        )
        judged = judge_epsilon(attack, _window_candidates(scores), failure / 2)
        yield judge_score_auc(judged, scores[0]["likelihood ratio"], scores[1]["likelihood ratio"], failure / 2)


def _window_candidates(scores: list[dict[str, FloatArray]]) -> Iterator[Candidate]:
    """Yield each statistic for each of the two hypotheses in which the target is home."""
    away = scores[0]
    for home, words in zip(scores[1:], ("home throughout", "home every other interval"), strict=True):
        for statistic in away:
            yield [f"{statistic}, {words}"], count_values(away[statistic], home[statistic])


def _window_scores(scene: AuditScenario, times: IntArray, home: BoolArray, samples: int) -> dict[str, FloatArray]:
    """Return statistics [sample] of the releases at `times`. The target is at home where `home` [time] is True."""
    parts = []
    read = [
        (same[times] & scene.hidden[times], log_likelihood_ratio(scene.plan, scene.worst_pair, t))
        for t, same in group_intervals_by_noise(scene.plan)
    ]
    batch_size = max(1, _MAX_BATCH_RELEASES // len(times))
    for start in range(0, samples, batch_size):
        shape = (min(batch_size, samples - start), len(times))
        noisy_wh = _noisy_window(scene, np.broadcast_to(np.where(home, scene.kind.bound_wh, 0), shape), times)
        log_ratio = sum((reader(noisy_wh[:, columns]).sum(axis=1) for columns, reader in read), np.zeros(len(noisy_wh)))
        parts.append({"likelihood ratio": log_ratio} | _dependence_statistics(noisy_wh[:, scene.hidden[times]]))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _noisy_window(scene: AuditScenario, demand_wh: IntArray, times: IntArray) -> IntArray:
    """Return releases [sample, time] of a window that begins at any interval of the day."""
    day, length = scene.plan.zone.intervals_per_day, len(times)
    days = -(-(int(times[0]) + length) // day)
    whole = np.zeros((len(demand_wh), days * day), np.int64)
    inside = slice(int(times[0]), int(times[0]) + length)
    whole[:, inside] = demand_wh
    return noisy_demand(scene, whole.reshape(-1, day)).reshape(whole.shape)[:, inside]


def _dependence_statistics(noisy_wh: IntArray) -> dict[str, FloatArray]:
    """Return statistics [sample] of releases [sample, time] that change if noise is repeated or correlated."""
    steps = np.abs(np.diff(noisy_wh, axis=1))
    return {
        "total": noisy_wh.sum(axis=1).astype(np.float64),
        "total step": steps.sum(axis=1).astype(np.float64),
        "repeats": (steps == 0).sum(axis=1).astype(np.float64),
        "range": np.ptp(noisy_wh, axis=1).astype(np.float64),
    }
