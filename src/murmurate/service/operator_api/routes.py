"""The operator's page and metrics: what was released, what it cost, what needs an operator. Never a demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import psycopg
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from murmurate.service.auth import AuthStore
from murmurate.service.ingest.ingest_status import IngestStatus
from murmurate.service.ingest.readiness import IngestReadiness
from murmurate.service.operator_api.ingest_metrics import IngestCollector
from murmurate.service.operator_api.metrics import PROMETHEUS_MEDIA_TYPE, render_metrics
from murmurate.service.operator_api.page import operator_page
from murmurate.service.operator_api.status import BackgroundLogReader, ServiceStatus, service_status
from murmurate.service.operator_api.storage_metrics import StorageCollector
from murmurate.service.settings import ServiceSettings
from murmurate.service.storage.databases import Databases
from murmurate.service.storage.heartbeats import WORKER_BEAT, WORKER_HEARTBEAT, read_heartbeat_ages
from murmurate.service.storage.server_checks import read_database_bytes
from murmurate.service.storage.session import TransactionSource
from murmurate.service.watchdog import read_part_restarts
from murmurate.service.web.html import HTML_HEADERS, HTML_MEDIA_TYPE
from murmurate.service.web.http_auth import require_operator
from murmurate.service.web.request_limits import look_up_anonymous
from murmurate.service.web.responses import problem_response

_OPERATOR_HEADERS = {"cache-control": "no-store", "x-frame-options": "DENY"}
# /readyz needs no login, and the warning of a zone may count its meters: one more or less is a household that moved
_ZONES_NEED_OPERATOR = "need an operator: log in at /operator, which names them and the remedy"


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
        await look_up_anonymous(request, partial(require_operator, request, self._access))
        return await run_in_threadpool(lambda: render(self._service_status()))

    def _render_metrics(self, status: ServiceStatus) -> str:
        zones = [zone.zone for zone in status.zones]
        storage = StorageCollector(self.settings, self._database_bytes())
        return render_metrics(status, storage, *([IngestCollector(self.ingest, zones)] if self.ingest else []))

    def _database_bytes(self) -> Mapping[str, int]:
        """The size of each database that has told it."""
        with self.state.transaction() as connection:
            sizes = {"state": read_database_bytes(connection)}
        log_bytes = self._log_reader.database_bytes
        return sizes if log_bytes is None else {**sizes, "log": log_bytes}

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
