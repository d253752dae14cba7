"""The public API: every price in the formats that devices read. It keeps nothing about its clients."""

from __future__ import annotations

import asyncio
import logging
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
from murmurate.service.log_reader.zone_view import Price, ZoneView, format_rfc3339
from murmurate.service.public_api import query_params
from murmurate.service.public_api.formats.current_price import current_price_document
from murmurate.service.public_api.formats.day import day_document
from murmurate.service.public_api.formats.evcc import evcc_list
from murmurate.service.public_api.formats.history import csv_lines, parquet_bytes
from murmurate.service.public_api.formats.openadr_program import OPENADR_BASE_PATH
from murmurate.service.public_api.formats.vse import vse_tariffs
from murmurate.service.public_api.live_state import LiveState
from murmurate.service.public_api.local_days import intervals_of_day, is_day_complete, recent_days
from murmurate.service.public_api.openadr_api import openadr_handlers, post_anonymous_token
from murmurate.service.public_api.response_cache import CACHE_CONTROL_IMMUTABLE, CACHE_CONTROL_SHORT, CachedResponse
from murmurate.service.web.openapi import openapi_document
from murmurate.service.web.responses import StreamedResponse, problem_response

logger = logging.getLogger(__name__)


MAX_HISTORY_S = 366 * 86_400
MAX_CONCURRENT_EXPORTS = 4  # copies of the log that go out at once
_PLAN_DIGEST_PATTERN = re.compile(r"[0-9a-f]{64}")

RequestHandler = Callable[[Request], CachedResponse | Awaitable[CachedResponse]]


class PublicApi:
    """Routes of the public API."""

    def __init__(self, live_state: LiveState) -> None:
        self.live_state = live_state
        self._exports = asyncio.Semaphore(MAX_CONCURRENT_EXPORTS)

    def routes(self) -> list[Route]:
        paths: dict[str, RequestHandler] = {
            "/zones": self.get_zones,
            "/zones/{zone}/now": self.get_current_price,
            "/zones/{zone}/evcc": self.get_evcc_prices,
            "/zones/{zone}/days": self.get_days,
            "/zones/{zone}/days/{day}.json": self.get_day,
            "/zones/{zone}/history.csv": self.get_history_csv,
            "/zones/{zone}/history.parquet": self.get_history_parquet,
            "/zones/{zone}/vse/v1/tariffs": self.get_vse_tariffs,
            "/plans/{digest}.json": self.get_plan,
            "/openapi.json": self.get_openapi,
        }
        paths |= openadr_handlers(self.live_state)
        routes = [Route(path, self._cached_endpoint(answer), methods=["GET"]) for path, answer in paths.items()]
        routes.append(Route(f"{OPENADR_BASE_PATH}/auth/token", post_anonymous_token, methods=["POST"]))
        routes.append(Route("/zones/{zone}/stream", self.stream_prices, methods=["GET"]))
        routes.append(Route("/zones/{zone}/log.jsonl", self.stream_log, methods=["GET"]))
        routes.append(Route("/log.jsonl", self.stream_log, methods=["GET"]))
        routes.append(Route("/healthz", self.get_health, methods=["GET"]))
        routes.append(Route("/readyz", self.get_readiness, methods=["GET"]))
        return routes

    def _cached_endpoint(self, handler: RequestHandler) -> Callable[[Request], Awaitable[Response]]:
        """Make a response once; the next request for the same gets it from the cache."""

        async def endpoint(request: Request) -> Response:
            generation = self.live_state.volatile_cache.generation
            result = handler(request)
            response = result if isinstance(result, CachedResponse) else await result
            key = (request.scope["raw_path"], request.scope["query_string"])
            if (b"cache-control", CACHE_CONTROL_IMMUTABLE.encode()) in response.headers:
                self.live_state.immutable_cache.put(key, response)
            elif generation == self.live_state.volatile_cache.generation:  # nothing has moved while it was made
                self.live_state.volatile_cache.put(key, response)
            return (response.not_modified if _etag_matches(request.scope, response) else response).to_response()

        return endpoint

    def zone_view(self, request: Request) -> ZoneView:
        view = self.live_state.views.get(request.path_params["zone"])
        if view is None:
            raise HTTPException(404, "there is no such zone here; /zones lists them")
        return view

    def get_zones(self, request: Request) -> CachedResponse:
        query_params.check_query_params(request, ())
        rows = [
            {"zone": view.zone, "currency": view.currency, "interval_s": view.interval_s, "plan": view.plan_digest}
            | {
                "timezone": view.display.timezone.key,
                "decided_until": format_rfc3339(view.start_s(view.last_decided + 1)),
            }
            for view in self.live_state.views.values()
        ]
        return CachedResponse.from_json(rows)

    def get_current_price(self, request: Request) -> CachedResponse:
        query_params.check_query_params(request, ())
        document = current_price_document(self.zone_view(request), self.live_state.clock.now())
        if document is None:
            raise HTTPException(404, "there is no price for this interval")
        return CachedResponse.from_json(document)

    def get_evcc_prices(self, request: Request) -> CachedResponse:
        query_params.check_query_params(request, ("forecast",))
        wide = query_params.bool_param(request, "forecast")
        return CachedResponse.from_json(evcc_list(self.zone_view(request), self.live_state.clock.now(), forecast=wide))

    def get_days(self, request: Request) -> CachedResponse:
        query_params.check_query_params(request, ())
        view = self.zone_view(request)
        days = [day.isoformat() for day in recent_days(view) if is_day_complete(view, day)]
        return CachedResponse.from_json(
            {"zone": view.zone, "timezone": view.display.timezone.key, "recent_complete_days": days}
        )

    async def get_day(self, request: Request) -> CachedResponse:
        query_params.check_query_params(request, ())
        view, day = self.zone_view(request), query_params.parse_day(request.path_params["day"])
        if is_day_complete(view, day):
            intervals = intervals_of_day(view, day)
            view = await self._with_prices(view, intervals[0], intervals[-1])
        try:
            return CachedResponse.from_json(day_document(view, day), CACHE_CONTROL_IMMUTABLE)
        except MurmurateError as error:
            raise HTTPException(404, str(error)) from None

    async def _with_prices(self, view: ZoneView, first: int, last: int) -> ZoneView:
        """The view with the prices of a stretch, from the archive where they are old."""
        if all(interval in view.prices for interval in (first, last)):
            return view
        prices = await run_in_threadpool(self.live_state.archive.read_prices, view, first, last)
        return replace(view, prices={price.interval: price for price in prices})

    async def _prices_in_range(self, request: Request, start: str, end: str) -> tuple[ZoneView, list[Price]]:
        """The prices from one time to another, all of them decided."""
        view = self.zone_view(request)
        first, last = _interval_range(
            view, query_params.time_param(request, start), query_params.time_param(request, end)
        )
        known = await self._with_prices(view, first, last)
        return view, [known.prices[interval] for interval in range(first, last + 1)]

    async def get_history_csv(self, request: Request) -> CachedResponse:
        query_params.check_query_params(request, ("start", "end"))
        view, prices = await self._prices_in_range(request, "start", "end")
        text = await run_in_threadpool("".join, csv_lines(prices, view.interval_s, view.currency))
        return CachedResponse.from_body(text.encode(), "text/csv; charset=utf-8", CACHE_CONTROL_SHORT)

    async def get_history_parquet(self, request: Request) -> CachedResponse:
        query_params.check_query_params(request, ("start", "end"))
        view, prices = await self._prices_in_range(request, "start", "end")
        data = await run_in_threadpool(parquet_bytes, prices, view.interval_s, view.currency)
        return CachedResponse.from_body(data, "application/vnd.apache.parquet", CACHE_CONTROL_SHORT)

    async def get_vse_tariffs(self, request: Request) -> CachedResponse:
        query_params.check_query_params(request, ("start_timestamp", "end_timestamp"))
        view = self.zone_view(request)
        if view.currency != "CHF":
            raise HTTPException(404, "this format is for prices in CHF")
        if not request.query_params:
            first, last = (
                max(view.interval_at(self.live_state.clock.now()), min(view.prices, default=0)),
                view.last_decided,
            )
            if first > last:
                raise HTTPException(404, "there is no price for this interval")
        else:
            view, prices = await self._prices_in_range(request, "start_timestamp", "end_timestamp")
            first, last = prices[0].interval, prices[-1].interval
            view = replace(view, prices={price.interval: price for price in prices})
        return CachedResponse.from_json(vse_tariffs(view, first, last))

    async def get_plan(self, request: Request) -> CachedResponse:
        query_params.check_query_params(request, ())
        digest = request.path_params["digest"]
        text = None
        if _PLAN_DIGEST_PATTERN.fullmatch(digest):
            text = await run_in_threadpool(self.live_state.archive.read_plan, digest)
        if text is None:
            raise HTTPException(404, "there is no such plan here")
        return CachedResponse.from_body(text.encode(), "application/json", CACHE_CONTROL_IMMUTABLE)

    def get_openapi(self, request: Request) -> CachedResponse:
        query_params.check_query_params(request, ())
        return CachedResponse.from_json(
            openapi_document("murmurate.service.public_api", self.live_state.settings.base_url)
        )

    async def stream_prices(self, request: Request) -> Response:
        """Each price as it becomes public."""
        query_params.check_query_params(request, ())
        last = request.headers.get("last-event-id", "")
        after = int(last) if last.isascii() and last.isdigit() and len(last) < 15 else None
        zone = self.zone_view(request).zone
        stream = self.live_state.price_stream.subscribe(lambda: self.live_state.views[zone], after)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no", "access-control-allow-origin": "*"}
        return StreamedResponse(request, stream, "text/event-stream", headers)

    async def stream_log(self, request: Request) -> Response:
        """The log itself, for `murmurate verify`."""
        query_params.check_query_params(request, ())
        zone = self.zone_view(request).zone if "zone" in request.path_params else None
        if self._exports.locked():
            return problem_response(503, "others are fetching the log; try again in a minute", {"retry-after": "60"})
        headers = {"cache-control": "public, max-age=60", "access-control-allow-origin": "*"}
        return StreamedResponse(request, self._log_chunks(zone), "application/x-ndjson", headers, self._exports)

    async def _log_chunks(self, zone: str | None) -> AsyncIterator[bytes]:
        chunks = self.live_state.archive.read_log_chunks(zone)
        while (chunk := await run_in_threadpool(next, chunks, None)) is not None:
            yield chunk

    async def get_health(self, request: Request) -> Response:
        query_params.check_query_params(request, ())
        return Response("alive\n", media_type="text/plain")

    async def get_readiness(self, request: Request) -> Response:
        query_params.check_query_params(request, ())
        reason = self.live_state.not_ready_reason
        return problem_response(503, reason) if reason else Response("ready\n", media_type="text/plain")


def _interval_range(view: ZoneView, start_s: float | None, end_s: float | None) -> tuple[int, int]:
    """The intervals from a start to an end; without them the last week. Only what is decided."""
    last = view.last_decided if end_s is None else int(-(-end_s // view.interval_s)) - 1
    if view.last_decided < view.first_priced:
        raise HTTPException(404, "there is no price yet")
    week = view.interval_at(view.start_s(last + 1) - 7 * 86_400)
    first = max(view.first_priced, week) if start_s is None else view.interval_at(start_s)
    if first > last:
        raise HTTPException(400, "the end must be after the start")
    if first < view.first_priced or last > view.last_decided:
        first_s, end_s = view.start_s(view.first_priced), view.start_s(view.last_decided + 1)
        have = f"{format_rfc3339(first_s)} to {format_rfc3339(end_s)}"
        raise HTTPException(404, f"there are prices from {have}")
    if (last - first + 1) * view.interval_s > MAX_HISTORY_S:
        raise HTTPException(400, "must be at most a year; ask several times, or take the log")
    return first, last


def _etag_matches(scope: Scope, response: CachedResponse) -> bool:
    """Whether the client has this response already."""
    return any(
        name == b"if-none-match" and (response.etag in value or value == b"*") for name, value in scope["headers"]
    )


class ResponseCacheMiddleware:
    """Sends cached responses at once; the app makes the others."""

    def __init__(self, live_state: LiveState, inner: ASGIApp) -> None:
        self._live_state, self._inner = live_state, inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "GET":
            key = (scope["raw_path"], scope["query_string"])
            ready = self._live_state.volatile_cache.get(key) or self._live_state.immutable_cache.get(key)
            if ready is not None:
                if _etag_matches(scope, ready):
                    ready = ready.not_modified
                await send({"type": "http.response.start", "status": ready.status, "headers": ready.headers})
                await send({"type": "http.response.body", "body": ready.body})
                return
        await self._inner(scope, receive, send)


def public_app(live_state: LiveState, extra_routes: list[Route] | None = None) -> ResponseCacheMiddleware:
    """The app behind the public port; it follows the log while it runs."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await live_state.refresh()
        task = asyncio.create_task(live_state.follow())
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def refused(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            return problem_response(error.status_code, error.detail, error.headers)
        logger.warning("failing", extra={"route": request.scope["path"], "reason": type(error).__name__})
        return problem_response(503, "is out of order; try again", {"retry-after": "5"})

    routes = [*PublicApi(live_state).routes(), *(extra_routes or [])]
    handlers = dict.fromkeys((HTTPException, OSError, Exception), refused)
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    app.router.redirect_slashes = False  # it would redirect clients to the host that the request names
    return ResponseCacheMiddleware(live_state, app)
