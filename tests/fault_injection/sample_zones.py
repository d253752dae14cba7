"""Sample zones to publish: one real plan, and a demand in which every number is a canary."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from murmurate.planning.plan import make_plan
from murmurate.planning.release_terms import ReleaseTerms, compact_plan
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.public_log.signing import Ed25519Signer
from murmurate.publisher.desired_state import ShardOpening, ZoneOpening
from murmurate.service.storage.state_store import PostgresStateStore
from murmurate.types import Demand

FIRST = 1_767_225_600 // 900  # 2026-01-01 UTC: in the past by any clock
ZONES_PER_SHARD = 3
NO_DEMAND_EVERY = 7  # intervals, so that forecasts are published too
SIGNER = Ed25519Signer(bytes(range(32)))
_CANARIES = range(100_000_000, 1_000_000_000)


def seeded_random(seed: int) -> random.Random:
    """Return a random generator for faults, their order and their times. The noise of a release never uses it."""
    return random.Random(seed)  # noqa: S311 nothing secret is chosen


@cache
def sample_plan_text() -> str:
    """Return a plan for demands of nine digits, in which the noise changes the last digits of the price."""
    zone = EXAMPLE_ZONE_FILE.replace('alpha = "0.0002"', 'alpha = "0.000002"').replace('cap = "2"', 'cap = "4"')
    return compact_plan(make_plan(parse_zone(zone)).to_json())


@cache
def sample_terms() -> ReleaseTerms:
    return ReleaseTerms.from_json(sample_plan_text())


@dataclass(slots=True)
class SampleZones:
    """Zones, their plan, and every demand that was ever stored."""

    seed: int
    zones: tuple[str, ...]
    canaries: set[int] = field(default_factory=set)
    _rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._rng = seeded_random(self.seed)

    @property
    def shards(self) -> dict[str, list[str]]:
        """The zones of each shard."""
        return {
            f"shard-{number}": list(self.zones[at : at + ZONES_PER_SHARD])
            for number, at in enumerate(range(0, len(self.zones), ZONES_PER_SHARD))
        }

    def shard_opening(self) -> ShardOpening:
        return ShardOpening(key=SIGNER.public_key, interval_s=sample_terms().interval_s)

    def zone_opening(self) -> ZoneOpening:
        terms = sample_terms()
        return ZoneOpening(plan=terms.plan_digest, currency=terms.currency, tick=terms.tick, first=FIRST)

    def store_openings(self, state: PostgresStateStore) -> None:
        """Have every shard published."""
        zones = {zone: (shard, self.zone_opening()) for shard, names in self.shards.items() for zone in names}
        state.store_openings(dict.fromkeys(self.shards, self.shard_opening()), zones)

    def canary(self) -> int:
        """Return a number of nine digits that occurs nowhere else. Its last digit is never 0."""
        while True:
            number = self._rng.choice(_CANARIES)
            if number % 10 and number not in self.canaries and str(number) not in sample_plan_text():
                self.canaries.add(number)
                return number

    def store_demand(self, state: PostgresStateStore, intervals: Iterable[int]) -> None:
        """Store new demand for these intervals. It corrects any earlier demand."""
        count = len(self.zones)
        for interval in intervals:
            if interval % NO_DEMAND_EVERY:
                demand = Demand(
                    zones=self.zones,
                    energy_wh=np.array([self.canary() for _ in self.zones]),
                    reported=np.full(count, 800),
                    imputed=np.zeros(count, np.int64),
                    bounds=({"": 1000},) * count,
                )
                state.store_demand(interval, demand)
