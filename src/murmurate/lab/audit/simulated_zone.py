"""Simulate the zone of a plan from a seed for an audit, with `aggregate` and `protect`; the distribution of its noise.

Each kind of household with secret occupancy is a target, under each of its models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from murmurate.adversaries import adversary
from murmurate.adversaries.adversary import LogPmf
from murmurate.aggregation import aggregate
from murmurate.errors import PrivacyError
from murmurate.household.consumption import EMPTY_PRICE_HISTORY, TableConsumption
from murmurate.household.occupancy import OccupancyChains, OccupancyModel, occupancy_probability, sample_occupancy
from murmurate.lab.audit.attack import AuditProgress, Mechanism, NoiseSource
from murmurate.planning.plan import Plan
from murmurate.planning.zone import HouseholdKind, Zone
from murmurate.privacy.divergence import SecretPair, huber_log_pmf
from murmurate.privacy.noise import NoiseDistribution, NoiseSampler, laplace_log_pmf
from murmurate.release import protect
from murmurate.types import Meters, Readings, Release
from murmurate.units import BoolArray, FloatArray, IntArray

INDIVIDUAL_HOUSEHOLDS = 2000  # in a larger zone all but one household of each kind are drawn as one normal number

_MAX_HOUSEHOLD_DAYS = 200_000  # households times days per batch of the simulation
_PRIOR_BURN_IN_DAYS = 30
_RATIO_KNOTS = 4097  # at which a log likelihood ratio is computed before it is interpolated
_TAIL_SIGMAS = 10  # deviations of Gaussian noise beyond which a ratio is taken as constant


class TargetHistory(NamedTuple):
    """The target and the rest of the zone [day, interval]."""

    occupied: BoolArray
    energy_wh: IntArray
    rest_wh: IntArray


class AuditScenario(NamedTuple):
    """The input of all attacks on one target: the plan, the target household, and its simulated days."""

    plan: Plan
    kind: HouseholdKind
    model_index: int  # number of the target's model among those of `kind`
    history: TargetHistory
    initial: FloatArray  # [occupied] at midnight
    transition: FloatArray  # [interval, from, to]
    prior: FloatArray  # [interval] log odds before any release
    hidden: BoolArray  # [interval] neither public nor certain
    make_noise: Callable[[], NoiseSampler]  # fresh each time
    mechanism: Mechanism
    rng: np.random.Generator
    samples: int  # of each of two distributions

    @property
    def target_name(self) -> str:
        """The name of the target."""
        return self.kind.name if len(self.kind.models) == 1 else f"{self.kind.name}, model {self.model_index + 1}"

    @property
    def worst_pair(self) -> SecretPair:
        """The readings that are easiest to tell apart: the lowest when away, the bound when home."""
        return SecretPair.worst_case(self.kind.bound_wh, self.kind.export_bound_wh)

    @property
    def extremes_wh(self) -> tuple[int, int]:
        """The lowest and the highest reading of the target."""
        return -self.kind.export_bound_wh, self.kind.bound_wh

    def without_noise(self) -> AuditScenario:
        """Return the same scenario without noise."""
        return self._replace(plan=remove_noise(self.plan), make_noise=ZeroNoise)


class ZeroNoise:
    """A sampler that always returns 0, for attacks on the exact demand."""

    test_only = True

    def draw(self, distribution: NoiseDistribution, scale_wh: FloatArray, core_wh: IntArray | None = None) -> IntArray:
        del distribution, core_wh
        return np.zeros(scale_wh.shape, np.int64)


def make_scenarios(
    plan: Plan,
    days: int,
    seed: int,
    progress: AuditProgress,
    noise_source: NoiseSource,
    samples: int,
    mechanism: Mechanism = protect,
) -> list[AuditScenario]:
    """Simulate `days` separate days, each from the stationary prior of midnight. Return one scenario per target."""
    seeds = np.random.SeedSequence(seed)
    rng = np.random.default_rng(seeds.spawn(1)[0])
    zone = plan.zone
    histories = dict(zip((kind.name for kind in zone.kinds), simulate_zone(zone, days, rng, progress), strict=True))
    scenes = []
    for kind in target_kinds(zone):
        for model, chains in enumerate(kind.models):
            start = midnight_prior(chains)
            transition = np.stack([chains.transition_at(t)[..., 0] for t in range(zone.intervals_per_day)])
            prior = adversary.smoothed_log_odds(start, transition, np.zeros((len(transition), 2)))
            scene = AuditScenario(
                plan=plan,
                kind=kind,
                model_index=model,
                history=histories[kind.name],
                initial=start,
                transition=transition,
                prior=prior,
                hidden=~np.array(kind.public) & np.isfinite(prior),
                make_noise=lambda: noise_source(seeds.spawn(1)[0]),
                mechanism=mechanism,
                rng=rng,
                samples=samples,
            )
            if model:  # the rest of the zone is the same, the target follows this model
                occupied = sample_target_occupancy(scene, days)
                pair = kind.secret_pair
                away, home = (
                    draw_readings(scene, law, occupied.shape) - pair.export_bound_wh for law in (pair.away, pair.home)
                )
                energy_wh = np.where(occupied, home, away)
                scene = scene._replace(history=TargetHistory(occupied, energy_wh, scene.history.rest_wh))
            scenes.append(scene)
    return [scene for scene in scenes if scene.hidden.any()]


def merge_scenarios_by_kind(scenarios: list[AuditScenario]) -> list[AuditScenario]:
    """Return one scenario per kind. An interval is hidden if it is hidden under one of the models."""
    by_kind: dict[str, AuditScenario] = {}
    for scene in scenarios:
        merged = by_kind.setdefault(scene.kind.name, scene)
        by_kind[scene.kind.name] = merged._replace(hidden=merged.hidden | scene.hidden)
    return list(by_kind.values())


def target_kinds(zone: Zone) -> list[HouseholdKind]:
    """Return the kinds that need protection. Raises PrivacyError if there is none."""
    if not zone.private_kinds:
        raise PrivacyError("households", "public at all hours", "must have one kind with something to protect")
    return list(zone.private_kinds)


def midnight_prior(chains: OccupancyChains) -> FloatArray:
    """Return the prior [occupied] of one household at midnight, after many days."""
    home = occupancy_probability(OccupancyModel(groups=(chains,)), _PRIOR_BURN_IN_DAYS * len(chains.period) + 1)[-1, 0]
    return np.array([1 - home, home])


def replicate_chains(chains: OccupancyChains, first: int, count: int) -> OccupancyChains:
    """Return `count` households with one model, numbered from `first`, with the prior of midnight after many days."""
    members = np.arange(first, first + count)[None, :]
    return replace(chains, members=members, kind=np.zeros(count, np.int64), initial=midnight_prior(chains)[:, None])


def zone_occupancy_model(zone: Zone, counts: Sequence[int], copies: int) -> OccupancyModel:
    """Return a model of `counts` households of each kind, `copies` times, under their first models."""
    groups, first = [], 0
    for kind, count in zip(zone.kinds, counts, strict=True):
        if count:
            groups.append(replicate_chains(kind.models[0], first, count * copies))
        first += count * copies
    return OccupancyModel(groups=tuple(groups))


def simulate_zone(zone: Zone, days: int, rng: np.random.Generator, progress: AuditProgress) -> list[TargetHistory]:
    """Simulate one household of each kind and the rest of the zone for each, in batches of days."""
    alone = zone.household_count > INDIVIDUAL_HOUSEHOLDS
    counts = [1 if alone else kind.count for kind in zone.kinds]
    at_once = max(1, _MAX_HOUSEHOLD_DAYS // sum(counts))
    parts = []
    for begun in range(0, days, at_once):
        now = min(at_once, days - begun)
        parts.append(_simulate_batch(zone, counts, now, rng))
        progress(now / days)
    occupied, energy_wh, demand_wh = (np.concatenate(part, axis=-2) for part in zip(*parts, strict=True))
    if alone:
        mean, variance = demand_moments(zone, [kind.count - 1 for kind in zone.kinds])
        rest = np.rint(rng.normal(mean, np.sqrt(variance), demand_wh.shape)).astype(np.int64)
        demand_wh = demand_wh + np.maximum(rest, -sum(kind.export_bound_wh * (kind.count - 1) for kind in zone.kinds))
    return [
        TargetHistory(home, used_wh, demand_wh - used_wh) for home, used_wh in zip(occupied, energy_wh, strict=True)
    ]


def _simulate_batch(
    zone: Zone, counts: list[int], days: int, rng: np.random.Generator
) -> tuple[BoolArray, IntArray, IntArray]:
    """Return occupancy and use of one household of each kind [kind, day, interval], and the demand [day, interval].

    Each day is a separate zone for `aggregate`.
    """
    kind = np.repeat(np.arange(len(counts)), np.array(counts) * days)
    bound_wh, export_wh = (np.array([getattr(k, key) for k in zone.kinds]) for key in ("bound_wh", "export_bound_wh"))
    lowest_wh = int(export_wh.max())
    table = np.zeros((2, len(counts), lowest_wh + int(bound_wh.max()) + 1))
    for column, household in enumerate(zone.kinds):
        pair, begin = household.secret_pair, lowest_wh - household.export_bound_wh
        table[:, column, begin : begin + household.range_wh + 1] = pair.away, pair.home
    consumption = TableConsumption.from_probabilities(table, kind, export_bound_wh=lowest_wh)
    day_of_meter = np.concatenate([np.repeat(np.arange(days), count) for count in counts])
    names = tuple(f"day {day}" for day in range(days))
    meters = Meters(
        zones=names,
        zone=day_of_meter,
        bound_wh=bound_wh[kind],
        imputed_wh=np.zeros(len(kind), np.int64),
        export_bound_wh=export_wh[kind],
    )
    occupied = sample_occupancy(zone_occupancy_model(zone, counts, days), zone.intervals_per_day, rng)
    first = np.stack([np.flatnonzero(kind == k)[::count] for k, count in enumerate(counts)])  # [kind, day]
    energy = np.zeros((len(counts), days, zone.intervals_per_day), np.int64)
    demand = np.zeros((days, zone.intervals_per_day), np.int64)
    all_meters = np.arange(len(kind))
    for t, home in enumerate(occupied):
        energy_wh = consumption.sample(home, t, EMPTY_PRICE_HISTORY, rng)
        energy[..., t] = energy_wh[first]
        demand[:, t] = aggregate([Readings(meter=all_meters, energy_wh=energy_wh)], meters).energy_wh
    return np.moveaxis(occupied[:, first], 0, -1), energy, demand


def sample_target_occupancy(scene: AuditScenario, days: int) -> BoolArray:
    """Sample the occupancy of the target for `days` days of its model [day, interval]."""
    alone = OccupancyModel(groups=(replicate_chains(scene.kind.models[scene.model_index], 0, days),))
    return sample_occupancy(alone, scene.plan.zone.intervals_per_day, scene.rng).T


def worst_case_history(scene: AuditScenario, days: int) -> TargetHistory:
    """Simulate a target without other households: its lowest reading when away, its bound when home."""
    occupied = sample_target_occupancy(scene, days)
    lowest_wh, highest_wh = scene.extremes_wh
    return TargetHistory(occupied, np.where(occupied, highest_wh, lowest_wh), np.zeros(occupied.shape, np.int64))


def demand_moments(zone: Zone, counts: Sequence[int]) -> tuple[FloatArray, FloatArray]:
    """Return mean [Wh] and variance [Wh^2] of `counts` households of each kind [interval]."""
    moments = np.array([kind.consumption_moments(zone.intervals_per_day) for kind in zone.kinds])
    mean, variance = np.tensordot(counts, moments, 1)
    return mean, variance


def rest_demand_moments(scene: AuditScenario) -> tuple[FloatArray, FloatArray]:
    """Return mean [Wh] and variance [Wh^2] of all households but the target [interval]."""
    zone = scene.plan.zone
    return demand_moments(zone, [kind.count - (kind is scene.kind) for kind in zone.kinds])


def draw_readings(scene: AuditScenario, law: FloatArray, shape: tuple[int, ...]) -> IntArray:
    """Return samples of a distribution on 0, 1, .. [Wh]."""
    below = np.cumsum(law)
    drawn: IntArray = np.searchsorted(below, scene.rng.random(shape) * below[-1], side="right")
    return drawn


def release_demand(scene: AuditScenario, demand_wh: IntArray, t: int | None = None) -> Release:
    """Release days of demand [day, interval], or one interval repeatedly."""
    noise, slots = scene.plan.noise, slice(None) if t is None else t
    core_wh = np.broadcast_to(noise.core_wh[slots], demand_wh.shape)
    return scene.mechanism(
        demand_wh,
        scale_wh=np.broadcast_to(noise.scale_wh[slots], demand_wh.shape),
        core_wh=core_wh if noise.distribution is NoiseDistribution.HUBER else None,
        curve=scene.plan.zone.curve,
        noise=scene.make_noise(),
        distribution=noise.distribution,
    )


def noisy_demand(scene: AuditScenario, demand_wh: IntArray, t: int | None = None) -> IntArray:
    """Return the noisy demand of `release_demand` [Wh]."""
    return release_demand(scene, demand_wh, t).noisy_wh


def coarsen_distribution(distribution: FloatArray, step: int) -> FloatArray:
    """Return the distribution rounded to 0, step, 2 step, .."""
    return np.bincount((np.arange(len(distribution)) + step // 2) // step, weights=distribution).astype(np.float64)


def remove_noise(plan: Plan) -> Plan:
    """Return the plan with scale 0 in every interval, for comparison in an audit."""
    none = replace(
        plan.noise,
        distribution=NoiseDistribution.LAPLACE,
        scale_wh=np.zeros_like(plan.scale_wh),
        core_wh=np.zeros_like(plan.core_wh),
    )
    return replace(plan, noise=none)


def group_intervals_by_noise(plan: Plan) -> Iterator[tuple[int, BoolArray]]:
    """Yield one interval of each noise scale and core, and all intervals that share them."""
    slots = plan.noise.scales_and_cores()
    for slot in dict.fromkeys(slots):
        same = np.array([candidate == slot for candidate in slots])
        yield int(same.argmax()), same


def noise_log_pmf(plan: Plan, t: int) -> LogPmf:
    """Return log Pr[K = k] of the noise of interval t, up to a constant; all the mass at 0 where the scale is 0."""
    scale, core = plan.noise.scales_and_cores()[t]
    if plan.distribution is NoiseDistribution.GAUSSIAN:
        return lambda noise_wh: -((np.asarray(noise_wh, np.float64) / scale) ** 2) / 2
    if plan.distribution is NoiseDistribution.HUBER:
        return lambda noise_wh: huber_log_pmf(noise_wh, scale, core)
    return lambda noise_wh: laplace_log_pmf(noise_wh, scale)


def normal_and_laplace(plan: Plan, t: int) -> tuple[float, float]:
    """Return the noise of interval t as the variance of a normal part [Wh^2] and the scale of a Laplace part [Wh].

    Noise with a core is approximated as normal. This weakens the attack, and the verdict stays valid.
    """
    scale, core = plan.noise.scales_and_cores()[t]
    is_normal = core > 0 or plan.distribution is NoiseDistribution.GAUSSIAN
    return (float(plan.noise_variance[t]), 0.0) if is_normal else (0.0, scale)


def log_likelihood_ratio(plan: Plan, secret_pair: SecretPair, t: int) -> Callable[[IntArray], FloatArray]:
    """Return the log likelihood ratio of home against away at a noisy reading, constant far from its range."""
    scale, core = plan.noise.scales_and_cores()[t]
    reach = _TAIL_SIGMAS * scale if plan.distribution is NoiseDistribution.GAUSSIAN else core
    lowest_wh = -secret_pair.export_bound_wh
    knots = np.linspace(lowest_wh - reach, secret_pair.bound_wh + reach, _RATIO_KNOTS)
    knots_wh = np.unique(np.rint(knots).astype(np.int64))
    away, home = adversary.emission_log_likelihood(
        knots_wh, lowest_wh, secret_pair.away, secret_pair.home, noise_log_pmf(plan, t)
    ).T
    return lambda reading_wh: np.asarray(np.interp(reading_wh, knots_wh, home - away))
