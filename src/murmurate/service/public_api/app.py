"""The public API: every price in the formats that devices read. It keeps nothing about its clients."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import date
from urllib.parse import quote, urlencode

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from murmurate.errors import MurmurateError
from murmurate.service.clock_comparison import ClockDifferenceError
from murmurate.service.log_reader.archive import Archive, TilesArchivedError
from murmurate.service.log_reader.zone_view import ZoneView
from murmurate.service.public_api import query_params
from murmurate.service.public_api.cache_middleware import ResponseCacheMiddleware, etag_matches
from murmurate.service.public_api.formats.current_price import current_price_document
from murmurate.service.public_api.formats.day import day_document
from murmurate.service.public_api.formats.evcc import evcc_list
from murmurate.service.public_api.formats.listings import zone_entry
from murmurate.service.public_api.formats.openadr_program import OPENADR_BASE_PATH
from murmurate.service.public_api.history_api import HistoryApi, with_prices
from murmurate.service.public_api.live_state import LiveState
from murmurate.service.public_api.local_days import (
    interval_start_end,
    intervals_of_day,
    is_day_complete,
    recent_days,
)
from murmurate.service.public_api.log_api import LogApi
from murmurate.service.public_api.openadr_api import RequestHandler, openadr_handlers, post_anonymous_token
from murmurate.service.public_api.response_cache import (
    ALL_SHARDS,
    CACHE_CONTROL_IMMUTABLE,
    CachedResponse,
)
from murmurate.service.public_api.response_sender import PreparedResponse
from murmurate.service.web.openapi import openapi_document
from murmurate.service.web.responses import DelayedRefusal, StreamedResponse, problem_response

logger = logging.getLogger(__name__)


MAX_ZONES_PER_PAGE = 1000


class PublicApi:
    """Routes of the public API."""

    def __init__(self, live_state: LiveState) -> None:
        self.live_state = live_state

    def routes(self) -> list[Route]:
        paths: dict[str, RequestHandler] = {
            "/zones": self.get_zones,
            "/zones/{zone}/now": self.get_current_price,
            "/zones/{zone}/evcc": self.get_evcc_prices,
            "/zones/{zone}/days": self.get_days,
            "/zones/{zone}/days/{day}.json": self.get_day,
            "/openapi.json": self.get_openapi,
        }
        log_api = LogApi(self.live_state)
        paths |= log_api.handlers() | openadr_handlers(self.live_state) | HistoryApi(self.live_state).handlers()
        routes = [Route(path, self._cached_endpoint(answer), methods=["GET"]) for path, answer in paths.items()]
        routes.append(Route(f"{OPENADR_BASE_PATH}/auth/token", post_anonymous_token, methods=["POST"]))
        routes.append(Route("/zones/{zone}/stream", self.stream_prices, methods=["GET"]))
        routes.append(Route("/zones/{zone}/log.jsonl", log_api.stream_zone_log, methods=["GET"]))
        routes.append(Route("/healthz", self.get_health, methods=["GET"]))
        routes.append(Route("/readyz", self.get_readiness, methods=["GET"]))
        return routes

    def _cached_endpoint(self, handler: RequestHandler) -> Callable[[Request], Awaitable[Response]]:
        """Make a response once; the next request for the same gets it from the cache."""

        async def endpoint(request: Request) -> Response:
            generation, expires_s = self.live_state.volatile_cache.generation, self.live_state.interval_end_s()
            result = handler(request)
            response = result if isinstance(result, CachedResponse) else await result
            key = (request.scope["raw_path"], request.scope["query_string"])
            if (b"cache-control", CACHE_CONTROL_IMMUTABLE.encode()) in response.headers:
                self.live_state.immutable_cache.put(key, response)
            else:
                response = replace(response, expires_s=expires_s)
                if generation == self.live_state.volatile_cache.generation:  # nothing has moved while it was made
                    self.live_state.volatile_cache.put(key, response, self._shard_of(request))
            response = response.sent_at(time.time())
            response = response.not_modified if etag_matches(request.scope, response) else response
            return PreparedResponse(response, self.live_state.sender)

        return endpoint

    def _shard_of(self, request: Request) -> str:
        """The shard that a response is about."""
        zone = request.path_params.get("zone")
        if zone is None:
            object_id = request.path_params.get("id") or request.query_params.get("programID", "")
            zone = self.live_state.program_index.zone_of(object_id) or ""
        return self.live_state.views.shard_of(zone) or ALL_SHARDS

    def _zone_view(self, request: Request) -> ZoneView:
        return query_params.zone_param(request, self.live_state.views)

    async def get_zones(self, request: Request) -> CachedResponse:
        """A page of zones, by name."""
        query_params.check_query_params(request, ("after", "limit"))
        after = request.query_params.get("after", "")
        limit = query_params.int_param(request, "limit", MAX_ZONES_PER_PAGE)
        limit = MAX_ZONES_PER_PAGE if limit is None else limit
        views, threads = self.live_state.views, self.live_state.bulk_threads
        async with threads.turn():
            names = views.names_after(after, limit)
            response = await threads.run_in_turn(_make_zone_list, [views[zone] for zone in names])
        if not names or not views.names_after(names[-1], 1):
            return response
        query = urlencode({"after": names[-1], "limit": limit}, quote_via=quote)
        link = f'<{self.live_state.settings.base_url}/zones?{query}>; rel="next"'
        return replace(response, headers=[*response.headers, (b"link", link.encode())])

    async def get_current_price(self, request: Request) -> CachedResponse:
        query_params.check_query_params(request, ())
        view, now_s = self._zone_view(request), self.live_state.current_time()
        document = current_price_document(view, now_s)
        if document is not None:
            return CachedResponse.from_json(document)
        if view.closed is None or view.interval_at(now_s) <= view.last_decided:
            raise HTTPException(404, "there is no price for this interval")
        raise HTTPException(410, await self.live_state.lookup_threads.run(_closed_words, self.live_state.archive, view))

    async def get_evcc_prices(self, request: Request) -> CachedResponse:
        query_params.check_query_params(request, ("forecast",))
        wide = query_params.bool_param(request, "forecast")
        view = self._zone_view(request)
        if wide:
            await self.live_state.load_terms([view.plan_digest])
        return CachedResponse.from_json(evcc_list(view, self.live_state.current_time(), forecast=wide))

    def get_days(self, request: Request) -> CachedResponse:
        query_params.check_query_params(request, ())
        view = self._zone_view(request)
        days = [day.isoformat() for day in recent_days(view) if is_day_complete(view, day)]
        return CachedResponse.from_json(
            {"zone": view.zone, "timezone": view.display.timezone.key, "recent_complete_days": days}
        )

    async def get_day(self, request: Request) -> CachedResponse:
        query_params.check_query_params(request, ())
        view, day = self._zone_view(request), query_params.parse_day(request.path_params["day"])
        try:
            return await self.live_state.lookup_threads.run(_make_day, self.live_state.archive, view, day)
        except TilesArchivedError:
            raise
        except MurmurateError as error:
            raise HTTPException(404, str(error)) from None

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
        zone, address = self._zone_view(request).zone, query_params.client_address(request)
        streams = self.live_state.price_stream
        streams.check_room(address)
        stream = streams.subscribe(lambda: self.live_state.views[zone], after)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no", "access-control-allow-origin": "*"}
        return StreamedResponse(request, stream, "text/event-stream", headers, streams.held(address))

    async def get_health(self, request: Request) -> Response:
        query_params.check_query_params(request, ())
        return Response("alive\n", media_type="text/plain")

    async def get_readiness(self, request: Request) -> Response:
        """Of the process; with a zone, whether that one is as it should be."""
        query_params.check_query_params(request, ("zone",))
        zone = request.query_params.get("zone")
        reason = self.live_state.not_ready_reason
        if zone is not None and not reason:
            if zone not in self.live_state.views:
                raise HTTPException(404, "there is no such zone here; /zones lists them")
            reason = self.live_state.stale_reason(zone)
        return problem_response(503, reason) if reason else Response("ready\n", media_type="text/plain")


def _make_zone_list(views: list[ZoneView]) -> CachedResponse:
    return CachedResponse.from_json([zone_entry(view) for view in views])


def _make_day(archive: Archive, view: ZoneView, day: date) -> CachedResponse:
    """Raises MurmurateError where the day is not complete."""
    if is_day_complete(view, day):
        view = with_prices(archive, view, intervals_of_day(view, day))
    return CachedResponse.from_json(day_document(view, day), CACHE_CONTROL_IMMUTABLE)


def _closed_words(archive: Archive, view: ZoneView) -> str:
    """What a zone that was closed says about its price now."""
    last = view.last_decided
    if last < view.first_priced:
        return "the zone was closed before it had a price"
    price = with_prices(archive, view, range(last, last + 1)).prices[last]
    value = "was withheld" if price.value is None else f"was {price.value} {view.currency}/kWh"
    end = interval_start_end(view, last)["end"]
    return f"the zone is closed: its last price {value} and ended at {end}; its history and its log stay"


def public_app(live_state: LiveState, extra_routes: list[Route] | None = None) -> ResponseCacheMiddleware:
    """The app behind the public port; it follows the log while it runs."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await live_state.start()
        yield
        await live_state.stop()

    async def refused(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            if error.headers and "retry-after" in error.headers:
                return DelayedRefusal(error.status_code, error.detail, error.headers)
            return problem_response(error.status_code, error.detail, error.headers)
        if isinstance(error, ClockDifferenceError):
            return problem_response(503, f"it is not known which price is current: {error}", {"retry-after": "5"})
        if isinstance(error, TilesArchivedError):
            return problem_response(410, str(error))
        logger.warning("failing", extra={"route": request.scope["path"], "reason": type(error).__name__})
        return problem_response(503, "Service unavailable. Try again.", {"retry-after": "5"})

    routes = [*PublicApi(live_state).routes(), *(extra_routes or [])]
    handlers = dict.fromkeys((HTTPException, ClockDifferenceError, TilesArchivedError, OSError, Exception), refused)
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    app.router.redirect_slashes = False  # it would redirect clients to the host that the request names
    return ResponseCacheMiddleware((live_state.volatile_cache, live_state.immutable_cache), live_state.sender, app)
