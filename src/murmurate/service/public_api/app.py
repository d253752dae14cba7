"""The public API: every price in the formats that devices read. It keeps nothing about its clients.

A response about a stretch of time is bounded; its header `Link` names the next one.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from urllib.parse import quote, urlencode

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from murmurate.errors import MurmurateError
from murmurate.service.clock_comparison import ClockDifferenceError
from murmurate.service.log_reader.log_queries import TilesArchivedError
from murmurate.service.log_reader.zone_view import Price, ZoneView, format_rfc3339
from murmurate.service.public_api import query_params
from murmurate.service.public_api.client_formats import CLIENT_FORMATS, ClientFormat, Document, FormatQuery, choose_rows
from murmurate.service.public_api.live_state import LiveState
from murmurate.service.public_api.local_days import (
    interval_start_end,
    intervals_of_day,
    is_day_complete,
    recent_days,
    today_and_tomorrow,
)
from murmurate.service.public_api.log_api import LogApi
from murmurate.service.public_api.openadr import OPENADR_BASE_PATH
from murmurate.service.public_api.openadr_api import OpenAdrApi, post_anonymous_token
from murmurate.service.public_api.price_formats import (
    csv_bytes,
    current_price_document,
    day_document,
    evcc_list,
    parquet_bytes,
    prices_document,
    vse_tariffs,
    zone_entry,
)
from murmurate.service.public_api.response_cache import (
    ALL_SHARDS,
    CACHE_CONTROL_EXPIRES,
    CACHE_CONTROL_IMMUTABLE,
    CachedResponse,
    HandlersByPath,
    RequestHandler,
    ResponseCacheMiddleware,
)
from murmurate.service.web.responses import DelayedRefusal, StreamedResponse, openapi_document, problem_response
from murmurate.units import SECONDS_PER_DAY

logger = logging.getLogger(__name__)

MAX_ZONES_PER_PAGE = 1000
MAX_HISTORY_S = 31 * SECONDS_PER_DAY
MAX_HISTORY_INTERVALS = 3_000  # of a quarter of an hour: 31 days, 240 kB of CSV
_WEEK_S = 7 * SECONDS_PER_DAY
PARQUET_MEDIA_TYPE = "application/vnd.apache.parquet"
_EncodePrices = Callable[[list[Price], int, str], bytes]  # of prices, the length of an interval [s], the currency


class PublicApi:
    """Routes of the public API."""

    def __init__(self, live_state: LiveState) -> None:
        self.live_state = live_state

    def routes(self) -> list[Route]:
        stretch = ("start", "end")
        paths: HandlersByPath = {
            "/zones": (self.get_zones, ("after", "limit")),
            "/zones/{zone}/now": (self.get_current_price, ()),
            "/zones/{zone}/prices": (self.get_prices, ("from", "to")),
            **{
                f"/zones/{{zone}}{path}": (partial(self.get_format, own), own.query_params)
                for path, own in CLIENT_FORMATS.items()
            },
            "/zones/{zone}/evcc": (self.get_evcc_prices, ("forecast",)),
            "/zones/{zone}/days": (self.get_days, ()),
            "/zones/{zone}/days/{day}.json": (self.get_day, ()),
            "/zones/{zone}/history.csv": (partial(self.get_history, csv_bytes, "text/csv; charset=utf-8"), stretch),
            "/zones/{zone}/history.parquet": (partial(self.get_history, parquet_bytes, PARQUET_MEDIA_TYPE), stretch),
            "/zones/{zone}/vse/v1/tariffs": (self.get_vse_tariffs, ("start_timestamp", "end_timestamp")),
            "/openapi.json": (self.get_openapi, ()),
        }
        log_api = LogApi(self.live_state)
        paths |= log_api.handlers() | OpenAdrApi(self.live_state).handlers()
        routes = [Route(path, self._cached_endpoint(*handler), methods=["GET"]) for path, handler in paths.items()]
        routes.append(Route(f"{OPENADR_BASE_PATH}/auth/token", post_anonymous_token, methods=["POST"]))
        routes.append(Route("/zones/{zone}/stream", self.stream_prices, methods=["GET"]))
        routes.append(Route("/zones/{zone}/log.jsonl", log_api.stream_zone_log, methods=["GET"]))
        routes.append(Route("/healthz", self.get_health, methods=["GET"]))
        routes.append(Route("/readyz", self.get_readiness, methods=["GET"]))
        return routes

    def _cached_endpoint(
        self, handler: RequestHandler, params: tuple[str, ...]
    ) -> Callable[[Request], Awaitable[ASGIApp]]:
        """Make a response once; the next request for the same gets it from the cache."""
        state = self.live_state

        async def endpoint(request: Request) -> ASGIApp:
            query_params.check_query_params(request, params)
            generation, expires_s = state.volatile_cache.generation, state.interval_end_s()
            result = handler(request)
            response = result if isinstance(result, CachedResponse) else await result
            key = (request.scope["raw_path"], request.scope["query_string"])
            if response.is_immutable:
                state.immutable_cache.put(key, response)
            else:
                response = replace(response, expires_s=expires_s)
                if generation == state.volatile_cache.generation:  # nothing has changed while it was made
                    zone = request.path_params.get("zone")
                    if zone is None:
                        object_id = request.path_params.get("id") or request.query_params.get("programID", "")
                        zone = state.program_index.zone_of(object_id) or ""
                    state.volatile_cache.put(key, response, state.views.shard_of(zone) or ALL_SHARDS)
            return state.sender.answer(response, request)

        return endpoint

    def _zone_view(self, request: Request) -> ZoneView:
        return query_params.zone_param(request, self.live_state.views)

    def _with_prices(self, view: ZoneView, stretch: range) -> ZoneView:
        """Return the view with the prices of a stretch. Where they are old it asks the archive or the database."""
        if stretch[0] in view.prices and stretch[-1] in view.prices:
            return view
        prices = self.live_state.archive.read_prices(view, stretch[0], stretch[-1])
        return replace(view, archived={price.interval: price for price in prices})

    async def get_zones(self, request: Request) -> CachedResponse:
        """Return a page of zones, by name."""
        after = request.query_params.get("after", "")
        limit = query_params.int_param(request, "limit", MAX_ZONES_PER_PAGE)
        limit = MAX_ZONES_PER_PAGE if limit is None else limit
        views, threads = self.live_state.views, self.live_state.bulk_threads
        async with threads.turn():
            names = views.names_after(after, limit)
            shown = [views[zone] for zone in names]
            response = await threads.run_in_turn(lambda: CachedResponse.from_json([zone_entry(view) for view in shown]))
        if not names or not views.names_after(names[-1], 1):
            return response
        query = urlencode({"after": names[-1], "limit": limit}, quote_via=quote)
        link = f'<{self.live_state.settings.base_url}/zones?{query}>; rel="next"'
        return replace(response, headers=[*response.headers, (b"link", link.encode())])

    async def get_current_price(self, request: Request) -> CachedResponse:
        view, now_s = self._zone_view(request), self.live_state.current_time()
        document = current_price_document(view, now_s)
        last = view.last_decided
        if document is not None:  # it names the next price as well
            return CachedResponse.from_json(
                document, is_final=view.interval_at(now_s) < last or view.closed is not None
            )
        if view.closed is None or view.interval_at(now_s) <= last:
            raise HTTPException(404, "there is no price for this interval")
        if last < view.first_priced:
            raise HTTPException(410, "the zone was closed before it had a price")
        known = await self.live_state.lookup_threads.run(self._with_prices, view, range(last, last + 1))
        value = known.prices[last].value
        price = "was withheld" if value is None else f"was {value} {view.currency}/kWh"
        end = interval_start_end(view, last)["end"]
        detail = f"the zone is closed: its last price {price} and ended at {end}; its history and its log stay"
        raise HTTPException(410, detail)

    async def get_prices(self, request: Request) -> CachedResponse:
        """Return the prices between two times; without them of today and tomorrow."""
        return await self._write_prices(request, "from", "to", lambda document, _: document)

    async def get_format(self, chosen: ClientFormat, request: Request) -> CachedResponse:
        """Return the same prices in the format of another project."""
        view = self._zone_view(request)
        if chosen.currency not in {None, view.currency}:
            raise HTTPException(404, f"this format is for prices in {chosen.currency}")
        with_expected = chosen.names_expected or query_params.bool_param(request, "forecast")
        url = f"{self.live_state.settings.base_url}{quote(request.scope['path'])}"

        def write(document: Document, now_s: float) -> object:
            start = format_rfc3339(view.start_s(view.interval_at(now_s)))
            query = FormatQuery(url, dict(request.query_params), start)
            return chosen.write(choose_rows(document, with_expected=with_expected), query)

        return await self._write_prices(request, chosen.start, chosen.end, write, begins_now=chosen.begins_now)

    async def _write_prices(
        self,
        request: Request,
        start: str | None,
        end: str | None,
        write: Callable[[Document, float], object],
        *,
        begins_now: bool = False,
    ) -> CachedResponse:
        """Return what a function makes of the prices between two query parameters."""
        view, now_s = self._zone_view(request), self.live_state.current_time()
        stretch = _shown_stretch(request, view, now_s, start, end, begins_now=begins_now)
        decided = range(stretch.start, min(stretch.stop, view.last_decided + 1))
        is_final = stretch.stop <= decided.stop and not query_params.has_clock_time(request, (start, end))
        if stretch.stop > decided.stop:
            await self.live_state.load_terms([view.plan_digest])

        def make_response() -> CachedResponse | None:
            known = self._with_prices(view, decided) if decided else view
            document = prices_document(known, stretch, now_s)
            try:
                written = write(document, now_s)
            except MurmurateError as error:
                raise HTTPException(400, str(error)) from None
            return None if written is None else CachedResponse.from_json(written, is_final=is_final)

        threads = self.live_state.bulk_threads if request.query_params else self.live_state.lookup_threads
        response = await threads.run(make_response)
        if response is None:
            raise HTTPException(404, "there are too few prices; ask for a shorter or a later stretch")
        return response

    async def get_evcc_prices(self, request: Request) -> CachedResponse:
        has_forecast = query_params.bool_param(request, "forecast")
        view = self._zone_view(request)
        if has_forecast:
            await self.live_state.load_terms([view.plan_digest])
        return CachedResponse.from_json(evcc_list(view, self.live_state.current_time(), forecast=has_forecast))

    def get_days(self, request: Request) -> CachedResponse:
        view = self._zone_view(request)
        days = [day.isoformat() for day in recent_days(view) if is_day_complete(view, day)]
        has_none = view.closed is not None and view.last_decided < view.first_priced  # it was closed before
        return CachedResponse.from_json(
            {
                "zone": view.zone,
                "timezone": view.display.timezone.key,
                "first_price": None if has_none else format_rfc3339(view.start_s(view.first_priced)),
                "recent_complete_days": days,
            }
        )

    async def get_day(self, request: Request) -> CachedResponse:
        view, day = self._zone_view(request), query_params.parse_day(request.path_params["day"])

        def make_day() -> CachedResponse:
            known = self._with_prices(view, intervals_of_day(view, day)) if is_day_complete(view, day) else view
            return CachedResponse.from_json(day_document(known, day), CACHE_CONTROL_IMMUTABLE)

        try:
            return await self.live_state.lookup_threads.run(make_day)
        except TilesArchivedError:
            raise
        except MurmurateError as error:
            raise HTTPException(404, str(error)) from None

    async def get_history(self, encode: _EncodePrices, media_type: str, request: Request) -> CachedResponse:
        """Return the prices of a stretch as a file."""
        view = self._zone_view(request)
        stretch = _asked_stretch(request, view, "start", "end")

        def make_history() -> CachedResponse:
            known = self._with_prices(view, stretch).prices
            body = encode([known[interval] for interval in stretch], view.interval_s, view.currency)
            return CachedResponse.from_body(body, media_type, CACHE_CONTROL_EXPIRES)

        try:
            response = await self.live_state.bulk_threads.run(make_history)
        except ModuleNotFoundError:
            raise HTTPException(501, "this server writes no Parquet; history.csv has the same columns") from None
        # The stretches before and after this one, of the same length, as far as there are prices.
        before = range(max(view.first_priced, stretch.start - len(stretch)), stretch.start)
        after = range(stretch.stop, min(view.last_decided + 1, stretch.stop + len(stretch)))
        links = []
        for rel, other in (("prev", before), ("next", after)):
            if other:
                start, end = (format_rfc3339(view.start_s(at)) for at in (other.start, other.stop))
                query = urlencode({"start": start, "end": end}, quote_via=quote)
                path = quote(request.path_params["zone"], safe="")
                name = request.scope["path"].rpartition("/")[2]
                links.append(f'<{self.live_state.settings.base_url}/zones/{path}/{name}?{query}>; rel="{rel}"')
        more = [(b"link", ", ".join(links).encode())] if links else []
        return replace(response, headers=[*response.headers, *more])

    async def get_vse_tariffs(self, request: Request) -> CachedResponse:
        view = self._zone_view(request)
        if view.currency != "CHF":
            raise HTTPException(404, "this format is for prices in CHF")
        if request.query_params:
            stretch = _asked_stretch(request, view, "start_timestamp", "end_timestamp")
            return await self.live_state.bulk_threads.run(
                lambda: CachedResponse.from_json(vse_tariffs(self._with_prices(view, stretch), stretch[0], stretch[-1]))
            )
        first = max(view.interval_at(self.live_state.current_time()), view.known_intervals.start)
        if first > view.last_decided:
            raise HTTPException(404, "there is no price for this interval")
        return CachedResponse.from_json(vse_tariffs(view, first, view.last_decided))

    def get_openapi(self, _: Request) -> CachedResponse:
        return CachedResponse.from_json(
            openapi_document("murmurate.service.public_api", self.live_state.settings.base_url)
        )

    async def stream_prices(self, request: Request) -> Response:
        """Send each price as it becomes public."""
        query_params.check_query_params(request, ())
        last = request.headers.get("last-event-id", "")
        after = int(last) if last.isascii() and last.isdigit() and len(last) < 15 else None
        zone, address = self._zone_view(request).zone, query_params.client_address(request)
        streams = self.live_state.price_stream
        streams.check_room(address)
        stream = streams.subscribe(lambda: self.live_state.views[zone], after)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no", "access-control-allow-origin": "*"}
        return StreamedResponse(request, stream, "text/event-stream", headers, streams.by_address.held(address))

    async def get_health(self, request: Request) -> Response:
        query_params.check_query_params(request, ())
        return Response("alive\n", media_type="text/plain")

    async def get_readiness(self, request: Request) -> Response:
        """Answer whether the process is ready; with a zone, whether that zone has its price."""
        query_params.check_query_params(request, ("zone",))
        zone = request.query_params.get("zone")
        reason = self.live_state.not_ready_reason
        if zone is not None and not reason:
            if zone not in self.live_state.views:
                raise HTTPException(404, "there is no such zone here; /zones lists them")
            reason = self.live_state.stale_reason(zone)
        return problem_response(503, reason) if reason else Response("ready\n", media_type="text/plain")


def _asked_stretch(request: Request, view: ZoneView, start: str, end: str) -> range:
    """Return the intervals from a start to an end; without them the last week. Only what is decided."""
    start_s, end_s = (query_params.time_param(request, name, view.display.timezone) for name in (start, end))
    if view.last_decided < view.first_priced:
        raise HTTPException(404, "there is no price yet")
    last = view.last_decided if end_s is None else int(-(-end_s // view.interval_s)) - 1
    usual = min(_WEEK_S // view.interval_s, MAX_HISTORY_INTERVALS)
    first = last + 1 - usual if start_s is None else view.interval_at(start_s)
    if first > last:
        raise HTTPException(400, "the end must be after the start")
    first = max(view.first_priced, first)
    if first > last or last > view.last_decided:
        first_s, stop_s = view.start_s(view.first_priced), view.start_s(view.last_decided + 1)
        raise HTTPException(404, f"there are prices from {format_rfc3339(first_s)} to {format_rfc3339(stop_s)}")
    return _bounded_stretch(view, range(first, last + 1))


def _shown_stretch(
    request: Request, view: ZoneView, now_s: float, start: str | None, end: str | None, *, begins_now: bool
) -> range:
    """Return the intervals from a start to an end, decided or not; without them of the local today and tomorrow.

    It begins with the first price at the earliest. It ends a week ahead at the latest, or with the last price of a
    closed zone.
    """
    start_s, end_s = (
        None if name is None else query_params.time_param(request, name, view.display.timezone, now_s)
        for name in (start, end)
    )
    current, usual = view.interval_at(now_s), today_and_tomorrow(view, now_s)
    first = current if begins_now else usual.start
    first = first if start_s is None else view.interval_at(start_s)
    stop = usual.stop
    if end_s is not None:
        stop = int(end_s // view.interval_s if begins_now else -(-end_s // view.interval_s))
    if first >= stop and not begins_now:
        raise HTTPException(400, f"{end} must be after {start}; without them they are today and tomorrow")
    limit = view.last_decided + 1 if view.closed else current + 1 + _WEEK_S // view.interval_s
    return _bounded_stretch(view, range(max(first, view.first_priced), min(stop, limit)))


def _bounded_stretch(view: ZoneView, stretch: range) -> range:
    """Return a stretch that one response may hold. Raises HTTP 400 for a longer one."""
    longest = max(1, min(MAX_HISTORY_S // view.interval_s, MAX_HISTORY_INTERVALS))
    if len(stretch) > longest:
        latest = format_rfc3339(view.start_s(stretch.start + longest))
        detail = f"must be at most 31 days and {MAX_HISTORY_INTERVALS:,} intervals at once: from this start to {latest}"
        raise HTTPException(400, f"{detail}; ask for the next stretch after it, or read the log, which has all of them")
    return stretch


def public_app(live_state: LiveState, extra_routes: list[Route] | None = None) -> ResponseCacheMiddleware:
    """Return the app behind the public port; it follows the log while it runs."""

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
