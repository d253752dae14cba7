"""Prometheus metrics of the ways by which readings come in. Never a reading."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from murmurate.service.ingest.ingest_status import IngestStatus
from murmurate.service.ingest.mqtt_consumer import MqttConsumer


@dataclass(frozen=True, slots=True, eq=False)  # a registry keeps collectors by identity
class IngestCollector(Collector):
    """The metrics of one private process, for the zones that its operator sees."""

    status: IngestStatus
    zones: Collection[str]

    def collect(self) -> Iterator[Metric]:
        status, faults = self.status, self.status.readiness.faults()
        yield _gauge("murmurate_state_writable", "Whether the state can be written.", float("state" not in faults))
        yield _gauge(
            "murmurate_landing_writable", "Whether the landing can be written.", float("landing" not in faults)
        )
        yield _gauge("murmurate_session_pool_in_use", "Connections to the state in use.", status.state.in_use)
        yield _gauge(
            "murmurate_meter_table_age_seconds",
            "Since the meter table in force was last found to be that of the file.",
            round(status.meter_table_age_s, 1),
        )
        points = CounterMetricFamily(
            "murmurate_register_points_refused", "Register points that were refused, by cause.", labels=("cause",)
        )
        for cause, count in status.refused_points.items():
            points.add_metric((cause,), count)
        yield points
        yield self._zone_ages()
        if status.consumer is not None:
            yield from _mqtt_metrics(status.consumer, status.ingestor.counts["mqtt_quarantined"])

    def _zone_ages(self) -> Metric:
        ages = GaugeMetricFamily(
            "murmurate_zone_newest_reading_age_seconds",
            "Since a reading was last accepted; without any, since this process started.",
            labels=("zone",),
        )
        newest = self.status.newest_reading_age_s
        for zone in self.zones:
            if zone in newest:
                ages.add_metric((zone,), round(newest[zone], 1))
        return ages


def _mqtt_metrics(consumer: MqttConsumer, quarantined: int) -> Iterator[Metric]:
    yield _gauge("murmurate_mqtt_connected", "Whether the broker is connected.", float(consumer.is_connected))
    yield _gauge("murmurate_mqtt_queue_bytes", "Messages that are not stored yet.", consumer.queue.held_bytes)
    yield CounterMetricFamily("murmurate_mqtt_dropped", "Messages at QoS 0 that were dropped.", consumer.dropped)
    yield CounterMetricFamily("murmurate_mqtt_set_aside", "Messages that have ended a process.", quarantined)


def _gauge(name: str, help_text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, help_text, value)
