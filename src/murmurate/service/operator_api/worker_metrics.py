"""The worker's figures and the restarts of processes as Prometheus metrics. Never a demand.

The worker has no port: it writes its figures to the state with every heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from murmurate.service.operator_api.status import ServiceStatus
from murmurate.service.web.clock_metric import clock_difference_metric

_HISTOGRAMS = {  # member of the worker's figures: metric, help
    "lateness": ("murmurate_release_lateness_seconds", "From the deadline of an interval to its release."),
    "aggregation": ("murmurate_aggregation_seconds", "Time to close and aggregate an interval."),
}
_COUNTERS = {
    "not_aggregated": ("murmurate_intervals_not_aggregated", "Intervals given up before they were aggregated."),
    "retention_failed": ("murmurate_retention_failed", "Deletions of what is older than keep_days that failed."),
}
_GAUGES = {
    "oldest_readings_age_s": ("murmurate_oldest_readings_age_seconds", "Age of the oldest interval in the landing."),
    "damaged_files": ("murmurate_damaged_files", "Damaged or stray files in the landing's own folders."),
}
_TABLE_CAUSES = ("unreadable", "loses meters")


def worker_metrics(status: ServiceStatus) -> Iterator[Metric]:
    """Metrics of the worker. The heartbeat age is -1 if no worker has reported yet."""
    age_s, figures = (-1.0, {}) if status.worker_beat is None else status.worker_beat
    report = {} if status.heartbeat is None else status.heartbeat[1]
    yield GaugeMetricFamily(
        "murmurate_worker_heartbeat_age_seconds",
        "Seconds since the worker's last heartbeat; -1 if no worker has reported yet.",
        age_s,
    )
    for key, (name, help_text) in _HISTOGRAMS.items():
        yield _histogram(name, help_text, figures.get(key))
    for key, (name, help_text) in _COUNTERS.items():
        yield _by_label(CounterMetricFamily(name, help_text, labels=("cause",)), figures.get(key))
    for key, (name, help_text) in _GAUGES.items():
        yield _gauge(name, help_text, figures.get(key))
    yield _clock_differences(figures.get("clock_difference_s"), status.ingest_clock_difference_s)
    yield _table_problem(figures.get("table_problem"))
    without_help = "Open zones that the meter table does not have: fallback prices."
    yield _gauge("murmurate_zones_without_meters", without_help, report.get("zones_without_meters"))
    share = GaugeMetricFamily(
        "murmurate_zone_share_reported", "Share of a zone's meters in the last aggregated interval.", labels=("zone",)
    )
    yield _by_label(share, report.get("share_reported"))
    restarts = CounterMetricFamily("murmurate_part_restarts", "Restarts of each process.", labels=("part",))
    yield _by_label(restarts, status.part_restarts)


def _histogram(name: str, help_text: str, figures: object) -> HistogramMetricFamily:
    metric = HistogramMetricFamily(name, help_text)
    if isinstance(figures, Mapping):
        bounds = [*map(str, figures["bounds_s"]), "+Inf"]
        metric.add_metric((), list(zip(bounds, accumulate(figures["counts"]), strict=True)), figures["sum_s"])
    return metric


def _by_label(
    metric: CounterMetricFamily | GaugeMetricFamily, values: object
) -> CounterMetricFamily | GaugeMetricFamily:
    if isinstance(values, Mapping):
        for label, value in sorted(values.items()):
            metric.add_metric((str(label),), value)
    return metric


def _clock_differences(of_worker: object, of_private_s: float | None) -> GaugeMetricFamily:
    found = {("worker", store): of_worker[store] for store in of_worker} if isinstance(of_worker, Mapping) else {}
    return clock_difference_metric(found | {("private", "state"): of_private_s})


def _table_problem(cause: object) -> GaugeMetricFamily:
    metric = GaugeMetricFamily(
        "murmurate_meter_table_not_in_force", "1 while the newest meter table is not used, by cause.", labels=("cause",)
    )
    for known in _TABLE_CAUSES:
        metric.add_metric((known,), float(cause == known))
    return metric


def _gauge(name: str, help_text: str, value: object) -> GaugeMetricFamily:
    """A gauge; without a sample where the worker has not said its value."""
    metric = GaugeMetricFamily(name, help_text)
    if isinstance(value, int | float):
        metric.add_metric((), value)
    return metric
