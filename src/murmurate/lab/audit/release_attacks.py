"""Attacks on one release by an attacker who knows all but the target.

The hypotheses differ in the target's reading of one interval. The noise covers any two readings up to its bound, so
several pairs are compared.
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
    judge_auc,
    judge_epsilon,
    judge_score_auc,
)
from murmurate.lab.audit.claimed_bounds import interval_bound, max_auc
from murmurate.lab.audit.noise_model import log_likelihood_ratio
from murmurate.lab.audit.simulated_zone import (
    AuditScenario,
    noisy_demand,
    release_demand,
    rest_demand_moments,
)
from murmurate.units import IntArray

MODULI = (*range(2, 17), 100, 1000)
_OTHER_PAIR_SAMPLE_DIVISOR = 4  # pairs other than the worst get this fraction of the samples
_RESIDUE_SAMPLE_DIVISOR = 8  # each hypothesis of the residues gets this fraction of the samples
_CURVE_POINTS = 4096  # demands at which the curve is evaluated


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
    yield _interval_attack_without_noise(scene, failure)
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


def _interval_attack_without_noise(scene: AuditScenario, failure: float) -> AttackResult:
    away, home = (np.full(scene.samples, reading) for reading in (0, scene.kind.bound_wh))
    attack = replace(_single_release_result(scene, "interval", "all but the target; one demand"), bound=None, delta=0.0)
    judged = judge_epsilon(attack, [([""], count_values(away, home))], failure / 2)
    ranked = judge_score_auc(judged, away.astype(np.float64), home.astype(np.float64), failure / 2)
    return replace(ranked, noise=False)


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
        apart = [shift for shift in shifts if _separates_residues(shift, modulus)]
        if apart:
            labels = [f"0 against {shift} Wh, modulo {modulus}" for shift in apart]
            candidates.append((labels, count_residues(away_wh, [drawn[shift] for shift in apart], modulus)))
    return judge_epsilon(attack, candidates, failure)


def _separates_residues(shift: int, modulus: int) -> bool:
    """Whether to compare this shift: each residue of a small modulus once, every residue of a large one."""
    return bool(shift % modulus) and (shift < modulus or modulus > 16)


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
