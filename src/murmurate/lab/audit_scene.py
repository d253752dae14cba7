"""The stage of an audit: a plan's zone lives from a seed and publishes by the plan, through `gather` and `protect`.

And what the plan claims of it: the bounds that no attack may pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from murmurate.audit import adversary
from murmurate.audit.bound import auc_bound
from murmurate.curator.gathering import gather
from murmurate.curator.interval import protect
from murmurate.curator.plan import Plan
from murmurate.curator.zone import HouseholdKind, Zone
from murmurate.errors import PrivacyError
from murmurate.household.consumption import NO_PRICES, TableConsumption
from murmurate.household.occupancy import ModelClass, OccupancyModel, occupancy_probability, sample
from murmurate.privacy.accountant import CurveAccountant, Event
from murmurate.privacy.calibration import Calibration, laplace_loss
from murmurate.privacy.divergence import GaussianCurve, Secret, gaussian_curve
from murmurate.privacy.leakage import Loss, worst_leakage
from murmurate.privacy.noise import Noise, NoiseLaw, laplace_log_pmf
from murmurate.privacy.promise import IntervalPromise, MomentPromise, WindowPromise
from murmurate.quantities import BoolArray, FloatArray, IntArray, Meters, Readings

INDIVIDUAL_HOUSEHOLDS = 2000  # in a larger zone everybody but the target is drawn as one normal number

_AT_ONCE = 200_000  # households times days that live at a time
_SETTLING_DAYS = 30
_KNOTS = 4097  # at which a log likelihood ratio is computed before it is interpolated

Source = Callable[[np.random.SeedSequence], Noise]
Advance = Callable[[int], None]  # hears how much was done


class Lived(NamedTuple):
    """The target and everybody else [day, interval]."""

    occupied: BoolArray
    energy_wh: IntArray
    rest_wh: IntArray


class Scene(NamedTuple):
    """What all attacks share: the plan, the household they are after, and its days."""

    plan: Plan
    target: HouseholdKind
    worst: Secret  # the most telling laws that the calibration covers
    days: Lived
    initial: FloatArray  # [occupied] at midnight
    transition: FloatArray  # [interval, from, to]
    prior: FloatArray  # [interval] log odds before anything is published
    hidden: BoolArray  # [interval] neither public nor certain
    noise: Callable[[], Noise]  # fresh each time
    rng: np.random.Generator
    samples: int  # of each of two worlds


def set_scene(plan: Plan, days: int, seed: int, progress: Advance, source: Source, samples: int) -> Scene:
    """Let the zone live for `days` separate days, each begun as endless days before it leave it."""
    seeds = np.random.SeedSequence(seed)
    rng = np.random.default_rng(seeds.spawn(1)[0])
    target = target_kind(plan.zone)
    start = settled(target)
    transition = np.stack([target.models[0].at(t)[..., 0] for t in range(len(target.public))])
    prior = adversary.strong(start, transition, np.zeros((len(transition), 2)))
    return Scene(
        plan=plan,
        target=target,
        worst=worst_secret(plan.zone.calibration, target.secret),
        days=live(plan.zone, target, days, rng, progress),
        initial=start,
        transition=transition,
        prior=prior,
        hidden=~np.array(target.public) & np.isfinite(prior),
        noise=lambda: source(seeds.spawn(1)[0]),
        rng=rng,
        samples=samples,
    )


def target_kind(zone: Zone) -> HouseholdKind:
    """The kind with the largest bound among those that need protection."""
    private = [kind for kind in zone.kinds if not all(kind.public)]
    if not private:
        raise PrivacyError("households", "public at all hours", "must have one kind with something to protect")
    return max(private, key=lambda kind: kind.bound_wh)


def worst_secret(calibration: Calibration, secret: Secret) -> Secret:
    """The pair of laws that is easiest to tell apart among those that a calibration covers."""
    if calibration is Calibration.RANGE:
        return Secret.anything_up_to(secret.bound_wh)
    if calibration is Calibration.SHIFT:
        return Secret.anything_up_to(max(1, secret.shift_wh()))
    return secret


def settled(kind: HouseholdKind) -> FloatArray:
    """The prior of midnight [occupied] under the first model, after many days."""
    model = OccupancyModel(groups=(kind.models[0],))
    home = occupancy_probability(model, _SETTLING_DAYS * len(kind.public) + 1)[-1, 0]
    return np.array([1 - home, home])


def zone_model(zone: Zone, counts: Sequence[int], copies: int) -> OccupancyModel:
    """So many households of each kind, `copies` times, under their first models; numbered kind by kind."""
    groups, first = [], 0
    for kind, count in zip(zone.kinds, counts, strict=True):
        many = count * copies
        if many:
            alike = np.zeros(many, np.int64)
            members = np.arange(first, first + many)[None, :]
            groups.append(replace(kind.models[0], members=members, kind=alike, initial=settled(kind)[:, None]))
        first += many
    return OccupancyModel(groups=tuple(groups))


def live(zone: Zone, target: HouseholdKind, days: int, rng: np.random.Generator, progress: Advance) -> Lived:
    """The days of the target and of everybody else; as many days at a time as fit."""
    alone = zone.households > INDIVIDUAL_HOUSEHOLDS
    counts = [int(kind is target) if alone else kind.count for kind in zone.kinds]
    at_once = max(1, _AT_ONCE // sum(counts))
    parts = []
    for begun in range(0, days, at_once):
        now = min(at_once, days - begun)
        parts.append(_live_at_once(zone, target, counts, now, rng))
        progress(now)
    lived = Lived(*(np.concatenate(part) for part in zip(*parts, strict=True)))
    if not alone:
        return lived
    mean, variance = rest_moments(zone, target)
    rest = np.rint(rng.normal(mean, np.sqrt(variance), lived.energy_wh.shape)).astype(np.int64)
    return lived._replace(rest_wh=np.maximum(rest, 0))


def _live_at_once(zone: Zone, target: HouseholdKind, counts: list[int], days: int, rng: np.random.Generator) -> Lived:
    """Each day is a zone of its own to `gather`."""
    kind = np.repeat(np.arange(len(counts)), np.array(counts) * days)
    bound_wh = np.array([k.bound_wh for k in zone.kinds])
    table = np.zeros((2, len(counts), int(bound_wh.max()) + 1))
    for column, each in enumerate(zone.kinds):
        table[:, column, : each.bound_wh + 1] = each.secret.away, each.secret.home
    law = TableConsumption.of(table, kind)
    which = np.concatenate([np.repeat(np.arange(days), count) for count in counts])
    names = tuple(f"day {day}" for day in range(days))
    meters = Meters(zones=names, zone=which, bound_wh=bound_wh[kind], imputed_wh=np.zeros(len(kind), np.int64))
    occupied = sample(zone_model(zone, counts, days), zone.intervals_per_day, rng)
    (mine,) = np.nonzero(kind == zone.kinds.index(target))
    mine = mine[:: counts[zone.kinds.index(target)]]
    energy, demand = np.zeros((2, days, zone.intervals_per_day), np.int64)
    everyone = np.arange(len(kind))
    for t, home in enumerate(occupied):
        energy_wh = law.sample(home, t, NO_PRICES, rng)
        energy[:, t] = energy_wh[mine]
        demand[:, t] = gather([Readings(meter=everyone, energy_wh=energy_wh)], meters).energy_wh
    return Lived(occupied[:, mine].T, energy, demand - energy)


def telling_days(scene: Scene, days: int) -> Lived:
    """Days of a target by itself that uses nothing when away and, when home, all that the calibration covers."""
    zone = scene.plan.zone
    alone = zone_model(zone, [int(kind is scene.target) for kind in zone.kinds], days)
    occupied = sample(alone, zone.intervals_per_day, scene.rng).T
    return Lived(occupied, np.where(occupied, scene.worst.bound_wh, 0), np.zeros(occupied.shape, np.int64))


def rest_moments(zone: Zone, target: HouseholdKind) -> tuple[FloatArray, FloatArray]:
    """Mean [Wh] and variance [Wh^2] of everybody but the target [interval]."""
    others = [kind.count - (kind is target) for kind in zone.kinds]
    moments = np.array([kind.moments(zone.intervals_per_day)[:2] for kind in zone.kinds])
    mean, variance = np.tensordot(others, moments, 1)
    return mean, variance


def publish(scene: Scene, demand_wh: IntArray, t: int | None = None) -> IntArray:
    """The noised demand of days [day, interval], or of one interval many times over [Wh]."""
    scale = scene.plan.scale_wh if t is None else scene.plan.scale_wh[t]
    release = protect(
        demand_wh,
        scale_wh=np.broadcast_to(scale, demand_wh.shape),
        curve=scene.plan.zone.curve,
        noise=scene.noise(),
        law=scene.plan.law,
    )
    return release.noisy_wh


def sampled(scene: Scene, home: bool, t: int, samples: int) -> IntArray:
    """The worst reading of interval t, noised, many times over; the rest of the zone is known and left out [Wh]."""
    below = np.cumsum(scene.worst.home if home else scene.worst.away)
    if np.isin(below, (0.0, 1.0)).all():
        return publish(scene, np.full(samples, int(below.argmax())), t)
    return publish(scene, np.searchsorted(below, scene.rng.random(samples) * below[-1], side="right"), t)


def log_pmf(law: NoiseLaw, scale: float) -> adversary.LogPmf:
    """log Pr[K = k] of the plan's noise, up to a constant."""
    if law is NoiseLaw.GAUSSIAN:
        return lambda noise_wh: -((np.asarray(noise_wh, np.float64) / scale) ** 2) / 2
    return lambda noise_wh: laplace_log_pmf(noise_wh, scale)


def evidence(plan: Plan, secret: Secret, scale: float) -> Callable[[IntArray], FloatArray]:
    """The log likelihood ratio of home against away at a noised reading; constant beyond 0 and bound for Laplace."""
    reach = 10 * scale if plan.law is NoiseLaw.GAUSSIAN else 0.0
    knots = np.unique(np.rint(np.linspace(-reach, secret.bound_wh + reach, _KNOTS)).astype(np.int64))
    away, home = adversary.log_emission(knots, 0, secret.away, secret.home, log_pmf(plan.law, scale)).T
    return lambda reading_wh: np.asarray(np.interp(reading_wh, knots, home - away))


def by_scale(plan: Plan) -> Iterator[tuple[float, BoolArray]]:
    """Each scale, and the intervals that have it."""
    for scale in np.unique(plan.scale_wh):
        yield float(scale), plan.scale_wh == scale


def coarse(law: FloatArray, step: int) -> FloatArray:
    """A law on 0, step, 2 step, ..: what each value rounds to."""
    return np.bincount((np.arange(len(law)) + step // 2) // step, weights=law).astype(np.float64)


def most_auc(epsilon: float, delta: float) -> float:
    """The largest AUC against (epsilon, delta): the area under y = e^eps x + delta, its mirror image and 1."""
    if not delta:
        return auc_bound(epsilon)
    x = (1 - delta) * (1 - auc_bound(epsilon))  # where the two lines meet, at y = 1 - x
    return x * (delta + 1 - x) / 2 + (1 - delta - x) * (2 - x) / 2 + delta


def _losses(scene: Scene) -> FloatArray:
    """The worst log likelihood ratio of each interval for the target, under Laplace noise [interval]."""
    zone, losses = scene.plan.zone, np.zeros(len(scene.hidden))
    eta = zone.eta if zone.calibration is Calibration.ROBUST else 0.0
    for scale, same in by_scale(scene.plan):
        losses[same] = laplace_loss(scene.worst, scale, eta).worst
    return np.where(scene.target.public, 0.0, losses)


def interval_bound(scene: Scene) -> tuple[int, float, float]:
    """The most telling interval of the day, and the epsilon that the plan allows one interval, at its delta."""
    plan = scene.plan
    t = int(np.where(scene.hidden, plan.scale_wh, np.inf).argmin())
    pure = [cost.spent for cost in plan.costs if isinstance(cost.promise, IntervalPromise | MomentPromise)]
    if plan.law is NoiseLaw.LAPLACE:
        pure.append(float(_losses(scene)[t]))
    if pure:
        return t, min(pure), 0.0
    delta = max(float(cost.promise.delta) for cost in plan.costs if isinstance(cost.promise, WindowPromise))
    sigma = float(plan.scale_wh[t])
    told = scene.worst is not scene.target.secret
    curve = GaussianCurve(scene.worst.bound_wh, sigma) if told else gaussian_curve(scene.worst, sigma)
    return t, CurveAccountant().epsilon([(Event((curve,)), 1)], delta), delta


def stream_bounds(scene: Scene) -> tuple[float | None, float | None]:
    """The most that a day of prices tells of one moment: leakage, and AUC; None where nothing bounds it.

    A window of a day or more bounds the AUC too: all its occupancies are hidden together, so each of them is.
    """
    plan, leakage = scene.plan, np.inf
    moments = [cost.spent for cost in plan.costs if isinstance(cost.promise, MomentPromise)]
    if moments:
        leakage = min(moments)
    elif plan.law is NoiseLaw.LAPLACE:
        models = tuple(OccupancyModel(groups=(chains,)) for chains in scene.target.models)
        leakage = worst_leakage(ModelClass(models=models), Loss.symmetric(_losses(scene)))
    windows = [
        most_auc(cost.spent, float(cost.promise.delta))
        for cost in plan.costs
        if isinstance(cost.promise, WindowPromise) and cost.promise.intervals >= plan.zone.intervals_per_day
    ]
    most = min(auc_bound(leakage), *windows, 1.0)
    return leakage if np.isfinite(leakage) else None, most if most < 1 else None
