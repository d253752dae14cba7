"""Publish to a log in a bucket while publishers are killed, its gateway is killed, and answers and networks are cut.

    python -m tests.chaos.bucket_log_faults --kills 40 --gateway-kills 10 --cuts 10 [--seed 1] [--break overwrite]

Two states that know nothing of each other, as after a split brain, have two publishers each, for the same shards: so
two draws for one number are offered all the time. Each publisher reaches the bucket of a real Ceph through proxies of
its own: one cuts connections around puts, so that answers are lost or puts arrive late; one cuts it off for some
seconds. A reader looks at the log all the while. What must hold:

    the log verifies, from the bucket alone: each tile is signed and follows, no zone has two values for an interval
    no interval is missing in any zone
    no tile that was seen once is another one later, or missing

`--break overwrite` plants a bug that this must find: publishers write over what is there.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from murmurate.operations.log_source import open_log_source
from murmurate.service.storage.object_log import ObjectLogStore
from murmurate.service.storage.object_store import ObjectStore
from murmurate.service.storage.open_store import open_store
from murmurate.service.storage.state_store import PostgresStateStore
from murmurate.verification.verifier import check_log
from tests.chaos.gateway_faults import CUT, KILL, GatewayFaults
from tests.fault_injection.kill_points import POINTS
from tests.fault_injection.publishing_process import BLOCKED, FAILED, PublisherProcess
from tests.fault_injection.sample_zones import FIRST, SampleZones, sample_plan_text, sample_terms
from tests.support.ceph_gateway import CephGateway, ceph_gateway, environment_of
from tests.support.cutting_proxy import Cut, cutting_proxy
from tests.support.databases import migrated_database
from tests.support.gate_proxy import GateProxy

OVERWRITE = "overwrite"
ZONES = tuple(f"zone {letter}" for letter in "abcdef")
STATES, PUBLISHERS = 2, 4
_MIN_TILES = 40  # that are created among the faults
_AHEAD = 30  # intervals with demand after the last published one
_CUTS = (Cut.NONE,) * 8 + (Cut.BEFORE, Cut.AFTER, Cut.AFTER, Cut.DURING, Cut.LATE)  # around a put
_POINTS = tuple(point for point in POINTS if not point.startswith("at the commit of append"))


@dataclass(slots=True)
class Outcome:
    """What was seen."""

    kills: int = 0  # of publishers
    gateway_kills: int = 0
    cuts: int = 0
    cut_puts: int = 0
    intervals: int = 0
    records: int = 0
    competing: int = 0  # numbers of a shard for which different tiles were offered
    findings: int = 0  # of the verifier
    gaps: int = 0  # zones in which an interval is missing
    changed: int = 0  # tiles that were seen, and were another one later, or missing
    wrong_ends: int = 0  # publishers that ended with an error, or as blocked

    def is_right(self) -> bool:
        return not (self.findings or self.gaps or self.changed or self.wrong_ends) and self.competing > 0


class LogWatch(threading.Thread):
    """Reads each tile of the log again and again, and keeps what it saw first."""

    def __init__(self, objects: ObjectStore) -> None:
        super().__init__(daemon=True)
        self._objects, self._stopped = objects, threading.Event()
        self.seen: dict[str, bytes] = {}
        self.changed: set[str] = set()

    def run(self) -> None:
        while not self._stopped.wait(0.2):
            with suppress(OSError):
                self.look()

    def look(self) -> None:
        names = [each.name for each in self._objects.list_objects("tiles")]
        for name in names[-40:] + names[:40]:
            data = self._objects.read(name)
            if self.seen.setdefault(name, data) != data:
                self.changed.add(name)

    def stop(self) -> None:
        self._stopped.set()
        self.join()

    def compare_all(self) -> int:
        """How many tiles are not what they were when they were first seen."""
        there = {each.name for each in self._objects.list_objects("tiles")}
        for name, data in self.seen.items():
            if name not in there or self._objects.read(name) != data:
                self.changed.add(name)
        return len(self.changed)


class PublisherPool:
    """Publishers of states, each with a way to the bucket of its own. One that ends is started again."""

    def __init__(self, address: str, states: list[str], ports: list[int], folder: Path, bug: str) -> None:
        self._address, self._states, self._ports = address, states, ports
        self._folder, self._bug = folder, bug
        self._sample = SampleZones(1, ZONES)
        self._running: dict[int, PublisherProcess] = {}
        self._started = 0
        self.until = FIRST - 1
        self.wrong_ends = 0

    def prepare(self) -> None:
        """Open the zones in each state, and publish their plan."""
        plans = {sample_terms().plan_digest: sample_plan_text()}
        ObjectLogStore(open_store(self._address)).publish_documents(plans)
        for dsn in self._states:
            state = PostgresStateStore(dsn)
            state.register_plans(plans)
            self._sample.store_openings(state)
            state.rollback()

    def extend(self, last: int) -> None:
        """Have more demand in the states than is published. Each state has its own."""
        if last + _AHEAD // 2 < self.until:
            return
        for dsn in self._states:
            state = PostgresStateStore(dsn)
            self._sample.store_demand(state, range(self.until + 1, self.until + 1 + _AHEAD))
            state.rollback()
        self.until += _AHEAD

    def start(self, number: int, point: str | None = None, visit: int = 1, *, port: int = 0) -> PublisherProcess:
        self._started += 1
        job: dict[str, Any] = {
            "protocol": "murmurate",
            "state": self._states[number % len(self._states)],
            "log": self._address,
            "environment": environment_of(port or self._ports[number]),
            "bug": self._bug,
            "zones": ZONES,
            "shards": self._sample.shards,
            "first": FIRST,
            "until": self.until,
            "point": point,
            "visit": visit,
            "batch": 2,
            "slot_s": 0.1,  # for which a draw waits: so another one can be drawn for its number
            "pause_s": 0.02,
            "timeout_s": 300,
            "output": str(self._folder / f"publisher-{self._started:04}.txt"),
        }
        self._running[number] = PublisherProcess(job)
        return self._running[number]

    def replace_ended(self, rng: random.Random) -> int:
        """Start what has ended, half of them with a point at which it kills itself. Returns how many were killed."""
        killed = 0
        for number in range(len(self._ports)):
            process = self._running.get(number)
            if process is not None and process.exitcode is None:
                continue
            if process is not None:
                killed += process.exitcode == -signal.SIGKILL
                self.wrong_ends += process.exitcode in {BLOCKED, FAILED}
            if rng.random() < 0.5:
                self.start(number, rng.choice(_POINTS), rng.randint(1, 4))
            else:
                self.start(number)
        return killed

    def kill_one(self, rng: random.Random) -> None:
        self._running[rng.randrange(len(self._ports))].kill()

    def kill_all(self) -> None:
        for process in self._running.values():
            process.kill()
            process.join()

    def finish(self, port: int) -> None:
        """Finish all work with a publisher of each state in turn, without faults."""
        for number in range(len(self._states)):
            process = self.start(number, port=port)
            process.join(300)
            self.wrong_ends += process.exitcode != 0

    def count_competing(self) -> int:
        """For how many numbers of a shard different tiles were offered."""
        offers: dict[tuple[str, str], set[str]] = defaultdict(set)
        for path in self._folder.glob("publisher-*.txt"):
            for line in path.read_text(errors="replace").splitlines():
                if line.startswith("offer "):
                    _, shard, seq, digest = line.split()
                    offers[shard, seq].add(digest)
        return sum(len(digests) > 1 for digests in offers.values())


def run_faults(
    ceph: CephGateway, folder: Path, *, kills: int, gateway_kills: int, cuts: int, seed: int = 1, bug: str = ""
) -> Outcome:
    """Publish interval after interval until all faults have happened, then finish the work and check the log."""
    os.environ.update(ceph.environment)
    address, rng = ceph.new_address(), random.Random(seed)  # noqa: S311 nothing secret is chosen
    outcome = Outcome()
    with ExitStack() as stack:
        states = [stack.enter_context(migrated_database("state")) for _ in range(STATES)]
        cutters = [stack.enter_context(cutting_proxy(ceph.port, _CUTS, seed=seed + at)) for at in range(PUBLISHERS)]
        gates = [stack.enter_context(GateProxy(cutter.port)) for cutter in cutters]
        pool = PublisherPool(address, states, [gate.port for gate in gates], folder, bug)
        stack.callback(pool.kill_all)
        pool.prepare()
        objects = open_store(address)
        watch = LogWatch(objects)
        watch.start()
        faults = GatewayFaults(ceph, gates, kills=gateway_kills, cuts=cuts, seed=seed, longest_cut_s=4.0)
        faults.start()
        while faults.is_alive() or outcome.kills < kills or len(watch.seen) < _MIN_TILES:
            tiles = [int(Path(name).stem) for name in watch.seen]
            pool.extend(FIRST + max(tiles, default=0))
            outcome.kills += pool.replace_ended(rng)
            time.sleep(rng.uniform(0.1, 0.6))
            if rng.random() < 0.1:
                pool.kill_one(rng)
        pool.kill_all()
        pool.finish(ceph.port)
        watch.stop()
        assert faults.is_complete, faults.done
        outcome.gateway_kills, outcome.cuts = faults.done[KILL], faults.done[CUT]
        outcome.changed = watch.compare_all()
        outcome.cut_puts = sum(sum(cutter.counts.values()) - cutter.counts[Cut.NONE] for cutter in cutters)
        outcome.wrong_ends, outcome.competing = pool.wrong_ends, pool.count_competing()
        report = check_log({address: open_log_source(address)})
        outcome.findings = report.finding_count + (not report.is_complete)
        outcome.intervals = pool.until + 1 - FIRST
        outcome.records = sum(zone.records for zone in report.zones.values())
        whole = {zone.zone for zone in report.zones.values() if zone.records == outcome.intervals}
        outcome.gaps = len(set(ZONES) - whole)
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=40, help="of publishers")
    parser.add_argument("--gateway-kills", type=int, default=10)
    parser.add_argument("--cuts", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--break", dest="bug", choices=[OVERWRITE], default="")
    given = parser.parse_args()
    with ceph_gateway() as ceph, tempfile.TemporaryDirectory() as folder:
        outcome = run_faults(
            ceph,
            Path(folder),
            kills=given.kills,
            gateway_kills=given.gateway_kills,
            cuts=given.cuts,
            seed=given.seed,
            bug=given.bug,
        )
    lines = [
        f"{outcome.kills} kills of publishers, {outcome.gateway_kills} of the gateway, {outcome.cuts} cuts",
        f"{outcome.cut_puts:,} puts cut, {outcome.intervals} intervals, {outcome.records:,} records",
        f"numbers for which different tiles were offered: {outcome.competing}",
        f"findings of the verifier: {outcome.findings}",
        f"zones with a gap: {outcome.gaps}",
        f"tiles that have changed: {outcome.changed}",
        f"publishers that ended with an error: {outcome.wrong_ends}",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return int(outcome.is_right() == bool(given.bug))


if __name__ == "__main__":
    sys.exit(main())
