"""Publishers as processes: what runs in one, and how one is started and killed.

A fork server with all modules and the plan loaded starts them, so that a killed one is replaced quickly.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from murmurate.privacy.noise import NoiseDistribution, SystemNoise
from murmurate.publisher.desired_state import DesiredState, ShardOpening, ZoneOpening
from murmurate.publisher.steps import Offer
from murmurate.publisher.tile_writer import TileWriter
from murmurate.service.storage.databases import Database, name_log
from murmurate.service.storage.object_log import ObjectLogStore
from murmurate.service.storage.open_store import open_store
from murmurate.service.storage.public_log_store import PostgresLogStore
from murmurate.service.storage.state_store import PostgresStateStore
from murmurate.service.worker.publisher_context import Publisher, open_log
from tests.fault_injection.broken_publishers import BROKEN_PUBLISHERS
from tests.fault_injection.kill_points import KillPoint, WithKillPoints
from tests.fault_injection.sample_zones import SIGNER, sample_terms

UP_TO_DATE, UNFINISHED, BLOCKED, FAILED = 0, 3, 4, 5  # exit codes
_FORK_SERVER = multiprocessing.get_context("forkserver")
_FORK_SERVER.set_forkserver_preload(["tests.fault_injection.loaded_plan"])


def _write_line(line: str) -> None:
    """Write without a buffer: the process may be killed the next moment."""
    os.write(1, f"{line}\n".encode())


def load_plan() -> None:
    """Read the plan and initialise the noise: once for all processes that are forked later."""
    terms = sample_terms()
    core_wh = terms.core_wh if terms.distribution is NoiseDistribution.HUBER else None
    SystemNoise().draw(terms.distribution, terms.scale_wh, core_wh)


class AnnouncingLog:
    """A log that prints each tile before it is offered. Two different tiles with one number are competing."""

    def __init__(self, log: PostgresLogStore | ObjectLogStore) -> None:
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


def _open_log(job: Mapping[str, Any]) -> PostgresLogStore | ObjectLogStore:
    log = name_log(job["log"])
    if isinstance(log, Database):
        return open_log(log)
    os.environ.update(job["environment"])
    if job["bug"] == "overwrite":
        from tests.support.store_writers import OverwritingStore  # noqa: PLC0415 an optional package

        return ObjectLogStore(OverwritingStore(log.address))
    return ObjectLogStore(open_store(log.address, timeout_s=3.0))


def publish(job: Mapping[str, Any], kill_point: KillPoint) -> int:
    """Run a publisher until the job is done. Return its exit code."""
    terms = sample_terms()
    if job["protocol"] in BROKEN_PUBLISHERS:
        BROKEN_PUBLISHERS[job["protocol"]](job, terms, kill_point).publish()
        return UP_TO_DATE
    writer = TileWriter(
        terms_for_plan={terms.plan_digest: terms}.get, signers={SIGNER.public_key: SIGNER}, noise=SystemNoise()
    )
    publisher = Publisher(
        state=WithKillPoints(PostgresStateStore(job["state"]), kill_point, "lock", "load_demand", "save"),
        log=WithKillPoints(AnnouncingLog(_open_log(job)), kill_point, "read", "claim", "append"),
        write_tiles=writer.write_tiles,
        wait_for_slot=WithKillPoints(FixedSlot(job["slot_s"]), kill_point, "wait_for_slot").wait_for_slot,
        batch_size=job["batch"],
        pause_s=job["pause_s"],
    )
    shard_opening = ShardOpening(key=SIGNER.public_key, interval_s=terms.interval_s)
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


def _run(job: Mapping[str, Any]) -> None:
    """Run a publisher with its output in a file, and exit with its code."""
    code = FAILED
    try:
        output = os.open(job["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        kill_point = KillPoint(job["point"], job["visit"])
        kill_point.watch_commits()
        code = publish(job, kill_point)
    except BaseException:  # noqa: BLE001 the output is searched, and the code says that it failed
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class PublisherProcess(_FORK_SERVER.Process):
    """A running publisher. Its exit code is the negative signal number where a signal ended it."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        super().__init__(target=_run, args=(job,), daemon=True)
        self.job = job
        self.start()
