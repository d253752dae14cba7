"""One interval of a million zones through the code of the publisher and of the reader, with state and log in memory.

    python -m benchmarks.million_zones [--zones 1000000] [--processes 2]

Zones are in shards of 1,000 and share 1,000 plans. Each process has some of the shards, as several publishers and
several servers would. The publisher opens the shards and releases two intervals, of which the second is measured: lock,
draw, price, sign, check, save, append. The reader begins with the first, and is measured with the second: parse, check
signature, chain and rows, keep the prices, and look up the price of every zone once. Room is kept for three days of
prices. A goal counts for the slowest process.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.deep_log import BATCH, INTERVAL_S, own_plans
from benchmarks.goals import Goals, read_options
from benchmarks.memory_log import MemoryLog, MemoryState, MemoryTiles
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.privacy.noise import SystemNoise
from murmurate.public_log.signing import Ed25519Signer
from murmurate.public_log.zone_table import MAX_ZONES
from murmurate.publisher.desired_state import DesiredState, ShardOpening, ZoneOpening
from murmurate.publisher.tile_writer import TileWriter
from murmurate.service.log_reader.follower import RECENT_PRICES_S, Follower
from murmurate.service.log_reader.zone_view import ZoneViews
from murmurate.service.settings import ServiceSettings
from murmurate.service.worker.publisher_context import Publisher

GOAL_S = 60.0  # to publish, and to read, a million zones on two cores
LEAST_GOAL_S = 5.0
PLANS, FIRST, LEAD = 1000, 1_982_976, 2
PRICE_BYTES = 17  # of a zone and interval in memory: price, kind, scale and core of its noise


class Figures(NamedTuple):
    """Of one process."""

    zones: int
    publish: tuple[float, ...]  # seconds, and seconds of a core
    read: tuple[float, ...]
    read_bytes: int  # by which the process has grown while it read; prices of two intervals
    tile_bytes: int  # of one interval


@contextmanager
def stopwatch(seconds: list[float]) -> Iterator[None]:
    begin, core = time.perf_counter(), time.process_time()
    yield
    seconds += [time.perf_counter() - begin, time.process_time() - core]


def run_part(shards: range, terms: dict[str, ReleaseTerms]) -> Figures:
    """Publish and read the zones of some shards."""
    log, published, read = MemoryLog(), list[float](), list[float]()
    publish = make_publisher(shards, terms, log)
    publish(FIRST)
    views = ZoneViews(ServiceSettings().display_of, terms.__getitem__)
    follower = Follower(MemoryTiles(log))
    begin_bytes = resident_bytes()
    for change in follower.refresh():
        views.put(change.view)
    with stopwatch(published):
        publish(FIRST + 1)
    with stopwatch(read):
        for change in follower.refresh():
            views.put(change.view)
        prices = sum(views[zone].prices[FIRST + 1 + LEAD].ticks is not None for zone in views)
    read_bytes = resident_bytes() - begin_bytes
    assert not follower.broken, follower.broken
    assert prices == len(views) == len(shards) * MAX_ZONES
    tile_bytes = sum(len(tiles[-1]) for tiles in log.tiles.values())
    return Figures(len(views), tuple(published), tuple(read), read_bytes, tile_bytes)


def make_publisher(shards: range, terms: dict[str, ReleaseTerms], log: MemoryLog) -> Callable[[int], None]:
    """A publisher of these shards: it releases up to an interval."""
    signer, plans = Ed25519Signer.generate(), list(terms.values())
    writer = TileWriter(terms_for_plan=terms.get, signers={signer.public_key: signer}, noise=SystemNoise())
    publisher = Publisher(
        state=MemoryState(), log=log, write_tiles=writer.write_tiles, wait_for_slot=lambda: None, batch_size=BATCH
    )
    opening = ShardOpening(key=signer.public_key, interval_s=INTERVAL_S, lead=LEAD)
    zones = [
        ZoneOpening(plan=its.plan_digest, currency=its.currency, tick=its.tick, first=FIRST)
        for its in (plans[n % len(plans)] for n in range(MAX_ZONES))
    ]

    def publish(until: int) -> None:
        desired = {
            f"shard-{shard:05}": DesiredState(
                until=until,
                opening=opening,
                zones={f"zone-{shard * MAX_ZONES + n:08}": zone for n, zone in enumerate(zones)},
            )
            for shard in shards
        }
        outcome = publisher.publish(desired, timeout_s=3600)
        assert outcome.up_to_date == desired.keys(), outcome.blocked

    return publish


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def main() -> int:
    """Print the figures. Return 1 where one misses its goal."""
    options = read_options(__doc__, zones=1_000_000, processes=2)
    terms = {digest: ReleaseTerms.from_json(text) for digest, text in own_plans([f"make-{n}" for n in range(PLANS)])}
    shards = range(options.zones // MAX_ZONES)
    parts = [(shards[start :: options.processes], terms) for start in range(options.processes)]
    with multiprocessing.get_context("fork").Pool(options.processes) as pool:
        found = pool.starmap(run_part, parts)
    zones = sum(part.zones for part in found)
    goals, goal_s = Goals(), max(LEAST_GOAL_S, GOAL_S * zones / 10**6)
    print(f"{zones:,} zones in memory, {len(found)} processes")
    for name in ("publish", "read"):
        wall_s, core_s = zip(*(getattr(part, name) for part in found), strict=True)
        goals.print_figure(name, max(wall_s), "s", at_most=goal_s)
        goals.print_figure(f"{name}: core time of all", sum(core_s), "s")
        goals.print_figure(f"{name}: core time of a zone", 1e6 * sum(core_s) / zones, "us")
    goals.print_figure("a zone in the reader", sum(part.read_bytes for part in found) / zones / 1000, "kB")
    prices_kb = PRICE_BYTES * (RECENT_PRICES_S // INTERVAL_S) / 1000
    goals.print_figure("its prices of three days", prices_kb, "kB")
    goals.print_figure("a record in a tile", sum(part.tile_bytes for part in found) / zones, "bytes")
    return goals.exit_status()


if __name__ == "__main__":
    sys.exit(main())
