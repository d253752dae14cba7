"""A run: start everything, send and break, wait until all is decided, and collect the evidence."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import psycopg

from murmurate.service.landing.layout import interval_name
from tests.chaos.bare_meters import BareMeters
from tests.chaos.fault_targets import ReplicatedDatabase
from tests.chaos.faults import ClockFaults
from tests.chaos.meters import (
    FILES,
    GRACE_INTERVALS,
    LEAD,
    STEP_S,
    ZONES,
    TrueEnergy,
    meter_table,
    parquet_body,
    zone_file,
)
from tests.chaos.mqtt_meters import MqttMeters
from tests.chaos.oracle import Evidence, Verdict, judge, judge_static
from tests.chaos.public_watch import PublicWatch
from tests.chaos.senders import Acknowledged, Senders
from tests.support.broker import Broker
from tests.support.postgres_cluster import clusters
from tests.support.postgres_stores import released_kinds
from tests.support.running_service import READY_TIMEOUT_S, RunningService, ServiceOperator
from tests.support.small_disk import SmallDisk
from tests.support.waiting import wait_until

STEP_WALL_S = 5.0  # how long an interval takes on two cores that do nothing else
MAX_SLOWDOWN = 1.5  # on a busy machine time passes slower, but not so slow that faults do no harm
_START_S = 8.0
_DECIDED_TIMEOUT_S = 180.0
_UNIT_CHECK_S = 1.0
_DISK_BYTES = 1 << 29
Target = TypeVar("Target", SmallDisk, ReplicatedDatabase)
_SETTINGS = f"""
    grace_s = {GRACE_INTERVALS * STEP_S}
    quorum = 0.5
    keep_days = 3650
"""


@dataclass
class World:
    """Everything that runs, and what it has acknowledged."""

    operator: ServiceOperator
    services: list[RunningService]
    state: ReplicatedDatabase
    log: ReplicatedDatabase
    broker: Broker
    disk: SmallDisk
    truth: TrueEnergy
    acknowledged: Acknowledged
    clocks: ClockFaults
    mqtt: MqttMeters
    senders: Senders
    watch: PublicWatch
    bare: BareMeters
    last: int = 0  # the last interval that was sent
    _stopped: threading.Event = field(default_factory=threading.Event)  # nothing more is sent
    _ended: threading.Event = field(default_factory=threading.Event)
    _failed: list[BaseException] = field(default_factory=list)

    def play(self) -> None:
        """Send every interval when it is over, until `finish`."""
        interval = self.truth.first
        try:
            while not self._stopped.wait(max(0.0, self.operator.clock.wall_at((interval + 1) * STEP_S) - time.time())):
                self.senders.send(interval)
                self.mqtt.publish(interval)
                self.last = interval
                interval += 1
        except BaseException as error:  # noqa: BLE001  raised again by `finish`
            self._failed.append(error)

    def keep_services_running(self) -> None:
        """Start a service again whenever it has ended by itself, until the world ends."""
        while not self._ended.wait(_UNIT_CHECK_S):
            for service in self.services:
                if service.start_if_ended():
                    self.acknowledged.count(f"service {service.name} ended by itself and was started")

    def end(self) -> None:
        """No service is started from now on."""
        self._ended.set()

    def open_intervals(self) -> range:
        return range(max(self.truth.first, self.last - GRACE_INTERVALS), self.last + 1)

    def repeat_and_fence(self, timeout_s: float) -> bool:
        """Repeat the batches of MQTT, and have everything stored that was published."""
        self.mqtt.publish_again(self.open_intervals())
        return self.mqtt.fence(timeout_s)

    def break_landing(self, how: str) -> None:
        """Damage the newest interval, so that the oracle must find it: a file of it is dropped, or counts double."""
        interval = self.last
        folder = self.operator.folder / "landing" / f"interval={interval_name(interval * STEP_S)}" / "shard=0"
        file = folder / f"lake-{interval}.parquet"
        wait_until(lambda: self.acknowledged.meters(interval) >= set(FILES), timeout_s=10)
        if how == "drop":
            file.unlink()
        else:
            doubled = parquet_body(interval, FILES, 2 * self.truth.stored_wh(interval) + 1)
            (folder / "doubled.parquet").write_bytes(doubled)

    def unready_services(self, timeout_s: float) -> list[str]:
        """The services that are not whole again in time, though every fault is healed."""
        return [one.name for one in self.services if not wait_until(one.is_ready, timeout_s, pause_s=0.5)]

    def step_wall_s(self) -> float:
        """How long an interval takes here."""
        return STEP_S / self.operator.clock.speed

    def finish(self, player: threading.Thread) -> list[str]:
        """Stop sending, and wait until each interval that was sent is decided. Return what went wrong."""
        self._stopped.set()
        player.join(60)
        self.bare.stop()
        if self._failed:
            raise self._failed[0]
        violations = (
            [] if self.mqtt.fence(_DECIDED_TIMEOUT_S) else ["mqtt: a message was not stored in three minutes of calm"]
        )
        self.senders.finish()
        if not wait_until(lambda: self._decided() >= self.last, _DECIDED_TIMEOUT_S + self._seconds_to_deadline()):
            violations.append("gap: the last intervals were not decided within three minutes of calm")
        self.watch.stop()
        violations += self._static_violations()
        return violations + sorted(set(self.watch.changed)) + self.acknowledged.violations

    def _static_violations(self) -> list[str]:
        """What is wrong with the static files of each service, three minutes after the last fault at most."""
        found: list[str] = []

        def are_whole() -> bool:
            with self.log.connect_directly() as connection:
                rows = connection.execute("SELECT shard, body FROM public_log.tile ORDER BY shard, seq").fetchall()
            tiles: dict[str, list[bytes]] = defaultdict(list)
            for shard, body in rows:
                tiles[shard].append(bytes(body))
            found[:] = [text for service in self.services for text in judge_static(service.static, tiles)]
            return not found

        wait_until(are_whole, _DECIDED_TIMEOUT_S, pause_s=0.5)
        for service in self.services if not found else ():
            verified = self.operator.run(f"murmurate log verify {service.static}")
            found += [] if "Everything holds." in verified else [f"static: verify says {verified[-300:]}"]
        return found

    def _seconds_to_deadline(self) -> float:
        return max(0.0, self.operator.clock.wall_at((self.last + 1 + GRACE_INTERVALS) * STEP_S) - time.time())

    def _decided(self) -> int:
        try:
            with self.log.connect_directly() as connection:
                row = connection.execute("SELECT min(interval) FROM public_log.head").fetchone()
        except psycopg.Error:
            return -1
        return row[0] if row and row[0] is not None else -1

    def judge(self) -> Verdict:
        evidence = Evidence(
            landing=self.operator.folder / "landing",
            truth=self.truth,
            last=self.last,
            acknowledged=self.acknowledged.meters,
            demand=self.operator.demand(),
            released={zone: released_kinds(self.log.direct_dsn, zone) for zone in ZONES},
        )
        verdict = judge(evidence)
        verified = self.operator.run(f"murmurate log verify '{self.log.direct_dsn}'")
        if "Everything holds." not in verified:
            verdict.violations.append(f"verify: {verified[-500:]}")
        return verdict


@contextmanager
def new_world(
    seed: int,
    keep: Path | None = None,
    *,
    step_wall_s: float = STEP_WALL_S,
    environment: Mapping[str, str] | None = None,
) -> Iterator[World]:
    """Start everything. Folders are deleted at the end; the logs of the services are copied to `keep`.

    `environment` is added to that of the services.
    """
    with ExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="murmurate-chaos-"))
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        private = stack.enter_context(clusters())
        disk = _closing(stack, SmallDisk(root / "landing", _DISK_BYTES))
        state, log = (_closing(stack, ReplicatedDatabase(private, name)) for name in ("state", "log"))
        broker = Broker(root / "broker")
        broker.start()
        stack.callback(broker.kill)
        first_s = int(time.time()) // STEP_S * STEP_S - 30 * 86_400  # every interval is over by the log's clock
        dsns = {"state": state.dsn, "log": log.dsn}
        operator = ServiceOperator(root, dsns, first_s=first_s, speed=STEP_S / step_wall_s)
        clients = {"head-end": " ".join(f"--zone {zone}" for zone in ZONES)}
        operator.prepare({zone: zone_file(zone) for zone in ZONES}, meter_table(), lead=LEAD, clients=clients)
        operator.slow = min(MAX_SLOWDOWN, operator.slow)
        operator.begin(in_s=_START_S)
        operator.extra |= environment or {}
        operator.mqtt = f"[mqtt]\nport = {broker.port}\nopenadr_events = false"
        services = [operator.add_service(f'{_SETTINGS}static_files = "static-{number}"') for number in (1, 2)]
        stack.callback(_keep_logs, services, keep)
        stack.callback(operator.stop_services)
        for service in services:
            service.start()
        for service in services:
            service.wait_for(service.is_ready, READY_TIMEOUT_S)
        broker.save()
        truth = TrueEnergy(seed, first_s // STEP_S)
        acknowledged, clocks = Acknowledged(), ClockFaults()
        mqtt = MqttMeters(operator, broker, truth, acknowledged, state.connect_directly, clocks.wrong_since)
        stack.callback(mqtt.close)
        senders = Senders(operator, truth, acknowledged)
        watch = PublicWatch(operator, services)
        stack.callback(watch.stop)
        bare = BareMeters(operator, broker, truth)
        stack.callback(bare.stop)
        parts = (operator, services, state, log, broker, disk, truth, acknowledged, clocks, mqtt, senders, watch)
        world = World(*parts, bare)
        unit = threading.Thread(target=world.keep_services_running, name="init", daemon=True)
        unit.start()
        stack.callback(unit.join)
        stack.callback(world.end)
        yield world


def _closing(stack: ExitStack, target: Target) -> Target:
    stack.callback(target.close)
    return target


def _keep_logs(services: list[RunningService], keep: Path | None) -> None:
    for service in services if keep is not None else ():
        keep.mkdir(parents=True, exist_ok=True)
        shutil.copy(service.log, keep)
