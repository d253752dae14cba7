"""The status of a service as Prometheus metrics. Never a demand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from murmurate.service.log_reader.zone_view import PriceKind
from murmurate.service.operator_api.status import ServiceStatus, ZoneStatus
from murmurate.service.operator_api.worker_metrics import worker_metrics

PROMETHEUS_MEDIA_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_OUTCOMES = ("accepted", "late", "refused")
_RELEASE_KINDS = (PriceKind.MEASURED, PriceKind.FALLBACK, PriceKind.WITHHELD)
_WORKER_GAUGES = {  # member of the worker's report: metric, help
    "up_to_date": ("murmurate_shards_up_to_date", "Shards up to date at the last release."),
    "blocked": ("murmurate_shards_blocked", "Shards that need an operator at the last release."),
    "unfinished": ("murmurate_shards_unfinished", "Shards not finished in time at the last release."),
    "blocked_zones": ("murmurate_zones_blocked", "Zones that need an operator at the last release."),
}


def render_metrics(status: ServiceStatus, *more: Collector) -> str:
    """Return the status in the text format of Prometheus. The registry lives for one request."""
    registry = CollectorRegistry()
    for collector in (StatusCollector(status), *more):
        registry.register(collector)
    return generate_latest(registry).decode()


@dataclass(frozen=True, slots=True, eq=False)  # a registry keeps collectors by identity
class StatusCollector(Collector):
    """The metrics of one status. Totals are counted elsewhere: a second request counts nothing twice."""

    status: ServiceStatus

    def collect(self) -> Iterator[Metric]:
        status = self.status
        age_s, report = (-1.0, {}) if status.heartbeat is None else status.heartbeat
        readings = CounterMetricFamily(
            "murmurate_readings", "Readings since this process started, by outcome.", labels=("outcome",)
        )
        for outcome in _OUTCOMES:
            readings.add_metric((outcome,), status.reading_counts.get(outcome, 0))
        yield readings
        for key, (name, help_text) in _WORKER_GAUGES.items():
            yield GaugeMetricFamily(name, help_text, _number(report.get(key)))
        yield GaugeMetricFamily(
            "murmurate_release_age_seconds", "Seconds since the last release; -1 if there is none.", round(age_s)
        )
        yield GaugeMetricFamily("murmurate_zones_open", "Zones in the public log.", status.zone_count)
        yield GaugeMetricFamily("murmurate_zones_closed", "Zones that were closed.", status.closed_count)
        yield GaugeMetricFamily("murmurate_zones_up_to_date", "Zones decided up to now.", status.up_to_date_count)
        yield GaugeMetricFamily("murmurate_zones_broken", "Zones whose log is not valid.", status.broken_zone_count)
        yield GaugeMetricFamily("murmurate_shards_broken", "Shards whose log is not valid.", len(status.broken_shards))
        yield from worker_metrics(status)
        yield from _zone_metrics(sorted(status.zones, key=lambda zone: zone.zone))


def _zone_metrics(zones: Iterable[ZoneStatus]) -> Iterator[Metric]:
    """Metrics with one sample for each zone that the operator's page shows."""
    labels = ("zone",)
    ends = GaugeMetricFamily(
        "murmurate_zone_decided_interval_end_seconds", "Until when prices are decided, UTC.", labels=labels
    )
    behind = GaugeMetricFamily(
        "murmurate_zone_intervals_behind", "Intervals that are due and not decided.", labels=labels
    )
    kinds = GaugeMetricFamily(
        "murmurate_zone_releases_24h", "Prices of the last 24 hours by kind.", labels=("zone", "kind")
    )
    epsilon = CounterMetricFamily("murmurate_zone_epsilon", "Cost of a zone's releases so far, epsilon.", labels=labels)
    rho = CounterMetricFamily("murmurate_zone_rho", "Cost of a zone's releases so far, rho.", labels=labels)
    for zone in zones:
        ends.add_metric((zone.zone,), zone.decided_end_s)
        behind.add_metric((zone.zone,), zone.intervals_behind)
        for kind in _RELEASE_KINDS:
            kinds.add_metric((zone.zone, kind.value), zone.releases_by_kind.get(kind, 0))
        epsilon.add_metric((zone.zone,), zone.epsilon_micro / 1e6)
        rho.add_metric((zone.zone,), zone.rho_micro / 1e6)
    yield from (ends, behind, kinds, epsilon, rho)


def _number(value: object) -> float:
    return value if isinstance(value, int | float) else 0
