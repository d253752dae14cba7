"""The public door: every price in the formats that devices read, from the board, with no word about who asks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from murmurate.errors import MurmurateError
from murmurate.service.board import queries
from murmurate.service.board.board import FOR_EVER, MOVING, Board, Ready
from murmurate.service.board.day import day_document
from murmurate.service.board.evcc import evcc_list
from murmurate.service.board.grid import intervals_of, is_whole, recent_days
from murmurate.service.board.history import csv_lines, parquet_bytes
from murmurate.service.board.now import now_document
from murmurate.service.board.openadr_door import BASE, openadr_routes, post_token
from murmurate.service.board.openapi import document as openapi
from murmurate.service.board.view import Price, ZoneView, rfc3339
from murmurate.service.board.vse import vse_tariffs
from murmurate.service.web import Flow, problem

MOST_HISTORY_S = 366 * 86_400
MOST_EXPORTS = 4  # copies of the log that go out at once
_DIGEST = re.compile(r"[0-9a-f]{64}")

Answer = Callable[[Request], Ready | Awaitable[Ready]]


class PublicDoor:
    """Routes of the public door."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self._exports = asyncio.Semaphore(MOST_EXPORTS)

    def routes(self) -> list[Route]:
        paths: dict[str, Answer] = {
            "/zones": self.zones,
            "/zones/{zone}/now": self.now,
            "/zones/{zone}/evcc": self.evcc,
            "/zones/{zone}/days": self.days,
            "/zones/{zone}/days/{day}.json": self.day,
            "/zones/{zone}/history.csv": self.history_csv,
            "/zones/{zone}/history.parquet": self.history_parquet,
            "/zones/{zone}/vse/v1/tariffs": self.vse,
            "/plans/{digest}.json": self.plan,
            "/openapi.json": self.itself,
        }
        paths |= openadr_routes(self.board)
        routes = [Route(path, self._ready(answer), methods=["GET"]) for path, answer in paths.items()]
        routes.append(Route(f"{BASE}/auth/token", post_token, methods=["POST"]))
        routes.append(Route("/zones/{zone}/stream", self.listen, methods=["GET"]))
        routes.append(Route("/zones/{zone}/log.jsonl", self.log, methods=["GET"]))
        routes.append(Route("/log.jsonl", self.log, methods=["GET"]))
        routes.append(Route("/healthz", self.health, methods=["GET"]))
        routes.append(Route("/readyz", self.readiness, methods=["GET"]))
        return routes

    def _ready(self, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        """Make an answer once; the next who asks the same gets it from the shelf."""

        async def endpoint(request: Request) -> Response:
            emptied = self.board.ready.emptied
            made = answer(request)
            ready = made if isinstance(made, Ready) else await made
            key = (request.scope["raw_path"], request.scope["query_string"])
            if (b"cache-control", FOR_EVER.encode()) in ready.headers:
                self.board.kept.put(key, ready)
            elif emptied == self.board.ready.emptied:  # nothing has moved while it was made
                self.board.ready.put(key, ready)
            return (ready.unchanged if _knows(request.scope, ready) else ready).response()

        return endpoint

    def view(self, request: Request) -> ZoneView:
        view = self.board.views.get(request.path_params["zone"])
        if view is None:
            raise HTTPException(404, "there is no such zone here; /zones lists them")
        return view

    def zones(self, request: Request) -> Ready:
        queries.refuse_unknown(request, ())
        rows = [
            {"zone": view.zone, "currency": view.currency, "interval_s": view.interval_s, "plan": view.plan}
            | {"timezone": view.sign.timezone.key, "decided_until": rfc3339(view.begin_s(view.decided + 1))}
            for view in self.board.views.values()
        ]
        return Ready.json(rows)

    def now(self, request: Request) -> Ready:
        queries.refuse_unknown(request, ())
        found = now_document(self.view(request), self.board.clock.now())
        if found is None:
            raise HTTPException(404, "there is no price for this interval")
        return Ready.json(found)

    def evcc(self, request: Request) -> Ready:
        queries.refuse_unknown(request, ("forecast",))
        wide = queries.flag(request, "forecast")
        return Ready.json(evcc_list(self.view(request), self.board.clock.now(), forecast=wide))

    def days(self, request: Request) -> Ready:
        queries.refuse_unknown(request, ())
        view = self.view(request)
        whole = [day.isoformat() for day in recent_days(view) if is_whole(view, day)]
        return Ready.json({"zone": view.zone, "timezone": view.sign.timezone.key, "recent_whole_days": whole})

    async def day(self, request: Request) -> Ready:
        queries.refuse_unknown(request, ())
        view, day = self.view(request), queries.day(request.path_params["day"])
        if is_whole(view, day):
            intervals = intervals_of(view, day)
            view = await self._with(view, intervals[0], intervals[-1])
        try:
            return Ready.json(day_document(view, day), FOR_EVER)
        except MurmurateError as error:
            raise HTTPException(404, str(error)) from None

    async def _with(self, view: ZoneView, first: int, last: int) -> ZoneView:
        """The view with the prices of a stretch, from the archive where they are old."""
        if all(interval in view.prices for interval in (first, last)):
            return view
        prices = await run_in_threadpool(self._history, view, first, last)
        return replace(view, prices={price.interval: price for price in prices})

    def _history(self, view: ZoneView, first: int, last: int) -> list[Price]:
        with self.board.archives.one() as archive:
            return archive.history(view, first, last)

    async def _stretch(self, request: Request, start: str, end: str) -> tuple[ZoneView, list[Price]]:
        """The prices from one time to another, all of them decided."""
        view = self.view(request)
        first, last = _bounds(view, queries.moment(request, start), queries.moment(request, end))
        known = await self._with(view, first, last)
        return view, [known.prices[interval] for interval in range(first, last + 1)]

    async def history_csv(self, request: Request) -> Ready:
        queries.refuse_unknown(request, ("start", "end"))
        view, prices = await self._stretch(request, "start", "end")
        text = await run_in_threadpool("".join, csv_lines(prices, view.interval_s, view.currency))
        return Ready.of(text.encode(), "text/csv; charset=utf-8", MOVING)

    async def history_parquet(self, request: Request) -> Ready:
        queries.refuse_unknown(request, ("start", "end"))
        view, prices = await self._stretch(request, "start", "end")
        data = await run_in_threadpool(parquet_bytes, prices, view.interval_s, view.currency)
        return Ready.of(data, "application/vnd.apache.parquet", MOVING)

    async def vse(self, request: Request) -> Ready:
        queries.refuse_unknown(request, ("start_timestamp", "end_timestamp"))
        view = self.view(request)
        if view.currency != "CHF":
            raise HTTPException(404, "this format is for prices in CHF")
        if not request.query_params:
            first, last = max(view.at(self.board.clock.now()), min(view.prices, default=0)), view.decided
            if first > last:
                raise HTTPException(404, "there is no price for this interval")
        else:
            view, prices = await self._stretch(request, "start_timestamp", "end_timestamp")
            first, last = prices[0].interval, prices[-1].interval
            view = replace(view, prices={price.interval: price for price in prices})
        return Ready.json(vse_tariffs(view, first, last))

    async def plan(self, request: Request) -> Ready:
        queries.refuse_unknown(request, ())
        digest = request.path_params["digest"]
        text = await run_in_threadpool(self._plan, digest) if _DIGEST.fullmatch(digest) else None
        if text is None:
            raise HTTPException(404, "there is no such plan here")
        return Ready.of(text.encode(), "application/json", FOR_EVER)

    def _plan(self, digest: str) -> str | None:
        with self.board.archives.one() as archive:
            return archive.plan(digest)

    def itself(self, request: Request) -> Ready:
        queries.refuse_unknown(request, ())
        return Ready.json(openapi(self.board.settings.base_url))

    async def listen(self, request: Request) -> Response:
        """Each price as it becomes public."""
        queries.refuse_unknown(request, ())
        last = request.headers.get("last-event-id", "")
        after = int(last) if last.isascii() and last.isdigit() and len(last) < 15 else None
        zone = self.view(request).zone
        stream = self.board.stream.listen(lambda: self.board.views[zone], after)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no", "access-control-allow-origin": "*"}
        return Flow(request, stream, "text/event-stream", headers)

    async def log(self, request: Request) -> Response:
        """The log itself, for `murmurate verify`."""
        queries.refuse_unknown(request, ())
        zone = self.view(request).zone if "zone" in request.path_params else None
        if self._exports.locked():
            return problem(503, "others are fetching the log; try again in a minute", {"retry-after": "60"})
        headers = {"cache-control": "public, max-age=60", "access-control-allow-origin": "*"}
        return Flow(request, self._lines(zone), "application/x-ndjson", headers, self._exports)

    async def _lines(self, zone: str | None) -> AsyncIterator[bytes]:
        with self.board.archives.one() as archive:
            lines = archive.lines(zone)
            while (some := await run_in_threadpool(next, lines, None)) is not None:
                yield some

    async def health(self, request: Request) -> Response:
        queries.refuse_unknown(request, ())
        return Response("alive\n", media_type="text/plain")

    async def readiness(self, request: Request) -> Response:
        queries.refuse_unknown(request, ())
        why = self.board.unwell
        return problem(503, why) if why else Response("ready\n", media_type="text/plain")


def _bounds(view: ZoneView, start_s: float | None, end_s: float | None) -> tuple[int, int]:
    """The intervals from a start to an end; without them the last week. Only what is decided."""
    last = view.decided if end_s is None else int(-(-end_s // view.interval_s)) - 1
    if view.decided < view.first:
        raise HTTPException(404, "there is no price yet")
    week = view.at(view.begin_s(last + 1) - 7 * 86_400)
    first = max(view.first, week) if start_s is None else view.at(start_s)
    if first > last:
        raise HTTPException(400, "the end must be after the start")
    if first < view.first or last > view.decided:
        have = f"{rfc3339(view.begin_s(view.first))} to {rfc3339(view.begin_s(view.decided + 1))}"
        raise HTTPException(404, f"there are prices from {have}")
    if (last - first + 1) * view.interval_s > MOST_HISTORY_S:
        raise HTTPException(400, "must be at most a year; ask several times, or take the log")
    return first, last


def _knows(scope: Scope, ready: Ready) -> bool:
    """Whether whoever asks has this answer already."""
    return any(name == b"if-none-match" and (ready.etag in value or value == b"*") for name, value in scope["headers"])


class PublicApp:
    """What is on the shelf goes out at once; the rest is made."""

    def __init__(self, board: Board, inner: ASGIApp) -> None:
        self._board, self._inner = board, inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "GET":
            key = (scope["raw_path"], scope["query_string"])
            ready = self._board.ready.get(key) or self._board.kept.get(key)
            if ready is not None:
                if _knows(scope, ready):
                    ready = ready.unchanged
                await send({"type": "http.response.start", "status": ready.status, "headers": ready.headers})
                await send({"type": "http.response.body", "body": ready.body})
                return
        await self._inner(scope, receive, send)


def public_app(board: Board, more: list[Route] | None = None) -> PublicApp:
    """The app behind the public port; it follows the log while it runs."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await board.refresh()
        task = asyncio.create_task(board.follow())
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def refused(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            return problem(error.status_code, error.detail, error.headers)
        board.say("failing", route=request.scope["path"], why=type(error).__name__)
        return problem(503, "is out of order; try again", {"retry-after": "5"})

    routes = [*PublicDoor(board).routes(), *(more or [])]
    handlers = dict.fromkeys((HTTPException, OSError, Exception), refused)
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    app.router.redirect_slashes = False  # it would send people to whatever host the request names
    return PublicApp(board, app)
