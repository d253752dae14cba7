"""The operator's page and metrics: what was released, what it cost, what needs an operator. Never a demand.

This module computes what is shown; `web/templates/operator.html` holds the text and the markup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from math import inf

import psycopg
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from murmurate.service.auth import AuthStore, scope_for_zones
from murmurate.service.ingest.ingest_status import IngestReadiness, IngestStatus
from murmurate.service.log_reader.zone_view import PriceKind
from murmurate.service.operator_api.attention import WORKER_SILENT_S
from murmurate.service.operator_api.metrics import (
    PROMETHEUS_MEDIA_TYPE,
    IngestCollector,
    StorageCollector,
    render_metrics,
)
from murmurate.service.operator_api.status import BackgroundLogReader, ServiceStatus, ZoneStatus, service_status
from murmurate.service.settings import ServiceSettings
from murmurate.service.storage.databases import Databases
from murmurate.service.storage.heartbeats import WORKER_BEAT, WORKER_HEARTBEAT, read_heartbeat_ages
from murmurate.service.storage.server_checks import read_database_bytes
from murmurate.service.storage.session import TransactionSource
from murmurate.service.watchdog import read_part_restarts
from murmurate.service.web.html import HTML_HEADERS, HTML_MEDIA_TYPE, render_page
from murmurate.service.web.request_limits import look_up_anonymous
from murmurate.service.web.responses import problem_response
from murmurate.service.web.text import format_cost, format_duration

_MAX_SCOPES = 5
_MAX_REASONS = 100
_LOG_AGE_WARNING_S = 10.0
_HALF_DAY_S = 43_200
_OPERATOR_HEADERS = {"cache-control": "no-store", "x-frame-options": "DENY"}
# /readyz needs no login, and the warning of a zone may count its meters: one more or less is a household that moved
_ZONES_NEED_OPERATOR = "need an operator: log in at /operator, which names them and the remedy"


def operator_page(status: ServiceStatus) -> str:
    """Return the page of one moment: what was released, what it cost, what needs an operator."""
    report = {} if status.heartbeat is None else status.heartbeat[1]
    listed = [report.get(member) for member in ("reasons", "warnings")]
    reasons = dict(status.ingest_warnings)
    for each in listed:
        reasons |= {str(name): str(reason) for name, reason in each.items()} if isinstance(each, Mapping) else {}
    broken = {f"shard {shard}": reason for shard, reason in status.broken_shards.items()}
    clients = []  # each with its scope, of a few zones, and what else it may do; never a secret
    for client in status.clients:
        some = sorted(client.zones)[:_MAX_SCOPES]
        more = len(client.zones) - len(some)
        permissions = [f"and {more:,} zones more"] if more else []
        permissions += ["see this page and the metrics"] if client.is_operator else []
        clients.append((client.id, scope_for_zones(some), permissions))
    age_s = status.log_age_s  # of the page's copy of the log
    log_age = "never" if age_s == inf else "" if age_s < _LOG_AGE_WARNING_S else format_duration(age_s)
    return render_page(
        "operator.html",
        time=_format_time(status.now_s),
        log_age=log_age,
        tiles=_key_figures(status, report),
        blocked=[*sorted(broken.items()), *sorted(reasons.items())][:_MAX_REASONS],
        zones=[(zone, *_zone_cells(zone, status.now_s)) for zone in status.zones],
        more_zones=status.zone_count - len(status.zones),
        clients=clients,
    )


def _format_time(at_s: float) -> str:
    return f"{datetime.fromtimestamp(int(at_s), UTC):%Y-%m-%d %H:%M} UTC"


def _key_figures(status: ServiceStatus, report: Mapping[str, object]) -> list[tuple[str, str, bool]]:
    """Return names, values, and whether a value is bad."""

    def count(name: str, members: Mapping[str, object], member: str) -> tuple[str, str, bool]:
        number = members.get(member, 0)
        return name, f"{number:,}" if isinstance(number, int) else "unknown", bool(number)

    due, beat, restarts = status.next_deadline_s, status.worker_beat, sum(status.part_restarts.values())
    released = "none yet" if status.heartbeat is None else f"{format_duration(status.heartbeat[0])} ago"
    is_late = status.zone_count != status.up_to_date_count
    tiles = [
        ("Zones up to date", f"{status.up_to_date_count:,} of {status.zone_count:,}", is_late),
        ("Last release", released, False),
        ("Next deadline", "none" if due is None else f"in {format_duration(due - status.now_s)}", False),
        count("Shards blocked", report, "blocked"),
        count("Zones blocked", report, "blocked_zones"),
        count("Shards not finished in time", report, "unfinished"),
    ]
    if beat is None:
        tiles.append(("Worker", "not started yet", True))
    else:
        oldest_s = beat[1].get("oldest_readings_age_s")
        oldest = format_duration(oldest_s) if isinstance(oldest_s, int | float) else "unknown"
        tiles += [
            ("Worker", f"alive {format_duration(beat[0])} ago", beat[0] > WORKER_SILENT_S),
            count("Damaged files", beat[1], "damaged_files"),
            ("Oldest readings", oldest, False),
            ("Processes restarted", f"{restarts:,}", restarts > 0),
        ]
    names = {"accepted": "Readings accepted", "late": "Readings late", "refused": "Readings refused"}
    return [*tiles, *((name, f"{status.reading_counts.get(key, 0):,}", False) for key, name in names.items())]


def _zone_cells(zone: ZoneStatus, now_s: float) -> tuple[str, ...]:
    """Return its state, until when it is decided, the prices of the last 24 hours by kind, and its cost."""
    state = f"{zone.intervals_behind:,} behind" if zone.intervals_behind else "up to date"
    end = _format_time(zone.decided_end_s)
    end = end[11:] if abs(zone.decided_end_s - now_s) < _HALF_DAY_S else end  # the hour alone where the day is clear
    kinds = (PriceKind.MEASURED, PriceKind.FALLBACK, PriceKind.WITHHELD)
    counts = (f"{zone.releases_by_kind.get(kind, 0):,}" for kind in kinds)
    return "log broken" if zone.is_broken else state, end, *counts, format_cost(zone.epsilon_micro, zone.rho_micro)


@dataclass(slots=True, kw_only=True)
class OperatorApi:
    """Routes for the operator, who authenticates by name and secret (HTTP Basic)."""

    databases: Databases
    settings: ServiceSettings
    state: TransactionSource
    counts: Counter[str]
    ingest: IngestStatus | None = None
    _readiness: IngestReadiness = field(init=False)
    _log_reader: BackgroundLogReader = field(init=False)
    _access: AuthStore = field(init=False)
    _warnings: Mapping[str, str] = field(default_factory=dict, init=False)  # of the last look

    def __post_init__(self) -> None:
        self._log_reader = BackgroundLogReader(self.databases.log.dsn)
        self._access = AuthStore(self.state)
        self._readiness = self.ingest.readiness if self.ingest else IngestReadiness(self.state, self.settings.landing)

    def routes(self) -> list[Route]:
        return [
            Route("/operator", self.get_page, methods=["GET"]),
            Route("/metrics", self.get_metrics, methods=["GET"]),
            Route("/healthz", self.get_health, methods=["GET"]),
            Route("/readyz", self.get_readiness, methods=["GET"]),
        ]

    async def get_health(self, _: Request) -> Response:
        return Response("alive\n", media_type="text/plain")

    async def get_readiness(self, _: Request) -> Response:
        """Ready if readings can be taken. The log is not needed for that: `murmurate_log_age_seconds` shows its age."""
        faults = self._readiness.recent_faults()
        if faults is None:
            faults = await run_in_threadpool(self._check_readiness)
        reasons = [f"the {name} cannot be written: {faults[name]}" for name in faults]
        if self.ingest is not None and (clock_fault := self.ingest.ingestor.state_clock.fault) is not None:
            reasons.append(f"the clock {clock_fault}")
        if reasons:
            return problem_response(503, "; ".join(reasons))
        lines = ["ready", *(f"warning: {name} {reason}" for name, reason in self._warnings.items())]
        return Response("\n".join(lines) + "\n", media_type="text/plain")

    def _check_readiness(self) -> Mapping[str, str]:
        """What cannot be written. Where all can, also look for warnings, which the next answers repeat."""
        faults = self._readiness.faults()
        if not faults:
            with suppress(psycopg.Error):
                report = read_heartbeat_ages(self.state).get(WORKER_HEARTBEAT, (0.0, {}))[1]
                of_zones = {"zones": _ZONES_NEED_OPERATOR} if report.get("zone_warnings") else {}
                self._warnings = {**self._ingest_warnings, **of_zones}
        return faults

    @property
    def _ingest_warnings(self) -> Mapping[str, str]:
        return self.ingest.warnings if self.ingest else {}

    async def get_page(self, request: Request) -> Response:
        return Response(
            await self._render_in_thread(request, operator_page), 200, _OPERATOR_HEADERS | HTML_HEADERS, HTML_MEDIA_TYPE
        )

    async def get_metrics(self, request: Request) -> Response:
        return Response(
            await self._render_in_thread(request, self._render_metrics), 200, _OPERATOR_HEADERS, PROMETHEUS_MEDIA_TYPE
        )

    async def _render_in_thread(self, request: Request, render: Callable[[ServiceStatus], str]) -> str:
        await look_up_anonymous(request, partial(self._access.authenticate_operator, request.headers))
        return await run_in_threadpool(lambda: render(self._service_status()))

    def _render_metrics(self, status: ServiceStatus) -> str:
        with self.state.transaction() as connection:
            sizes = {"state": read_database_bytes(connection)}
        if self._log_reader.database_bytes is not None:
            sizes["log"] = self._log_reader.database_bytes
        zones = [zone.zone for zone in status.zones]
        ingest = [IngestCollector(self.ingest, zones)] if self.ingest else []
        return render_metrics(status, StorageCollector(self.settings, sizes), *ingest)

    def _service_status(self) -> ServiceStatus:
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
            ingest_clock_difference_s=None if self.ingest is None else self.ingest.ingestor.state_clock.difference_s,
        )

    def close(self) -> None:
        """Close the connection to the log. It is reopened on the next request."""
        self._log_reader.close()
