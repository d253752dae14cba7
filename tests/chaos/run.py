"""A run: start everything, send and break, wait until all is decided, and collect the evidence."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import httpx
import numpy as np
import psycopg

from murmurate.planning.release_terms import ReleaseTerms
from murmurate.service.landing.layout import interval_name
from murmurate.service.storage.public_log_store import PostgresLogStore
from tests.chaos.bare_meters import BareMeters
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
    public_forecast,
    zone_file,
)
from tests.chaos.mqtt_meters import MqttMeters
from tests.chaos.oracle import Evidence, Verdict, judge, judge_inputs, judge_static, read_published
from tests.chaos.public_inputs import PublicInputs
from tests.chaos.public_watch import PublicWatch
from tests.chaos.replicated_database import ReplicatedDatabase
from tests.chaos.senders import Acknowledged, Senders
from tests.support.broker import Broker
from tests.support.postgres_cluster import clusters
from tests.support.postgres_stores import checked_heads, released_kinds
from tests.support.running_service import READY_TIMEOUT_S, RunningService, ServiceOperator
from tests.support.small_disk import SmallDisk
from tests.support.waiting import wait_until

STEP_WALL_S = 5.0  # how long an interval takes on two cores that do nothing else
MAX_SLOWDOWN = 1.5  # on a busy machine time passes slower, but not so slow that faults do no harm
_START_S = 8.0
_DECIDED_TIMEOUT_S = 180.0
_UNIT_CHECK_S = 1.0
_DISK_BYTES = 1 << 29
_SAME_PATHS = ("/zones/harbour/history.csv", "/zones/quay/log.jsonl", "/openadr3/3.1.0/events", "/shards")
_SETTINGS = f"""
    grace_s = {GRACE_INTERVALS * STEP_S}
    quorum = 0.5
    keep_days = 3650
"""


class World:
    """Everything that runs, and what it has acknowledged. All of it ends with the stack."""

    def __init__(
        self, stack: ExitStack, seed: int, keep: Path | None, step_wall_s: float, environment: Mapping[str, str]
    ) -> None:
        root = Path(tempfile.mkdtemp(prefix="murmurate-chaos-"))
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        private = stack.enter_context(clusters())
        self.disk = stack.enter_context(closing(SmallDisk(root / "landing", _DISK_BYTES)))
        self.state, self.log = (
            stack.enter_context(closing(ReplicatedDatabase(private, name))) for name in ("state", "log")
        )
        self.broker = Broker(root / "broker")
        self.broker.start()
        stack.callback(self.broker.kill)
        first_s = int(time.time()) // STEP_S * STEP_S - 30 * 86_400  # every interval is over by the log's clock
        dsns = {"state": self.state.dsn, "log": self.log.dsn}
        self.operator = ServiceOperator(root, dsns, first_s=first_s, speed=STEP_S / step_wall_s)
        clients = {"head-end": " ".join(f"--zone {zone}" for zone in ZONES), "operator": "--operator"}
        files = {zone: zone_file(zone) for zone in ZONES}
        readers = {"read_forecast": lambda _: public_forecast()}
        self.operator.prepare(files, meter_table(), lead=LEAD, clients=clients, **readers)
        self.operator.slow = min(MAX_SLOWDOWN, self.operator.slow)
        self.operator.begin(in_s=_START_S)
        self.operator.extra |= environment
        self.operator.mqtt = f"[mqtt]\nport = {self.broker.port}\nopenadr_events = false"
        self.services = [self.operator.add_service(f'{_SETTINGS}static_files = "static-{number}"') for number in (1, 2)]
        stack.callback(_keep_logs, self.services, keep)
        stack.callback(self.operator.stop_services)
        for service in self.services:
            service.start()
        for service in self.services:
            service.wait_for(service.is_ready, READY_TIMEOUT_S)
        self.broker.save()
        self.truth = TrueEnergy(seed, first_s // STEP_S)
        self.acknowledged, self.clocks = Acknowledged(), ClockFaults()
        known = (self.truth, self.acknowledged)
        self.mqtt = MqttMeters(self.operator, self.broker, *known, self.state.connect_directly, self.clocks.wrong_since)
        stack.callback(self.mqtt.close)
        self.senders = Senders(self.operator, *known)
        self.watch = PublicWatch(self.operator, self.services)
        stack.callback(self.watch.stop)
        self.inputs = PublicInputs(self.operator, seed, self.truth.first)
        stack.callback(self.inputs.stop)
        self.bare = BareMeters(self.operator, self.broker, self.truth)
        stack.callback(self.bare.stop)
        self.last = 0  # the last interval that was sent
        self._stopped, self._ended = threading.Event(), threading.Event()  # nothing more is sent; or is started
        self._failed: list[BaseException] = []
        unit = threading.Thread(target=self._keep_services_running, name="init", daemon=True)
        unit.start()
        stack.callback(unit.join)
        stack.callback(self._ended.set)
        self._player = threading.Thread(target=self._play, name="player", daemon=True)
        self._player.start()

    def _play(self) -> None:
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

    def _keep_services_running(self) -> None:
        """Start a service again whenever it has ended by itself, until the world ends."""
        while not self._ended.wait(_UNIT_CHECK_S):
            for service in self.services:
                if service.start_if_ended():
                    self.acknowledged.count(f"service {service.name} ended by itself and was started")

    def open_intervals(self) -> range:
        return range(max(self.truth.first, self.last - GRACE_INTERVALS), self.last + 1)

    def repeat_and_fence(self, timeout_s: float) -> bool:
        """Repeat the batches of MQTT, and have everything stored that was published."""
        self.mqtt.publish_again(self.open_intervals())
        return self.mqtt.fence(timeout_s)

    def break_landing(self, how: str) -> None:
        """Damage the newest interval, so that the oracle must find it: a file is dropped, doubled or unsigned."""
        interval = self.last
        folder = self.operator.folder / "landing" / f"interval={interval_name(interval * STEP_S)}" / "shard=0"
        file = folder / f"lake-{interval}.parquet"
        meters, energy = self.truth.reporting(interval, FILES), self.truth.energy_wh(interval)
        wait_until(lambda: self.acknowledged.meters(interval) >= set(meters), timeout_s=10)
        if how == "drop":
            file.unlink()
        elif how == "unsigned":
            file.write_bytes(parquet_body(interval, meters, np.maximum(energy, 0)))
        else:
            (folder / "doubled.parquet").write_bytes(parquet_body(interval, meters, 2 * abs(energy) + 1))

    def unready_services(self, timeout_s: float) -> list[str]:
        """The services that are not whole again in time, though every fault is healed."""
        return [one.name for one in self.services if not wait_until(one.is_ready, timeout_s, pause_s=0.5)]

    def step_wall_s(self) -> float:
        """How long an interval takes here."""
        return STEP_S / self.operator.clock.speed

    def finish(self) -> list[str]:
        """Stop sending, and wait until each interval that was sent is decided. Return what went wrong."""
        self._stopped.set()
        self._player.join(60)
        self.bare.stop()
        self.inputs.stop()
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
        differing: list[str] = []
        if not wait_until(lambda: not self._find_differing(differing), _DECIDED_TIMEOUT_S, pause_s=0.5):
            violations += [f"differs: the two services do not give the same {path}" for path in differing]
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

    def _find_differing(self, differing: list[str]) -> list[str]:
        """Fill the list with the paths at which the services do not give the same bytes and the same ETag."""
        differing[:] = _SAME_PATHS
        with suppress(httpx.HTTPError):
            for path in _SAME_PATHS:
                answers = [httpx.get(service.url(path), timeout=60) for service in self.services]
                if len({(one.status_code, one.content, one.headers.get("etag")) for one in answers}) == 1:
                    differing.remove(path)
        return differing

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
        query = """
            SELECT interval, zone, energy_wh, reported, imputed, silent_bound_wh, silent_export_bound_wh
            FROM confidential.demand"""
        with self.state.connect_directly() as connection:
            rows = connection.execute(query).fetchall()
        heads, published = [], {}
        log = PostgresLogStore(self.log.direct_dsn)
        with closing(log):
            for zone in ZONES:
                heads = checked_heads(log, log.shards_of([zone])[zone])
                terms = ReleaseTerms.from_json((self.operator.folder / f"{zone}.json").read_text())
                published |= read_published(heads, zone, terms)
        evidence = Evidence(
            landing=self.operator.folder / "landing",
            truth=self.truth,
            last=self.last,
            acknowledged=self.acknowledged.meters,
            demand={(interval, zone): tuple(numbers) for interval, zone, *numbers in rows},
            released={zone: released_kinds(self.log.direct_dsn, zone) for zone in ZONES},
            published=published,
        )
        verdict = judge(evidence)
        judge_inputs(heads, self.inputs.posted, self.operator.clock.wall_at, verdict)
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
    """Start everything, and the sending of readings. The logs of the services are copied to `keep` at the end.

    `environment` is added to that of the services.
    """
    with ExitStack() as stack:
        yield World(stack, seed, keep, step_wall_s, environment or {})


def _keep_logs(services: list[RunningService], keep: Path | None) -> None:
    for service in services if keep is not None else ():
        keep.mkdir(parents=True, exist_ok=True)
        shutil.copy(service.log, keep)
