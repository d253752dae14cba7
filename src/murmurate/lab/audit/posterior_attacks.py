"""Attackers who compute the odds that the target is home from the prices of a day.

They know the habits of the target: its occupancy model. Intervals in which its occupancy is public are
neither scored nor counted as evidence, as in the plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce

import numpy as np

from murmurate.audit import adversary
from murmurate.household.occupancy import log_joint_chain
from murmurate.lab.audit.attack_result import AttackResult, estimate_auc, judge_auc, stream_bounds
from murmurate.lab.audit.simulated_zone import (
    AuditScenario,
    coarsen_distribution,
    group_intervals_by_noise,
    noise_log_pmf,
    noisy_demand,
    normal_and_laplace,
    rest_demand_moments,
    worst_case_history,
    zone_occupancy_model,
)
from murmurate.planning.plan import Plan
from murmurate.privacy.divergence import SecretPair
from murmurate.units import BoolArray, FloatArray, IntArray

MAX_JOINT_HOUSEHOLDS = 8
_MAX_CELLS = 256  # cells of a coarsened distribution, for attackers who do not know the rest of the zone
_EXTREME_DAYS_FACTOR = 20  # factor on the number of days of a target without other households
_SHIFT_TOLERANCE = 1e-9


def strong_attack(scene: AuditScenario, failure: float) -> Iterator[AttackResult]:
    """The attacker knows all but the target and computes its posterior from the whole day, by forward-backward."""
    attack = AttackResult(name="strong", knows="all but the target; told the habits", target=scene.target_name)
    yield _posterior_attack(scene, attack, scene.kind.secret_pair, failure)
    yield _without_bounds(_posterior_attack(scene.without_noise(), attack, scene.kind.secret_pair, failure))


def extreme_attack(scene: AuditScenario, failure: float) -> Iterator[AttackResult]:
    """The same attack on the worst consumption: nothing when away, the bound when home."""
    days = _EXTREME_DAYS_FACTOR * len(scene.history.occupied)
    knows = "all but the target, which uses nothing or all it may"
    attack = AttackResult(name="extreme", knows=knows, target=scene.target_name)
    yield _posterior_attack(scene._replace(history=worst_case_history(scene, days)), attack, scene.worst_pair, failure)


def public_attack(scene: AuditScenario, failure: float) -> Iterator[AttackResult]:
    """The attacker knows the model and the prices, and the rest of the zone by two moments."""
    attack = AttackResult(name="public", knows="model and prices; told the habits", target=scene.target_name)
    if not (rest_demand_moments(scene)[1] > 0).all():
        yield replace(attack, note="no other household hides the target: public is strong")
        return
    attack = replace(attack, auc_bound=stream_bounds(scene)[1])
    for variant in (scene, scene.without_noise()):
        odds = _public_log_odds(variant)
        estimate = estimate_auc(odds - scene.prior, scene.history.occupied, scene.hidden)
        judged = judge_auc(attack, estimate, failure)
        yield judged if variant is scene else _without_bounds(judged)


def _public_log_odds(scene: AuditScenario) -> FloatArray:
    kind, (mean, variance) = scene.kind, rest_demand_moments(scene)
    noisy_wh = noisy_demand(scene, scene.history.rest_wh + scene.history.energy_wh)
    step = max(1, kind.bound_wh // _MAX_CELLS)
    pmfs = [
        np.kron(coarsen_distribution(pmf, step), np.eye(1, step)[0])
        for pmf in (kind.secret_pair.away, kind.secret_pair.home)
    ]
    emission = np.zeros((*noisy_wh.shape, 2))
    for t, same in group_intervals_by_noise(scene.plan):
        normal, laplace = normal_and_laplace(scene.plan, t)
        emission[:, same, 1] = adversary.public_log_ratio(
            noisy_wh[:, same], mean[same], variance[same] + normal, pmfs[0], pmfs[1], laplace
        )
    emission[:, ~scene.hidden] = 0.0
    return adversary.smoothed_log_odds(scene.initial, scene.transition, emission)


def joint_attack(scene: AuditScenario, failure: float) -> Iterator[AttackResult]:
    """The attacker knows the first model of each of a few households: the paper's posterior over 2^N states."""
    zone = scene.plan.zone
    attack = AttackResult(name="joint", knows="model of each household; prices so far", target=scene.target_name)
    if zone.household_count > MAX_JOINT_HOUSEHOLDS:
        yield replace(attack, note=f"needs at most {MAX_JOINT_HOUSEHOLDS} households")
        return
    noisy_wh = noisy_demand(scene, scene.history.rest_wh + scene.history.energy_wh)
    odds = joint_log_odds(scene.plan, noisy_wh, scene.hidden)
    first = sum(kind.count for kind in zone.kinds[: zone.kinds.index(scene.kind)])
    yield _judge_posterior_shift(scene, attack, odds[..., first], failure)


def joint_log_odds(plan: Plan, noisy_wh: IntArray, observed: BoolArray) -> FloatArray:
    """Return log odds [day, interval, household] given the releases of the day so far (paper, Eq. 2 and 3).

    Distributions are coarsened to at most 256 cells of the largest bound, so that 2^8 states stay fast.
    """
    zone, pmfs, states = plan.zone, [], np.arange(2**plan.zone.household_count)
    step = max(1, max(kind.bound_wh for kind in zone.kinds) // _MAX_CELLS)
    for kind in zone.kinds:
        pmfs += [
            [coarsen_distribution(pmf, step) for pmf in (kind.secret_pair.away, kind.secret_pair.home)]
        ] * kind.count
    demand = np.stack([reduce(np.convolve, [pmf[s >> i & 1] for i, pmf in enumerate(pmfs)]) for s in states])
    chain = log_joint_chain(zone_occupancy_model(zone, [kind.count for kind in zone.kinds], 1))
    steps, belief = np.exp(chain.transition), np.exp(chain.initial)[None, :]
    odds = np.zeros((*noisy_wh.shape, len(pmfs)))
    for t in range(zone.intervals_per_day):
        belief = belief @ steps[t] if t else belief
        if observed[t]:
            noise = noise_log_pmf(plan, t)(noisy_wh[:, t, None] - step * np.arange(demand.shape[1]))
            belief = belief * (np.exp(noise - noise.max(axis=1, keepdims=True)) @ demand.T)
        belief = belief / belief.sum(axis=1, keepdims=True)
        with np.errstate(divide="ignore"):
            odds[:, t] = adversary.joint_log_odds(np.log(belief))
    return odds


def _posterior_attack(
    scene: AuditScenario, attack: AttackResult, secret_pair: SecretPair, failure: float
) -> AttackResult:
    """Run forward-backward on the target's chain, after subtracting all other households."""
    target_wh = noisy_demand(scene, scene.history.rest_wh + scene.history.energy_wh) - scene.history.rest_wh
    emission = np.zeros((*target_wh.shape, 2))
    for t, same in group_intervals_by_noise(scene.plan):
        observed, pmf = same & scene.hidden, noise_log_pmf(scene.plan, t)
        emission[:, observed] = adversary.emission_log_likelihood(
            target_wh[:, observed], 0, secret_pair.away, secret_pair.home, pmf
        )
    return _judge_posterior_shift(
        scene, attack, adversary.smoothed_log_odds(scene.initial, scene.transition, emission), failure
    )


def _judge_posterior_shift(
    scene: AuditScenario, attack: AttackResult, odds: FloatArray, failure: float
) -> AttackResult:
    """Compare posterior log odds of the target [day, interval] with the leakage bound of a moment."""
    leakage, auc_limit = stream_bounds(scene) if scene.plan.scale_wh.any() else (None, None)
    hidden = scene.hidden
    shift = np.zeros(odds.shape)
    shift[:, hidden] = odds[:, hidden] - scene.prior[hidden]
    measured = adversary.max_log_odds_shift(odds[:, hidden], scene.prior[hidden])
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


def _without_bounds(attack: AttackResult) -> AttackResult:
    """Return the result of the same attack without noise, which has no bound."""
    return replace(
        attack, noise=False, ok=True, auc_bound=None, bound=None, note="", auc_by_interval=(), shift_by_interval=()
    )
