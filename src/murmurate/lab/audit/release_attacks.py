"""Attacks on one release, on two successive ones and on all of a window, by an attacker who knows all but the target.

One release: the hypotheses differ in the target's reading of one interval. The noise covers any two readings up to its
bound, so several pairs are compared. Several releases are simulated as days [day, interval], in the order of
publication. So the attacks detect noise that is repeated or correlated with earlier noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import numpy as np

from murmurate.audit import adversary
from murmurate.audit.event_search import count_residues, count_values, log_ratio_bound
from murmurate.lab.audit.attack_result import (
    AttackResult,
    Candidate,
    estimate_auc,
    interval_bound,
    judge_auc,
    judge_epsilon,
    judge_score_auc,
    max_auc,
)
from murmurate.lab.audit.simulated_zone import (
    AuditScenario,
    group_intervals_by_noise,
    log_likelihood_ratio,
    noisy_demand,
    release_demand,
    rest_demand_moments,
)
from murmurate.privacy.promise import WindowPromise
from murmurate.units import BoolArray, FloatArray, IntArray

MODULI = (*range(2, 17), 100, 1000)
_OTHER_PAIR_SAMPLE_DIVISOR = 4  # pairs other than the worst get this fraction of the samples
_RESIDUE_SAMPLE_DIVISOR = 8  # each hypothesis of the residues gets this fraction of the samples
_CURVE_POINTS = 4096  # demands at which the curve is evaluated
_PAIR_SAMPLE_DIVISOR = 4  # each pattern of releases gets this fraction of the samples
_FULL_SAMPLE_INTERVALS = 20  # a longer window gets fewer samples
_MAX_BATCH_RELEASES = 2_000_000  # releases


def single_release_attacks(scene: AuditScenario, failure: float) -> Iterator[AttackResult]:
    """Four attacks on the noisy demand of one interval: likelihood ratio, values, the true value, residues."""
    t, top = interval_bound(scene).t, scene.kind.bound_wh
    drawn = {
        f"{reading:,} Wh": noisy_demand(scene, np.full(scene.samples, reading), t)
        for reading in sorted({0, 1, top - 1, top})
    }
    first, *_, last = drawn  # the two that are easiest to distinguish
    worst = drawn[first], drawn[last]
    yield interval_attack(scene, worst, failure)
    exact = tuple(np.full(scene.samples, reading) for reading in (0, top))
    attack = replace(_single_release_result(scene, "interval", "all but the target; one demand"), bound=None, delta=0.0)
    judged = judge_epsilon(attack, [([""], count_values(*exact))], failure / 2)
    away, home = (readings.astype(np.float64) for readings in exact)
    yield replace(judge_score_auc(judged, away, home, failure / 2), noise=False)
    yield value_attack(scene, drawn, failure)
    yield skipped_noise_attack(scene, worst, failure)
    yield residue_attack(scene, failure)


def interval_attack(scene: AuditScenario, outputs: tuple[IntArray, IntArray], failure: float) -> AttackResult:
    """Attack by the log likelihood ratio of one release: the best statistic for the declared noise."""
    attack = _single_release_result(scene, "interval", "all but the target; one noised demand")
    read = log_likelihood_ratio(scene.plan, scene.worst_pair, interval_bound(scene).t)
    away, home = (read(output) for output in outputs)
    judged = judge_epsilon(attack, [(["likelihood ratio"], count_values(away, home))], failure / 2)
    return judge_score_auc(judged, away, home, failure / 2)


def value_attack(scene: AuditScenario, outputs_by_name: dict[str, IntArray], failure: float) -> AttackResult:
    """Attack by the noisy demands of any two hypotheses: detects a bounded support and steps in the noise."""
    attack = _single_release_result(scene, "values", "all but the target; one noised demand")
    first, *_, last = outputs_by_name
    candidates = []
    for left, right in combinations(outputs_by_name, 2):
        samples = (
            scene.samples if (left, right) == (first, last) else max(4, scene.samples // _OTHER_PAIR_SAMPLE_DIVISOR)
        )
        counts = count_values(outputs_by_name[left][:samples], outputs_by_name[right][:samples])
        candidates.append(([f"{left} against {right}"], counts))
    return judge_epsilon(attack, candidates, failure)


def skipped_noise_attack(scene: AuditScenario, outputs: tuple[IntArray, IntArray], failure: float) -> AttackResult:
    """Attack by the event that the noisy demand equals a likely reading: detects noise that is sometimes skipped.

    The event is fixed beforehand, once for each hypothesis, so that all samples measure it.
    """
    attack = _single_release_result(scene, "skipped", "all but the target; one noised demand")
    bounds = []
    for reading, order in ((scene.kind.bound_wh, [1, 0]), (0, [0, 1])):
        hits = np.array([np.count_nonzero(outputs[world] == reading) for world in order])
        bounds.append((log_ratio_bound(hits, np.full(2, scene.samples), failure / 2, attack.delta), reading))
    measured, reading = max(bounds)
    ok = measured <= (attack.bound or 0.0)
    statistic = f"published as {reading} Wh"
    return replace(attack, quantity="epsilon", measured=max(0.0, measured), ok=ok, best_statistic=statistic)


def residue_attack(scene: AuditScenario, failure: float) -> AttackResult:
    """Attack by the noisy demand modulo small numbers: detects noise on a coarser grid than 1 Wh."""
    attack = _single_release_result(scene, "residues", "all but the target; one noised demand, modulo 2..16, 100, 1000")
    t, samples = interval_bound(scene).t, max(16, scene.samples // _RESIDUE_SAMPLE_DIVISOR)
    top = scene.kind.bound_wh
    shifts = sorted({*range(1, 17), 50, top - 1, top} & set(range(1, top + 1)))
    away_wh = noisy_demand(scene, np.zeros(samples, np.int64), t)
    drawn = {shift: noisy_demand(scene, np.full(samples, shift), t) for shift in shifts}
    candidates: list[Candidate] = []
    for modulus in MODULI:
        # each residue of a small modulus once, every residue of a large one
        apart = [shift for shift in shifts if shift % modulus and (shift < modulus or modulus > 16)]
        if apart:
            labels = [f"0 against {shift} Wh, modulo {modulus}" for shift in apart]
            candidates.append((labels, count_residues(away_wh, [drawn[shift] for shift in apart], modulus)))
    return judge_epsilon(attack, candidates, failure)


def price_attack(scene: AuditScenario, failure: float) -> Iterator[AttackResult]:
    """Attack by the published price of one interval, at the demands where it leaks most."""
    attack = _single_release_result(scene, "prices", "all but the target; one price")
    t, samples = interval_bound(scene).t, max(4, scene.samples // 2)
    candidates = []
    for rest_wh in _probe_demands(scene, t):
        away, home = (
            release_demand(scene, np.full(samples, rest_wh + reading), t).price_ticks
            for reading in (0, scene.kind.bound_wh)
        )
        candidates.append(([f"the others use {rest_wh:,} Wh"], count_values(away, home)))
    yield judge_epsilon(attack, candidates, failure)


def _probe_demands(scene: AuditScenario, t: int) -> list[int]:
    """Return demands of the other households: the mean, and those at which the price changes most or meets a limit."""
    curve, top = scene.plan.zone.curve, scene.kind.bound_wh
    usual = round(float(rest_demand_moments(scene)[0][t]))
    edges = [segment.from_wh - top for segment in curve.segments]
    wh = np.unique(np.concatenate([np.linspace(0, 2 * usual + 10 * top, _CURVE_POINTS).astype(np.int64), edges]))
    wh = wh[wh >= 0]
    before, after = (curve.price_ticks(wh + reading) for reading in (0, top))
    demands = {usual, int(wh[np.abs(after - before).argmax()])}
    for limit in (curve.floor, curve.cap):
        if limit is not None:
            at = int(limit / curve.tick)
            demands |= set(wh[(before == at) != (after == at)][:1].tolist())
    return sorted(demands)


def differencing_attack(scene: AuditScenario, failure: float) -> Iterator[AttackResult]:
    """Attack by two zones that differ only by the target: at most twice the loss of one price."""
    t, epsilon, delta = interval_bound(scene)
    history, scores = scene.history, []
    score = adversary.differencing_score(
        noisy_demand(scene, history.rest_wh + history.energy_wh), noisy_demand(scene, history.rest_wh)
    )
    for reading in (0, scene.kind.bound_wh):
        with_target = noisy_demand(scene, np.full(scene.samples, reading), t)
        without = noisy_demand(scene, np.zeros(scene.samples, np.int64), t)
        scores.append(adversary.differencing_score(with_target, without))
    attack = AttackResult(
        name="differencing",
        knows="two zones, with and without the target",
        target=scene.kind.name,
        auc_bound=max_auc(2 * epsilon, delta),
        bound=2 * epsilon,
        delta=delta,
    )
    judged = judge_epsilon(attack, [(["with and without"], count_values(*scores))], failure / 2)
    yield judge_auc(judged, estimate_auc(score, history.occupied, scene.hidden), failure / 2)


def _single_release_result(scene: AuditScenario, name: str, knows: str) -> AttackResult:
    _, epsilon, delta = interval_bound(scene)
    return AttackResult(name=name, knows=knows, target=scene.kind.name, bound=epsilon, delta=delta)


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
        away = scores[0]
        candidates: list[Candidate] = []
        for home, words in zip(scores[1:], ("home throughout", "home every other interval"), strict=True):
            candidates += [([f"{name}, {words}"], count_values(away[name], home[name])) for name in away]
        judged = judge_epsilon(attack, candidates, failure / 2)
        yield judge_score_auc(judged, away["likelihood ratio"], scores[1]["likelihood ratio"], failure / 2)


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
