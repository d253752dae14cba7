"""The operator's page and metrics: what was released, what it cost, what needs an operator. Never a demand."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from murmurate.service.auth import AuthStore
from murmurate.service.operator_api.metrics import PROMETHEUS_MEDIA_TYPE, render_metrics
from murmurate.service.operator_api.page import operator_page
from murmurate.service.operator_api.status import BackgroundLogReader, Heartbeat, ServiceStatus, service_status
from murmurate.service.settings import ServiceSettings
from murmurate.service.storage.databases import Databases
from murmurate.service.storage.session import TransactionSource
from murmurate.service.storage.state_store import WORKER_HEARTBEAT, read_heartbeats
from murmurate.service.web.html import HTML_HEADERS, HTML_MEDIA_TYPE
from murmurate.service.web.http_auth import require_operator
from murmurate.service.web.responses import problem_response

_OPERATOR_HEADERS = {"cache-control": "no-store", "x-frame-options": "DENY"}


@dataclass(slots=True, kw_only=True)
class OperatorApi:
    """Routes for the operator, who authenticates by name and secret (HTTP Basic)."""

    databases: Databases
    settings: ServiceSettings
    state: TransactionSource
    counts: Counter[str]
    _log_reader: BackgroundLogReader = field(init=False)
    _access: AuthStore = field(init=False)

    def __post_init__(self) -> None:
        self._log_reader = BackgroundLogReader(self.databases.log.dsn, self.settings.display_of)
        self._access = AuthStore(self.state)

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
        try:
            await run_in_threadpool(self.databases.check_reachable)
        except Exception as error:  # noqa: BLE001  whatever it is, the service is not ready
            return problem_response(503, str(error))
        return Response("ready\n", media_type="text/plain")

    async def get_page(self, request: Request) -> Response:
        return Response(
            await self._render_in_thread(request, operator_page), 200, _OPERATOR_HEADERS | HTML_HEADERS, HTML_MEDIA_TYPE
        )

    async def get_metrics(self, request: Request) -> Response:
        return Response(
            await self._render_in_thread(request, render_metrics), 200, _OPERATOR_HEADERS, PROMETHEUS_MEDIA_TYPE
        )

    async def _render_in_thread(self, request: Request, render: Callable[[ServiceStatus], str]) -> str:
        return await run_in_threadpool(self._render_authorized, request, render)

    def _render_authorized(self, request: Request, render: Callable[[ServiceStatus], str]) -> str:
        require_operator(request, self._access)
        return render(self._service_status())

    def _service_status(self) -> ServiceStatus:
        self._log_reader.refresh()
        return service_status(
            self._log_reader.views,
            self._log_reader.broken,
            now_s=self.settings.clock.now(),
            grace_s=self.settings.grace_s,
            reading_counts=self.counts,
            heartbeat=self._worker_heartbeat(),
            clients=self._access.list_clients(),
            log_age_s=self._log_reader.log_age_s,
        )

    def _worker_heartbeat(self) -> Heartbeat | None:
        """The last report of the worker, and its age by the wall clock [s]."""
        heartbeat = read_heartbeats(self.state).get(WORKER_HEARTBEAT)
        if heartbeat is None:
            return None
        at_s, report = heartbeat
        return max(0.0, time.time() - at_s), report

    def close(self) -> None:
        """Close the connection to the log. It is reopened on the next request."""
        self._log_reader.close()
