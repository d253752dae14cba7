"""Towns to try things on. The first is the paper's (section IV), in each way its text can be read.

The paper tells the chances of four periods of the day, N, T, epsilon, alpha and beta. It does not tell the hour at
which the day starts, who is home then, how much habits vary or whether that makes a probability zero, nor whether a
household draws its bound once or in every interval. A :class:`PaperReading` fixes these.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from murmurate.errors import ModelError, UnknownNameError
from murmurate.household.consumption import NO_PRICES, ConsumptionLaw, UniformConsumption
from murmurate.household.occupancy import Chains, ModelClass, OccupancyModel, occupancy_probability, per_interval
from murmurate.pricing.rate import RateCurve
from murmurate.quantities import QUARTER_HOURS_PER_DAY, BoolArray, FloatArray, IntArray, Meters


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Town:
    """One zone with everything that is public about it, and a law for what its households do."""

    theta: ModelClass
    law: ConsumptionLaw
    meters: Meters
    curve: RateCurve
    largest_bound_wh: int  # u_max of the naive rule: public, not looked up in the households


class Bounds(Enum):
    """How to read "X ~ U(0, u_i) where u_i ~ U(0, u_max)"."""

    ONCE = "once"  # a household draws u_i once; away it uses at most half of it
    REDRAWN = "redrawn"  # u_i anew in each interval, up to u_max when home and half of that when away; public: u_max
    PEEKING = "peeking"  # the same, and the noise is scaled by the u_i just drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperReading:
    """One way to read section IV."""

    name: str
    text: str
    bounds: Bounds = Bounds.ONCE
    certain_start: bool = False  # everybody asleep at midnight, rather than as the evening before left them
    clipped: bool = False  # perturbed probabilities may become exactly zero
    private: bool = True

    @property
    def label(self) -> str:
        return self.name if self.private else f"{self.name} *"

    @property
    def same_noise(self) -> bool:
        """Whether Blowfish and naive have one and the same law, so that no run can order them."""
        return self.bounds is Bounds.REDRAWN and not self.certain_start and not self.clipped


PAPER_READINGS = (
    PaperReading(name="steady", text="bounds drawn once; at midnight anybody may be awake; no probability is zero"),
    PaperReading(name="asleep", text="drawn once, with everybody asleep at midnight for certain", certain_start=True),
    PaperReading(
        name="clipped",
        text="asleep at midnight, and habits perturbed below zero become exactly zero",
        certain_start=True,
        clipped=True,
    ),
    PaperReading(
        name="redrawn",
        text="bounds drawn anew in each interval; the public bound of everybody is u_max",
        bounds=Bounds.REDRAWN,
    ),
    PaperReading(
        name="peeking",
        text="drawn anew, and the noise is scaled by the bounds just drawn",
        bounds=Bounds.PEEKING,
        private=False,
    ),
    PaperReading(
        name="peeking-asleep",
        text="the same, with everybody asleep at midnight for certain",
        bounds=Bounds.PEEKING,
        certain_start=True,
        private=False,
    ),
)


def paper_reading(name: str) -> PaperReading:
    """The reading of that name.

    >>> paper_reading("steady").private
    True
    """
    for reading in PAPER_READINGS:
        if reading.name == name:
            return reading
    raise UnknownNameError("reading", repr(name), f"must be one of {', '.join(r.name for r in PAPER_READINGS)}")


U_MAX_WH = 1000  # the paper's u_max = 1
SPREAD = 0.001  # standard deviation of habits; the paper gives none, and 0.01 would drown its smaller chances
_LEAST = 1e-6  # the smallest probability of a perturbed habit that must stay possible

PERIODS = ("morning", "noon", "evening", "night")
_STARTS = (28, 32, 64, 92)  # 7:00, 8:00, 16:00 and 23:00 in quarter hours from midnight
_LEAVE = (0.05, 0.95, 0.05, 0.995)  # leave or fall asleep at some point during the period
_ARRIVE = (0.98, 0.05, 0.99, 0.01)  # wake up or come home at some point during the period


def paper_calendar() -> IntArray:
    """The period (0 morning, 1 noon, 2 evening, 3 night) of each quarter hour from midnight.

    >>> np.bincount(paper_calendar()).tolist()
    [4, 32, 28, 32]
    """
    quarter = np.arange(QUARTER_HOURS_PER_DAY)
    return (np.searchsorted(_STARTS, quarter, side="right") - 1) % len(PERIODS)


def paper_habits() -> tuple[FloatArray, FloatArray]:
    """The chances (arrive, leave) [period] of an interval as the paper tells them, before any is perturbed."""
    lengths = np.bincount(paper_calendar())
    return per_interval(np.array(_ARRIVE), lengths), per_interval(np.array(_LEAVE), lengths)


def paper_chains(reading: PaperReading, households: int, rng: np.random.Generator) -> Chains:
    """The occupancy of section IV: four transition matrices, perturbed for each household by Gaussian noise."""
    calendar = paper_calendar()
    least = 0.0 if reading.clipped else _LEAST
    arrive, leave = (
        (p[:, None] + SPREAD * rng.standard_normal((len(p), households))).clip(least, 1 - least) for p in paper_habits()
    )
    start = np.zeros(households)
    if not reading.certain_start:
        evening = Chains.independent(initial=np.full(households, 0.5), arrive=arrive, leave=leave, period=calendar)
        day = occupancy_probability(OccupancyModel(groups=(evening,)), QUARTER_HOURS_PER_DAY + 1)
        start = day[-1]
    return Chains.independent(initial=start, arrive=arrive, leave=leave, period=calendar)


def paper_town(reading: PaperReading, households: int, rng: np.random.Generator) -> Town:
    """A town drawn by section IV: alpha 1, beta 62.5, bounds up to 1 kWh; a tick for each Wh, so that none is lost."""
    if households < 1:
        raise ModelError("households", households, "must be at least 1")
    chains = paper_chains(reading, households, rng)
    law: ConsumptionLaw = RedrawnConsumption(households)
    if reading.bounds is Bounds.ONCE:
        bound_wh = rng.integers(1, U_MAX_WH, households, endpoint=True)
        law = UniformConsumption.of(ceiling_wh=np.stack([bound_wh // 2, bound_wh]))
    return Town(
        theta=ModelClass(models=(OccupancyModel(groups=(chains,)),)),
        law=law,
        meters=Meters.in_one_zone("paper", bound_wh=law.bound_wh),
        curve=RateCurve.affine(alpha=1, beta="62.5", tick="0.001"),
        largest_bound_wh=U_MAX_WH,
    )


class RedrawnConsumption:
    """X uniform below a ceiling drawn anew each interval: uniform up to u_max when home, up to u_max/2 when away."""

    def __init__(self, households: int) -> None:
        self.bound_wh: IntArray = np.full(households, U_MAX_WH, np.int64)

    def sample_ceiling_and_energy(self, occupied: BoolArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        ceiling_wh: IntArray = rng.integers(0, np.where(occupied, U_MAX_WH, U_MAX_WH // 2), endpoint=True)
        return ceiling_wh, rng.integers(0, ceiling_wh, endpoint=True)

    def sample(self, occupied: BoolArray, interval: int, past_ticks: IntArray, rng: np.random.Generator) -> IntArray:
        del interval, past_ticks  # the paper's simulation has neither
        return self.sample_ceiling_and_energy(occupied, rng)[1]

    def pmf(self, household: int, occupied: bool, interval: int, past_ticks: IntArray) -> FloatArray:
        """f(x) = sum over ceilings c >= x of 1/(n (c+1)), n ceilings being equally likely."""
        del household, interval, past_ticks
        ceilings = (U_MAX_WH if occupied else U_MAX_WH // 2) + 1
        law: FloatArray = np.cumsum(1 / np.arange(ceilings, 0, -1))[::-1] / ceilings
        return law

    def mean_wh(self, interval: int, past_ticks: IntArray) -> FloatArray:
        del interval, past_ticks
        return np.array([[U_MAX_WH // 2 / 4], [U_MAX_WH / 4]]) * np.ones(len(self.bound_wh))


def forecast_wh(town: Town, horizon: int) -> IntArray:
    """The demand [Wh, interval] that anybody can expect from the public model alone: no reading enters it."""
    home = occupancy_probability(town.theta.models[0], horizon)
    means = (town.law.mean_wh(interval, NO_PRICES) for interval in range(horizon))
    expected = [(1 - p) @ away + p @ active for p, (away, active) in zip(home, means, strict=True)]
    return np.rint(expected).astype(np.int64)
