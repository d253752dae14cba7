"""Run a world through the product: plan, open, ingest, close, aggregate, change plans, release.

One landing serves both variants: each has meters and zones of its own there. Then each is released in a shard of its
own, under the same names. The noise is replaced by numbers that are all different, and each is kept with the request
for it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from murmurate.planning.plan import Plan
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.public_log.tile import RowKind, Tile
from murmurate.public_log.tile_chain import ShardHead
from murmurate.public_log.zone_table import ZoneTable
from murmurate.publisher.desired_state import UNTIL_NO_INTERVAL, DesiredState, ShardOpening, ZoneOpening
from murmurate.publisher.tile_writer import TileWriter
from murmurate.readings.text_lines import parse_csv, parse_json_lines
from murmurate.service.aggregation.job import aggregate_landing
from murmurate.service.aggregation.submit_demand import releasable_demand
from murmurate.service.ingest.cumulative_register import RegisterReading
from murmurate.service.ingest.ingestor import ReadingIngestor, Receipt
from murmurate.service.ingest.message_ingest import ingest_register_points
from murmurate.service.ingest.meter_registry import MeterRegistry
from murmurate.service.landing.interval_manifest import IntervalManifest, close_interval
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.meter_table import pin_table
from murmurate.types import Demand
from tests.whole_path.random_worlds import VARIANTS, World, WorldMeter, WorldZone
from tests.whole_path.simulated_history import (
    KEY,
    SHARED_MEMORY,
    NoiseRequest,
    is_change_accepted,
    make_writer,
    plan_change,
    sample_terms,
    write_next_tile,
)

DRAW_STEP_WH = 101  # between two draws: more than any demand of a world


class KnownNoise:
    """Hands out numbers that are all different, and keeps each with its request."""

    test_only = False

    def __init__(self, shift_wh: Sequence[int] = ()) -> None:
        self.handed_out: list[tuple[NoiseRequest, int]] = []
        self._shift_wh = shift_wh  # [draw] what is added to it

    def draw(self, distribution, scale_wh, core_wh=None):
        cores = np.zeros(scale_wh.shape, np.int64) if core_wh is None else np.broadcast_to(core_wh, scale_wh.shape)
        first = len(self.handed_out)
        for scale, core in zip(scale_wh.tolist(), cores.tolist(), strict=True):
            number = len(self.handed_out)
            shift = self._shift_wh[number] if number < len(self._shift_wh) else 0
            drawn = (-1) ** number * DRAW_STEP_WH * (number + 1) + shift
            self.handed_out.append((NoiseRequest(distribution, scale, core), drawn))
        return np.array([drawn for _, drawn in self.handed_out[first:]], np.int64)


class ZoneRelease(NamedTuple):
    """What one zone publishes about one interval."""

    zone: int
    plan: int  # index of the plan in force
    row: np.void


@dataclass(frozen=True)
class WorldRelease:
    """What all zones publish about one interval, and the draws that were asked for."""

    number: int  # counted from the opening
    zones: tuple[ZoneRelease, ...]
    draws: tuple[tuple[NoiseRequest, int], ...]


@dataclass(frozen=True)
class WorldRun:
    """All that one variant of a world publishes."""

    plans: tuple[tuple[str, ...], ...]  # [zone, plan] as plan.json
    tiles: tuple[tuple[Tile, ZoneTable], ...]
    head: ShardHead
    releases: tuple[WorldRelease, ...]


def simulate_world(world: World, demands: list[Demand], shift_wh: Sequence[int] = ()) -> WorldRun | None:
    """Return what a variant publishes, given its demands; None where the product refuses the first plan of a zone."""
    planned = [[each for each in map(sample_terms, zone.files) if each is not None] for zone in world.zones]
    if not all(planned):
        return None
    by_digest = {its.plan_digest: its for own in planned for _, _, its in own}
    noise = KnownNoise(shift_wh)
    return _release(world, planned, make_writer(by_digest, noise), noise, demands)


def _release(
    world: World,
    planned: list[list[tuple[Plan, str, ReleaseTerms]]],
    writer: TileWriter,
    noise: KnownNoise,
    demands: list[Demand],
) -> WorldRun:
    plans, texts, terms = ([[each[at] for each in own] for own in planned] for at in range(3))
    openings = {
        zone.name: ZoneOpening(plan=own[0].plan_digest, currency=own[0].currency, tick=own[0].tick, first=world.first)
        for zone, own in zip(world.zones, terms, strict=True)
    }
    shard = ShardOpening(key=KEY.public_key, interval_s=world.interval_s, lead=world.lead)
    head = write_next_tile(writer, None, DesiredState(until=UNTIL_NO_INTERVAL, opening=shard, zones=openings), None)
    heads, releases = [head], []
    in_force = [0] * len(plans)
    history: list[list[tuple[Plan, bool]]] = [[] for _ in plans]
    for number in range(world.intervals):
        changes = {}
        for at, zone in enumerate(world.zones):
            after = in_force[at] + 1
            if number in zone.changes and after < len(plans[at]):
                change = plan_change(terms[at][in_force[at]], terms[at][after])
                if change.before != change.after and is_change_accepted(
                    tuple(history[at]), world.first, plans[at][after]
                ):
                    changes[zone.name] = change
                    in_force[at] = after
        if changes:
            head = write_next_tile(writer, head, DesiredState(until=UNTIL_NO_INTERVAL, plan_changes=changes), None)
            heads.append(head)
        drawn = len(noise.handed_out)
        now = {zone.name: terms[at][in_force[at]] for at, zone in enumerate(world.zones)}
        submitted = {zone.name for zone in world.zones if number not in zone.without_demand}
        known = {name: its if name in submitted else None for name, its in now.items()}
        demand, _ = releasable_demand(demands[number], known, world.interval_s, world.quorum)
        head = write_next_tile(writer, head, DesiredState(until=world.first + number), demand)
        heads.append(head)
        rows = [head.tile.rows[head.table.position[zone.name]] for zone in world.zones]
        for at, row in enumerate(rows):
            history[at].append((plans[at][in_force[at]], bool(row["kind"] == RowKind.MEASURED)))
        zones = tuple(ZoneRelease(at, in_force[at], row) for at, row in enumerate(rows))
        releases.append(WorldRelease(number, zones, tuple(noise.handed_out[drawn:])))
    return WorldRun(
        plans=tuple(map(tuple, texts)),
        tiles=tuple((each.tile, each.table) for each in heads),
        head=head,
        releases=tuple(releases),
    )


class RegisterMemory:
    """What the state keeps of registers, in memory."""

    def __init__(self) -> None:
        self._registers: dict = {}
        self._energies: dict = {}

    def hold_registers(self, _registers):
        return nullcontext()

    def load_registers(self, meters):
        return {meter: self._registers[meter] for meter in meters if meter in self._registers}

    def store_registers(self, registers, *, now_s):
        del now_s
        self._registers |= registers

    def pair_energies(self, energies):
        for register, start_s, energy_wh in energies:
            self._energies.setdefault((register, start_s), energy_wh)
        halves = self._energies
        intervals = sorted({(max(register, ~register), start_s) for register, start_s, _ in energies})
        return [
            (meter, start_s, halves[meter, start_s] - halves[~meter, start_s])
            for meter, start_s in intervals
            if (meter, start_s) in halves and (~meter, start_s) in halves
        ]


def aggregate_world(world: World) -> list[list[Demand]]:
    """Return the demand of each variant and interval: readings are ingested, and intervals closed, in order of time."""
    folder = Path(tempfile.mkdtemp(prefix="murmurate-", dir=SHARED_MEMORY))
    try:
        demands = _aggregate(world, folder)
    finally:
        shutil.rmtree(folder)
    return [[_of_variant(world, demand, variant) for demand in demands] for variant in VARIANTS]


def _aggregate(world: World, folder: Path) -> list[Demand]:
    step, now = world.interval_s, [0]
    landing = Landing.create(folder / "landing", interval_s=step)
    tables = [folder / f"meters-{table}.csv" for table in range(1 + (world.second_table < world.intervals))]
    for table, path in enumerate(tables):
        path.write_text("\n".join(meter_rows(world, table)) + "\n", encoding="utf-8")
    ingestor = ReadingIngestor(
        landing=landing, registry=MeterRegistry.from_meter_table(tables[0]), now=lambda: now[0], grace_s=10**9
    )
    registers, pinned = RegisterMemory(), [pin_table(landing, tables[0])]
    manifests: list[list[IntervalManifest]] = [[], []]
    _ingest_registers(world, ingestor, registers, -1)
    for number in range(world.intervals):
        table = world.table_in_force(number)
        if table == len(pinned):
            pinned.append(pin_table(landing, tables[table]))
            ingestor.registry = MeterRegistry.from_meter_table(tables[table])
        start = (world.first + number) * step
        now[0] = start + step + step // 5
        _ingest_rows(world, ingestor, number, late=False)
        _ingest_registers(world, ingestor, registers, number)
        manifests[table].append(close_interval(landing, start, pinned[table].version))
        _ingest_rows(world, ingestor, number, late=True)
    return [
        demand
        for table, own in zip(pinned, manifests, strict=False)
        for demand in aggregate_landing(landing, table, own).values()
    ]


def _of_variant(world: World, demand: Demand, variant: int) -> Demand:
    """Return the demand of the zones of a variant, under their names in the world."""
    landed = {_landed_zone(zone.name, variant): zone.name for zone in world.zones}
    rows = [row for row, name in enumerate(demand.zones) if name in landed]  # some have no meter in a table
    return Demand(
        zones=tuple(landed[demand.zones[row]] for row in rows),
        energy_wh=demand.energy_wh[rows],
        reported=demand.reported[rows],
        imputed=demand.imputed[rows],
        silent_bound_wh=demand.silent_bound_wh[rows],
        silent_export_bound_wh=demand.silent_export_bound_wh[rows],
        bounds=tuple(demand.bounds_at(row) for row in rows),
    )


def _landed_zone(name: str, variant: int) -> str:
    return f"{name} of variant {variant}"


class LandedMeter(NamedTuple):
    """A meter of one variant, with its number in the landing."""

    number: int
    variant: int
    zone: WorldZone
    meter: WorldMeter


def _landed_meters(world: World) -> list[LandedMeter]:
    every = [(variant, zone, meter) for variant in VARIANTS for zone in world.zones for meter in zone.meters]
    return [LandedMeter(number, *each) for number, each in enumerate(every)]


def meter_rows(world: World, table: int) -> Iterator[str]:
    """Yield the lines of a meter table of the operator."""
    has_exports = any(meter.export_bound_wh for zone in world.zones for meter in zone.meters)
    imputed = ",imputed_wh" * world.has_constants
    yield f"meter,zone,bound_wh{imputed},household,kind,protected" + ",export_bound_wh" * has_exports
    for number, variant, zone, meter in _landed_meters(world):
        bound = meter.bounds_wh[table]
        if bound is not None:
            kind = zone.files[0].kinds[meter.kind]
            name = kind.name if zone.names_kinds else ""
            protected = "false" if kind.public == "always" and not name else "true"
            landed = _landed_zone(zone.name, variant)
            household = f"{landed} {meter.kind} {meter.household}"
            constant = f",{min(meter.imputed_wh, bound)}" * world.has_constants
            row = f"{number},{landed},{bound}{constant},{household},{name},{protected}"
            yield f"{row},{meter.export_bound_wh}" if has_exports else row


def _ingest_rows(world: World, ingestor: ReadingIngestor, number: int, *, late: bool) -> None:
    """Ingest the readings that arrive before or after an interval is closed."""
    start, rows = (world.first + number) * world.interval_s, []
    for meter_number, variant, _, meter in _landed_meters(world):
        arrival, energy = meter.arrivals[number], meter.shown_wh[variant][number]
        is_due = meter.bounds_wh[world.table_in_force(number)] is not None and arrival != "silent"
        if is_due and not meter.is_register and (arrival == "late") is late:
            repeats = [energy, energy - 1] if arrival == "repeated" else [energy]
            rows += [(meter_number, each) for each in repeats]
    if not rows:
        return
    if world.sends_json:
        lines = "".join(f'{{"meter":"{m}","interval_start":{start},"energy_wh":{wh}}}\n' for m, wh in rows)
        batch, refused = parse_json_lines(lines.encode(), interval_s=world.interval_s)
    else:
        lines = "meter_id,interval_start,energy_wh\n" + "".join(f"{m},{start},{wh}\n" for m, wh in rows)
        batch, refused = parse_csv(lines.encode(), interval_s=world.interval_s)
    ingestor.ingest_batch(batch, None, Receipt(refused=refused))


def _ingest_registers(world: World, ingestor: ReadingIngestor, registers: RegisterMemory, number: int) -> None:
    """Send what registers show a tenth of an interval before its end and, always, as long after its end.

    The second point completes the interval. An interval without the first one has no energy.
    """
    step, points, export_points = world.interval_s, [], []
    end = (world.first + number + 1) * step
    for meter_number, variant, _, meter in _landed_meters(world):
        if not meter.is_register or meter.bounds_wh[world.table_in_force(max(number, 0))] is None:
            continue
        rises_wh = [(0, 0), *map(meter.register_rises_wh, meter.shown_wh[variant][: number + 1])]
        total_wh, fed_in_wh = (10**6 + sum(each) for each in zip(*rises_wh, strict=True))
        times = [end + step // 10]
        if number >= 0 and meter.arrivals[number] != "silent":
            times.insert(0, end - step // 10)
            times += times[-1:] if meter.arrivals[number] == "repeated" else []
        points += [(str(meter_number), RegisterReading(at, total_wh), end + step // 5) for at in times]
        if meter.export_bound_wh:
            export_points += [(str(meter_number), RegisterReading(at, fed_in_wh), end + step // 5) for at in times]
    if points:
        ingest_register_points(ingestor, registers, points, export_points)
