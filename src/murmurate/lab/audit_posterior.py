"""Adversaries who compute the odds that the target is home from the prices of a day.

They are told the habits of the target: the model that it lives by. Intervals in which its occupancy is public are
neither scored nor counted as evidence, as in the plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce

import numpy as np

from murmurate.audit import adversary
from murmurate.curator.plan import Plan
from murmurate.household.occupancy import log_joint
from murmurate.lab.audit_attack import Attack, judge_ranking, rank
from murmurate.lab.audit_bounds import stream_bounds
from murmurate.lab.audit_law import intervals_alike, log_pmf, normal_and_laplace
from murmurate.lab.audit_scene import Scene, coarse, publish, rest_moments, telling_days, zone_model
from murmurate.privacy.divergence import Secret
from murmurate.quantities import BoolArray, FloatArray, IntArray

JOINT_HOUSEHOLDS = 8
_CELLS = 256  # into which a law is coarsened for those who do not know the rest of the zone
_MORE = 20  # times as many days of a target that lives by itself
_ROUNDING = 1e-9


def strong(scene: Scene, failure: float) -> Iterator[Attack]:
    """Everything but the target: its posterior from the whole day, by forward-backward."""
    attack = Attack(name="strong", knows="all but the target; told the habits", target=scene.name)
    yield _posterior(scene, attack, scene.kind.secret, failure)
    yield _bare(_posterior(scene.without_noise(), attack, scene.kind.secret, failure))


def extreme(scene: Scene, failure: float) -> Iterator[Attack]:
    """The same against the most telling habits that the calibration covers; `exact` and `robust` know the habits."""
    if scene.any_reading:
        told = scene._replace(days=telling_days(scene, _MORE * len(scene.days.occupied)))
        knows = "all but the target, which uses nothing or all it may"
        yield _posterior(told, Attack(name="extreme", knows=knows, target=scene.name), scene.worst, failure)


def public(scene: Scene, failure: float) -> Iterator[Attack]:
    """The model and the prices: the rest of the zone by two moments."""
    attack = Attack(name="public", knows="model and prices; told the habits", target=scene.name)
    if not (rest_moments(scene)[1] > 0).all():
        yield replace(attack, note="nobody else hides the target: public is strong")
        return
    attack = replace(attack, auc_bound=stream_bounds(scene)[1])
    for there in (scene, scene.without_noise()):
        odds = _public_odds(there)
        found = rank(odds - scene.prior, scene.days.occupied, scene.hidden)
        judged = judge_ranking(attack, found, failure)
        yield judged if there is scene else _bare(judged)


def _public_odds(scene: Scene) -> FloatArray:
    kind, (mean, variance) = scene.kind, rest_moments(scene)
    noisy_wh = publish(scene, scene.days.rest_wh + scene.days.energy_wh)
    step = max(1, kind.bound_wh // _CELLS)
    laws = [np.kron(coarse(law, step), np.eye(1, step)[0]) for law in (kind.secret.away, kind.secret.home)]
    emission = np.zeros((*noisy_wh.shape, 2))
    for t, same in intervals_alike(scene.plan):
        normal, laplace = normal_and_laplace(scene.plan, t)
        emission[:, same, 1] = adversary.public(
            noisy_wh[:, same], mean[same], variance[same] + normal, laws[0], laws[1], laplace
        )
    emission[:, ~scene.hidden] = 0.0
    return adversary.strong(scene.initial, scene.transition, emission)


def joint(scene: Scene, failure: float) -> Iterator[Attack]:
    """The first model of each of a few households: the paper's posterior over 2^N states, from the past."""
    zone = scene.plan.zone
    attack = Attack(name="joint", knows="model of each household; prices so far", target=scene.name)
    if zone.households > JOINT_HOUSEHOLDS:
        yield replace(attack, note=f"needs at most {JOINT_HOUSEHOLDS} households")
        return
    noisy_wh = publish(scene, scene.days.rest_wh + scene.days.energy_wh)
    odds = joint_odds(scene.plan, noisy_wh, scene.hidden)
    first = sum(kind.count for kind in zone.kinds[: zone.kinds.index(scene.kind)])
    yield _shifted(scene, attack, odds[..., first], failure)


def joint_odds(plan: Plan, noisy_wh: IntArray, heard: BoolArray) -> FloatArray:
    """Log odds [day, interval, household] given the releases of the day so far (paper, Eq. 2 and 3).

    Laws are coarsened to at most 256 cells of the largest bound, so that 2^8 states stay quick.
    """
    zone, laws, states = plan.zone, [], np.arange(2**plan.zone.households)
    step = max(1, max(kind.bound_wh for kind in zone.kinds) // _CELLS)
    for kind in zone.kinds:
        laws += [[coarse(law, step) for law in (kind.secret.away, kind.secret.home)]] * kind.count
    demand = np.stack([reduce(np.convolve, [law[s >> i & 1] for i, law in enumerate(laws)]) for s in states])
    chain = log_joint(zone_model(zone, [kind.count for kind in zone.kinds], 1))
    steps, belief = np.exp(chain.transition), np.exp(chain.initial)[None, :]
    odds = np.zeros((*noisy_wh.shape, len(laws)))
    for t in range(zone.intervals_per_day):
        belief = belief @ steps[t] if t else belief
        if heard[t]:
            noise = log_pmf(plan, t)(noisy_wh[:, t, None] - step * np.arange(demand.shape[1]))
            belief = belief * (np.exp(noise - noise.max(axis=1, keepdims=True)) @ demand.T)
        belief = belief / belief.sum(axis=1, keepdims=True)
        with np.errstate(divide="ignore"):
            odds[:, t] = adversary.joint(np.log(belief))
    return odds


def _posterior(scene: Scene, attack: Attack, secret: Secret, failure: float) -> Attack:
    """Forward-backward on the target's chain, with what is left when everybody else is subtracted."""
    mine_wh = publish(scene, scene.days.rest_wh + scene.days.energy_wh) - scene.days.rest_wh
    emission = np.zeros((*mine_wh.shape, 2))
    for t, same in intervals_alike(scene.plan):
        heard, pmf = same & scene.hidden, log_pmf(scene.plan, t)
        emission[:, heard] = adversary.log_emission(mine_wh[:, heard], 0, secret.away, secret.home, pmf)
    return _shifted(scene, attack, adversary.strong(scene.initial, scene.transition, emission), failure)


def _shifted(scene: Scene, attack: Attack, odds: FloatArray, failure: float) -> Attack:
    """Judge posterior log odds of the target [day, interval] by the leakage of a moment."""
    leakage, most = stream_bounds(scene) if scene.plan.scale_wh.any() else (None, None)
    hidden = scene.hidden
    shift = np.zeros(odds.shape)
    shift[:, hidden] = odds[:, hidden] - scene.prior[hidden]
    measured = adversary.posterior_shift(odds[:, hidden], scene.prior[hidden])
    judged = replace(
        attack,
        auc_bound=most,
        quantity="posterior shift",
        measured=measured,
        bound=leakage,
        ok=leakage is None or measured <= leakage * (1 + _ROUNDING) + _ROUNDING,
        note="" if leakage is not None else "this noise has no bound on what one moment may leak",
        shift_by_interval=tuple(np.abs(shift).max(axis=0).tolist()),
    )
    return judge_ranking(judged, rank(shift, scene.days.occupied, hidden), failure)


def _bare(attack: Attack) -> Attack:
    """The same attack without noise has no bound to keep."""
    return replace(
        attack, noise=False, ok=True, auc_bound=None, bound=None, note="", auc_by_interval=(), shift_by_interval=()
    )
