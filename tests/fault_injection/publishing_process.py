"""A fork server that has all modules loaded and forks publishers, so that a killed one is replaced quickly.

It reads one job per line from its standard input and reports the start and end of each child on its standard output. At
the end of the input it kills all its children.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from murmurate.planning.release_terms import ReleaseTerms
from murmurate.privacy.noise import NoiseDistribution, SystemNoise
from murmurate.public_log.signing import Ed25519Signer
from murmurate.publisher.desired_state import DesiredState, ShardOpening, ZoneOpening
from murmurate.publisher.steps import Offer
from murmurate.publisher.tile_writer import TileWriter
from murmurate.service.storage.public_log_store import PostgresLogStore
from murmurate.service.storage.state_store import PostgresStateStore
from murmurate.service.worker.publisher_context import Publisher
from tests.fault_injection.broken_publishers import BROKEN_PUBLISHERS
from tests.fault_injection.kill_points import KillPoint, WithKillPoints

UP_TO_DATE, UNFINISHED, BLOCKED, FAILED = 0, 3, 4, 5  # exit codes


def _write_line(line: str) -> None:
    """Write without a buffer: the process may be killed the next moment."""
    os.write(1, f"{line}\n".encode())


@dataclass(frozen=True, slots=True)
class LoadedPlan:
    """The plan and the key of every publisher, read once."""

    terms: ReleaseTerms
    signer: Ed25519Signer

    @classmethod
    def from_setup(cls, setup: dict[str, str]) -> LoadedPlan:
        terms = ReleaseTerms.from_json(setup["plan"])
        noise, core_wh = SystemNoise(), terms.core_wh if terms.distribution is NoiseDistribution.HUBER else None
        noise.draw(terms.distribution, terms.scale_wh, core_wh)  # initialises the noise once for all children
        return cls(terms, Ed25519Signer(bytes.fromhex(setup["private_key"])))

    def tile_writer(self) -> TileWriter:
        signers = {self.signer.public_key: self.signer}
        return TileWriter(terms_for_plan={self.terms.plan_digest: self.terms}.get, signers=signers, noise=SystemNoise())


class AnnouncingLog:
    """A log that prints each tile before it is offered. Two different tiles with one number are competing."""

    def __init__(self, log: PostgresLogStore) -> None:
        self.read, self.claim = log.read, log.claim
        self._append = log.append

    def append(self, offers: Mapping[str, Offer]) -> None:
        tiles = [offer.tile for offer in offers.values()]
        _write_line("\n".join(f"offer {tile.header.shard} {tile.header.seq} {tile.hash}" for tile in tiles))
        self._append(offers)


@dataclass(frozen=True, slots=True)
class FixedSlot:
    """A slot of a given length: short, or long enough for a fault before the entry is sent."""

    slot_s: float

    def wait_for_slot(self) -> None:
        _write_line("holding a draw")
        time.sleep(self.slot_s)


def publish(job: dict[str, Any], loaded: LoadedPlan, kill_point: KillPoint) -> int:
    """Run a publisher until the job is done."""
    if job["protocol"] in BROKEN_PUBLISHERS:
        BROKEN_PUBLISHERS[job["protocol"]](job, loaded.terms, kill_point).publish()
        return UP_TO_DATE
    publisher = Publisher(
        state=WithKillPoints(PostgresStateStore(job["state"]), kill_point, "lock", "load_demand", "save"),
        log=WithKillPoints(AnnouncingLog(PostgresLogStore(job["log"])), kill_point, "read", "claim", "append"),
        write_tiles=loaded.tile_writer().write_tiles,
        wait_for_slot=WithKillPoints(FixedSlot(job["slot_s"]), kill_point, "wait_for_slot").wait_for_slot,
        batch_size=job["batch"],
        pause_s=job["pause_s"],
    )
    terms = loaded.terms
    shard_opening = ShardOpening(key=loaded.signer.public_key, interval_s=terms.interval_s)
    zone_opening = ZoneOpening(plan=terms.plan_digest, currency=terms.currency, tick=terms.tick, first=job["first"])
    desired = {
        shard: DesiredState(until=job["until"], opening=shard_opening, zones=dict.fromkeys(zones, zone_opening))
        for shard, zones in job["shards"].items()
    }
    outcome = publisher.publish(desired, timeout_s=job["timeout_s"], on_failure=_write_line)
    blocked = outcome.blocked | outcome.blocked_zones
    for name, reason in blocked.items():
        _write_line(f"blocked {name}: {reason.text}")
    return BLOCKED if blocked else UNFINISHED if outcome.unfinished else UP_TO_DATE


def run_publisher(job: dict[str, Any], loaded: LoadedPlan) -> NoReturn:
    """Run a child process and exit."""
    code = FAILED
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        output = os.open(job["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        kill_point = KillPoint(job["point"], job["visit"])
        kill_point.watch_commits()
        code = publish(job, loaded, kill_point)
    except BaseException:  # noqa: BLE001 a child must never continue in the loop of the fork server
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _read_jobs(rest: bytes, woken: int) -> tuple[list[dict[str, Any]] | None, bytes]:
    """Return the next jobs, or None at the end of the input."""
    ready, _, _ = select.select([0, woken], [], [])
    if woken in ready:
        os.read(woken, 4096)
    if 0 not in ready:
        return [], rest
    data = os.read(0, 1 << 20)
    if not data:
        return None, rest
    *lines, rest = (rest + data).split(b"\n")
    return [json.loads(line) for line in lines], rest


def _report_ended(children: set[int]) -> None:
    """Report every child that has ended."""
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        children.discard(pid)
        _write_line(json.dumps({"ended": pid, "status": os.waitstatus_to_exitcode(status)}))


def main() -> None:
    """Load the plan, report ready, and serve jobs."""
    loaded = LoadedPlan.from_setup(json.loads(sys.stdin.readline()))
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    _write_line(json.dumps({"ready": os.getpid()}))
    children: set[int] = set()
    rest = b""
    while True:
        jobs, rest = _read_jobs(rest, woken)
        if jobs is None:
            break
        for job in jobs:
            pid = os.fork()
            if pid == 0:
                run_publisher(job, loaded)
            children.add(pid)
            _write_line(json.dumps({"started": pid}))
        _report_ended(children)
    for pid in children:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
