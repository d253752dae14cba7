"""Pages for residents: zones, one zone, its plan. They come from the same views as every other format.

This module computes what is shown; `web/templates` holds the markup, `translations` the text.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from math import ceil
from urllib.parse import quote

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp

from murmurate.planning.promise_text import format_length, longest_window
from murmurate.service.log_reader.zone_view import Price, PriceKind, ShardView, ZoneView
from murmurate.service.public_api import query_params
from murmurate.service.public_api.live_state import LiveState
from murmurate.service.public_api.pages.formatting import (
    KIND_WORDS,
    PriceFormat,
    TimeLabel,
    format_about,
    format_day,
    local_datetime,
    page_values,
    promise_text,
    zone_url,
)
from murmurate.service.public_api.pages.noise_band import half_width_wh, noise_band
from murmurate.service.public_api.pages.zone_page import zone_page
from murmurate.service.public_api.response_cache import CACHE_CONTROL_EXPIRES, CachedResponse
from murmurate.service.web.html import HTML_HEADERS, HTML_MEDIA_TYPE, render_page, requested_language
from murmurate.translations.language import ENGLISH, Language

MAX_LISTED_ZONES = 1000
_REFRESH_DELAY_S = 2.0  # the live state has seen the next interval by then
_MAX_CACHED_PAGES = 2000
MakePage = Callable[[ZoneView, float, str, str, Language], str]


def zones_page(
    views: Iterable[ZoneView],
    now_s: float,
    base_url: str,
    more_zones: int = 0,
    language: Language = ENGLISH,
    after: str = "",
) -> str:
    """Return a list of zones with their prices now, those after `after`. `more_zones` come after it."""
    views, rows = list(views), []
    for view in views:
        at, unit = view.interval_at(now_s), PriceFormat.of_zone(view, language)
        price, end_s = view.prices.get(at), view.start_s(at + 1)
        kind = "" if price is None else KIND_WORDS[price.kind]
        end = TimeLabel(end_s, local_datetime(view, end_s).strftime("%H:%M"))
        title, url = view.display.title or view.zone, zone_url(view, base_url)
        rows.append((title, url, unit.short_unit, unit.final(price), view.closed is not None, kind, end))
    return render_page(
        "zones.html",
        language,
        base_url=base_url,
        zones=rows,
        after=f"after={quote(after, safe='')}&" if after else "",
        more_zones=language.whole(more_zones) if more_zones else None,
        next_after=quote(views[-1].zone, safe="") if more_zones else None,
    )


def plan_page(view: ZoneView, now_s: float, base_url: str, opening_key: str, language: Language = ENGLISH) -> str:
    """Return the page of the plan that is in force, made to be printed. It is the same throughout an interval."""
    terms, unit = view.terms, PriceFormat.of_zone(view, language)
    language = unit.language
    begin = local_datetime(view, view.start_s(view.interval_at(now_s)))
    moment = language.plain("date.moment", day=format_day(begin.date(), language), clock=f"{begin:%H:%M}")
    households = []
    for kind in terms.households:
        protection = "secret" if not kind.public_share else "public" if kind.public_share == 1 else "partly"
        bound, export = (unit.decimal(format_about(Fraction(wh, 1000))) for wh in (kind.bound_wh, kind.export_bound_wh))
        between = language.plain("plan.households_between", export=export, bound=bound)
        counted = between if kind.export_bound_wh else f"{bound} kWh"
        households.append((kind.kind, language.whole(kind.count), counted, protection))
    return render_page(
        "plan.html",
        language,
        **page_values(view, base_url, opening_key, language),
        unit=unit.unit,
        digest=view.plan_digest,
        moment=moment,
        length=format_length(view.interval_s, language),
        lead=format_length(view.lead_intervals * view.interval_s, language),
        promise=promise_text(view, now_s, language),
        is_predicted=terms.prediction is not None,
        planned_error=unit.decimal(f"{100 * terms.prediction.predicted_error:.0f}") if terms.prediction else None,
        reads_meters=terms.reads_meters,
        households=households,
        is_net=any(kind.export_bound_wh for kind in terms.households),
        noise=_noise_cost(view, now_s, unit) if terms.reads_meters else None,
        key_groups=[opening_key[at : at + 8] for at in range(0, len(opening_key), 8)],
    )


def _noise_cost(view: ZoneView, now_s: float, unit: PriceFormat) -> dict[str, str | None]:
    """Return what the noise does to demand and price, 95 times in 100, in the interval in which it does most.

    `price` is None where the tariff falls somewhere, or the noise is not known.
    """
    terms, slots = view.terms, len(view.terms.scale_wh)
    midnight = view.interval_at(now_s) // slots * slots + view.lead_intervals
    noise = list(zip(terms.scale_wh.tolist(), terms.core_wh.tolist(), strict=True))
    reach_wh = max(half_width_wh(terms.distribution, scale, core) for scale, core in noise)
    ticks, tick = terms.forecast_ticks, terms.curve.tick
    prices = [
        Price(midnight + n, PriceKind.MEASURED, int(price), tick, scale, 0.0, core)
        for n, (price, (scale, core)) in enumerate(zip(ticks.tolist(), noise, strict=True))
    ]
    band = noise_band(terms, prices, lead=view.lead_intervals, since=0)
    own = {price.interval: float(price.value or 0.0) for price in prices}
    moved = max((max(own[n] - low, high - own[n]) for n, (low, high) in band.items()), default=None)
    return {
        "reach": unit.decimal(format_about(Fraction(reach_wh, 1000))),  # [kWh]
        "price": None if moved is None else unit.about(Fraction(moved)),  # by which a price moves at most
        "low": unit.rounded(int(ticks.min()) * tick),  # the range of expected prices
        "high": unit.rounded(int(ticks.max()) * tick),
    }


class HtmlPages:
    """A page is made once for each language, interval and state of the log, and sent to everybody."""

    def __init__(self, live_state: LiveState) -> None:
        self._live_state = live_state
        self._page_cache: dict[tuple[MakePage, str, str], tuple[ShardView, int, CachedResponse]] = {}
        self._opening_keys: dict[str, str] = {}  # by zone; they never change

    async def get_zones_page(self, request: Request) -> ASGIApp:
        """It is cached under the address that names its language, as its own links do."""
        query_params.check_query_params(request, ("after", "lang"))
        live_state, after, language = (
            self._live_state,
            request.query_params.get("after", ""),
            requested_language(request),
        )
        named_after = f"after={quote(after, safe='')}&" if after else ""
        cache, key = live_state.volatile_cache, (b"/", f"{named_after}lang={language.code}".encode())
        ready = cache.find(key, time.time())
        if ready is None:
            generation, views, threads = cache.generation, live_state.views, live_state.bulk_threads
            async with threads.turn():
                expires_s, now_s = live_state.interval_end_s(), live_state.current_time()
                names = views.names_after(after, MAX_LISTED_ZONES)
                more = len(views.names_after(names[-1], len(views))) if names else 0
                shown, base_url = [views[zone] for zone in names], live_state.settings.base_url
                page = await threads.run_in_turn(zones_page, shown, now_s, base_url, more, language, after)
            ready = _html_response(page, expires_s, language)
            if generation == cache.generation:  # nothing has changed while it was made
                cache.put(key, ready)
        return live_state.sender.answer(ready, request)

    async def get_zone_page(self, request: Request) -> ASGIApp:
        """Its `Refresh` header depends on the time of the request, so the cache of responses does not have it."""
        ready, view, now_s = await self._zone_response(request, zone_page)
        left_s = (view.start_s(view.interval_at(now_s) + 1) - now_s) / self._live_state.clock.speed
        refresh = (b"refresh", b"%d" % ceil(left_s + _REFRESH_DELAY_S))
        return self._live_state.sender.answer(replace(ready, headers=[*ready.headers, refresh]), request)

    async def get_plan_page(self, request: Request) -> ASGIApp:
        ready, _, _ = await self._zone_response(request, plan_page)
        return self._live_state.sender.answer(ready, request)

    async def _zone_response(self, request: Request, make_page: MakePage) -> tuple[CachedResponse, ZoneView, float]:
        query_params.check_query_params(request, ("lang",))
        state, threads = self._live_state, self._live_state.lookup_threads
        view, language = query_params.zone_param(request, state.views), requested_language(request)
        await state.load_terms([view.plan_digest])
        opening_key = self._opening_keys.get(view.zone)
        if opening_key is None:
            opening_key = await threads.run(state.archive.read_opening_key, view)
            if len(self._opening_keys) >= _MAX_CACHED_PAGES:
                self._opening_keys.clear()
            self._opening_keys[view.zone] = opening_key
        now_s = state.current_time()
        at, key = view.interval_at(now_s), (make_page, view.zone, language.code)
        of, made_at, ready = self._page_cache.get(key, (None, 0, None))
        if ready is None or of is not view.shard or made_at != at:
            oldest = at - longest_window(view.terms)
            if max(view.row.since, oldest - 1) < view.shard.first:
                view = replace(view, older_plans=await threads.run(state.archive.read_older_plans, view, oldest))
            page = await threads.run(make_page, view, now_s, state.settings.base_url, opening_key, language)
            ready = _html_response(page, state.clock.wall_at(view.start_s(at + 1)), language)
            if len(self._page_cache) >= _MAX_CACHED_PAGES:
                self._page_cache.clear()
            self._page_cache[key] = (view.shard, at, ready)
        return ready, view, now_s


def page_routes(live_state: LiveState) -> list[Route]:
    pages = HtmlPages(live_state)
    paths = {
        "/": pages.get_zones_page,
        "/zones/{zone}": pages.get_zone_page,
        "/zones/{zone}/plan": pages.get_plan_page,
    }
    return [Route(path, endpoint, methods=["GET"]) for path, endpoint in paths.items()]


def _html_response(html: str, expires_s: float, language: Language) -> CachedResponse:
    ready = CachedResponse.from_body(html.encode(), HTML_MEDIA_TYPE, CACHE_CONTROL_EXPIRES)
    own = {**HTML_HEADERS, "content-language": language.code, "vary": "accept-language"}
    more = [(name.encode(), value.encode()) for name, value in own.items()]
    return replace(ready, headers=[*ready.headers, *more], expires_s=expires_s)
