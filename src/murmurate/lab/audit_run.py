"""Attack a plan: its zone lives, its prices are published, and every adversary listens.

Bounds come from what the plan claims (`Plan.costs`), releases from its scales: noise that does not keep the claims is
found out. Adversaries get the noised demand itself, of which the price is a function. Intervals in which the target's
occupancy is public are neither scored nor counted as evidence, as in the plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from murmurate.audit import adversary
from murmurate.audit.bound import epsilon_lower_bound
from murmurate.curator.plan import Plan
from murmurate.household.occupancy import log_joint
from murmurate.lab.audit_scene import (
    Advance,
    Scene,
    Source,
    by_scale,
    coarse,
    evidence,
    interval_bound,
    log_pmf,
    most_auc,
    publish,
    rest_moments,
    sampled,
    set_scene,
    stream_bounds,
    telling_days,
    zone_model,
)
from murmurate.lab.metrics import Estimate
from murmurate.privacy.divergence import Secret
from murmurate.privacy.noise import NoiseLaw, RehearsalNoise
from murmurate.privacy.promise import WindowPromise
from murmurate.quantities import BoolArray, FloatArray, IntArray

CONFIDENCE = 0.999  # of each verdict; intervals shown are of 95 %
LEAST_DAYS = 20  # of either state, before the AUC of one interval is looked at
JOINT_HOUSEHOLDS = 8
PHASES = 8  # living, and seven attacks: each moves the progress by the number of days

SAMPLES = 1_000_000  # of a single interval, in each of two worlds
_INTERVALS = 20  # a longer window gets fewer samples
_CELLS = 256  # into which a law is coarsened for those who see it through the haze of the zone
_MORE = 20  # times as many days of a target that lives by itself
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """What one adversary found out, beside the most that the plan allows. None: not measured, or no bound exists."""

    name: str
    knows: str
    auc: Estimate | None = None  # of pairs of days at the same time of day, with its 95 % interval
    auc_bound: float | None = None
    quantity: str = ""  # "posterior shift" or "epsilon", in natural logarithms
    measured: float | None = None
    bound: float | None = None
    delta: float = 0.0  # at which an epsilon is measured and bounded
    ok: bool = True
    note: str = ""
    auc_by_interval: tuple[float | None, ...] = ()  # of the day
    shift_by_interval: tuple[float, ...] = ()  # largest of all days

    @property
    def ran(self) -> bool:
        return self.auc is not None or self.measured is not None

    @property
    def worst_interval(self) -> int | None:
        """The interval of the day with the largest AUC."""
        seen = [(value, t) for t, value in enumerate(self.auc_by_interval) if value is not None]
        return max(seen)[1] if seen else None


class Ranking(NamedTuple):
    """How well scores rank home above away, among days at the same time of day."""

    auc: Estimate
    by_interval: FloatArray  # NaN where there are too few days of a state
    fewest: IntArray  # [interval] days of the rarer state


def run_audit(
    plan: Plan, days: int, seed: int, progress: Advance, *, source: Source = RehearsalNoise, samples: int = SAMPLES
) -> tuple[Attack, ...]:
    """Every attack on `days` days of the plan's zone; `progress` hears of `PHASES` times `days` in all.

    `source` makes the noise of each release from a seed: hand in another to put it on trial.
    """
    scene = set_scene(plan, days, seed, progress, source, samples)
    found: list[Attack] = []
    for attack in (strong, extreme, public, interval, window, differencing, joint):
        found.extend(attack(scene))
        progress(days)
    return tuple(found)


def strong(scene: Scene) -> Iterator[Attack]:
    """Everything but the target: its posterior from the whole day, by forward-backward."""
    attack = Attack(name="strong", knows="all but the target")
    yield _posterior(scene, attack, scene.target.secret, scene.days.energy_wh)


def extreme(scene: Scene) -> Iterator[Attack]:
    """The same against the most telling habits that the calibration covers; `exact` and `robust` know the habits."""
    if scene.worst is not scene.target.secret:
        told = scene._replace(days=telling_days(scene, _MORE * len(scene.days.occupied)))
        attack = Attack(name="extreme", knows="all but the target, which uses nothing or all it may")
        yield _posterior(told, attack, scene.worst, told.days.energy_wh)


def public(scene: Scene) -> Iterator[Attack]:
    """The model and the prices: the rest of the zone by two moments."""
    plan, target, (name, knows) = scene.plan, scene.target, ("public", "model and prices")
    mean, variance = rest_moments(plan.zone, target)
    if not (variance > 0).all():
        yield Attack(name=name, knows=knows, note="nobody else hides the target: public is strong")
        return
    noisy_wh = publish(scene, scene.days.rest_wh + scene.days.energy_wh)
    step = max(1, target.bound_wh // _CELLS)
    laws = [np.kron(coarse(law, step), np.eye(1, step)[0]) for law in (target.secret.away, target.secret.home)]
    gaussian = plan.law is NoiseLaw.GAUSSIAN
    emission = np.zeros((*noisy_wh.shape, 2))
    for scale, same in by_scale(plan):
        spread = variance[same] + (scale**2 if gaussian else 0.0)
        emission[:, same, 1] = adversary.public(
            noisy_wh[:, same], mean[same], spread, laws[0], laws[1], 0.0 if gaussian else scale
        )
    emission[:, ~scene.hidden] = 0.0
    odds = adversary.strong(scene.initial, scene.transition, emission)
    yield _ranked(scene, Attack(name=name, knows=knows, auc_bound=stream_bounds(scene)[1]), odds - scene.prior)


def interval(scene: Scene) -> Iterator[Attack]:
    """One price, the worst pair of readings: how large epsilon must be."""
    t, epsilon, delta = interval_bound(scene)
    reader = evidence(scene.plan, scene.worst, float(scene.plan.scale_wh[t]))
    scores = [reader(sampled(scene, home, t, scene.samples)) for home in (False, True)]
    attack = Attack(name="interval", knows="all but the target; one price", bound=epsilon, delta=delta)
    yield _told_apart(attack, scores)


def window(scene: Scene) -> Iterator[Attack]:
    """All prices of each window that the plan promises, the worst pair of readings throughout."""
    day = scene.plan.zone.intervals_per_day
    for cost in scene.plan.costs:
        if isinstance(cost.promise, WindowPromise):
            length = cost.promise.intervals
            telling = np.tile(np.where(scene.hidden, scene.plan.scale_wh**-2, 0.0), 2)
            first = max(range(day), key=lambda start: telling[start : start + length % day].sum())
            times = [t % day for t in range(first, first + length) if scene.hidden[t % day]]
            samples = min(scene.samples, _INTERVALS * scene.samples // max(1, len(times)))
            scores = [np.zeros(samples), np.zeros(samples)]
            readers = {s: evidence(scene.plan, scene.worst, s) for s in scene.plan.scale_wh[times].tolist()}
            for t in times:
                for home in (0, 1):
                    heard = sampled(scene, bool(home), t, samples)
                    scores[home] += readers[float(scene.plan.scale_wh[t])](heard)
            attack = Attack(name=f"window {cost.promise.words}", knows="all but the target; every price of it")
            yield _told_apart(replace(attack, bound=cost.spent, delta=float(cost.promise.delta)), scores)


def differencing(scene: Scene) -> Iterator[Attack]:
    """Two zones that differ by the target alone, each with noise of its own: at most twice the loss of one price."""
    t, epsilon, delta = interval_bound(scene)
    lived, pair = scene.days, []
    apart = adversary.differencing(publish(scene, lived.rest_wh + lived.energy_wh), publish(scene, lived.rest_wh))
    for home in (False, True):
        without = publish(scene, np.zeros(scene.samples, np.int64), t)
        pair.append(adversary.differencing(sampled(scene, home, t, scene.samples), without))
    measured = epsilon_lower_bound(pair[0], pair[1], CONFIDENCE, delta)
    attack = Attack(
        name="differencing",
        knows="two zones, with and without the target",
        auc_bound=most_auc(2 * epsilon, delta),
        quantity="epsilon",
        measured=measured,
        bound=2 * epsilon,
        delta=delta,
        ok=measured <= 2 * epsilon,
    )
    yield _ranked(scene, attack, apart)


def joint(scene: Scene) -> Iterator[Attack]:
    """The public model of each of a few households: the paper's posterior over 2^N states, from the past."""
    zone, attack = scene.plan.zone, Attack(name="joint", knows="model of each household; prices so far")
    if zone.households > JOINT_HOUSEHOLDS:
        yield replace(attack, note=f"needs at most {JOINT_HOUSEHOLDS} households")
        return
    noisy_wh = publish(scene, scene.days.rest_wh + scene.days.energy_wh)
    odds = joint_odds(scene.plan, noisy_wh, scene.hidden)
    first = sum(kind.count for kind in zone.kinds[: zone.kinds.index(scene.target)])
    yield _shifted(scene, attack, odds[..., first])


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
    for t, scale in enumerate(plan.scale_wh):
        belief = belief @ steps[t] if t else belief
        if heard[t]:
            noise = log_pmf(plan.law, scale)(noisy_wh[:, t, None] - step * np.arange(demand.shape[1]))
            belief = belief * (np.exp(noise - noise.max(axis=1, keepdims=True)) @ demand.T)
        belief = belief / belief.sum(axis=1, keepdims=True)
        with np.errstate(divide="ignore"):
            odds[:, t] = adversary.joint(np.log(belief))
    return odds


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
        by_interval[t] = beats[here].mean() / n0 if fewest[t] >= LEAST_DAYS else np.nan
    if not pairs:
        return None
    mean = wins / pairs
    half = float(ndtri(0.975) * np.sqrt(((won - mean * met) ** 2).sum()) / pairs)
    return Ranking(Estimate(mean, max(0.0, mean - half), min(1.0, mean + half)), by_interval, fewest)


def _posterior(scene: Scene, attack: Attack, secret: Secret, energy_wh: IntArray) -> Attack:
    """Forward-backward on the target's chain, with what is left when everybody else is subtracted."""
    mine_wh = publish(scene, scene.days.rest_wh + energy_wh) - scene.days.rest_wh
    emission = np.zeros((*mine_wh.shape, 2))
    for scale, same in by_scale(scene.plan):
        heard, pmf = same & scene.hidden, log_pmf(scene.plan.law, scale)
        emission[:, heard] = adversary.log_emission(mine_wh[:, heard], 0, secret.away, secret.home, pmf)
    return _shifted(scene, attack, adversary.strong(scene.initial, scene.transition, emission))


def _shifted(scene: Scene, attack: Attack, odds: FloatArray) -> Attack:
    """Judge posterior log odds of the target [day, interval] by the leakage of a moment."""
    leakage, most = stream_bounds(scene)
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
    return _ranked(scene, judged, shift)


def _ranked(scene: Scene, attack: Attack, score: FloatArray) -> Attack:
    """Judge scores [day, interval] by the bound on their AUC: in the mean, and in each interval of its own."""
    found = rank(score, scene.days.occupied, scene.hidden)
    if found is None:
        return replace(attack, note=attack.note or "too few days to rank")
    ok = attack.ok and (attack.auc_bound is None or _within(found, attack.auc_bound))
    by_interval = tuple(None if np.isnan(value) else float(value) for value in found.by_interval)
    return replace(attack, auc=found.auc, auc_by_interval=by_interval, ok=ok)


def _within(found: Ranking, most: float) -> bool:
    """Whether no AUC is above the bound by more than chance, which gets its share for each interval."""
    seen = np.flatnonzero(~np.isnan(found.by_interval))
    deviation = found.auc.half_width / ndtri(0.975)
    if found.auc.mean - ndtri(CONFIDENCE) * deviation > most + _ROUNDING:
        return False
    luck = -ndtri((1 - CONFIDENCE) / max(1, len(seen))) * np.sqrt(most * (1 - most) / found.fewest[seen])
    return bool((found.by_interval[seen] <= most + luck + _ROUNDING).all())


def _told_apart(attack: Attack, scores: list[FloatArray]) -> Attack:
    """Judge scores of two worlds [away, home] by the epsilon, at delta, that they prove."""
    bound = 0.0 if attack.bound is None else attack.bound
    measured = epsilon_lower_bound(scores[0], scores[1], CONFIDENCE, attack.delta)
    home = np.repeat([False, True], [len(score) for score in scores])[:, None]
    found = rank(np.concatenate(scores)[:, None], home, np.array([True]))
    most = most_auc(bound, attack.delta)
    ok = measured <= bound and (found is None or _within(found, most))
    auc = None if found is None else found.auc
    return replace(attack, auc=auc, auc_bound=most, quantity="epsilon", measured=measured, ok=ok)
