"""Plans whose prices are predicted, and a publisher that plays intervals under them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from murmurate.planning.plan import Plan, make_plan
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.prediction.forecast_sources import forecast_from_table
from murmurate.privacy.noise import NoiseDistribution
from murmurate.public_log.tile import Tile
from murmurate.public_log.tile_chain import ShardHead, check_follows
from murmurate.public_log.zone_line import make_zone_line
from murmurate.public_log.zone_table import ZoneTable
from murmurate.publisher.desired_state import DesiredState, PlanChange, ShardOpening, ZoneOpening, find_next_tile
from murmurate.publisher.tile_writer import FindInputs, TileWriter
from murmurate.types import Demand
from murmurate.units import FloatArray, IntArray
from tests.support.sample_logs import OLD, SIGNERS

FIRST = 490_000  # in November 2025, in hours
SLOTS = 24
DAY_WH = 400 + 250 * np.sin((np.arange(SLOTS) - 8) * 2 * np.pi / SLOTS)


@cache
def public_forecast(time_zone: str = "Europe/Lisbon") -> Any:
    """A standard load profile: warmer months use less, Sundays more."""
    month = 1 + 0.3 * np.cos(np.arange(12) * np.pi / 6)
    table = DAY_WH * np.array([1.0, 1.05, 1.15])[None, :, None] * month[:, None, None]
    return forecast_from_table(table, source="a made profile", time_zone=time_zone)


def zone_text(
    households: int = 3000,
    elasticity: float = 0.0,
    promise: str = "any 24 h: epsilon 1",
    forecast: str = 'file = "forecast.json"',
) -> str:
    """A zone file with an hour as its interval."""
    text = EXAMPLE_ZONE_FILE.replace("interval_minutes = 15", "interval_minutes = 60")
    text = text.replace('["any 24 h: epsilon 1, delta 1e-6", "any moment: 1"]', json.dumps([promise]))
    text = text.replace("count = 800", f"count = {households}").replace('"0.0002"', '"0.00005"')
    return f"{text}\n[forecast]\n{forecast}\nelasticity = {elasticity}\n"


@cache
def predicted_plan(
    households: int = 3000, elasticity: float = 0.0, promise: str = "any 24 h: epsilon 1", *, read_meters: bool = True
) -> Plan:
    text = zone_text(households, elasticity, promise) + ("" if read_meters else "read_meters = false\n")
    zone = parse_zone(text, read_forecast=lambda _: public_forecast())
    return make_plan(zone)


@cache
def plan_text(**choices: Any) -> str:
    """A plan in one line, as a log has it."""
    return json.dumps(json.loads(predicted_plan(**choices).to_json()), separators=(",", ":"))


class RepeatableNoise:
    """Laplace noise from a seed, which the publisher takes for real noise."""

    test_only = False

    def __init__(self, seed: int = 1) -> None:
        self.rng = np.random.default_rng(seed)

    def draw(self, distribution: NoiseDistribution, scale_wh: FloatArray, core_wh: IntArray | None = None) -> IntArray:  # noqa: ARG002 - as every sampler
        return np.rint(self.rng.laplace(0, scale_wh)).astype(np.int64)


class PredictedShard:
    """A shard that a publisher writes, tile by tile."""

    def __init__(
        self, plans: Mapping[str, str], *, lead: int = 2, noise: Any = None, find_inputs: FindInputs = lambda *_: {}
    ) -> None:
        """`plans`: text of the plan of each zone."""
        self.terms = {terms.plan_digest: terms for terms in map(ReleaseTerms.from_json, plans.values())}
        drawn = noise or RepeatableNoise()
        self.writer = TileWriter(terms_for_plan=self.terms.get, signers=SIGNERS, noise=drawn, find_inputs=find_inputs)
        self.zones = {zone: self._opening(json.loads(text)["digest"]) for zone, text in plans.items()}
        self.opening = ShardOpening(key=OLD.public_key, interval_s=3600, lead=lead)
        self.head: ShardHead | None = None
        self.tiles: list[Tile] = []
        self.tables: dict[str, ZoneTable] = {}
        self.write(DesiredState(until=FIRST - 1, opening=self.opening, zones=self.zones))

    def _opening(self, digest: str, **more: Any) -> ZoneOpening:
        its = self.terms[digest]
        return ZoneOpening(plan=digest, currency=its.currency, tick=its.tick, first=FIRST, **more)

    def write(self, desired: DesiredState, demand: Demand | None = None) -> Tile:
        """Append the next tile."""
        tile = find_next_tile(self.head, desired, desired.zones.keys())
        assert tile is not None
        drafts = self.writer.write_tiles({"east": tile}, demand or make_demand({}))
        assert not drafts.refused, drafts.refused
        written = drafts.written["east"]
        self.head = check_follows(self.head, written, tile.table)
        self.tiles, self.tables = [*self.tiles, written], self.tables | {tile.table.digest: tile.table}
        return written

    def next_interval(self) -> int:
        assert self.head is not None
        return self.head.interval + 1

    def release(self, demand_wh: Mapping[str, int], *, late: bool = False) -> Tile:
        """Release the next interval. `demand_wh`: by zone; one without a demand gets no measurement."""
        interval = self.next_interval()
        desired = DesiredState(until=interval, priced_from=interval + late, zones=self.zones)
        return self.write(desired, make_demand(demand_wh))

    def change_plan(self, zone: str, text: str) -> Tile:
        """Put a zone under another plan."""
        its = ReleaseTerms.from_json(text)
        self.terms[its.plan_digest] = its
        change = PlanChange(self.zones[zone].plan, its.plan_digest, its.currency, its.tick)
        self.zones[zone] = self._opening(its.plan_digest)
        return self.write(DesiredState(until=FIRST - 1, zones=self.zones, plan_changes={zone: change}))

    def items(self, tiles: Sequence[Tile] | None = None) -> list[bytes | str]:
        """What a source has: zone tables and tiles, or these tiles instead."""
        return [*(table.text for table in self.tables.values()), *(tile.to_bytes() for tile in tiles or self.tiles)]

    def lines(self, zone: str, tiles: Sequence[Tile] | None = None) -> list[str]:
        """The lines of a zone, as `log.jsonl` has them."""
        return [make_zone_line(tile, self.tables[tile.header.table], zone).to_json() for tile in tiles or self.tiles]


def make_demand(demand_wh: Mapping[str, int]) -> Demand:
    column = np.array(list(demand_wh.values()), np.int64)
    bounds = ({"flat": 1000, "fish market": 20_000},) * len(column)
    return Demand(zones=tuple(demand_wh), energy_wh=column, reported=column * 0 + 7, imputed=column * 0, bounds=bounds)
