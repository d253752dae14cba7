"""The clocks of processes and databases as a metric: one name in all processes."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.core import GaugeMetricFamily


def clock_difference_metric(differences_s: Mapping[tuple[str, str], float | None]) -> GaugeMetricFamily:
    """How far clocks are ahead, by process and store (`state`, `log`). None: not known, without a sample."""
    metric = GaugeMetricFamily(
        "murmurate_clock_difference_seconds",
        "The clock of a process minus that of a database.",
        labels=("process", "store"),
    )
    for labels, difference_s in differences_s.items():
        if difference_s is not None:
            metric.add_metric(labels, round(difference_s, 1))
    return metric
