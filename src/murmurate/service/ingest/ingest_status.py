"""Whether readings can be taken, and what the private process knows of the ways by which they come. Never a reading.

Readings can be taken while the state and the landing can be written. The public log is not needed for that.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf

import psycopg

from murmurate.service.ingest.ingestor import ReloadingIngestor
from murmurate.service.ingest.kafka_consumer import KafkaConsumer
from murmurate.service.ingest.message_ingest import REFUSED_POINT_CAUSES, REFUSED_POINT_PREFIX
from murmurate.service.ingest.mqtt_consumer import MqttConsumer
from murmurate.service.mqtt_client import BROKER_REMEDY
from murmurate.service.storage.object_store import ObjectStore
from murmurate.service.storage.session import SessionPool, TransactionSource

MIN_CHECK_PERIOD_S = 1.0  # between two checks, for any number of requests
CHECK_TIMEOUT_S = 3.0  # that a request waits for a check
MAX_CHECK_AGE_S = 10.0  # an older result counts for nothing: the disk or the server does not answer
_PROBE_BYTES = 65_536  # a disk with less room cannot take a body


class WriteCheck:
    """Cached test that something can be written. Thread-safe; at most one test runs at a time."""

    def __init__(self, probe: Callable[[], None]) -> None:
        self._probe = probe
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._started_s = self._finished_s = -inf  # by the monotonic clock
        self._fault: str | None = None

    def fault(self) -> str | None:
        """Why it cannot be written; None if it can."""
        with self._lock:
            if self.is_recent:
                return self._fault
            is_running = self._thread is not None and self._thread.is_alive()
            if not is_running and time.monotonic() - self._started_s >= MIN_CHECK_PERIOD_S:
                self._started_s = time.monotonic()
                self._thread = threading.Thread(target=self._check, name="ready", daemon=True)
                self._thread.start()
            thread = self._thread
        if thread is not None:
            thread.join(CHECK_TIMEOUT_S)
        if time.monotonic() - self._finished_s > MAX_CHECK_AGE_S:
            return "does not answer"
        return self._fault

    @property
    def is_recent(self) -> bool:
        return time.monotonic() - self._finished_s < MIN_CHECK_PERIOD_S

    def _check(self) -> None:
        try:
            self._probe()
        except psycopg.Error:
            self._fault = "the database does not answer, or refuses"  # its own words might name a server
        except OSError as error:
            self._fault = error.strerror or "the disk refuses"  # without the path
        else:
            self._fault = None
        self._finished_s = time.monotonic()


class IngestReadiness:
    """The checks of a process that takes readings."""

    def __init__(self, state: TransactionSource, landing: ObjectStore) -> None:
        def write_state() -> None:
            """Commit a transaction that has a number, which the server must write, and that may delete tokens."""
            with state.transaction() as connection:
                connection.execute("DELETE FROM access.token WHERE false")
                connection.execute("SELECT txid_current()")

        def write_landing() -> None:
            name = f"_writable-{os.urandom(8).hex()}"
            try:
                landing.create(name, bytes(_PROBE_BYTES))
            finally:
                landing.delete(name)

        self._checks = {"state": WriteCheck(write_state), "landing": WriteCheck(write_landing)}

    def recent_faults(self) -> Mapping[str, str] | None:
        """As `faults`, without any wait, if everything was checked a moment ago: many may ask."""
        return self.faults() if all(check.is_recent for check in self._checks.values()) else None

    def faults(self) -> Mapping[str, str]:
        """What cannot be written, and why. Nothing: readings can be taken."""
        found = {name: check.fault() for name, check in self._checks.items()}
        return {name: fault for name, fault in found.items() if fault is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestStatus:
    """The parts of a private process, as its metrics show them."""

    ingestor: ReloadingIngestor
    state: SessionPool
    readiness: IngestReadiness
    consumer: MqttConsumer | None = None
    kafka: KafkaConsumer | None = None

    @property
    def refused_points(self) -> Mapping[str, int]:
        """Register points that were refused, by cause."""
        counts = self.ingestor.counts
        return {cause: counts[f"{REFUSED_POINT_PREFIX}{cause}"] for cause in REFUSED_POINT_CAUSES}

    @property
    def warnings(self) -> Mapping[str, str]:
        """What keeps readings out although this process runs, by part. No path and no server is named."""
        self.ingestor()
        found = {} if self.ingestor.problem is None else {"meter table": self.ingestor.problem}
        if (fault := self.ingestor.state_clock.fault) is not None:
            found["clock"] = f"{fault}; readings get 503 until then"
        if self.consumer is not None and not self.consumer.is_connected:
            found["MQTT broker"] = f"is not connected: no readings come over MQTT; {BROKER_REMEDY}"
        if self.kafka is not None and not self.kafka.is_connected:
            found["Kafka"] = "is not connected: no readings come from it; start it, or correct [kafka] in the settings"
        return found

    @property
    def meter_table_age_s(self) -> float:
        """Since the meter table in force was last found to be that of the file."""
        self.ingestor()
        return self.ingestor.table_age_s

    @property
    def newest_reading_age_s(self) -> Mapping[str, float]:
        """Since a reading of each zone was last accepted; for a zone without any, since this process started."""
        registry, now_s = self.ingestor().registry, time.monotonic()
        return dict(zip(registry.zones, (now_s - registry.accepted_at_s).tolist(), strict=True))
