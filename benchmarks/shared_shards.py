"""Several publishers, each a process of its own, share the shards of one state.

    python -m benchmarks.shared_shards [--shards 100] [--zones 200] [--processes 2]

A publisher passes over what another has locked, so they divide the shards between them as they go. Each interval is
released by one process, then by several, in turn. The figures are the time until every process has found every shard
up to date, the core time of all of them, and the tiles that each has written. At the end the log is checked as anybody
would check it, tile by tile, and must be what the state has seen. Exits with 1 unless it is, or if several processes
cost much more than one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from typing import Any, NamedTuple

import numpy as np

from benchmarks.publisher_bench import INTERVAL_S, databases, own_plans
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.privacy.noise import SystemNoise
from murmurate.public_log.signing import Ed25519Signer, verify_signature
from murmurate.public_log.tile_chain import ShardHead, check_next
from murmurate.publisher.desired_state import DesiredState, ShardOpening, ZoneOpening
from murmurate.publisher.steps import Drafts
from murmurate.publisher.tile_writer import TileWriter
from murmurate.service.storage.public_log_store import PostgresLogStore
from murmurate.service.storage.state_store import PostgresStateStore
from murmurate.service.worker.publish_loop import Publisher
from murmurate.types import Demand

ROUNDS = 3  # intervals by one process, and as many by several
CORE_RATIO_GOAL, MAX_CORE_RATIO = 1.5, 2.5  # of several processes to one; few zones have little work to share
SIGNER = Ed25519Signer(bytes(32))
OPENING = ShardOpening(key=SIGNER.public_key, interval_s=INTERVAL_S)


class Work(NamedTuple):
    """What one process did for one interval."""

    seconds: float
    core_s: float
    tiles: int


def open_shards(state: PostgresStateStore, log: PostgresLogStore, shards: int, zones: int, first: int) -> list[str]:
    """Have shards of this many zones published. Return their zones. The shards have the same plans."""
    documents = dict(own_plans([f"make-{n}" for n in range(zones)]))
    state.register_plans(documents)
    log.publish_documents(documents)
    terms = ReleaseTerms.from_json(next(iter(documents.values())))
    openings = [ZoneOpening(plan=d, currency=terms.currency, tick=terms.tick, first=first) for d in documents]
    placed = {
        f"zone-{shard:03}-{n:03}": (f"shard-{shard:03}", opening)
        for shard in range(shards)
        for n, opening in enumerate(openings)
    }
    state.store_openings(dict.fromkeys((shard for shard, _ in placed.values()), OPENING), placed)
    return list(placed)


def run_publisher(state_dsn: str, log_dsn: str, intervals: Any, results: Any, start: Any) -> None:
    """Publish each interval that is asked for, when all are ready."""
    state, log = PostgresStateStore(state_dsn), PostgresLogStore(log_dsn)
    zones: dict[str, dict[str, ZoneOpening]] = {}
    for zone, (shard, opening) in state.zones().items():
        zones.setdefault(shard, {})[zone] = opening
    state.load_terms({opening.plan for its in zones.values() for opening in its.values()})
    writer = TileWriter(terms_for_plan=state.terms_for_plan, signers={SIGNER.public_key: SIGNER}, noise=SystemNoise())
    written = 0

    def write_tiles(*arguments: Any) -> Drafts:
        nonlocal written
        drafts = writer.write_tiles(*arguments)
        written += len(drafts.written)
        return drafts

    publisher = Publisher(state=state, log=log, write_tiles=write_tiles, wait_for_slot=lambda: None, batch_size=5)
    while (until := intervals.get()) is not None:
        start.wait()
        begin, core, before = time.perf_counter(), time.process_time(), written
        desired = {shard: DesiredState(until=until, opening=OPENING, zones=its) for shard, its in zones.items()}
        outcome = publisher.publish(desired, timeout_s=100)
        assert outcome.up_to_date == desired.keys(), outcome
        results.put(Work(time.perf_counter() - begin, time.process_time() - core, written - before))


class Publishers:
    """Some processes that wait for the next interval."""

    def __init__(self, state_dsn: str, log_dsn: str, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._intervals, self._results = context.Queue(), context.Queue()
        self._start = context.Barrier(count)
        arguments = (state_dsn, log_dsn, self._intervals, self._results, self._start)
        self._processes = [context.Process(target=run_publisher, args=arguments) for _ in range(count)]
        for process in self._processes:
            process.start()

    def publish(self, until: int) -> list[Work]:
        for _ in self._processes:
            self._intervals.put(until)
        return [self._results.get(timeout=120) for _ in self._processes]

    def close(self) -> None:
        for _ in self._processes:
            self._intervals.put(None)
        for process in self._processes:
            process.join()


def store_demand(state: PostgresStateStore, zones: list[str], interval: int) -> None:
    column = np.full(len(zones), 800)
    energy_wh = np.random.default_rng(interval % 1000).integers(150_000, 250_000, len(zones))
    bounds = ({"": 1000},) * len(zones)
    demand = Demand(zones=tuple(zones), energy_wh=energy_wh, reported=column, imputed=0 * column, bounds=bounds)
    state.store_demand(interval, demand)


def count_checked_tiles(state_dsn: str, log_dsn: str, shards: int) -> int:
    """Check every tile of the log, and that the state has seen the same. Raises ChainError or AssertionError."""
    log, state = PostgresLogStore(log_dsn), PostgresStateStore(state_dsn)
    heads = log.heads()
    assert len(heads) == shards
    count = 0
    for shard, (last_seq, _) in heads.items():
        head: ShardHead | None = None
        while head is None or head.tile.header.seq < last_seq:
            for offer in log.read({shard: -1 if head is None else head.tile.header.seq})[shard].tiles:
                assert not isinstance(offer, str), offer
                head = check_next(head, offer.tile, offer.table, verify_signature)
                count += 1
        seen = state.lock([shard])[shard]
        state.rollback()
        assert seen.head is not None
        assert (seen.head.tile.hash, seen.pending) == (head.tile.hash, None)
    return count


def main() -> int:
    """Print the figures. Return 1 where a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, number in (("shards", 100), ("zones", 200), ("processes", 2)):
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--server", default="host=127.0.0.1 user=postgres")
    options = parser.parse_args()
    interval = int(time.time()) // INTERVAL_S - 2 * ROUNDS - 4
    found: dict[int, list[list[Work]]] = {1: [], options.processes: []}
    with databases(options.server) as (state_dsn, log_dsn):
        state, log = PostgresStateStore(state_dsn), PostgresLogStore(log_dsn)
        zones = open_shards(state, log, options.shards, options.zones, interval)
        publishers = {count: Publishers(state_dsn, log_dsn, count) for count in found}
        publishers[1].publish(interval - 1)
        for _ in range(ROUNDS):
            for count, group in publishers.items():
                store_demand(state, zones, interval)
                found[count].append(group.publish(interval))
                interval += 1
        for group in publishers.values():
            group.close()
        tiles = count_checked_tiles(state_dsn, log_dsn, options.shards)
    print(f"{options.shards} shards of {options.zones} zones in one state: {tiles:,} tiles checked, 0 violations")
    cost = {}
    for count, rounds in found.items():
        wall_s = float(np.median([max(work.seconds for work in each) for each in rounds]))
        cost[count] = float(np.median([sum(work.core_s for work in each) for each in rounds]))
        shares = " and ".join(str(work.tiles) for work in rounds[-1])
        print(f"  {count} publishers: {wall_s:.2f} s, {cost[count]:.2f} core s; tiles of the last interval: {shares}")
    ratio = cost[options.processes] / cost[1]
    verdict = f"{ratio:.2f}, goal {CORE_RATIO_GOAL}, at most {MAX_CORE_RATIO}"
    print(f"  core time of {options.processes} publishers / of one: {verdict}")
    return int(ratio > MAX_CORE_RATIO)


if __name__ == "__main__":
    sys.exit(main())
