"""The stage of an audit: a plan's zone lives from a seed and publishes by the plan, through `gather` and `protect`.

Each kind of household that has something to protect is a target, under each of its models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from murmurate.audit import adversary
from murmurate.curator.gathering import gather
from murmurate.curator.interval import protect
from murmurate.curator.plan import Plan
from murmurate.curator.zone import HouseholdKind, Zone
from murmurate.errors import PrivacyError
from murmurate.household.consumption import NO_PRICES, TableConsumption
from murmurate.household.occupancy import Chains, OccupancyModel, occupancy_probability, sample
from murmurate.lab.audit_law import without_noise
from murmurate.privacy.calibration import Calibration
from murmurate.privacy.divergence import Secret
from murmurate.privacy.noise import Noise, NoiseLaw
from murmurate.quantities import BoolArray, FloatArray, IntArray, Meters, Readings, Release

INDIVIDUAL_HOUSEHOLDS = 2000  # in a larger zone all but one household of each kind are drawn as one normal number

_AT_ONCE = 200_000  # households times days that live at a time
_SETTLING_DAYS = 30

Source = Callable[[np.random.SeedSequence], Noise]
Mechanism = Callable[..., Release]  # called as `curator.interval.protect` is
Advance = Callable[[float], None]  # hears which share of the work was done


class Lived(NamedTuple):
    """The target and everybody else [day, interval]."""

    occupied: BoolArray
    energy_wh: IntArray
    rest_wh: IntArray


class LivedZone(NamedTuple):
    """One household of each kind, and the demand of the zone."""

    occupied: BoolArray  # [kind, day, interval]
    energy_wh: IntArray  # [kind, day, interval]
    demand_wh: IntArray  # [day, interval]


class Scene(NamedTuple):
    """What all attacks on one target share: the plan, the household they are after, and its days."""

    plan: Plan
    kind: HouseholdKind
    model: int  # number of the model of `kind` that the target lives by
    worst: Secret  # the most telling laws that the calibration covers
    days: Lived
    initial: FloatArray  # [occupied] at midnight
    transition: FloatArray  # [interval, from, to]
    prior: FloatArray  # [interval] log odds before anything is published
    hidden: BoolArray  # [interval] neither public nor certain
    noise: Callable[[], Noise]  # fresh each time
    mechanism: Mechanism
    rng: np.random.Generator
    samples: int  # of each of two worlds

    @property
    def name(self) -> str:
        """The target in words."""
        return self.kind.name if len(self.kind.models) == 1 else f"{self.kind.name}, model {self.model + 1}"

    @property
    def any_reading(self) -> bool:
        """Whether the calibration covers any two readings up to a bound, rather than two laws."""
        return self.worst is not self.kind.secret

    def without_noise(self) -> Scene:
        """The same scene where nothing is added to the demand."""
        return self._replace(plan=without_noise(self.plan), noise=NoNoise)


class NoNoise:
    """Adds nothing: shows what an attack finds out where nothing hides the demand."""

    rehearsal = True

    def draw(self, law: NoiseLaw, scale_wh: FloatArray, core_wh: IntArray | None = None) -> IntArray:
        del law, core_wh
        return np.zeros(scale_wh.shape, np.int64)


def set_scenes(
    plan: Plan,
    days: int,
    seed: int,
    progress: Advance,
    source: Source,
    samples: int,
    mechanism: Mechanism = protect,
) -> list[Scene]:
    """Let the zone live for `days` separate days, each begun as endless days before it leave it. A scene a target."""
    seeds = np.random.SeedSequence(seed)
    rng = np.random.default_rng(seeds.spawn(1)[0])
    zone = plan.zone
    lived = live(zone, days, rng, progress)
    scenes = []
    for kind in target_kinds(zone):
        number = zone.kinds.index(kind)
        energy_wh = lived.energy_wh[number]
        mine = Lived(lived.occupied[number], energy_wh, lived.demand_wh - energy_wh)
        for model, chains in enumerate(kind.models):
            start = settled(chains)
            transition = np.stack([chains.at(t)[..., 0] for t in range(zone.intervals_per_day)])
            prior = adversary.strong(start, transition, np.zeros((len(transition), 2)))
            scene = Scene(
                plan=plan,
                kind=kind,
                model=model,
                worst=worst_secret(zone.calibration, kind.secret),
                days=mine,
                initial=start,
                transition=transition,
                prior=prior,
                hidden=~np.array(kind.public) & np.isfinite(prior),
                noise=lambda: source(seeds.spawn(1)[0]),
                mechanism=mechanism,
                rng=rng,
                samples=samples,
            )
            scenes.append(scene if model == 0 else scene._replace(days=_other_habits(scene)))
    return [scene for scene in scenes if scene.hidden.any()]


def by_kind(scenes: list[Scene]) -> list[Scene]:
    """One scene a kind: an interval is hidden if it is under one of the models."""
    found: dict[str, Scene] = {}
    for scene in scenes:
        known = found.setdefault(scene.kind.name, scene)
        found[scene.kind.name] = known._replace(hidden=known.hidden | scene.hidden)
    return list(found.values())


def target_kinds(zone: Zone) -> list[HouseholdKind]:
    """The kinds that need protection."""
    if not zone.private_kinds:
        raise PrivacyError("households", "public at all hours", "must have one kind with something to protect")
    return list(zone.private_kinds)


def worst_secret(calibration: Calibration, secret: Secret) -> Secret:
    """The pair of laws that is easiest to tell apart among those that a calibration covers."""
    if calibration is Calibration.RANGE:
        return Secret.anything_up_to(secret.bound_wh)
    if calibration is Calibration.SHIFT:
        return Secret.anything_up_to(max(1, secret.shift_wh()))
    return secret


def settled(chains: Chains) -> FloatArray:
    """The prior of midnight [occupied] of one household, after many days."""
    home = occupancy_probability(OccupancyModel(groups=(chains,)), _SETTLING_DAYS * len(chains.period) + 1)[-1, 0]
    return np.array([1 - home, home])


def many_alike(chains: Chains, first: int, many: int) -> Chains:
    """So many households that live by one model, numbered from `first`, as midnight finds them after many days."""
    members = np.arange(first, first + many)[None, :]
    return replace(chains, members=members, kind=np.zeros(many, np.int64), initial=settled(chains)[:, None])


def zone_model(zone: Zone, counts: Sequence[int], copies: int) -> OccupancyModel:
    """So many households of each kind, `copies` times, under their first models; numbered kind by kind."""
    groups, first = [], 0
    for kind, count in zip(zone.kinds, counts, strict=True):
        if count:
            groups.append(many_alike(kind.models[0], first, count * copies))
        first += count * copies
    return OccupancyModel(groups=tuple(groups))


def live(zone: Zone, days: int, rng: np.random.Generator, progress: Advance) -> LivedZone:
    """The days of one household of each kind and of the zone, as many days at a time as fit."""
    alone = zone.households > INDIVIDUAL_HOUSEHOLDS
    counts = [1 if alone else kind.count for kind in zone.kinds]
    at_once = max(1, _AT_ONCE // sum(counts))
    parts = []
    for begun in range(0, days, at_once):
        now = min(at_once, days - begun)
        parts.append(_live_at_once(zone, counts, now, rng))
        progress(now / days)
    occupied, energy_wh, demand_wh = (np.concatenate(part, axis=-2) for part in zip(*parts, strict=True))
    if alone:
        mean, variance = zone_moments(zone, [kind.count - 1 for kind in zone.kinds])
        rest = np.rint(rng.normal(mean, np.sqrt(variance), demand_wh.shape)).astype(np.int64)
        demand_wh = demand_wh + np.maximum(rest, 0)
    return LivedZone(occupied, energy_wh, demand_wh)


def _live_at_once(zone: Zone, counts: list[int], days: int, rng: np.random.Generator) -> LivedZone:
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
    first = np.stack([np.flatnonzero(kind == k)[::count] for k, count in enumerate(counts)])  # [kind, day]
    energy = np.zeros((len(counts), days, zone.intervals_per_day), np.int64)
    demand = np.zeros((days, zone.intervals_per_day), np.int64)
    everyone = np.arange(len(kind))
    for t, home in enumerate(occupied):
        energy_wh = law.sample(home, t, NO_PRICES, rng)
        energy[..., t] = energy_wh[first]
        demand[:, t] = gather([Readings(meter=everyone, energy_wh=energy_wh)], meters).energy_wh
    return LivedZone(np.moveaxis(occupied[:, first], 0, -1), energy, demand)


def lone_occupancy(scene: Scene, days: int) -> BoolArray:
    """Whether the target alone is home, for so many days of its model [day, interval]."""
    alone = OccupancyModel(groups=(many_alike(scene.kind.models[scene.model], 0, days),))
    return sample(alone, scene.plan.zone.intervals_per_day, scene.rng).T


def telling_days(scene: Scene, days: int) -> Lived:
    """Days of a target by itself that uses nothing when away and, when home, all that the calibration covers."""
    occupied = lone_occupancy(scene, days)
    return Lived(occupied, np.where(occupied, scene.worst.bound_wh, 0), np.zeros(occupied.shape, np.int64))


def _other_habits(scene: Scene) -> Lived:
    """The same days of everybody else, and a target that lives by the model of the scene."""
    occupied = lone_occupancy(scene, len(scene.days.occupied))
    away, home = (readings(scene, law, occupied.shape) for law in (scene.kind.secret.away, scene.kind.secret.home))
    return Lived(occupied, np.where(occupied, home, away), scene.days.rest_wh)


def zone_moments(zone: Zone, counts: Sequence[int]) -> tuple[FloatArray, FloatArray]:
    """Mean [Wh] and variance [Wh^2] of so many households of each kind [interval]."""
    moments = np.array([kind.moments(zone.intervals_per_day)[:2] for kind in zone.kinds])
    mean, variance = np.tensordot(counts, moments, 1)
    return mean, variance


def rest_moments(scene: Scene) -> tuple[FloatArray, FloatArray]:
    """Mean [Wh] and variance [Wh^2] of everybody but the target [interval]."""
    zone = scene.plan.zone
    return zone_moments(zone, [kind.count - (kind is scene.kind) for kind in zone.kinds])


def readings(scene: Scene, world: int | FloatArray, shape: tuple[int, ...]) -> IntArray:
    """Readings of one world: always the same [Wh], or drawn by a law on 0, 1, .. [Wh]."""
    if isinstance(world, int):
        return np.full(shape, world)
    below = np.cumsum(world)
    drawn: IntArray = np.searchsorted(below, scene.rng.random(shape) * below[-1], side="right")
    return drawn


def release(scene: Scene, demand_wh: IntArray, t: int | None = None) -> Release:
    """The release of days [day, interval], or of one interval many times over."""
    noise, when = scene.plan.noise, slice(None) if t is None else t
    core_wh = np.broadcast_to(noise.core_wh[when], demand_wh.shape)
    return scene.mechanism(
        demand_wh,
        scale_wh=np.broadcast_to(noise.scale_wh[when], demand_wh.shape),
        core_wh=core_wh if noise.law is NoiseLaw.HUBER else None,
        curve=scene.plan.zone.curve,
        noise=scene.noise(),
        law=noise.law,
    )


def publish(scene: Scene, demand_wh: IntArray, t: int | None = None) -> IntArray:
    """The noised demand of that release [Wh]."""
    return release(scene, demand_wh, t).noisy_wh


def coarse(law: FloatArray, step: int) -> FloatArray:
    """A law on 0, step, 2 step, ..: what each value rounds to."""
    return np.bincount((np.arange(len(law)) + step // 2) // step, weights=law).astype(np.float64)
