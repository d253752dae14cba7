"""How many records a second `check_log` checks: in tiles, and in the lines of one zone.

    python -m benchmarks.verification_speed [--shards N] [--zones N] [--intervals N] [--lines N]

The log is made in memory by the modules that the publisher uses, with real plans and real signatures. A record is what
was decided for one zone and interval. Plans are proven before: the time for that depends on their number and not on the
length of the log. Time is processor time of this process. Exits with 1 below the goal.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable

import numpy as np

from benchmarks.goals import Goals, read_options
from murmurate.planning.plan import make_plan
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.public_log.make_tile import open_shard, release_interval
from murmurate.public_log.signing import Ed25519Signer
from murmurate.public_log.tile import NoiseCode, RowKind, Rows, Tile, row_dtype
from murmurate.public_log.tile_chain import ShardHead, check_follows
from murmurate.public_log.zone_line import make_zone_line
from murmurate.public_log.zone_table import ZoneRow, ZoneTable
from murmurate.verification.verifier import check_log

GOAL_RECORDS_PER_S = 50_000
PLANS = 5
FIRST = 480_000
SIGNER = Ed25519Signer(bytes(32))


def make_plans() -> list[str]:
    """Return the texts of five plans that differ in their promise, with an hour as the interval."""
    text = EXAMPLE_ZONE_FILE.replace("interval_minutes = 15", "interval_minutes = 60")
    promises = (f'["any 24 h: epsilon {number}"]' for number in range(1, PLANS + 1))
    old = '["any 24 h: epsilon 1, delta 1e-6", "any moment: 1"]'
    return [json.dumps(json.loads(make_plan(parse_zone(text.replace(old, each))).to_json())) for each in promises]


def make_shard(name: str, terms: list[ReleaseTerms], zones: int, intervals: int) -> tuple[ZoneTable, list[Tile]]:
    """Return the tiles of a shard: nine rows of ten are measured, the others are fallback prices."""
    plan_of = [terms[number % len(terms)] for number in range(zones)]
    table = ZoneTable.from_rows(
        ZoneRow(f"{name} {number:04}", its.plan_digest, its.currency, its.tick, FIRST)
        for number, its in enumerate(plan_of)
    )
    tile = open_shard(name, table, interval=FIRST - 1, interval_s=3600, lead=2, signer=SIGNER)
    tiles, head = [tile], check_follows(None, tile, table)
    for _ in range(intervals):
        tile = release_interval(head, fill_rows(plan_of, head), SIGNER)
        head = check_follows(head, tile, table)
        tiles.append(tile)
    return table, tiles


def fill_rows(plan_of: list[ReleaseTerms], head: ShardHead) -> Rows:
    rows = np.zeros(len(plan_of), row_dtype())
    slot = plan_of[0].slot_of_day(head.interval + 1)
    measured = np.arange(len(rows)) % 10 != 0
    rows["kind"] = np.where(measured, RowKind.MEASURED, RowKind.FALLBACK)
    rows["noise"] = np.where(measured, NoiseCode.LAPLACE, NoiseCode.NONE)
    rows["price_ticks"] = np.where(measured, 20_000, [its.forecast_ticks[slot] for its in plan_of])
    for column in ("scale_wh", "core_wh", "epsilon_micro", "rho_micro"):
        rows[column] = np.where(measured, [getattr(its, column)[slot] for its in plan_of], 0)
    return rows


def measure(items: list[bytes | str], plans: Iterable[str], proof_s: float) -> float:
    """Return the records checked in a second. The time to prove the plans is left out."""
    begin = time.process_time()
    report = check_log({"log": lambda: items}, plans=plans)
    seconds = time.process_time() - begin - proof_s
    assert report.is_valid, report.findings[:3]
    assert report.is_complete
    return report.records_by_source.total() / seconds


def main() -> int:
    """Print the figures. Return 1 where one misses its goal."""
    goals = Goals()
    options = read_options(__doc__, shards=5, zones=1000, intervals=24, lines=2000)
    plans = make_plans()
    terms = [ReleaseTerms.from_json(text) for text in plans]
    made = [make_shard(f"shard {n}", terms, options.zones, options.intervals) for n in range(options.shards)]
    items: list[bytes | str] = [table.text for table, _ in made]
    items += [tile.to_bytes() for _, tiles in made for tile in tiles]
    begin = time.process_time()
    check_log({"begin": lambda: [made[0][0].text, made[0][1][0].to_bytes()]}, plans=plans)
    proof_s = time.process_time() - begin
    goals.print_figure(f"{len(plans)} plans proven in, not counted below", proof_s, "s")
    goals.print_figure("in tiles", measure(items, plans, proof_s), "records/s", at_least=GOAL_RECORDS_PER_S)
    table, tiles = make_shard("village", terms[:1], 1, options.lines)
    zone = table.zones[0]
    lines: list[bytes | str] = [make_zone_line(tile, table, zone).to_json() for tile in tiles]
    begin = time.process_time()
    check_log({"begin": lambda: lines[:1]}, plans=plans[:1])
    speed = measure(lines, plans[:1], time.process_time() - begin)
    goals.print_figure("in lines of one zone", speed, "records/s")
    return goals.exit_status()


if __name__ == "__main__":
    sys.exit(main())
