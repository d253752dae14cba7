"""The operator's page and figures: what was released, what it cost, what needs a person. Never a demand."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from murmurate.service.access import Access
from murmurate.service.board.shell import HEADERS, HTML
from murmurate.service.databases import Databases
from murmurate.service.doors.http import operator
from murmurate.service.operator.facts import Beat, LogSide, OperatorFacts, facts_of
from murmurate.service.operator.metrics import TEXT, metrics
from murmurate.service.operator.page import operator_page
from murmurate.service.pool import Pool
from murmurate.service.settings import Settings
from murmurate.service.state import PostgresState
from murmurate.service.web import problem

_PRIVATE = {"cache-control": "no-store", "x-frame-options": "DENY"}


@dataclass(slots=True, kw_only=True)
class OperatorDoor:
    """For whoever runs the service, by name and secret."""

    databases: Databases
    settings: Settings
    access: Pool[Access]
    counts: Counter[str]
    _log: LogSide = field(init=False)
    _states: Pool[PostgresState] = field(init=False)

    def __post_init__(self) -> None:
        self._log = LogSide(self.databases.log.dsn, self.settings.sign)
        self._states = Pool(lambda: PostgresState(self.databases.state.dsn))

    def routes(self) -> list[Route]:
        return [
            Route("/operator", self.page, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
            Route("/healthz", self.health, methods=["GET"]),
            Route("/readyz", self.readiness, methods=["GET"]),
        ]

    async def health(self, _: Request) -> Response:
        return Response("alive\n", media_type="text/plain")

    async def readiness(self, _: Request) -> Response:
        try:
            await run_in_threadpool(self.databases.check)
        except Exception as error:  # noqa: BLE001  whatever it is, nobody should be sent here
            return problem(503, str(error))
        return Response("ready\n", media_type="text/plain")

    async def page(self, request: Request) -> Response:
        return Response(await self._shown(request, operator_page), 200, _PRIVATE | HEADERS, HTML)

    async def metrics(self, request: Request) -> Response:
        return Response(await self._shown(request, metrics), 200, _PRIVATE, TEXT)

    async def _shown(self, request: Request, show: Callable[[OperatorFacts], str]) -> str:
        return await run_in_threadpool(self._show, request, show)

    def _show(self, request: Request, show: Callable[[OperatorFacts], str]) -> str:
        operator(request, self.access)
        return show(self._facts())

    def _facts(self) -> OperatorFacts:
        self._log.look()
        with self.access.one() as access:
            clients = access.clients()
        return facts_of(
            self._log.views,
            self._log.broken,
            now_s=self.settings.playback.now(),
            grace_s=self.settings.grace_s,
            counts=self.counts,
            beat=self._beat(),
            clients=clients,
            stale_s=self._log.stale_s,
        )

    def _beat(self) -> Beat | None:
        """What the road said last, and how long ago by the wall clock."""
        with self._states.one() as state:
            found = state.heartbeats().get("road")
        return None if found is None else (max(0.0, time.time() - found[0]), found[1])

    def close(self) -> None:
        """Hang up; a later request connects again."""
        self._log.close()
        self._states.close()
