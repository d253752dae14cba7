"""What the private process knows of the ways by which readings come in. Never a reading."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from murmurate.service.ingest.mqtt_consumer import MqttConsumer
from murmurate.service.ingest.readiness import IngestReadiness
from murmurate.service.ingest.register_ingest import REFUSED_POINT_CAUSES, REFUSED_POINT_PREFIX
from murmurate.service.ingest.reloading_ingestor import ReloadingIngestor
from murmurate.service.mqtt_client import BROKER_REMEDY
from murmurate.service.storage.session import SessionPool


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestStatus:
    """The parts of a private process, as its metrics show them."""

    ingestor: ReloadingIngestor
    state: SessionPool
    readiness: IngestReadiness
    consumer: MqttConsumer | None = None

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
