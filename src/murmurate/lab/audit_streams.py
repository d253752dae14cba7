"""Attacks on several releases together: two successive ones, and all of a window.

Releases are drawn as days [day, interval], as the zone publishes them, so that noise which is repeated, carried over or
set off against an earlier draw shows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from murmurate.audit.events import count_values
from murmurate.lab.audit_attack import Attack, Candidate, judge_epsilon, rank_worlds
from murmurate.lab.audit_bounds import interval_bound
from murmurate.lab.audit_law import evidence, intervals_alike
from murmurate.lab.audit_scene import Scene, publish, readings
from murmurate.lab.audit_worlds import extremes
from murmurate.privacy.promise import WindowPromise
from murmurate.quantities import BoolArray, FloatArray, IntArray

_PAIRS = 4  # a pattern of successive releases gets one sample in so many
_INTERVALS = 20  # a longer window gets fewer samples
_AT_ONCE = 2_000_000  # releases


def successive(scene: Scene, failure: float) -> Iterator[Attack]:
    """Differences and sums of two releases that lie 1, 2 or a day apart; the target differs in the later one.

    Equal noise makes the difference exact, opposite noise the sum.
    """
    day = scene.plan.zone.intervals_per_day
    _, epsilon, delta = interval_bound(scene)
    candidates: list[Candidate] = []
    for lag in sorted({1, 2, day}):
        for offset in sorted({0, lag % day}):
            away, home = (_pairs(scene, lag, offset, differ=differ) for differ in (False, True))
            for words, sign in (("difference", -1), ("sum", 1)):
                scores = (later + sign * earlier for earlier, later in (away, home))
                candidates.append(([f"{words} of releases {lag} apart"], count_values(*scores)))
    knows = "all but the target; two noised demands"
    attack = Attack(name="successive", knows=knows, target=scene.kind.name, bound=epsilon, delta=delta)
    yield judge_epsilon(attack, candidates, failure)


def _pairs(scene: Scene, lag: int, offset: int, *, differ: bool) -> tuple[IntArray, IntArray]:
    """Disjoint pairs of releases (earlier, later) that lie `lag` apart; the later readings are of home if they differ.

    Only pairs whose later interval is hidden are kept, in an order that has nothing to do with the time of day.
    """
    day = scene.plan.zone.intervals_per_day
    blocks = max(8, scene.samples // _PAIRS // (2 * lag))
    days = -(-(offset + blocks * 2 * lag) // day)
    away, home = (readings(scene, world, (days * day,)) for world in extremes(scene))
    late = (np.arange(days * day) - offset) // lag % 2 == 1
    demand_wh = np.where(late, home, away) if differ else away
    noisy_wh = publish(scene, demand_wh.reshape(days, day)).ravel()
    whole = slice(offset, offset + (days * day - offset) // (2 * lag) * 2 * lag)
    earlier, later = np.moveaxis(noisy_wh[whole].reshape(-1, 2, lag), 1, 0).reshape(2, -1)
    kept = np.resize(scene.hidden, days * day)[whole].reshape(-1, 2, lag)[:, 1].ravel()
    shuffled = np.random.default_rng(lag).permutation(np.flatnonzero(kept))
    return earlier[shuffled], later[shuffled]


def window(scene: Scene, failure: float) -> Iterator[Attack]:
    """All releases of each window that the plan promises, for a target at home throughout, or every other interval."""
    day = scene.plan.zone.intervals_per_day
    for cost in scene.plan.costs:
        if not isinstance(cost.promise, WindowPromise):
            continue
        length = cost.promise.intervals
        telling = np.tile(np.where(scene.hidden, 1 / scene.plan.noise_variance, 0.0), 2)
        first = max(range(day), key=lambda start: telling[start : start + length % day].sum())
        times = np.arange(first, first + length) % day
        samples = max(16, min(scene.samples, _INTERVALS * scene.samples // length))
        never = np.zeros(length, bool)
        always = scene.hidden[times]
        sometimes = always & (np.arange(length) % 2 == 1)
        scores = [_window_scores(scene, times, state, samples) for state in (never, always, sometimes)]
        attack = Attack(
            name=f"window {cost.promise.words}",
            knows="all but the target; every noised demand of it",
            target=scene.kind.name,
            bound=cost.spent,
            delta=float(cost.promise.delta),
        )
        judged = judge_epsilon(attack, _window_candidates(scores), failure / 2)
        yield rank_worlds(judged, scores[0]["likelihood ratio"], scores[1]["likelihood ratio"], failure / 2)


def _window_candidates(scores: list[dict[str, FloatArray]]) -> Iterator[Candidate]:
    """Each statistic, in each of the two worlds in which the target is home."""
    away = scores[0]
    for home, words in zip(scores[1:], ("home throughout", "home every other interval"), strict=True):
        for statistic in away:
            yield [f"{statistic}, {words}"], count_values(away[statistic], home[statistic])


def _window_scores(scene: Scene, times: IntArray, home: BoolArray, samples: int) -> dict[str, FloatArray]:
    """Statistics [sample] of the releases at `times`, of a target that is at home where `home` [time] says so."""
    parts = []
    read = [
        (same[times] & scene.hidden[times], evidence(scene.plan, scene.worst, t))
        for t, same in intervals_alike(scene.plan)
    ]
    at_once = max(1, _AT_ONCE // len(times))
    for begun in range(0, samples, at_once):
        shape = (min(at_once, samples - begun), len(times))
        away_wh, home_wh = (readings(scene, world, shape) for world in extremes(scene))
        noisy_wh = _publish_window(scene, np.where(home, home_wh, away_wh), times)
        told = sum((reader(noisy_wh[:, columns]).sum(axis=1) for columns, reader in read), np.zeros(len(noisy_wh)))
        parts.append({"likelihood ratio": told} | _relations(noisy_wh[:, scene.hidden[times]]))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _publish_window(scene: Scene, demand_wh: IntArray, times: IntArray) -> IntArray:
    """Releases [sample, time] of a window that begins at any interval of the day."""
    day, length = scene.plan.zone.intervals_per_day, len(times)
    days = -(-(int(times[0]) + length) // day)
    whole = np.zeros((len(demand_wh), days * day), np.int64)
    inside = slice(int(times[0]), int(times[0]) + length)
    whole[:, inside] = demand_wh
    return publish(scene, whole.reshape(-1, day)).reshape(whole.shape)[:, inside]


def _relations(heard_wh: IntArray) -> dict[str, FloatArray]:
    """Statistics [sample] of releases [sample, time] that repeated or related draws change."""
    steps = np.abs(np.diff(heard_wh, axis=1))
    return {
        "total": heard_wh.sum(axis=1).astype(np.float64),
        "total step": steps.sum(axis=1).astype(np.float64),
        "repeats": (steps == 0).sum(axis=1).astype(np.float64),
        "range": np.ptp(heard_wh, axis=1).astype(np.float64),
    }
