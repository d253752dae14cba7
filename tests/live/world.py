"""A small world to publish: zones under one real plan, and a demand in which every number is a canary."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from murmurate.curator.plan import make_plan
from murmurate.curator.terms import Terms
from murmurate.curator.zonefile import EXAMPLE, parse_zone
from murmurate.publication.signing import Ed25519Signer
from murmurate.publication.wish import Opening
from murmurate.quantities import Demand
from murmurate.service.state import PostgresState
from tests.live.chance import chance

FIRST = 1_767_225_600 // 900  # 2026-01-01 UTC: every interval is over by any clock
LEFT_OUT = 7  # every 7th interval has no demand, so that forecasts are published too
_CANARIES = range(100_000_000, 1_000_000_000)


@cache
def plan_text() -> str:
    """A plan whose price follows demands of nine digits, and shows the noise in its last digits."""
    zone = EXAMPLE.replace('alpha = "0.0002"', 'alpha = "0.000002"').replace('cap = "2"', 'cap = "4"')
    return make_plan(parse_zone(zone)).to_json()


@dataclass(slots=True)
class World:
    """Zones, keys, and all demand that was ever remembered."""

    seed: int
    zones: tuple[str, ...]
    signer: Ed25519Signer = field(default_factory=lambda: Ed25519Signer(bytes(range(32))))
    canaries: set[int] = field(default_factory=set)
    _chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._chance = chance(self.seed)

    @property
    def text(self) -> str:
        return plan_text()

    @property
    def terms(self) -> Terms:
        return Terms.of(self.text)

    def openings(self) -> dict[str, Opening]:
        """How each chain begins."""
        opening = Opening(plan=self.terms.plan, key=self.signer.public, first=FIRST)
        return dict.fromkeys(self.zones, opening)

    def canary(self) -> int:
        """A number of nine digits that nothing else in the world has; its last digit is never 0."""
        while True:
            number = self._chance.choice(_CANARIES)
            if number % 10 and number not in self.canaries and str(number) not in self.text:
                self.canaries.add(number)
                return number

    def remember(self, state: PostgresState, intervals: Iterable[int]) -> None:
        """New demand for these intervals; where there was one, this is its correction."""
        count = len(self.zones)
        for interval in intervals:
            if interval % LEFT_OUT:
                demand = Demand(
                    zones=self.zones,
                    energy_wh=np.array([self.canary() for _ in self.zones]),
                    reported=np.full(count, 800),
                    imputed=np.zeros(count, np.int64),
                    bounds=({"": 1000},) * count,
                )
                state.remember(interval, demand)

    def setup(self) -> Mapping[str, str]:
        """What a publishing process must be handed; the demand is not among it."""
        return {"plan": self.text, "secret": self.signer.secret().hex()}
