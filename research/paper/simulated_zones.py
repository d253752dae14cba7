"""Simulated zones of the paper (section IV), one for each interpretation of its text, and a day in them.

The paper gives the probabilities of four periods of the day, N, T, epsilon, alpha and beta. It does not give the hour
at which the day starts, the occupancy at that hour, or the variance of habits. It leaves open whether a probability may
be zero, and whether a household draws its bound once or in every interval. A `PaperInterpretation` fixes these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np

from murmurate.aggregation import aggregate
from murmurate.errors import ModelError
from murmurate.household.consumption import EMPTY_PRICE_HISTORY, ConsumptionModel, UniformConsumption
from murmurate.household.occupancy import (
    ModelClass,
    OccupancyChains,
    OccupancyModel,
    occupancy_probability,
    per_interval_probability,
    sample_occupancy,
)
from murmurate.pricing.rate import RateCurve
from murmurate.types import Meters, Readings
from murmurate.units import QUARTER_HOURS_PER_DAY, BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PaperZone:
    """One zone with its public data and a consumption model of its households."""

    theta: ModelClass
    consumption: ConsumptionModel
    meters: Meters
    curve: RateCurve
    max_bound_wh: int  # u_max of the naive rule: public, not computed from the households


class BoundInterpretation(Enum):
    """The interpretation of "X ~ U(0, u_i) where u_i ~ U(0, u_max)"."""

    ONCE = "once"  # a household draws u_i once; its limit is half of it when away
    REDRAWN = "redrawn"  # u_i anew in each interval, up to u_max when home and half of that when away; public: u_max
    PEEKING = "peeking"  # the same, and the noise is scaled by the u_i just drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperInterpretation:
    """One interpretation of section IV."""

    name: str
    text: str
    bounds: BoundInterpretation = BoundInterpretation.ONCE
    certain_start: bool = False  # all households asleep at midnight, rather than distributed as after an evening
    clipped: bool = False  # perturbed probabilities may become exactly zero
    private: bool = True

    @property
    def label(self) -> str:
        return self.name if self.private else f"{self.name} *"

    @property
    def same_noise(self) -> bool:
        """Whether Blowfish and naive have the same distribution, so that no run can order them."""
        return self.bounds is BoundInterpretation.REDRAWN and not self.certain_start and not self.clipped


PAPER_INTERPRETATIONS = (
    PaperInterpretation(
        name="steady", text="bounds drawn once; at midnight anybody may be awake; no probability is zero"
    ),
    PaperInterpretation(
        name="asleep", text="drawn once, with everybody asleep at midnight for certain", certain_start=True
    ),
    PaperInterpretation(
        name="clipped",
        text="asleep at midnight, and habits perturbed below zero become exactly zero",
        certain_start=True,
        clipped=True,
    ),
    PaperInterpretation(
        name="redrawn",
        text="bounds drawn anew in each interval; the public bound of everybody is u_max",
        bounds=BoundInterpretation.REDRAWN,
    ),
    PaperInterpretation(
        name="peeking",
        text="drawn anew, and the noise is scaled by the bounds just drawn",
        bounds=BoundInterpretation.PEEKING,
        private=False,
    ),
    PaperInterpretation(
        name="peeking-asleep",
        text="the same, with everybody asleep at midnight for certain",
        bounds=BoundInterpretation.PEEKING,
        certain_start=True,
        private=False,
    ),
)


U_MAX_WH = 1000  # the paper's u_max = 1
HABIT_STD = 0.001  # standard deviation of habits; not in the paper, and 0.01 would exceed its smaller probabilities
_MIN_PROBABILITY = 1e-6  # the smallest probability of a perturbed habit that must stay possible

PERIOD_NAMES = ("morning", "noon", "evening", "night")
_PERIOD_STARTS = (28, 32, 64, 92)  # 7:00, 8:00, 16:00 and 23:00 in quarter hours from midnight
_LEAVE_PROBABILITIES = (0.05, 0.95, 0.05, 0.995)  # leave or fall asleep at some point during the period
_ARRIVE_PROBABILITIES = (0.98, 0.05, 0.99, 0.01)  # wake up or come home at some point during the period


def paper_calendar() -> IntArray:
    """The period (0 morning, 1 noon, 2 evening, 3 night) of each quarter hour from midnight.

    >>> np.bincount(paper_calendar()).tolist()
    [4, 32, 28, 32]
    """
    quarter = np.arange(QUARTER_HOURS_PER_DAY)
    return (np.searchsorted(_PERIOD_STARTS, quarter, side="right") - 1) % len(PERIOD_NAMES)


def paper_habits() -> tuple[FloatArray, FloatArray]:
    """Return the paper's unperturbed probabilities (arrive, leave) per interval [period]."""
    lengths = np.bincount(paper_calendar())
    return per_interval_probability(np.array(_ARRIVE_PROBABILITIES), lengths), per_interval_probability(
        np.array(_LEAVE_PROBABILITIES), lengths
    )


def sample_paper_chains(
    interpretation: PaperInterpretation, households: int, rng: np.random.Generator
) -> OccupancyChains:
    """Sample the occupancy model of section IV: four transition matrices, perturbed per household."""
    calendar = paper_calendar()
    min_probability = 0.0 if interpretation.clipped else _MIN_PROBABILITY
    arrive, leave = (
        (p[:, None] + HABIT_STD * rng.standard_normal((len(p), households))).clip(min_probability, 1 - min_probability)
        for p in paper_habits()
    )
    start = np.zeros(households)
    if not interpretation.certain_start:
        evening = OccupancyChains.independent(
            initial=np.full(households, 0.5), arrive=arrive, leave=leave, period=calendar
        )
        day = occupancy_probability(OccupancyModel(groups=(evening,)), QUARTER_HOURS_PER_DAY + 1)
        start = day[-1]
    return OccupancyChains.independent(initial=start, arrive=arrive, leave=leave, period=calendar)


def sample_paper_zone(interpretation: PaperInterpretation, households: int, rng: np.random.Generator) -> PaperZone:
    """Sample a zone of section IV: alpha 1, beta 62.5, bounds up to 1 kWh, one tick per Wh."""
    if households < 1:
        raise ModelError("households", households, "must be at least 1")
    chains = sample_paper_chains(interpretation, households, rng)
    model: ConsumptionModel = RedrawnConsumption(households)
    if interpretation.bounds is BoundInterpretation.ONCE:
        bound_wh = rng.integers(1, U_MAX_WH, households, endpoint=True)
        model = UniformConsumption.from_ceilings(ceiling_wh=np.stack([bound_wh // 2, bound_wh]))
    return PaperZone(
        theta=ModelClass(models=(OccupancyModel(groups=(chains,)),)),
        consumption=model,
        meters=Meters.for_single_zone("paper", bound_wh=model.bound_wh),
        curve=RateCurve.affine(alpha=1, beta="62.5", tick="0.001"),
        max_bound_wh=U_MAX_WH,
    )


class RedrawnConsumption:
    """X uniform below a ceiling redrawn in each interval: up to u_max when home, up to u_max/2 when away."""

    def __init__(self, households: int) -> None:
        self.bound_wh: IntArray = np.full(households, U_MAX_WH, np.int64)

    def sample_ceiling_and_energy(self, occupied: BoolArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        ceiling_wh: IntArray = rng.integers(0, np.where(occupied, U_MAX_WH, U_MAX_WH // 2), endpoint=True)
        return ceiling_wh, rng.integers(0, ceiling_wh, endpoint=True)

    def sample(self, occupied: BoolArray, interval: int, past_ticks: IntArray, rng: np.random.Generator) -> IntArray:
        del interval, past_ticks  # the paper's simulation has neither
        return self.sample_ceiling_and_energy(occupied, rng)[1]

    def pmf(self, household: int, occupied: bool, interval: int, past_ticks: IntArray) -> FloatArray:
        """Return f(x) = sum over ceilings c >= x of 1/(n (c+1)), with n equally likely ceilings."""
        del household, interval, past_ticks
        ceilings = (U_MAX_WH if occupied else U_MAX_WH // 2) + 1
        pmf: FloatArray = np.cumsum(1 / np.arange(ceilings, 0, -1))[::-1] / ceilings
        return pmf

    def mean_wh(self, interval: int, past_ticks: IntArray) -> FloatArray:
        del interval, past_ticks
        return np.array([[U_MAX_WH // 2 / 4], [U_MAX_WH / 4]]) * np.ones(len(self.bound_wh))


def forecast_demand(zone: PaperZone, horizon: int) -> IntArray:
    """Return the expected demand [Wh, interval] from the public model only. It uses no reading."""
    home = occupancy_probability(zone.theta.models[0], horizon)
    means = (zone.consumption.mean_wh(interval, EMPTY_PRICE_HISTORY) for interval in range(horizon))
    expected = [(1 - p) @ away + p @ active for p, (away, active) in zip(home, means, strict=True)]
    return np.rint(expected).astype(np.int64)


PublishPrice = Callable[[int, IntArray], IntArray]  # (interval, demand_wh [1]) -> price_ticks [1]


class SimulatedDay(NamedTuple):
    """The simulated day of a zone, including its confidential data."""

    occupied: BoolArray  # [interval, household]
    energy_wh: IntArray  # [interval, household]
    demand_wh: IntArray  # [interval]
    price_ticks: IntArray  # [interval]


def simulate_day(
    zone: PaperZone,
    horizon: int,
    occupancy_rng: np.random.Generator,
    consumption_rng: np.random.Generator,
    publish: PublishPrice | None = None,
) -> SimulatedDay:
    """Sample occupancy and consumption. With `publish`, consumption may respond to the published prices.

    Without `publish`, consumption does not depend on prices, and `price_ticks` are the optimal prices.
    """
    occupied = sample_occupancy(zone.theta.models[0], horizon, occupancy_rng)
    energy_wh = np.zeros(occupied.shape, np.int64)
    demand_wh, price_ticks = np.zeros(horizon, np.int64), np.zeros(horizon, np.int64)
    all_meters = np.arange(len(zone.meters))
    for t in range(horizon):
        past_ticks = price_ticks[: t if publish else 0]
        energy_wh[t] = zone.consumption.sample(occupied[t], t, past_ticks, consumption_rng)
        demand = aggregate([Readings(meter=all_meters, energy_wh=energy_wh[t])], zone.meters).energy_wh
        demand_wh[t] = demand[0]
        price_ticks[t] = (publish(t, demand) if publish else zone.curve.price_ticks(demand))[0]
    return SimulatedDay(occupied, energy_wh, demand_wh, price_ticks)
