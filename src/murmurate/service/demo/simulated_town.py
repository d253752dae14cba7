"""A simulated town: who is home, what each home draws, and what an attacker makes of the prices.

The attacker is the strongest of the paper: it knows the model and every reading but one, hears every price, and guesses
whether that one household is home. Each household of a kind is attacked in turn, and how often the guess is right is
counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from murmurate.adversaries.adversary import emission_log_likelihood, filtered_log_odds
from murmurate.household.occupancy import OccupancyModel, occupancy_probability
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.planning.zone import HouseholdKind, Zone
from murmurate.planning.zone_file import EXAMPLE_FORECAST, EXAMPLE_ZONE_FILE, parse_zone
from murmurate.privacy.divergence import huber_log_pmf
from murmurate.privacy.noise import NoiseDistribution, laplace_log_pmf
from murmurate.units import BoolArray, FloatArray, IntArray

DEMO_ZONE = "harbour"  # as in the example
TARGET_KIND = "shift worker"  # the attacker's targets
_TARGET_SHARE = 4  # one home in four

# Arriving and leaving are equally likely at any time: by the model alone, home or away is a coin toss. A stay takes an
# hour on average. Away, only a fridge runs.
_SHIFT_WORKERS = """
[occupancy.shift]
periods = {{ night = "00:00", morning = "06:00", afternoon = "12:00", evening = "18:00" }}
arrive = {{ night = 0.999, morning = 0.999, afternoon = 0.999, evening = 0.999 }}
leave = {{ night = 0.999, morning = 0.999, afternoon = 0.999, evening = 0.999 }}

[[households]]
name = "{name}"
count = {count}
bound_wh = 1000
away = {{ uniform_to = 60 }}
home = {{ uniform_to = 600 }}
occupancy = "shift"
"""


def make_demo_zone(homes: int) -> Zone:
    """Return the zone of a demo with a number of homes, at least two.

    >>> [(kind.name, kind.count) for kind in make_demo_zone(1000).kinds]
    [('flat', 750), ('shift worker', 250)]
    """
    targets = max(1, homes // _TARGET_SHARE)
    flats = EXAMPLE_ZONE_FILE.split('\n[[households]]\nname = "fish market"')[0]
    flats = flats.replace("count = 800", f"count = {homes - targets}")
    flats = flats.replace(
        "\n[tariff]", '\nnoise = "huber"\n\n[tariff]'
    )  # the best for these promises, so no other is tried
    return parse_zone(flats + _SHIFT_WORKERS.format(name=TARGET_KIND, count=targets) + EXAMPLE_FORECAST)


_DEMO_BURN_IN_DAYS = 5


@dataclass(slots=True, kw_only=True)
class SimulatedHomes:
    """Homes of one kind, living from interval to interval."""

    kind: HouseholdKind
    first_interval: int  # the first interval of the day that they live through
    rng: np.random.Generator
    is_home: BoolArray = field(init=False)
    occupied: list[BoolArray] = field(default_factory=list, init=False)  # [interval] of each home
    energy_wh: list[IntArray] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.is_home = self.rng.random(self.kind.count) < self.prior

    @property
    def prior(self) -> float:
        """How likely a home is occupied when the town begins, by the model alone."""
        day = len(self.kind.models[0].period)
        model = OccupancyModel(groups=(self.kind.models[0],))
        return float(occupancy_probability(model, _DEMO_BURN_IN_DAYS * day + self.first_interval + 1)[-1, 0])

    def transition_at(self, interval: int) -> FloatArray:
        """The transition [from, to] into the n-th interval after the first."""
        transition: FloatArray = self.kind.models[0].transition_at(self.first_interval + interval)[:, :, 0]
        return transition

    def simulate_interval(self) -> IntArray:
        """One more interval: what each home draws [Wh]."""
        if self.occupied:
            chance = self.transition_at(len(self.occupied))[self.is_home.astype(np.int64), 1]
            self.is_home = self.rng.random(len(self.is_home)) < chance
        away, home = (
            self.rng.choice(len(law), size=len(self.is_home), p=law)
            for law in (self.kind.secret_pair.away, self.kind.secret_pair.home)
        )
        drew: IntArray = np.where(self.is_home, home, away)
        self.occupied.append(self.is_home)
        self.energy_wh.append(drew)
        return drew


@dataclass(slots=True)
class SimulatedTown:
    """Homes of several kinds. The meters are numbered in the order of the kinds."""

    homes: Sequence[SimulatedHomes]
    demand_wh: list[int] = field(default_factory=list, init=False)  # [interval] of the whole town

    @classmethod
    def from_kinds(cls, kinds: Sequence[HouseholdKind], first_interval: int, rng: np.random.Generator) -> SimulatedTown:
        return cls([SimulatedHomes(kind=kind, first_interval=first_interval, rng=rng) for kind in kinds])

    def simulate_interval(self) -> IntArray:
        """One more interval: what each home draws [Wh, meter]."""
        drew: IntArray = np.concatenate([part.simulate_interval() for part in self.homes])
        self.demand_wh.append(int(drew.sum()))
        return drew

    def homes_of(self, kind: str) -> SimulatedHomes:
        return next(part for part in self.homes if part.kind.name == kind)


class AttackAccuracy(NamedTuple):
    """How often an attacker is right about who is home."""

    model_only: float  # without any price
    with_prices: float
    with_exact_rates: float  # had they been published


def attack_homes(
    town: SimulatedTown,
    kind: str,
    published_wh: IntArray,
    terms: ReleaseTerms,
    slots: IntArray,
    has_price: BoolArray | None = None,
) -> AttackAccuracy:
    """What the prices of the first intervals tell about each household of a kind. `slots` are intervals of the day.

    An interval without a measured price (`has_price` is false; None: all have one) tells nothing.
    """
    intervals = len(published_wh)
    targets = town.homes_of(kind)
    occupied = np.array(targets.occupied[:intervals]).T
    energy_wh = np.array(targets.energy_wh[:intervals]).T  # [home, interval]
    rest_wh = np.array(town.demand_wh[:intervals]) - energy_wh
    initial = np.array([1 - targets.prior, targets.prior])
    steps = np.stack([targets.transition_at(t) for t in range(intervals)])
    law = (targets.kind.secret_pair.away, targets.kind.secret_pair.home)
    with_prices = np.stack(
        [
            emission_log_likelihood(
                np.full(len(rest_wh), published_wh[t]), rest_wh[:, t], *law, _noise_log_pmf(terms, int(slots[t]))
            )
            for t in range(intervals)
        ],
        axis=1,
    )
    with np.errstate(divide="ignore"):
        exact = np.stack([np.log(pmf)[energy_wh] for pmf in law], axis=-1)
    if has_price is not None:
        with_prices[:, ~has_price] = exact[:, ~has_price] = 0.0
    emissions = (np.zeros_like(with_prices), with_prices, exact)
    return AttackAccuracy(
        *(float(((filtered_log_odds(initial, steps, emission) > 0) == occupied).mean()) for emission in emissions)
    )


def _noise_log_pmf(terms: ReleaseTerms, slot: int) -> Callable[[IntArray], FloatArray]:
    scale_wh = float(terms.scale_wh[slot])
    if terms.distribution is NoiseDistribution.LAPLACE:
        return lambda noise_wh: laplace_log_pmf(noise_wh, scale_wh)
    if terms.distribution is NoiseDistribution.HUBER:
        return lambda noise_wh: huber_log_pmf(noise_wh, scale_wh, int(terms.core_wh[slot]))
    return lambda noise_wh: -((np.asarray(noise_wh, np.float64) / scale_wh) ** 2) / 2
