"""Prices of a stretch of time: CSV, Parquet and the Swiss format. A response is bounded; `Link` names the next one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from urllib.parse import quote, urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request

from murmurate.service.log_reader.archive import Archive
from murmurate.service.log_reader.zone_view import Price, ZoneView, format_rfc3339
from murmurate.service.public_api import query_params
from murmurate.service.public_api.formats.history import csv_lines, parquet_bytes
from murmurate.service.public_api.formats.vse import vse_tariffs
from murmurate.service.public_api.live_state import LiveState
from murmurate.service.public_api.openadr_api import RequestHandler
from murmurate.service.public_api.response_cache import CACHE_CONTROL_SHORT, CachedResponse
from murmurate.units import SECONDS_PER_DAY

MAX_HISTORY_S = 31 * SECONDS_PER_DAY
MAX_HISTORY_INTERVALS = 3_000  # of a quarter of an hour: 31 days, 240 kB of CSV
_WEEK_S = 7 * SECONDS_PER_DAY
_MakeResponse = Callable[[Archive, ZoneView, range], CachedResponse]


class HistoryApi:
    """Routes for prices of the past. Each response is made by one of few threads."""

    def __init__(self, live_state: LiveState) -> None:
        self._live_state = live_state

    def handlers(self) -> dict[str, RequestHandler]:
        return {
            "/zones/{zone}/history.csv": self.get_csv,
            "/zones/{zone}/history.parquet": self.get_parquet,
            "/zones/{zone}/vse/v1/tariffs": self.get_vse_tariffs,
        }

    async def get_csv(self, request: Request) -> CachedResponse:
        return await self._get_history(request, _make_csv)

    async def get_parquet(self, request: Request) -> CachedResponse:
        return await self._get_history(request, _make_parquet)

    async def _get_history(self, request: Request, make: _MakeResponse) -> CachedResponse:
        query_params.check_query_params(request, ("start", "end"))
        view = query_params.zone_param(request, self._live_state.views)
        stretch = _asked_stretch(request, view, "start", "end")
        response = await self._live_state.bulk_threads.run(make, self._live_state.archive, view, stretch)
        return replace(response, headers=[*response.headers, *self._links(request, view, stretch)])

    async def get_vse_tariffs(self, request: Request) -> CachedResponse:
        query_params.check_query_params(request, ("start_timestamp", "end_timestamp"))
        view = query_params.zone_param(request, self._live_state.views)
        if view.currency != "CHF":
            raise HTTPException(404, "this format is for prices in CHF")
        if request.query_params:
            stretch = _asked_stretch(request, view, "start_timestamp", "end_timestamp")
            return await self._live_state.bulk_threads.run(_make_vse, self._live_state.archive, view, stretch)
        first = max(view.interval_at(self._live_state.current_time()), view.known_intervals.start)
        if first > view.last_decided:
            raise HTTPException(404, "there is no price for this interval")
        return CachedResponse.from_json(vse_tariffs(view, first, view.last_decided))

    def _links(self, request: Request, view: ZoneView, stretch: range) -> list[tuple[bytes, bytes]]:
        """The stretches before and after this one, of the same length, as far as there are prices."""
        before = range(max(view.first_priced, stretch.start - len(stretch)), stretch.start)
        after = range(stretch.stop, min(view.last_decided + 1, stretch.stop + len(stretch)))
        links = []
        for rel, other in (("prev", before), ("next", after)):
            if other:
                times = (format_rfc3339(view.start_s(at)) for at in (other.start, other.stop))
                query = urlencode(dict(zip(("start", "end"), times, strict=True)), quote_via=quote)
                path = quote(request.path_params["zone"], safe="")
                name = request.scope["path"].rpartition("/")[2]
                links.append(f'<{self._live_state.settings.base_url}/zones/{path}/{name}?{query}>; rel="{rel}"')
        return [(b"link", ", ".join(links).encode())] if links else []


def with_prices(archive: Archive, view: ZoneView, stretch: range) -> ZoneView:
    """The view with the prices of a stretch, from the archive where they are old. It may ask the database."""
    if stretch[0] in view.prices and stretch[-1] in view.prices:
        return view
    prices = archive.read_prices(view, stretch[0], stretch[-1])
    return replace(view, archived={price.interval: price for price in prices})


def _prices(archive: Archive, view: ZoneView, stretch: range) -> list[Price]:
    known = with_prices(archive, view, stretch).prices
    return [known[interval] for interval in stretch]


def _make_csv(archive: Archive, view: ZoneView, stretch: range) -> CachedResponse:
    text = "".join(csv_lines(_prices(archive, view, stretch), view.interval_s, view.currency))
    return CachedResponse.from_body(text.encode(), "text/csv; charset=utf-8", CACHE_CONTROL_SHORT)


def _make_parquet(archive: Archive, view: ZoneView, stretch: range) -> CachedResponse:
    data = parquet_bytes(_prices(archive, view, stretch), view.interval_s, view.currency)
    return CachedResponse.from_body(data, "application/vnd.apache.parquet", CACHE_CONTROL_SHORT)


def _make_vse(archive: Archive, view: ZoneView, stretch: range) -> CachedResponse:
    document = vse_tariffs(with_prices(archive, view, stretch), stretch[0], stretch[-1])
    return CachedResponse.from_json(document)


def _asked_stretch(request: Request, view: ZoneView, start: str, end: str) -> range:
    """The intervals from a start to an end; without them the last week. Only what is decided."""
    start_s, end_s = query_params.time_param(request, start), query_params.time_param(request, end)
    if view.last_decided < view.first_priced:
        raise HTTPException(404, "there is no price yet")
    last = view.last_decided if end_s is None else int(-(-end_s // view.interval_s)) - 1
    usual = min(_WEEK_S // view.interval_s, MAX_HISTORY_INTERVALS)
    first = max(view.first_priced, last + 1 - usual) if start_s is None else view.interval_at(start_s)
    if first > last:
        raise HTTPException(400, "the end must be after the start")
    if first < view.first_priced or last > view.last_decided:
        first_s, stop_s = view.start_s(view.first_priced), view.start_s(view.last_decided + 1)
        raise HTTPException(404, f"there are prices from {format_rfc3339(first_s)} to {format_rfc3339(stop_s)}")
    _check_length(view, first, last)
    return range(first, last + 1)


def _check_length(view: ZoneView, first: int, last: int) -> None:
    longest = max(1, min(MAX_HISTORY_S // view.interval_s, MAX_HISTORY_INTERVALS))
    if last - first + 1 > longest:
        end = format_rfc3339(view.start_s(first + longest))
        detail = f"must be at most 31 days and {MAX_HISTORY_INTERVALS:,} intervals at once: from this start to {end}"
        raise HTTPException(400, f"{detail}; the header Link names the next stretch, and the log has all of them")
