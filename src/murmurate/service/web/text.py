"""Numbers and durations in words, as pages show them, and metrics in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from murmurate.translations.language import ENGLISH, Language

METRICS_MEDIA_TYPE = CONTENT_TYPE_PLAIN_0_0_4


class _MetricGroup(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def format_metrics(*groups: Iterable[Metric]) -> str:
    """Return metrics in the text format of Prometheus. Totals are counted elsewhere: a second request adds nothing."""
    registry = CollectorRegistry()
    for metrics in groups:
        registry.register(_MetricGroup(metrics))
    return generate_latest(registry).decode()


def format_cost(epsilon_micro: int, rho_micro: int, language: Language = ENGLISH) -> str:
    """
    >>> format_cost(1_250_000, 0), format_cost(0, 40), format_cost(0, 0)
    ('ε = 1.250000', 'ρ = 0.000040', 'ε = 0')
    """
    micro = {"ε": epsilon_micro, "ρ": rho_micro}
    costs = (f"{name} = {language.decimal(f'{value / 1e6:.6f}')}" for name, value in micro.items() if value)
    return language.plain("promise.and").join(costs) or "ε = 0"


def format_duration(seconds: float, language: Language = ENGLISH) -> str:
    """
    >>> format_duration(42.4), format_duration(238), format_duration(7300), format_duration(200_000)
    ('42 s', '4 min', '2 h', '2 days')
    """
    if seconds < 90:
        return f"{max(0.0, seconds):.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 36 * 3600:
        return f"{seconds / 3600:.0f} h"
    return language.plain("promise.days", count=f"{seconds / 86_400:.0f}")
