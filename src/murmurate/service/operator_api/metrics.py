"""The status of a service as Prometheus metrics: zones, worker, readings, disks, databases, backups. Never a demand.

The worker has no port: it writes its figures to the state with every heartbeat. Totals are counted elsewhere: a second
request counts nothing twice.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from murmurate.service.clock_comparison import clock_difference_metric
from murmurate.service.ingest.ingest_status import IngestStatus
from murmurate.service.log_reader.zone_view import PriceKind
from murmurate.service.operator_api.status import ServiceStatus, ZoneStatus
from murmurate.service.settings import ServiceSettings
from murmurate.service.storage.durable import free_disk_share

PROMETHEUS_MEDIA_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_OUTCOMES = ("accepted", "late", "refused")
_RELEASE_KINDS = (PriceKind.MEASURED, PriceKind.FALLBACK, PriceKind.WITHHELD)
_RELEASE_GAUGES = {  # member of the report of the last release: metric, help
    "up_to_date": ("murmurate_shards_up_to_date", "Shards up to date at the last release."),
    "blocked": ("murmurate_shards_blocked", "Shards that need an operator at the last release."),
    "unfinished": ("murmurate_shards_unfinished", "Shards not finished in time at the last release."),
    "blocked_zones": ("murmurate_zones_blocked", "Zones that need an operator at the last release."),
}
_HISTOGRAMS = {  # member of the worker's figures: metric, help
    "lateness": ("murmurate_release_lateness_seconds", "From the deadline of an interval to its release."),
    "aggregation": ("murmurate_aggregation_seconds", "Time to close and aggregate an interval."),
}
_COUNTERS = {
    "not_aggregated": ("murmurate_intervals_not_aggregated", "Intervals given up before they were aggregated."),
    "retention_failed": ("murmurate_retention_failed", "Deletions of what is older than keep_days that failed."),
}
_WORKER_GAUGES = {
    "oldest_readings_age_s": ("murmurate_oldest_readings_age_seconds", "Age of the oldest interval in the landing."),
    "damaged_files": ("murmurate_damaged_files", "Damaged or stray files in the landing's own folders."),
}
_TABLE_CAUSES = ("unreadable", "loses meters")
_DATABASES = ("state", "log")
_UNFINISHED = ".part"  # how the name of a dump ends that is still being written


def render_metrics(status: ServiceStatus, *more: Collector) -> str:
    """Return the status in the text format of Prometheus. The registry lives for one request."""
    registry = CollectorRegistry()
    for collector in (StatusCollector(status), *more):
        registry.register(collector)
    return generate_latest(registry).decode()


def _labelled(
    metric: CounterMetricFamily | GaugeMetricFamily, values: object
) -> CounterMetricFamily | GaugeMetricFamily:
    """Add a sample for each label; none where the process has not reported its values."""
    if isinstance(values, Mapping):
        for label, value in sorted(values.items()):
            metric.add_metric((str(label),), value)
    return metric


def _gauge(name: str, help_text: str, value: object) -> GaugeMetricFamily:
    """Return a gauge; without a sample where the worker has not reported its value."""
    metric = GaugeMetricFamily(name, help_text)
    if isinstance(value, int | float):
        metric.add_metric((), value)
    return metric


@dataclass(frozen=True, slots=True, eq=False)  # a registry keeps collectors by identity
class StatusCollector(Collector):
    """The metrics of one status: the service as a whole, its worker, and the zones that the operator's page shows."""

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
        for key, (name, help_text) in _RELEASE_GAUGES.items():
            value = report.get(key)
            yield GaugeMetricFamily(name, help_text, value if isinstance(value, int | float) else 0)
        yield GaugeMetricFamily(
            "murmurate_release_age_seconds", "Seconds since the last release; -1 if there is none.", round(age_s)
        )
        yield GaugeMetricFamily("murmurate_zones_open", "Zones in the public log.", status.zone_count)
        yield GaugeMetricFamily("murmurate_zones_closed", "Zones that were closed.", status.closed_count)
        yield GaugeMetricFamily("murmurate_zones_up_to_date", "Zones decided up to now.", status.up_to_date_count)
        yield GaugeMetricFamily("murmurate_zones_broken", "Zones whose log is not valid.", status.broken_zone_count)
        yield GaugeMetricFamily("murmurate_shards_broken", "Shards whose log is not valid.", len(status.broken_shards))
        yield from _worker_metrics(status, report)
        yield from _zone_metrics(sorted(status.zones, key=lambda zone: zone.zone))


def _worker_metrics(status: ServiceStatus, report: Mapping[str, object]) -> Iterator[Metric]:
    """Yield metrics of the worker's figures and of the restarts of processes."""
    age_s, figures = (-1.0, {}) if status.worker_beat is None else status.worker_beat
    yield GaugeMetricFamily(
        "murmurate_worker_heartbeat_age_seconds",
        "Seconds since the worker's last heartbeat; -1 if no worker has reported yet.",
        age_s,
    )
    for key, (name, help_text) in _HISTOGRAMS.items():
        histogram, times = HistogramMetricFamily(name, help_text), figures.get(key)
        if isinstance(times, Mapping):
            bounds = [*map(str, times["bounds_s"]), "+Inf"]
            histogram.add_metric((), list(zip(bounds, accumulate(times["counts"]), strict=True)), times["sum_s"])
        yield histogram
    for key, (name, help_text) in _COUNTERS.items():
        yield _labelled(CounterMetricFamily(name, help_text, labels=("cause",)), figures.get(key))
    for key, (name, help_text) in _WORKER_GAUGES.items():
        yield _gauge(name, help_text, figures.get(key))
    of_worker = figures.get("clock_difference_s")
    clocks = {("worker", store): of_worker[store] for store in of_worker} if isinstance(of_worker, Mapping) else {}
    yield clock_difference_metric(clocks | {("private", "state"): status.ingest_clock_difference_s})
    table = GaugeMetricFamily(
        "murmurate_meter_table_not_in_force", "1 while the newest meter table is not used, by cause.", labels=("cause",)
    )
    for cause in _TABLE_CAUSES:
        table.add_metric((cause,), float(figures.get("table_problem") == cause))
    yield table
    without_help = "Open zones that the meter table does not have: fallback prices."
    yield _gauge("murmurate_zones_without_meters", without_help, report.get("zones_without_meters"))
    share = GaugeMetricFamily(
        "murmurate_zone_share_reported", "Share of a zone's meters in the last aggregated interval.", labels=("zone",)
    )
    yield _labelled(share, report.get("share_reported"))
    restarts = CounterMetricFamily("murmurate_part_restarts", "Restarts of each process.", labels=("part",))
    yield _labelled(restarts, status.part_restarts)


def _zone_metrics(zones: Iterable[ZoneStatus]) -> Iterator[Metric]:
    """Yield metrics with one sample for each zone that the operator's page shows."""
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


@dataclass(frozen=True, slots=True, eq=False)  # a registry keeps collectors by identity
class IngestCollector(Collector):
    """How readings come in to one private process, for the zones that its operator sees. Never a reading."""

    status: IngestStatus
    zones: Collection[str]

    def collect(self) -> Iterator[Metric]:
        status, faults = self.status, self.status.readiness.faults()
        state, landing = float("state" not in faults), float("landing" not in faults)
        yield GaugeMetricFamily("murmurate_state_writable", "Whether the state can be written.", state)
        yield GaugeMetricFamily("murmurate_landing_writable", "Whether the landing can be written.", landing)
        yield GaugeMetricFamily(
            "murmurate_session_pool_in_use", "Connections to the state in use.", status.state.in_use
        )
        yield GaugeMetricFamily(
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
        ages = GaugeMetricFamily(
            "murmurate_zone_newest_reading_age_seconds",
            "Since a reading was last accepted; without any, since this process started.",
            labels=("zone",),
        )
        newest = status.newest_reading_age_s
        for zone in self.zones:
            if zone in newest:
                ages.add_metric((zone,), round(newest[zone], 1))
        yield ages
        if (mqtt := status.consumer) is not None:
            held, connected = mqtt.queue.held_bytes, float(mqtt.is_connected)
            aside = status.ingestor.counts["mqtt_quarantined"]
            yield GaugeMetricFamily("murmurate_mqtt_connected", "Whether the broker is connected.", connected)
            yield GaugeMetricFamily("murmurate_mqtt_queue_bytes", "Messages that are not stored yet.", held)
            yield CounterMetricFamily("murmurate_mqtt_dropped", "Messages at QoS 0 that were dropped.", mqtt.dropped)
            yield CounterMetricFamily("murmurate_mqtt_set_aside", "Messages that have ended a process.", aside)


@dataclass(frozen=True, slots=True, eq=False)  # a registry keeps collectors by identity
class StorageCollector(Collector):
    """What fills up and what must not grow old: disks, backups, and the databases whose size is known."""

    settings: ServiceSettings
    database_bytes: Mapping[str, int]

    def collect(self) -> Iterator[Metric]:
        free = GaugeMetricFamily("murmurate_disk_free_ratio", "Free share of a folder's disk.", labels=("folder",))
        folders = {"landing": self.settings.landing, "backups": self.settings.backups}
        for name, folder in folders.items():
            if folder is not None and (share := free_disk_share(folder)) is not None:
                free.add_metric((name,), share)
        yield free
        sizes = GaugeMetricFamily("murmurate_database_bytes", "Size of a database.", labels=("database",))
        for name, size in self.database_bytes.items():
            sizes.add_metric((name,), size)
        yield sizes
        if self.settings.backups is None:
            return
        ages = GaugeMetricFamily(
            "murmurate_backup_age_seconds",
            "Age of a database's newest backup; -1 if there is none.",
            labels=("database",),
        )
        try:  # by the times of the files
            entries = [(path.name, path.stat()) for path in self.settings.backups.iterdir()]
        except OSError:
            entries = []
        for database in _DATABASES:
            times_s = [
                stat.st_mtime
                for name, stat in entries
                if name.startswith(database) and not name.endswith(_UNFINISHED) and stat.st_size
            ]
            ages.add_metric((database,), max(0.0, time.time() - max(times_s)) if times_s else -1.0)
        yield ages
