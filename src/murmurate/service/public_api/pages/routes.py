"""Pages for residents. They come from the same views as every other format."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from murmurate.service.log_reader.zone_view import ZoneView
from murmurate.service.public_api import query_params
from murmurate.service.public_api.live_state import LiveState
from murmurate.service.public_api.pages.zone_page import zone_page, zones_page
from murmurate.service.public_api.response_cache import CACHE_CONTROL_SHORT, CachedResponse
from murmurate.service.web.html import HTML_HEADERS, HTML_MEDIA_TYPE

_REFRESH_DELAY_S = 2.0  # the live state has seen the next interval by then

_MAX_CACHED_PAGES = 2000


class HtmlPages:
    """A page is made once for each interval and state of the log, and sent to everybody."""

    def __init__(self, live_state: LiveState) -> None:
        self._live_state = live_state
        self._page_cache: dict[str, tuple[ZoneView, int, CachedResponse]] = {}

    async def get_zones_page(self, request: Request) -> Response:
        query_params.check_query_params(request, ())
        live_state = self._live_state
        page = zones_page(list(live_state.views.values()), live_state.clock.now(), live_state.settings.base_url)
        ready = _html_response(page)
        live_state.volatile_cache.put((request.scope["raw_path"], request.scope["query_string"]), ready)
        return _conditional_response(request, ready)

    async def get_zone_page(self, request: Request) -> Response:
        """Its `Refresh` header depends on the time of the request, so this page has a cache of its own."""
        query_params.check_query_params(request, ())
        view = self._live_state.views.get(request.path_params["zone"])
        if view is None:
            raise HTTPException(404, "there is no such zone here; /zones lists them")
        now_s = self._live_state.clock.now()
        response = _conditional_response(request, self._cached_page(view, now_s))
        left_s = (view.start_s(view.interval_at(now_s) + 1) - now_s) / self._live_state.clock.speed
        response.headers["refresh"] = str(ceil(left_s + _REFRESH_DELAY_S))
        return response

    def _cached_page(self, view: ZoneView, now_s: float) -> CachedResponse:
        of, at, ready = self._page_cache.get(view.zone, (None, 0, None))
        if ready is None or of is not view or at != view.interval_at(now_s):
            ready = _html_response(zone_page(view, now_s, self._live_state.settings.base_url))
            if len(self._page_cache) >= _MAX_CACHED_PAGES:
                self._page_cache.clear()
            self._page_cache[view.zone] = (view, view.interval_at(now_s), ready)
        return ready


def page_routes(live_state: LiveState) -> list[Route]:
    pages = HtmlPages(live_state)
    paths = {"/": pages.get_zones_page, "/zones/{zone}": pages.get_zone_page}
    return [Route(path, endpoint, methods=["GET"]) for path, endpoint in paths.items()]


def _html_response(html: str) -> CachedResponse:
    ready = CachedResponse.from_body(html.encode(), HTML_MEDIA_TYPE, CACHE_CONTROL_SHORT)
    more = [(name.encode(), value.encode()) for name, value in HTML_HEADERS.items()]
    return replace(ready, headers=[*ready.headers, *more])


def _conditional_response(request: Request, cached: CachedResponse) -> Response:
    known = request.headers.get("if-none-match", "").encode()
    same = cached.not_modified if known and (cached.etag in known or known == b"*") else cached
    return replace(same, headers=list(same.headers)).to_response()
