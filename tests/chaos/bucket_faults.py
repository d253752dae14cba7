"""Kill the gateway of a bucket and cut processes off from it, while three append to a landing in it and two close it.

    python -m tests.chaos.bucket_faults --kills 20 --cuts 20 [--seed 1] [--break acknowledge-first]

The bucket is Ceph's, with one gateway, on this machine. Each process is in a network namespace, with a cable to a proxy
for the gateway. It is cut off for some seconds: its cable lets nothing through and nobody is told, or the proxy ends
connections and answers no new ones. Needs root. What must hold:

    nothing that was acknowledged is missing in the manifest of its interval
    both workers that close an interval get one manifest
    its demand is that of a landing in a folder that holds the same readings

`--break acknowledge-first` plants a bug that this must find: readings are acknowledged before they are stored.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from murmurate.service.aggregation.job import aggregate_landing, demand_table
from murmurate.service.landing.append import append_readings, join_readings
from murmurate.service.landing.interval_manifest import IntervalManifest, close_interval
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.meter_table import MeterTable, pin_table
from murmurate.service.landing.readings_file import read_readings
from murmurate.service.storage.open_store import open_store
from murmurate.types import Readings
from tests.chaos.gateway_faults import CUT, KILL, GatewayFaults
from tests.support.ceph_gateway import CephGateway, ceph_gateway, environment_of
from tests.support.gate_proxy import GateProxy
from tests.support.network_namespace import enter_namespace, network_namespace

STEP_S, START_S = 900, 1_794_658_500
METERS, SHARD_METERS, ZONES = 6_000, 100, 7
INGEST, WORKERS = 3, 2
COMMIT_READINGS = 200
ACKNOWLEDGE_FIRST = "acknowledge-first"
_PAUSE_S = 0.1  # before a request that failed is sent again
_TIMEOUT_S = 3.0  # of a request to the bucket
_ANSWER_S = 300.0  # for a process to answer the test

_context = multiprocessing.get_context("spawn")  # the threads of obstore do not survive a fork


@dataclass(slots=True)
class Outcome:
    """What was seen."""

    intervals: int = 0
    kills: int = 0
    cuts: int = 0
    failed_requests: int = 0  # that a process had to send again
    acknowledged: int = 0  # readings
    missing: int = 0  # of them, in the manifest of their interval
    two_manifests: int = 0  # intervals of which the workers got different ones
    wrong_demand: int = 0  # intervals whose demand is not that of the folder

    def is_right(self) -> bool:
        return not (self.missing or self.two_manifests or self.wrong_demand)


def meter_file(folder: Path) -> Path:
    path = folder / "meters.csv"
    rows = (f"{meter},zone-{meter % ZONES},{4000 + meter % 9},{meter % 5}\n" for meter in range(METERS))
    path.write_text("".join(["meter,zone,bound_wh,imputed_wh\n", *rows]), encoding="ascii")
    return path


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process runs, and what it reaches the bucket by."""

    namespace: str
    address: str  # of the landing
    host: str
    port: int

    def open_landing(self) -> Landing:
        enter_namespace(self.namespace)
        os.environ.update(environment_of(self.port, self.host))
        store = open_store(self.address, timeout_s=_TIMEOUT_S)
        return _again(lambda: Landing(store=store, interval_s=STEP_S, shard_meters=SHARD_METERS))[0]


def _again(call: Any) -> tuple[Any, int]:
    """What a call returns once it raises no OSError, and how often it did: as clients do, which send again."""
    for failed in range(10_000):
        try:
            return call(), failed
        except OSError:
            time.sleep(_PAUSE_S)
    raise TimeoutError


def keep_appending(pipe: Any, place: Place, seed: int, bug: str) -> None:
    """For each interval, append random meters until the interval takes no more. Send back what was acknowledged."""
    landing, rng = place.open_landing(), np.random.default_rng(seed)
    while (start_s := pipe.recv()) is not None:
        acknowledged: list[Readings] = []
        failures, is_open = 0, True
        while is_open:
            meter = rng.choice(METERS, COMMIT_READINGS, replace=False)
            commit = Readings(meter=meter, energy_wh=rng.integers(0, 5000, COMMIT_READINGS))
            if bug == ACKNOWLEDGE_FIRST:
                acknowledged.append(commit)
                try:
                    is_open = append_readings(landing, start_s, commit)
                except OSError:
                    failures += 1
                continue
            is_open, failed = _again(lambda commit=commit: append_readings(landing, start_s, commit))
            failures += failed
            if is_open:
                acknowledged.append(commit)
        one = join_readings(acknowledged) if acknowledged else Readings.from_columns(meter=[], energy_wh=[])
        pipe.send((one.meter, one.energy_wh, failures))


def keep_closing(pipe: Any, place: Place, version: str) -> None:
    """Close each interval. Send back its manifest."""
    landing = place.open_landing()
    while (start_s := pipe.recv()) is not None:
        manifest, failed = _again(lambda start_s=start_s: close_interval(landing, start_s, version))
        pipe.send((manifest.to_json(), failed))


def run_faults(ceph: CephGateway, folder: Path, *, kills: int, cuts: int, seed: int = 1, bug: str = "") -> Outcome:
    """Append and close interval after interval until all faults have happened."""
    os.environ.update(ceph.environment)
    outcome, address = Outcome(), ceph.new_address()
    landing = Landing.create(address, interval_s=STEP_S, shard_meters=SHARD_METERS)
    table = pin_table(landing, meter_file(folder))
    with ExitStack() as stack:
        cables = [stack.enter_context(network_namespace()) for _ in range(INGEST + WORKERS)]
        gates = [stack.enter_context(GateProxy(ceph.port, cable.host)) for cable in cables]
        places = [Place(cable.name, address, gate.host, gate.port) for cable, gate in zip(cables, gates, strict=True)]
        works: list[tuple[Any, ...]] = [
            (keep_appending, place, seed + at, bug) for at, place in enumerate(places[:INGEST])
        ]
        works += [(keep_closing, place, table.version) for place in places[INGEST:]]
        pipes = []
        for work, *given in works:
            pipe, far = _context.Pipe()
            process = _context.Process(target=work, args=(far, *given), daemon=True)
            process.start()
            stack.callback(process.kill)
            pipes.append(pipe)
        links = [*cables, *gates]
        faults = GatewayFaults(ceph, links, kills=kills, cuts=cuts, seed=seed, longest_cut_s=2 * _TIMEOUT_S)
        faults.start()
        start_s = START_S
        while faults.is_alive() or outcome.intervals < 2:
            _play_interval(pipes, start_s, outcome, landing, table, folder)
            start_s += STEP_S
            outcome.intervals += 1
        assert faults.is_complete, faults.done
        outcome.kills, outcome.cuts = faults.done[KILL], faults.done[CUT]
    return outcome


def _play_interval(
    pipes: list[Any], start_s: int, outcome: Outcome, landing: Landing, table: MeterTable, folder: Path
) -> None:
    for pipe in pipes[:INGEST]:
        pipe.send(start_s)
    time.sleep(1.5)
    for pipe in pipes[INGEST:]:
        pipe.send(start_s)
    closed = list(_answers(pipes[INGEST:]))
    appended = list(_answers(pipes[:INGEST]))
    outcome.failed_requests += sum(failed for *_, failed in (*closed, *appended))
    outcome.two_manifests += len({manifest for manifest, _ in closed}) != 1
    (folder / "manifest.json").write_bytes(closed[0][0])
    manifest = IntervalManifest.read(open_store(folder), "manifest.json")
    counted: list[Readings] = []
    for file in manifest.files:
        counted += _again(lambda file=file: list(read_readings(landing.store, file)))[0]
    outcome.acknowledged += sum(len(meter) for meter, _, _ in appended)
    outcome.missing += _count_missing(appended, counted)
    demand = _again(lambda: demand_table(aggregate_landing(landing, table, [manifest])))[0]
    outcome.wrong_demand += not demand.equals(_demand_of_folder(folder / str(start_s), start_s, counted, folder))


def _answers(pipes: list[Any]) -> Iterator[Any]:
    for pipe in pipes:
        if not pipe.poll(_ANSWER_S):
            raise TimeoutError("a process does not answer")
        yield pipe.recv()


def _count_missing(appended: list[Any], counted: list[Readings]) -> int:
    """How many acknowledged readings are not among those that count, as often as they were acknowledged."""

    def count(columns: list[tuple[Any, Any]]) -> Mapping[tuple[int, int], int]:
        pairs = np.concatenate([np.stack(each, axis=1) for each in columns]) if columns else np.zeros((0, 2), np.int64)
        found, times = np.unique(pairs, axis=0, return_counts=True)
        return {(int(meter), int(energy)): int(n) for (meter, energy), n in zip(found, times, strict=True)}

    here = count([(batch.meter, batch.energy_wh) for batch in counted])
    wanted = count([(meter, energy_wh) for meter, energy_wh, _ in appended])
    return sum(max(0, times - here.get(pair, 0)) for pair, times in wanted.items())


def _demand_of_folder(root: Path, start_s: int, counted: list[Readings], folder: Path) -> Any:
    """The demand of a landing in a folder that holds these readings."""
    landing = Landing.create(root, interval_s=STEP_S, shard_meters=SHARD_METERS)
    table = pin_table(landing, folder / "meters.csv")
    for batch in counted:
        append_readings(landing, start_s, batch)
    return demand_table(aggregate_landing(landing, table, [close_interval(landing, start_s, table.version)]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--break", dest="bug", choices=[ACKNOWLEDGE_FIRST], default="")
    arguments = parser.parse_args()
    with ceph_gateway() as ceph, tempfile.TemporaryDirectory() as folder:
        outcome = run_faults(
            ceph, Path(folder), kills=arguments.kills, cuts=arguments.cuts, seed=arguments.seed, bug=arguments.bug
        )
    lines = [
        f"{outcome.kills} kills of the gateway, {outcome.cuts} cuts, {outcome.intervals} intervals",
        f"{outcome.acknowledged:,} readings acknowledged, {outcome.failed_requests} requests sent again",
        f"acknowledged and missing: {outcome.missing}",
        f"intervals with two manifests: {outcome.two_manifests}",
        f"intervals whose demand is not that of a folder: {outcome.wrong_demand}",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return int(outcome.is_right() == bool(arguments.bug))


if __name__ == "__main__":
    sys.exit(main())
