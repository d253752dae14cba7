"""The noise of a plan, and its privacy cost: for each promise, for each release, and about habits and absences.

Neighbouring datasets differ in one household. So the cost of several releases is composed for each kind of household
separately. The cost is the largest of the results.

A moment promise holds against an attacker who already knows the habits. The habits themselves (home by day or not)
affect every price, so the leakage about them grows without limit. The accountant bounds its growth: two households with
different habits differ in their trajectories, and the accountant bounds the cost of any two trajectories.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from murmurate.errors import PrivacyError
from murmurate.planning.zone import HouseholdKind, Zone
from murmurate.privacy.accountant import (
    EventCounts,
    PldAccountant,
    PrivacyEvent,
    PureDpAccountant,
    count_events,
    window_events,
)
from murmurate.privacy.divergence import GaussianCurve, HuberCurve, PrivacyCurve, huber_variance
from murmurate.privacy.leakage_over_time import MAX_EVIDENCE, local_time_leakage
from murmurate.privacy.noise import NoiseDistribution, check_scales
from murmurate.privacy.promise import (
    AbsenceGuessBound,
    HabitGuessBound,
    IntervalPromise,
    MomentPromise,
    Promise,
    WindowPromise,
    promise_epsilon,
)
from murmurate.units import FloatArray, IntArray, as_int64_array

MICRO_PER_UNIT = 1_000_000
_TAIL_GRID_POINTS = 100  # a coarse grid errs upwards, here by less than a percent
ZERO_COST_EVENT = PrivacyEvent(())  # a release that leaks nothing about a household
HABIT_RISK_DAYS = (1, 7, 365)
ABSENCE_DAYS = 14
DAYTIME_HOURS = (8, 16)  # hours of local standard time
_GRID_STEPS = 40  # grid points per reach: a coarse grid errs on the safe side, by less than a percent over a year


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoiseSchedule:
    """A noise distribution and its parameters [interval of the day].

    `scale_wh` is the scale of Laplace noise, the standard deviation of Gaussian noise, or the scale of the exponential
    tails of Huber noise. `core_wh` is the half-width of the Gaussian core of Huber noise. It is 0 for the other
    distributions.
    """

    distribution: NoiseDistribution
    scale_wh: FloatArray
    core_wh: IntArray

    @classmethod
    def from_scales(cls, distribution: NoiseDistribution, scale_wh: Any, core_wh: Any = None) -> NoiseSchedule:
        """Check and build a schedule. Raises PrivacyError if a scale is too small or a core does not fit."""
        scales = np.asarray(scale_wh, np.float64)
        cores = np.zeros(scales.shape, np.int64)
        if core_wh is not None:
            cores = as_int64_array(core_wh, "core_wh", PrivacyError)
        check_scales(scales)
        has_core = cores.any() and distribution is not NoiseDistribution.HUBER
        if cores.shape != scales.shape or (cores < 0).any() or has_core:
            allowed = "must be one core for each scale, 0 or more, and 0 unless the noise is huber"
            raise PrivacyError("core_wh", f"shaped {cores.shape}", allowed)
        return cls(distribution=distribution, scale_wh=scales, core_wh=cores)

    @property
    def is_pure(self) -> bool:
        """Whether the privacy loss of every output is bounded."""
        return self.distribution is not NoiseDistribution.GAUSSIAN

    @property
    def variance(self) -> FloatArray:
        """The variance of the noise [Wh^2, interval of the day]."""
        if self.distribution is NoiseDistribution.GAUSSIAN:
            return np.asarray(self.scale_wh**2)
        return huber_variance(self.scale_wh, self.core_wh)

    def scales_and_cores(self) -> list[tuple[float, int]]:
        """Return the (scale, core) of each interval of the day [Wh]."""
        return list(zip(self.scale_wh.tolist(), self.core_wh.tolist(), strict=True))

    def scaled_by(self, factor: float) -> NoiseSchedule:
        """Return the same noise with scales and cores multiplied by `factor`. Cores are rounded up."""
        cores = np.ceil(self.core_wh * factor).astype(np.int64)
        return NoiseSchedule.from_scales(self.distribution, self.scale_wh * factor, cores)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one promise under a plan. `spent` never exceeds `promised`."""

    promise: Promise
    promised: float
    spent: float
    above_epsilon: float | None = None  # probability of a loss above the promised epsilon; None: there is no delta
    right_guesses: float | None = None  # largest probability of a right guess between two equal chances, for a window


def promise_cost(zone: Zone, noise: NoiseSchedule, promise: Promise) -> Cost:
    """Return the cost of a promise under this noise."""
    if isinstance(promise, WindowPromise):
        windows, delta = list(_all_windows(zone, noise, promise)), float(promise.delta)
        exact = PldAccountant() if promise.delta else PureDpAccountant()
        spent = max(exact.epsilon(events, delta) for events in windows)
        coarse = PldAccountant(grid_points=_TAIL_GRID_POINTS)
        above = max(coarse.tail(events, float(promise.epsilon)) for events in windows) if promise.delta else None
        right = min(1.0, (1 + max(coarse.delta(events, 0.0) for events in windows)) / 2)
        return Cost(promise, float(promise.epsilon), spent, above, right)
    promised = float(promise_epsilon(promise))
    if not noise.is_pure:
        return Cost(promise, promised, math.inf)
    loss = max(float(kind_losses(zone, noise, kind).max()) for kind in zone.kinds)
    if isinstance(promise, IntervalPromise):
        return Cost(promise, promised, loss)
    moments = [kind_leakage(zone, kind, kind_losses(zone, noise, kind)) for kind in zone.private_kinds]
    return Cost(promise, promised, max([*moments, 0.0 if moments else loss]))


def _all_windows(zone: Zone, noise: NoiseSchedule, promise: WindowPromise) -> Iterator[EventCounts]:
    """Yield the events of every window of a promise, for a household of each kind that differs in all its intervals."""
    for kind in zone.kinds:
        yield from window_events(kind_events(zone, noise, kind), promise.intervals)


def keeps_window(zone: Zone, noise: NoiseSchedule, promise: WindowPromise, margin: float) -> bool:
    """Whether a window costs at most (1 - margin) epsilon. This is faster than computing its cost."""
    accountant = PldAccountant() if promise.delta else PureDpAccountant()
    epsilon, delta = float(promise.epsilon) * (1 - margin), float(promise.delta)
    return all(accountant.within_budget(events, epsilon, delta) for events in _all_windows(zone, noise, promise))


def kind_events(zone: Zone, noise: NoiseSchedule, kind: HouseholdKind) -> list[PrivacyEvent]:
    """Return the privacy event of each interval of the day for one household. It costs 0 while occupancy is public.

    Equal events are the same object, so that the accountant counts them together.
    """
    slots = zip(zone.protected_intervals(kind), noise.scales_and_cores(), strict=True)
    return [
        release_event(noise.distribution, kind.range_wh, *slot) if secret else ZERO_COST_EVENT for secret, slot in slots
    ]


@lru_cache(maxsize=64)
def release_event(distribution: NoiseDistribution, range_wh: int, scale: float, core: int) -> PrivacyEvent:
    """Return the privacy event of one interval in which the occupancy of a household with this range is secret."""
    is_gaussian = distribution is NoiseDistribution.GAUSSIAN
    curve: PrivacyCurve = GaussianCurve(range_wh, scale) if is_gaussian else HuberCurve(range_wh, scale, core)
    return PrivacyEvent((curve,))  # Laplace noise is Huber noise without a core


def kind_losses(zone: Zone, noise: NoiseSchedule, kind: HouseholdKind) -> FloatArray:
    """Return the largest log likelihood ratio of each interval for one household: its range u over the scale b.

    It is 0 for public intervals. It has no bound under Gaussian noise; `MAX_EVIDENCE` stands for that.
    """
    loss = kind.range_wh / noise.scale_wh if noise.is_pure else np.full(zone.intervals_per_day, MAX_EVIDENCE)
    return np.where(zone.protected_intervals(kind), loss, 0.0)


def kind_leakage(zone: Zone, kind: HouseholdKind, loss: FloatArray) -> float:
    """Return the largest leakage of an infinite stream about one moment of this kind, over all its models."""
    return max(local_time_leakage(model, loss, zone.slot_shifts, zone.slot_changes) for model in kind.models)


def release_costs(zone: Zone, noise: NoiseSchedule) -> Mapping[str, list[int]]:
    """Return the cost of the release of each interval of the day in millionths, rounded up.

    Laplace and Huber noise cost epsilon: the largest log likelihood ratio of any household whose occupancy is secret in
    the interval. Gaussian noise costs rho = u^2/(2 sigma^2) (zCDP), for the largest range u (Bun and Steinke 2016).
    """
    zeros = [0] * zone.intervals_per_day
    if noise.is_pure:
        worst = np.max([kind_losses(zone, noise, kind) for kind in zone.kinds], axis=0)
        return {
            "epsilon_micro": [math.ceil(MICRO_PER_UNIT * Fraction(float(loss))) for loss in worst],
            "rho_micro": zeros,
        }
    rho = [
        Fraction(max(kind.range_wh for kind in kinds)) ** 2 / (2 * Fraction(scale) ** 2)
        for kinds, scale in zip(zone.protected_kinds, noise.scale_wh.tolist(), strict=True)
    ]
    return {"epsilon_micro": zeros, "rho_micro": [math.ceil(MICRO_PER_UNIT * spent) for spent in rho]}


def mean_variance(noise: NoiseSchedule) -> float:
    """Return the mean variance over the day [Wh^2]."""
    return float(np.mean(noise.variance))


def habit_inference_risks(zone: Zone, noise: NoiseSchedule) -> tuple[HabitGuessBound, ...]:
    """Bound the attacker's chance to guess a habit from a day, a week and a year of prices.

    The result is the largest bound over all kinds of household. It is empty for a zone without a moment promise.
    The chance is (1 + delta)/2. Here delta is the privacy curve of all these releases at epsilon 0: the total variation
    distance between the outputs under the two habits.
    """
    if not any(isinstance(promise, MomentPromise) for promise in zone.promises):
        return ()
    days, offset_min = [kind_events(zone, noise, kind) for kind in zone.private_kinds], zone.clock.offsets_min[0]
    hours = [(t * 1440 // zone.intervals_per_day + offset_min) % 1440 / 60 for t in range(zone.intervals_per_day)]
    first, end = DAYTIME_HOURS
    daytime = [
        [event if first <= hour < end else ZERO_COST_EVENT for event, hour in zip(day, hours, strict=True)]
        for day in days
    ]
    return tuple(
        HabitGuessBound(count, _guess_probability(days, count), _guess_probability(daytime, count))
        for count in HABIT_RISK_DAYS
    )


def absence_risk(zone: Zone, noise: NoiseSchedule) -> AbsenceGuessBound:
    """Bound the attacker's chance to guess from 14 days of prices whether a household was away for all of them.

    It is that of the worst household: at its bound in each interval, or at its lowest reading in each. No promise about
    one moment bounds it, because no occupancy model of a plan has such a long absence.
    """
    days = [kind_events(zone, noise, kind) for kind in zone.private_kinds]
    return AbsenceGuessBound(ABSENCE_DAYS, _guess_probability(days, ABSENCE_DAYS))


def _guess_probability(days: list[list[PrivacyEvent]], count: int) -> float:
    accountant = PldAccountant(grid_points=_GRID_STEPS)
    deltas = (accountant.delta([(event, times * count) for event, times in count_events(day)], 0.0) for day in days)
    return min(1.0, (1 + max(deltas, default=0.0)) / 2)
