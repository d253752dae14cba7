"""A simulated town: who is home, what each home draws, and what an attacker makes of the prices.

The attacker is the strongest of the paper: it knows the model and every reading but one, hears every price, and guesses
whether that one household is home. Each household is attacked in turn, and how often the guess is right is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from murmurate.audit.adversary import filtered, log_emission
from murmurate.curator.terms import Terms
from murmurate.curator.zone import HouseholdKind
from murmurate.household.occupancy import OccupancyModel, occupancy_probability
from murmurate.privacy.huber import huber_log_pmf
from murmurate.privacy.noise import NoiseLaw, laplace_log_pmf
from murmurate.quantities import BoolArray, FloatArray, IntArray

_SETTLING_DAYS = 5
_STEP_WH = 10  # how finely an attacker reads a price back into a demand


@dataclass(slots=True, kw_only=True)
class Town:
    """Homes of one kind, living from interval to interval."""

    kind: HouseholdKind
    first: int  # the first interval of the day that it lives through
    rng: np.random.Generator
    home: BoolArray = field(init=False)
    occupied: list[BoolArray] = field(default_factory=list, init=False)  # [interval] of each home
    energy_wh: list[IntArray] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.home = self.rng.random(self.kind.count) < self.prior

    @property
    def prior(self) -> float:
        """How likely a home is occupied when the town begins, if nobody knows more than the model."""
        day = len(self.kind.models[0].period)
        model = OccupancyModel(groups=(self.kind.models[0],))
        return float(occupancy_probability(model, _SETTLING_DAYS * day + self.first + 1)[-1, 0])

    def step(self, interval: int) -> FloatArray:
        """The transition [from, to] into the interval that is so many after the first."""
        found: FloatArray = self.kind.models[0].at(self.first + interval)[:, :, 0]
        return found

    def live(self) -> IntArray:
        """One more interval: what each home draws [Wh]."""
        if self.occupied:
            chance = self.step(len(self.occupied))[self.home.astype(np.int64), 1]
            self.home = self.rng.random(len(self.home)) < chance
        away, home = (
            self.rng.choice(len(law), size=len(self.home), p=law)
            for law in (self.kind.secret.away, self.kind.secret.home)
        )
        drew: IntArray = np.where(self.home, home, away)
        self.occupied.append(self.home)
        self.energy_wh.append(drew)
        return drew


class Guesses(NamedTuple):
    """How often an attacker is right about who is home."""

    by_the_model: float  # without any price
    with_prices: float
    with_exact_rates: float  # had they been published


def attack(town: Town, published_wh: IntArray, terms: Terms, slots: IntArray) -> Guesses:
    """What the prices of the first intervals tell about each household. `slots` are their intervals of the day."""
    intervals = len(published_wh)
    occupied = np.array(town.occupied[:intervals]).T
    energy_wh = np.array(town.energy_wh[:intervals]).T  # [home, interval]
    rest_wh = energy_wh.sum(axis=0) - energy_wh
    initial = np.array([1 - town.prior, town.prior])
    steps = np.stack([town.step(t) for t in range(intervals)])
    law = (town.kind.secret.away, town.kind.secret.home)
    heard = np.stack(
        [
            log_emission(np.full(len(rest_wh), published_wh[t]), rest_wh[:, t], *law, _noise(terms, int(slots[t])))
            for t in range(intervals)
        ],
        axis=1,
    )
    with np.errstate(divide="ignore"):
        exact = np.stack([np.log(pmf)[energy_wh] for pmf in law], axis=-1)
    emissions = (np.zeros_like(heard), heard, exact)
    return Guesses(*(float(((filtered(initial, steps, one) > 0) == occupied).mean()) for one in emissions))


def _noise(terms: Terms, slot: int) -> Callable[[IntArray], FloatArray]:
    scale_wh = float(terms.scale_wh[slot])
    if terms.law is NoiseLaw.LAPLACE:
        return lambda noise_wh: laplace_log_pmf(noise_wh, scale_wh)
    if terms.law is NoiseLaw.HUBER:
        return lambda noise_wh: huber_log_pmf(noise_wh, scale_wh, int(terms.core_wh[slot]))
    return lambda noise_wh: -((np.asarray(noise_wh, np.float64) / scale_wh) ** 2) / 2


def read_back(price_ticks: IntArray, terms: Terms, most_wh: int) -> IntArray:
    """The demand [Wh] that a price tells, as finely as its tick allows."""
    reach = most_wh + 20 * int(terms.scale_wh.max()) + int(terms.core_wh.max())
    demand_wh = np.arange(-reach, reach + 1, _STEP_WH)
    ticks = terms.curve.price_ticks(demand_wh)
    low, high = (np.searchsorted(ticks, price_ticks, side=side) for side in ("left", "right"))
    middle: IntArray = demand_wh[np.minimum((low + high) // 2, len(demand_wh) - 1)]
    return middle
