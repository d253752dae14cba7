"""Pages for residents. They come from the same views as every other format, in the language of the reader."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from math import ceil
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from murmurate.planning.promise_text import longest_window
from murmurate.service.log_reader.zone_view import ShardView, ZoneView
from murmurate.service.public_api import query_params
from murmurate.service.public_api.live_state import LiveState
from murmurate.service.public_api.pages.plan_page import plan_page
from murmurate.service.public_api.pages.zone_list import MAX_LISTED_ZONES, zones_page
from murmurate.service.public_api.pages.zone_page import zone_page
from murmurate.service.public_api.response_cache import CACHE_CONTROL_SHORT, CachedResponse
from murmurate.service.public_api.response_sender import PreparedResponse
from murmurate.service.web.html import HTML_HEADERS, HTML_MEDIA_TYPE
from murmurate.translations.language import LANGUAGES, Language, preferred_language

_REFRESH_DELAY_S = 2.0  # the live state has seen the next interval by then

_MAX_CACHED_PAGES = 2000
MakePage = Callable[[ZoneView, float, str, str, Language], str]


class HtmlPages:
    """A page is made once for each language, interval and state of the log, and sent to everybody."""

    def __init__(self, live_state: LiveState) -> None:
        self._live_state = live_state
        self._page_cache: dict[tuple[MakePage, str, str], tuple[ShardView, int, CachedResponse]] = {}
        self._opening_keys: dict[str, str] = {}  # by zone; they never change

    async def get_zones_page(self, request: Request) -> Response:
        """It is cached under the address that names its language: that of its own links."""
        query_params.check_query_params(request, ("after", "lang"))
        live_state, after, language = self._live_state, request.query_params.get("after", ""), _language(request)
        named_after = f"after={quote(after, safe='')}&" if after else ""
        cache, key = live_state.volatile_cache, (b"/", f"{named_after}lang={language.code}".encode())
        ready = cache.find(key, time.time())
        if ready is None:
            generation = cache.generation
            ready = await self._make_zones_page(after, language)
            if generation == cache.generation:  # nothing has moved while it was made
                cache.put(key, ready)
        return self._conditional_response(request, ready)

    async def _make_zones_page(self, after: str, language: Language) -> CachedResponse:
        live_state, views = self._live_state, self._live_state.views
        async with live_state.bulk_threads.turn():
            expires_s, now_s = live_state.interval_end_s(), live_state.current_time()
            names = views.names_after(after, MAX_LISTED_ZONES)
            more = len(views.names_after(names[-1], len(views))) if names else 0
            shown, base_url = [views[zone] for zone in names], live_state.settings.base_url
            page = await live_state.bulk_threads.run_in_turn(zones_page, shown, now_s, base_url, more, language, after)
        return _html_response(page, expires_s, language)

    async def get_zone_page(self, request: Request) -> Response:
        """Its `Refresh` header depends on the time of the request, so this page has a cache of its own."""
        response, view, now_s = await self._zone_response(request, zone_page)
        left_s = (view.start_s(view.interval_at(now_s) + 1) - now_s) / self._live_state.clock.speed
        response.headers["refresh"] = str(ceil(left_s + _REFRESH_DELAY_S))
        return response

    async def get_plan_page(self, request: Request) -> Response:
        response, _, _ = await self._zone_response(request, plan_page)
        return response

    async def _zone_response(self, request: Request, make_page: MakePage) -> tuple[Response, ZoneView, float]:
        query_params.check_query_params(request, ("lang",))
        view, language = query_params.zone_param(request, self._live_state.views), _language(request)
        await self._live_state.load_terms([view.plan_digest])
        opening_key, now_s = await self._opening_key(view), self._live_state.current_time()
        oldest = view.interval_at(now_s) - longest_window(view.terms)
        if max(view.row.since, oldest - 1) < view.shard.first:
            older = await self._live_state.lookup_threads.run(self._live_state.archive.read_older_plans, view, oldest)
            view = replace(view, older_plans=older)
        page = await self._cached_page(make_page, view, now_s, opening_key, language)
        return self._conditional_response(request, page), view, now_s

    async def _opening_key(self, view: ZoneView) -> str:
        key = self._opening_keys.get(view.zone)
        if key is None:
            key = await self._live_state.lookup_threads.run(self._live_state.archive.read_opening_key, view)
            if len(self._opening_keys) >= _MAX_CACHED_PAGES:
                self._opening_keys.clear()
            self._opening_keys[view.zone] = key
        return key

    async def _cached_page(
        self, make_page: MakePage, view: ZoneView, now_s: float, opening_key: str, language: Language
    ) -> CachedResponse:
        key = (make_page, view.zone, language.code)
        of, at, ready = self._page_cache.get(key, (None, 0, None))
        if ready is None or of is not view.shard or at != view.interval_at(now_s):
            base_url, threads = self._live_state.settings.base_url, self._live_state.lookup_threads
            page = await threads.run(make_page, view, now_s, base_url, opening_key, language)
            expires_s = self._live_state.clock.wall_at(view.start_s(view.interval_at(now_s) + 1))
            ready = _html_response(page, expires_s, language)
            if len(self._page_cache) >= _MAX_CACHED_PAGES:
                self._page_cache.clear()
            self._page_cache[key] = (view.shard, view.interval_at(now_s), ready)
        return ready

    def _conditional_response(self, request: Request, cached: CachedResponse) -> Response:
        known = request.headers.get("if-none-match", "").encode()
        cached = cached.sent_at(time.time())
        same = cached.not_modified if known and (cached.etag in known or known == b"*") else cached
        return PreparedResponse(same, self._live_state.sender)


def page_routes(live_state: LiveState) -> list[Route]:
    pages = HtmlPages(live_state)
    paths = {
        "/": pages.get_zones_page,
        "/zones/{zone}": pages.get_zone_page,
        "/zones/{zone}/plan": pages.get_plan_page,
    }
    return [Route(path, endpoint, methods=["GET"]) for path, endpoint in paths.items()]


def _language(request: Request) -> Language:
    """The language that the address names, otherwise the one that the browser prefers."""
    code = request.query_params.get("lang")
    if code is None:
        return preferred_language(request.headers.get("accept-language", ""))
    if code not in LANGUAGES:
        raise HTTPException(400, f"lang must be one of {', '.join(LANGUAGES)}")
    return LANGUAGES[code]


def _html_response(html: str, expires_s: float, language: Language) -> CachedResponse:
    ready = CachedResponse.from_body(html.encode(), HTML_MEDIA_TYPE, CACHE_CONTROL_SHORT)
    own = {**HTML_HEADERS, "content-language": language.code, "vary": "accept-language"}
    more = [(name.encode(), value.encode()) for name, value in own.items()]
    return replace(ready, headers=[*ready.headers, *more], expires_s=expires_s)
