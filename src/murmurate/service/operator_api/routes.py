"""The operator's page and metrics: what was released, what it cost, what needs an operator. Never a demand.

This module computes what is shown; `web/templates/operator.html` holds the markup, `translations` the text.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path

import psycopg
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from murmurate.service.auth import AuthStore, scope_for_zones
from murmurate.service.clock_comparison import clock_difference_metric
from murmurate.service.ingest.ingest_status import IngestReadiness, IngestStatus
from murmurate.service.log_reader.zone_view import PriceKind
from murmurate.service.operator_api.attention import WORKER_SILENT_S, find_attention
from murmurate.service.operator_api.operator_access import OperatorAccess
from murmurate.service.operator_api.status import BackgroundLogReader, ServiceStatus, ZoneStatus, service_status
from murmurate.service.settings import ServiceSettings
from murmurate.service.storage.databases import Databases
from murmurate.service.storage.durable import free_disk_share
from murmurate.service.storage.heartbeats import WORKER_BEAT, WORKER_HEARTBEAT, read_heartbeat_ages
from murmurate.service.storage.open_store import open_store
from murmurate.service.storage.server_checks import read_database_bytes
from murmurate.service.storage.session import TransactionSource
from murmurate.service.watchdog import read_part_restarts
from murmurate.service.web.html import HTML_HEADERS, HTML_MEDIA_TYPE, render_page, requested_language
from murmurate.service.web.responses import problem_response
from murmurate.service.web.text import METRICS_MEDIA_TYPE, format_cost, format_duration, format_metrics
from murmurate.translations.language import ENGLISH, Language

logger = logging.getLogger(__name__)

_MAX_SCOPES = 5
_HALF_DAY_S = 43_200
_OPERATOR_HEADERS = {"cache-control": "no-store", "x-frame-options": "DENY"}
# /readyz needs no login, and the warning of a zone may count its meters: one more or less is a household that moved
_ZONES_NEED_OPERATOR = "need an operator: log in at /operator, which names them and the remedy"
_OUTCOMES = ("accepted", "late", "refused")
_SHOWN_KINDS = (PriceKind.MEASURED, PriceKind.PUBLIC, PriceKind.FALLBACK, PriceKind.WITHHELD)
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


def operator_page(status: ServiceStatus, settings: ServiceSettings, language: Language = ENGLISH) -> str:
    """Return the page of one moment: what needs an operator, what was released, what it cost."""
    clients = []  # each with its scope, of a few zones, and how many more it has; never a secret
    for client in status.clients:
        some = sorted(client.zones)[:_MAX_SCOPES]
        more = len(client.zones) - len(some)
        clients.append((client.id, scope_for_zones(some), more and language.whole(more), client.is_operator))
    return render_page(
        "operator.html",
        language,
        time=_format_time(status.now_s),
        attention=find_attention(status, settings, language),
        tiles=_key_figures(status, language),
        figures=_more_figures(status, language),
        zones=[(zone, *_zone_cells(zone, status.now_s, language)) for zone in status.zones],
        more_zones=language.whole(more) if (more := status.zone_count - len(status.zones)) else None,
        clients=clients,
    )


def _format_time(at_s: float) -> str:
    return f"{datetime.fromtimestamp(int(at_s), UTC):%Y-%m-%d %H:%M} UTC"


def _key_figures(status: ServiceStatus, language: Language) -> list[tuple[str, str, bool]]:
    """Return the names of translations, values, and whether a value is bad."""
    due, release, beat = status.next_deadline_s, status.heartbeat, status.worker_beat
    counts = {"part": language.whole(status.up_to_date_count), "all": language.whole(status.zone_count)}

    def relative(key: str, seconds: float) -> str:
        return language.plain(key, duration=format_duration(seconds, language))

    return [
        ("up_to_date", language.plain("operator.part_of", **counts), status.zone_count != status.up_to_date_count),
        (
            "last_release",
            relative("operator.ago", release[0]) if release else language.plain("operator.none_yet"),
            False,
        ),
        (
            "next_deadline",
            language.plain("operator.none") if due is None else relative("operator.ahead", due - status.now_s),
            False,
        ),
        (
            "worker",
            relative("operator.ago", beat[0]) if beat else language.plain("operator.never"),
            beat is None or beat[0] > WORKER_SILENT_S,
        ),
    ]


def _more_figures(status: ServiceStatus, language: Language) -> list[tuple[str, str]]:
    """Return the names of translations, and values."""
    release, beat = ((found or (0.0, {}))[1] for found in (status.heartbeat, status.worker_beat))
    numbers = {name: release.get(name, 0) for name in ("blocked", "blocked_zones", "unfinished")}
    numbers |= {"damaged_files": beat.get("damaged_files"), "restarts": sum(status.part_restarts.values())}
    numbers |= {name: status.reading_counts.get(name, 0) for name in _OUTCOMES}
    unknown, oldest_s = language.plain("operator.unknown"), beat.get("oldest_readings_age_s")
    oldest = unknown
    if isinstance(oldest_s, int | float):
        oldest = language.plain("operator.ago", duration=format_duration(oldest_s, language))
    shown = ((name, language.whole(value) if isinstance(value, int) else unknown) for name, value in numbers.items())
    return [*shown, ("oldest_readings", oldest)]


def _zone_cells(zone: ZoneStatus, now_s: float, language: Language) -> tuple[str, bool, str, tuple[str, ...], str]:
    """Return its state, whether that is bad, until when it is decided, the prices of a day by kind, and its cost."""
    state = language.plain("operator.state_current")
    if zone.is_broken:
        state = language.plain("operator.state_broken")
    elif zone.intervals_behind:
        state = language.plain("operator.state_behind", count=language.whole(zone.intervals_behind))
    end = _format_time(zone.decided_end_s)
    end = end[11:] if abs(zone.decided_end_s - now_s) < _HALF_DAY_S else end  # the hour alone where the day is clear
    counts = tuple(language.whole(zone.releases_by_kind.get(kind, 0)) for kind in _SHOWN_KINDS)
    cost = format_cost(zone.epsilon_micro, zone.rho_micro, language)
    return state, zone.is_broken or bool(zone.intervals_behind), end, counts, cost


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


def status_metrics(status: ServiceStatus) -> Iterator[Metric]:
    """Yield the metrics of the service as a whole, of its worker, and of the zones that the operator's page shows.

    The worker has no port: it writes its figures to the state with every heartbeat.
    """
    age_s, report = (-1.0, {}) if status.heartbeat is None else status.heartbeat
    beat_age_s, figures = (-1.0, {}) if status.worker_beat is None else status.worker_beat
    readings = CounterMetricFamily(
        "murmurate_readings", "Readings since this process started, by outcome.", labels=("outcome",)
    )
    for outcome in _OUTCOMES:
        readings.add_metric((outcome,), status.reading_counts.get(outcome, 0))
    yield readings
    for key, (name, help_text) in _RELEASE_GAUGES.items():
        value = report.get(key)
        yield _gauge(name, help_text, value if isinstance(value, int | float) else 0)
    yield _gauge("murmurate_release_age_seconds", "Seconds since the last release; -1 if there is none.", round(age_s))
    yield _gauge("murmurate_zones_open", "Zones in the public log.", status.zone_count)
    yield _gauge("murmurate_zones_closed", "Zones that were closed.", status.closed_count)
    yield _gauge("murmurate_zones_up_to_date", "Zones decided up to now.", status.up_to_date_count)
    yield _gauge("murmurate_zones_broken", "Zones whose log is not valid.", status.broken_zone_count)
    yield _gauge("murmurate_shards_broken", "Shards whose log is not valid.", len(status.broken_shards))
    age_help = "Seconds since the worker's last heartbeat; -1 if no worker has reported yet."
    yield _gauge("murmurate_worker_heartbeat_age_seconds", age_help, beat_age_s)
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
    table_help = "1 while the newest meter table is not used, by cause."
    table = GaugeMetricFamily("murmurate_meter_table_not_in_force", table_help, labels=("cause",))
    for cause in _TABLE_CAUSES:
        table.add_metric((cause,), float(figures.get("table_problem") == cause))
    yield table
    without_help = "Open zones that the meter table does not have: fallback prices."
    yield _gauge("murmurate_zones_without_meters", without_help, report.get("zones_without_meters"))
    share_help = "Share of a zone's meters in the last aggregated interval."
    share = GaugeMetricFamily("murmurate_zone_share_reported", share_help, labels=("zone",))
    yield _labelled(share, report.get("share_reported"))
    restarts = CounterMetricFamily("murmurate_part_restarts", "Restarts of each process.", labels=("part",))
    yield _labelled(restarts, status.part_restarts)
    yield from _zone_metrics(sorted(status.zones, key=lambda zone: zone.zone))


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
        for kind in PriceKind:
            kinds.add_metric((zone.zone, kind.value), zone.releases_by_kind.get(kind, 0))
        epsilon.add_metric((zone.zone,), zone.epsilon_micro / 1e6)
        rho.add_metric((zone.zone,), zone.rho_micro / 1e6)
    yield from (ends, behind, kinds, epsilon, rho)


def ingest_metrics(status: IngestStatus, zones: Collection[str]) -> Iterator[Metric]:
    """Yield how readings come in to one private process, for the zones that its operator sees. Never a reading."""
    faults = status.readiness.faults()
    state, landing = float("state" not in faults), float("landing" not in faults)
    yield _gauge("murmurate_state_writable", "Whether the state can be written.", state)
    yield _gauge("murmurate_landing_writable", "Whether the landing can be written.", landing)
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
    ages = GaugeMetricFamily(
        "murmurate_zone_newest_reading_age_seconds",
        "Since a reading was last accepted; without any, since this process started.",
        labels=("zone",),
    )
    newest = status.newest_reading_age_s
    for zone in zones:
        if zone in newest:
            ages.add_metric((zone,), round(newest[zone], 1))
    yield ages
    if (mqtt := status.consumer) is not None:
        held, connected = mqtt.queue.held_bytes, float(mqtt.is_connected)
        aside = status.ingestor.counts["mqtt_quarantined"]
        yield _gauge("murmurate_mqtt_connected", "Whether the broker is connected.", connected)
        yield _gauge("murmurate_mqtt_queue_bytes", "Messages that are not stored yet.", held)
        yield CounterMetricFamily("murmurate_mqtt_dropped", "Messages at QoS 0 that were dropped.", mqtt.dropped)
        yield CounterMetricFamily("murmurate_mqtt_set_aside", "Messages that have ended a process.", aside)
    if status.kafka is not None:
        connected = float(status.kafka.is_connected)
        yield _gauge("murmurate_kafka_connected", "Whether a broker of Kafka is connected.", connected)
        yield _gauge("murmurate_kafka_lag_messages", "Messages not stored yet.", status.kafka.lag_messages)


def storage_metrics(settings: ServiceSettings, database_bytes: Mapping[str, int]) -> Iterator[Metric]:
    """Yield what fills up and what must not grow old: disks, backups, and the databases whose size is known."""
    free = GaugeMetricFamily("murmurate_disk_free_ratio", "Free share of a folder's disk.", labels=("folder",))
    for name, folder in (("landing", settings.landing), ("backups", settings.backups)):
        if isinstance(folder, Path) and (share := free_disk_share(folder)) is not None:
            free.add_metric((name,), share)
    yield free
    sizes = GaugeMetricFamily("murmurate_database_bytes", "Size of a database.", labels=("database",))
    for name, size in database_bytes.items():
        sizes.add_metric((name,), size)
    yield sizes
    if settings.backups is None:
        return
    ages = GaugeMetricFamily(
        "murmurate_backup_age_seconds",
        "Age of a database's newest backup; -1 if there is none.",
        labels=("database",),
    )
    try:  # by the times of the files
        entries = [(path.name, path.stat()) for path in settings.backups.iterdir()]
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


class OperatorApi:
    """Routes for the operator, who authenticates by name and secret (HTTP Basic) or at a proxy."""

    def __init__(
        self,
        *,
        databases: Databases,
        settings: ServiceSettings,
        state: TransactionSource,
        counts: Counter[str],
        ingest: IngestStatus | None = None,
    ) -> None:
        self.settings, self.state, self.counts, self.ingest = settings, state, counts, ingest
        self._log_reader, self._access = BackgroundLogReader(databases.log), AuthStore(state)
        self.operators = OperatorAccess(self._access, settings.operator_login)
        self._readiness = ingest.readiness if ingest else IngestReadiness(state, open_store(settings.landing))
        self._warnings: Mapping[str, str] = {}  # of the last look

    def routes(self) -> list[Route]:
        paths = {
            "/operator": self.get_page,
            "/metrics": self.get_metrics,
            "/healthz": self.get_health,
            "/readyz": self.get_readiness,
        }
        return [Route(path, endpoint, methods=["GET"]) for path, endpoint in paths.items()]

    async def get_health(self, _: Request) -> Response:
        return Response("alive\n", media_type="text/plain")

    async def get_readiness(self, _: Request) -> Response:
        """Ready if readings can be taken. The log is not needed for that: the operator's page shows its age."""

        def check() -> Mapping[str, str]:
            """Return what cannot be written. Where all can, also look for warnings, which the next answers repeat."""
            faults = self._readiness.faults()
            if not faults:
                with suppress(psycopg.Error):
                    report = read_heartbeat_ages(self.state).get(WORKER_HEARTBEAT, (0.0, {}))[1]
                    of_zones = {"zones": _ZONES_NEED_OPERATOR} if report.get("zone_warnings") else {}
                    self._warnings = {**self._ingest_warnings, **of_zones}
            return faults

        faults = self._readiness.recent_faults()
        if faults is None:
            faults = await run_in_threadpool(check)
        reasons = [f"the {name} cannot be written: {faults[name]}" for name in faults]
        if self.ingest is not None and (clock_fault := self.ingest.ingestor.state_clock.fault) is not None:
            reasons.append(f"the clock {clock_fault}")
        if reasons:
            return problem_response(503, "; ".join(reasons))
        lines = ["ready", *(f"warning: {name} {reason}" for name, reason in self._warnings.items())]
        return Response("\n".join(lines) + "\n", media_type="text/plain")

    @property
    def _ingest_warnings(self) -> Mapping[str, str]:
        return self.ingest.warnings if self.ingest else {}

    async def get_page(self, request: Request) -> Response:
        user = await self.operators.authenticate(request)
        language = requested_language(request)
        page = await self._render_in_thread(lambda status: operator_page(status, self.settings, language))
        logger.info("operator page shown", extra={"user": user})
        return Response(page, 200, _OPERATOR_HEADERS | HTML_HEADERS, HTML_MEDIA_TYPE)

    async def get_metrics(self, request: Request) -> Response:
        await self.operators.authenticate(request)
        text = await self._render_in_thread(lambda status: format_metrics(self._metrics_of(status)))
        return Response(text, 200, _OPERATOR_HEADERS, METRICS_MEDIA_TYPE)

    def current_metrics(self) -> Iterator[Metric]:
        """Yield the metrics of this moment. Any thread may ask."""
        yield from self._metrics_of(self._current_status())

    def _metrics_of(self, status: ServiceStatus) -> Iterator[Metric]:
        with self.state.transaction() as connection:
            sizes = {"state": read_database_bytes(connection)}
        if self._log_reader.database_bytes is not None:
            sizes["log"] = self._log_reader.database_bytes
        yield from status_metrics(status)
        yield from storage_metrics(self.settings, sizes)
        if self.ingest:
            read = [zone for zone in status.zones if not zone.last_price or zone.last_price.kind != PriceKind.PUBLIC]
            yield from ingest_metrics(self.ingest, [zone.zone for zone in read])

    async def _render_in_thread(self, render: Callable[[ServiceStatus], str]) -> str:
        """Return what is rendered from the status of now."""
        return await run_in_threadpool(lambda: render(self._current_status()))

    def _current_status(self) -> ServiceStatus:
        self._log_reader.refresh()
        heartbeats = read_heartbeat_ages(self.state)
        return service_status(
            self._log_reader.shards.values(),
            self._log_reader.broken,
            display_of=self.settings.display_of,
            now_s=self.settings.clock.now(),
            grace_s=self.settings.grace_s,
            reading_counts=self.counts,
            heartbeat=heartbeats.get(WORKER_HEARTBEAT),
            worker_beat=heartbeats.get(WORKER_BEAT),
            part_restarts=read_part_restarts(),
            clients=self._access.list_clients(),
            log_age_s=self._log_reader.log_age_s,
            ingest_warnings=self._ingest_warnings,
            ingest_clock_difference_s=self.ingest.ingestor.state_clock.difference_s if self.ingest else None,
        )

    def close(self) -> None:
        """Close the connection to the log. It is reopened on the next request."""
        self._log_reader.close()
