"""Attacks on all releases of a stretch of time: those of a promised window, and a user's own attack on both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from murmurate.adversaries.event_search import as_sample, count_values
from murmurate.errors import MurmurateError
from murmurate.lab.audit.attack import Attack, AttackResult, Observation
from murmurate.lab.audit.attack_verdict import Candidate, interval_bound, judge_epsilon, judge_score_auc
from murmurate.lab.audit.simulated_zone import (
    AuditScenario,
    group_intervals_by_noise,
    log_likelihood_ratio,
    release_demand,
    rest_demand_moments,
)
from murmurate.planning.privacy_cost import Cost
from murmurate.privacy.promise import WindowPromise
from murmurate.types import Release
from murmurate.units import BoolArray, FloatArray, IntArray

_FULL_SAMPLE_INTERVALS = 20  # a longer window gets fewer samples
_MAX_BATCH_RELEASES = 2_000_000


def window_costs(scene: AuditScenario) -> list[tuple[WindowPromise, Cost]]:
    """Return the promises about windows, and what the plan spends of each."""
    costs = scene.plan.costs
    return [(cost.promise, cost) for cost in costs if isinstance(cost.promise, WindowPromise)]


def window_attack(scene: AuditScenario, failure: float) -> Iterator[AttackResult]:
    """Attack by all releases of each promised window, for a target at home always, or every other interval."""
    for promise, cost in window_costs(scene):
        times, samples = _worst_window(scene, promise.intervals), _sample_count(scene, promise.intervals)
        never = np.zeros(len(times), bool)
        always = scene.hidden[times]
        sometimes = always & (np.arange(len(times)) % 2 == 1)
        scores = [_window_scores(scene, times, state, samples) for state in (never, always, sometimes)]
        attack = AttackResult(
            name=f"window {promise.duration}",
            knows="all but the target; every noised demand of it",
            target=scene.kind.name,
            bound=cost.spent,
            delta=float(promise.delta),
        )
        away = scores[0]
        candidates: list[Candidate] = []
        for home, words in zip(scores[1:], ("home throughout", "home every other interval"), strict=True):
            candidates += [([f"{name}, {words}"], count_values(away[name], home[name])) for name in away]
        judged = judge_epsilon(attack, candidates, failure / 2)
        yield judge_score_auc(judged, away["likelihood ratio"], scores[1]["likelihood ratio"], failure / 2)


def own_attack(attack: Attack, scene: AuditScenario, failure: float) -> Iterator[AttackResult]:
    """Let a user's attack tell home from away: in one interval of a day, and throughout each promised window."""
    day = scene.plan.zone.intervals_per_day
    t, epsilon, delta = interval_bound(scene)
    claims = [("one interval", np.arange(day), np.arange(day) == t, epsilon, delta)]
    for promise, cost in window_costs(scene):
        times = _worst_window(scene, promise.intervals)
        claims.append((promise.duration, times, scene.hidden[times], cost.spent, float(promise.delta)))
    for words, times, secret, epsilon, delta in claims:
        result = AttackResult(
            name=attack.name,
            knows=f"all but the target; {len(times):,} releases",
            target=scene.kind.name,
            bound=epsilon,
            delta=delta,
        )
        away, home = (_own_scores(attack, scene, times, secret, is_home=is_home) for is_home in (False, True))
        judged = judge_epsilon(result, [([words], count_values(away, home))], failure / 2)
        yield judge_score_auc(judged, away, home, failure / 2)


def _own_scores(
    attack: Attack, scene: AuditScenario, times: IntArray, secret: BoolArray, *, is_home: bool
) -> FloatArray:
    """Return what a user's attack makes of trials of one case [trial]. The others use what is expected of them."""
    rest_wh = np.rint(rest_demand_moments(scene)[0]).astype(np.int64)[times]
    target_wh = np.where(secret & is_home, *reversed(scene.extremes_wh))
    slot, parts = times % scene.plan.zone.intervals_per_day, []
    for release in _release_windows(scene, int(times[0]), rest_wh + target_wh, _sample_count(scene, len(times))):
        seen = Observation(
            release=release, rest_wh=rest_wh, secret=secret, slot=slot, target=scene.kind, plan=scene.plan
        )
        scores, field = np.asarray(attack.score(seen)), f"score of {attack.name}"
        if scores.shape != (len(release.noisy_wh),):
            raise MurmurateError(field, f"shaped {scores.shape}", f"must be one per trial: {(len(release.noisy_wh),)}")
        parts.append(as_sample(scores, field))
    return np.concatenate(parts)


def _worst_window(scene: AuditScenario, length: int) -> IntArray:
    """Return the intervals of the day of a window of this length, where the noise hides least."""
    day = scene.plan.zone.intervals_per_day
    telling = np.tile(np.where(scene.hidden, 1 / scene.plan.noise_variance, 0.0), 2)
    first = max(range(day), key=lambda start: telling[start : start + length % day].sum())
    return np.arange(first, first + length) % day


def _sample_count(scene: AuditScenario, length: int) -> int:
    return max(16, min(scene.samples, _FULL_SAMPLE_INTERVALS * scene.samples // length))


def _release_windows(scene: AuditScenario, first: int, demand_wh: IntArray, samples: int) -> Iterator[Release]:
    """Yield releases [sample, interval] of a demand [interval] from interval `first` of a day on, in batches.

    Whole days are released, as the plan does. What lies outside is a demand of zero.
    """
    day, inside = scene.plan.zone.intervals_per_day, slice(first, first + len(demand_wh))
    batch_size = max(1, _MAX_BATCH_RELEASES // len(demand_wh))
    for start in range(0, samples, batch_size):
        whole_wh = np.zeros((min(batch_size, samples - start), -(-inside.stop // day) * day), np.int64)
        whole_wh[:, inside] = demand_wh
        release = release_demand(scene, whole_wh.reshape(-1, day))
        yield replace(
            release,
            price_ticks=release.price_ticks.reshape(whole_wh.shape)[:, inside],
            noisy_wh=release.noisy_wh.reshape(whole_wh.shape)[:, inside],
            scale_wh=release.scale_wh.reshape(whole_wh.shape)[:, inside],
        )


def _window_scores(scene: AuditScenario, times: IntArray, home: BoolArray, samples: int) -> dict[str, FloatArray]:
    """Return statistics [sample] of the releases at `times`. The target is at home where `home` [time] is True.

    All but the likelihood ratio change if noise is repeated or correlated. A window may begin at any interval of a day.
    """
    hidden, parts = scene.hidden[times], []
    read = [
        (same[times] & hidden, log_likelihood_ratio(scene.plan, scene.worst_pair, t))
        for t, same in group_intervals_by_noise(scene.plan)
    ]
    demand_wh = np.where(home, *reversed(scene.extremes_wh))
    for release in _release_windows(scene, int(times[0]), demand_wh, samples):
        noisy_wh = release.noisy_wh
        log_ratio = sum((reader(noisy_wh[:, columns]).sum(axis=1) for columns, reader in read), np.zeros(len(noisy_wh)))
        told = noisy_wh[:, hidden]
        steps = np.abs(np.diff(told, axis=1))
        part = {
            "likelihood ratio": log_ratio,
            "total": told.sum(axis=1),
            "total step": steps.sum(axis=1),
            "repeats": (steps == 0).sum(axis=1),
            "range": np.ptp(told, axis=1),
        }
        parts.append(part)
    return {name: np.concatenate([part[name] for part in parts]).astype(np.float64) for name in parts[0]}
