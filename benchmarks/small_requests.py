"""The cost of many small requests, beside that of one large file of the same readings.

    python -m benchmarks.small_requests [--clients 5000] [--quick]

Each client sends 200 readings as JSON lines; 64 clients at a time are ingested as the service does it: parsed, checked,
stored by group commit, merged before the deadline. Then the interval is closed and aggregated. The same readings in one
append are the measure. Meters of a client are neighbours, or spread over all shards, or sent one after the other so
that no two requests meet. The demand must be the same. A cost is the median of several rounds, in core seconds.
The exit status is 1 if a ratio misses its goal by a quarter or a demand differs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.cpu_seconds import Engine, measure_in_turn
from murmurate.service.aggregation.demand_file import demand_table
from murmurate.service.aggregation.job import aggregate_landing, close_intervals
from murmurate.service.ingest.batch import Receipt
from murmurate.service.ingest.formats.text_lines import parse_json_lines
from murmurate.service.ingest.ingestor import ReadingIngestor
from murmurate.service.ingest.meter_registry import MeterRegistry
from murmurate.service.landing.append import append_readings
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.merging_appender import MergingAppender
from murmurate.service.landing.meter_table import MeterTable, pin_table
from murmurate.types import Readings
from murmurate.units import IntArray

GOAL_RATIO = 1.3  # close and aggregate: small requests / one large file
TOLERANCE = 1.25  # factor on the goal before the benchmark fails
READINGS_PER_REQUEST = 200
CONCURRENT_REQUESTS = 64
ZONE_METERS = 2000
START_S = 1_794_657_600
GRACE_S = 60
SEED = 20_261_115


@dataclass(slots=True, kw_only=True)
class SmallRequests:
    """A landing that many requests have filled, and what that has cost."""

    name: str
    landing: Landing
    requests: int = 0
    files: int = 0
    ingest_core_s: float = 0.0
    merge_core_s: float = 0.0
    now_s: float = field(default=START_S + 900 + 10)

    def ingest(self, source: Path, bodies: Sequence[bytes], concurrent: int) -> None:
        """Send the bodies, so many at a time, then merge as at the deadline."""
        appender = MergingAppender(self.landing, lambda: self.now_s, GRACE_S, in_background=False)
        registry = MeterRegistry.from_meter_table(source)
        ingestor = ReadingIngestor(
            landing=self.landing, registry=registry, now=lambda: self.now_s, grace_s=GRACE_S, append=appender.append
        )

        def send(body: bytes) -> int:
            batch, refused = parse_json_lines(body, interval_s=self.landing.interval_s)
            return ingestor.ingest_batch(batch, None, Receipt(refused=refused)).accepted

        begin = time.process_time()
        with ThreadPoolExecutor(concurrent) as clients:
            accepted = sum(clients.map(send, bodies))
        assert accepted == READINGS_PER_REQUEST * len(bodies)
        stored = time.process_time()
        self.now_s = START_S + 900 + GRACE_S - 1
        appender.merge_due_runs()
        self.requests, self.files = len(bodies), len(list(self.landing.root.glob("interval=*/shard=*/*.parquet")))
        self.ingest_core_s, self.merge_core_s = stored - begin, time.process_time() - stored


def main() -> int:
    """Print the table. Return 1 where a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=5000)
    parser.add_argument("--quick", action="store_true", help="1,000 clients and fewer rounds")
    options = parser.parse_args()
    clients = 1000 if options.quick else options.clients
    with TemporaryDirectory(prefix="murmurate-small-") as folder:
        return int(not _run(Path(folder), clients, rounds=5 if options.quick else 9))


def _run(folder: Path, clients: int, rounds: int) -> bool:
    rng = np.random.default_rng(SEED)
    count = clients * READINGS_PER_REQUEST
    source = _write_meter_table(folder / "meters.parquet", count)
    energy_wh = rng.integers(0, 1400, count)
    large = Landing.create(folder / "large")
    assert append_readings(large, START_S, Readings(meter=np.arange(count), energy_wh=energy_wh))
    orders = {"neighbours": (np.arange(count), CONCURRENT_REQUESTS), "spread": (rng.permutation(count), 64)}
    orders["one by one"] = (np.arange(count), 1)
    cases = []
    for name, (order, concurrent) in orders.items():
        case = SmallRequests(name=name, landing=Landing.create(folder / name))
        case.ingest(source, _request_bodies(order, energy_wh), concurrent)
        cases.append(case)
    landings = {"large": large} | {case.name: case.landing for case in cases}
    engines = [_engine(name, landing, pin_table(landing, source)) for name, landing in landings.items()]
    costs = measure_in_turn(engines, rounds=rounds)
    base_s = costs["large"].core_s
    files = len(list(large.root.glob("interval=*/shard=*/*.parquet")))
    print(f"{count:,} readings of {clients:,} clients")
    print(f"{'':<12} {'files':>7} {'ingest':>12} {'merge':>9} {'close + aggregate':>18} {'ratio':>6}")
    print(f"{'one append':<12} {files:>7,} {'':>12} {'':>9} {base_s:>11.3f} core s {1:>6.2f}")
    for case in cases:
        cost_s = costs[case.name].core_s
        each_ms = f"{1e3 * case.ingest_core_s / case.requests:.2f} ms each"
        row = f"{case.name:<12} {case.files:>7,} {each_ms:>12} {case.merge_core_s:>7.2f} s {cost_s:>11.3f} core s"
        print(f"{row} {cost_s / base_s:>6.2f}", flush=True)
    worst = max(costs[case.name].core_s for case in cases) / base_s
    same = len(frozenset[str]().union(*(cost.digests for cost in costs.values()))) == 1
    held = "ok" if worst <= GOAL_RATIO else "MISSED"
    print(f"largest ratio {worst:.2f}, goal {GOAL_RATIO} {held}; demand {'equal' if same else 'DIFFERS'}")
    return same and worst <= TOLERANCE * GOAL_RATIO


def _engine(name: str, landing: Landing, table: MeterTable) -> Engine:
    reopen: Callable[[], None] = partial(shutil.rmtree, landing.root / "_closed", ignore_errors=True)

    def run() -> pa.Table:
        return demand_table(aggregate_landing(landing, table, close_intervals(landing, [START_S], table)))

    return Engine(name=name, run=run, prepare=reopen)


def _write_meter_table(path: Path, count: int) -> Path:
    meter = np.arange(count)
    zones = pa.array([f"zone-{zone:05d}" for zone in range(count // ZONE_METERS + 1)])
    zone = pa.DictionaryArray.from_arrays(pa.array(meter // ZONE_METERS, pa.int32()), zones)
    pq.write_table(pa.table({"meter": meter, "zone": zone, "bound_wh": np.full(count, 1000)}), path)
    return path


def _request_bodies(order: IntArray, energy_wh: IntArray) -> list[bytes]:
    """One body for each client: JSON lines, the meters in this order."""
    return [
        "\n".join(
            json.dumps({"meter": str(meter), "interval_start": "2026-11-14T12:00:00Z", "energy_wh": int(energy)})
            for meter, energy in zip(meters.tolist(), energy_wh[meters].tolist(), strict=True)
        ).encode()
        for meters in order.reshape(-1, READINGS_PER_REQUEST)
    ]


if __name__ == "__main__":
    sys.exit(main())
