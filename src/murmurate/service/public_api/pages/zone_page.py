"""The page of a zone for its residents: what a kilowatt-hour costs, what that reveals, and how to check it.

This module computes what is shown; `web/templates/zone.html` and `zones.html` hold the text and the markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from urllib.parse import quote

from murmurate.planning.release_terms import ReleaseTerms
from murmurate.public_log.record import RecordKind
from murmurate.service.log_reader.zone_view import Price, ZoneView
from murmurate.service.public_api.formats.openadr_program import OPENADR_BASE_PATH
from murmurate.service.public_api.local_days import day_of_interval, intervals_of_day
from murmurate.service.public_api.pages.formatting import (
    TimeLabel,
    clock_label_formatter,
    format_day,
    format_price,
    local_datetime,
)
from murmurate.service.public_api.pages.noise_band import half_width_wh, noise_band
from murmurate.service.public_api.pages.price_chart import PriceChart, price_chart
from murmurate.service.web.html import render_page
from murmurate.service.web.text import format_cost

MAX_LISTED_ZONES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneRow:
    """A line of the list of zones."""

    title: str
    url: str
    currency: str
    price: str | None  # none: there is no price now
    kind: str
    end: TimeLabel


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentPrice:
    """The price now, and the next one."""

    price: str | None  # none: there is no price
    kind: str | None  # none: nothing is decided
    start: TimeLabel
    end: TimeLabel
    next_price: str | None
    next_expected: str | None  # where the next price is not decided
    first_price_from: str | None  # where the zone has no price yet


@dataclass(frozen=True, slots=True)
class PriceRow:
    start: str
    price: str | None
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DayPrices:
    """The decided prices of a local day."""

    name: str
    timezone: str
    prices: tuple[PriceRow, ...]
    has_forecast: bool
    has_withheld: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanText:
    """What the plan promises, in words."""

    digest: str
    promises: str | None
    habits: str
    noise: str
    cost: str


def zone_page(view: ZoneView, now_s: float, base_url: str) -> str:
    """Return the page of one zone. It is the same at all moments of an interval, until the log grows."""
    at = view.interval_at(now_s)
    day, chart = _day_and_chart(view, at)
    return render_page(
        "zone.html",
        base_url=base_url,
        zone=view.zone,
        zone_url=zone_url(view, base_url),
        title=view.display.title or view.zone,
        currency=view.currency,
        now=_current_price(view, at),
        day=day,
        chart=chart,
        plan=_plan_text(view, at),
        opening_key=view.opening_key,
        key=view.key,
        formats=_format_links(view, base_url),
    )


def zones_page(views: Sequence[ZoneView], now_s: float, base_url: str) -> str:
    """Return the list of all zones with their prices now."""
    rows = [_zone_row(view, view.interval_at(now_s), base_url) for view in views[:MAX_LISTED_ZONES]]
    return render_page("zones.html", base_url=base_url, zones=rows, more_zones=len(views) - MAX_LISTED_ZONES)


def zone_url(view: ZoneView, base_url: str) -> str:
    return f"{base_url}/zones/{quote(view.zone, safe='')}"


def _price_text(price: Price | None) -> str | None:
    return None if price is None or price.ticks is None else format_price(price.ticks, price.tick)


def _zone_row(view: ZoneView, at: int, base_url: str) -> ZoneRow:
    price, end_s = view.prices.get(at), view.start_s(at + 1)
    return ZoneRow(
        title=view.display.title or view.zone,
        url=zone_url(view, base_url),
        currency=view.currency,
        price=_price_text(price),
        kind="" if price is None else price.kind.value,
        end=TimeLabel(end_s, local_datetime(view, end_s).strftime("%H:%M")),
    )


def _current_price(view: ZoneView, at: int) -> CurrentPrice:
    clock_label = clock_label_formatter(view, range(at, at + 2))
    price, following = view.prices.get(at), view.prices.get(at + 1)
    begins = local_datetime(view, view.start_s(view.first_priced))
    return CurrentPrice(
        price=_price_text(price),
        kind=None if price is None else price.kind.value,
        start=TimeLabel(view.start_s(at), clock_label(at)),
        end=TimeLabel(view.start_s(at + 1), clock_label(at + 1)),
        next_price=_price_text(following),
        next_expected=f"{view.expected_price(at + 1):.3g}" if following is None else None,
        first_price_from=f"{begins:%H:%M} on {format_day(begins.date())}" if at < view.first_priced else None,
    )


def _day_and_chart(view: ZoneView, at: int) -> tuple[DayPrices, PriceChart]:
    day = day_of_interval(view, at)
    intervals = intervals_of_day(view, day)
    known = [view.prices[n] for n in intervals if n in view.prices]
    edges = {} if view.terms is None else noise_band(view.terms, known)
    clock_label = clock_label_formatter(view, intervals)
    prices = DayPrices(
        name=format_day(day),
        timezone=view.display.timezone.key,
        prices=tuple(PriceRow(clock_label(one.interval), _price_text(one), one.kind.value) for one in known),
        has_forecast=any(one.kind is RecordKind.FORECAST for one in known),
        has_withheld=any(one.kind is RecordKind.WITHHELD for one in known),
    )
    short_label = lambda n: local_datetime(view, view.start_s(n)).strftime("%H:%M")  # noqa: E731
    return prices, price_chart(view, intervals, at, edges, short_label)


def _plan_text(view: ZoneView, at: int) -> PlanText:
    return PlanText(
        digest=view.plan_digest,
        promises=None if view.terms is None else "; ".join(view.terms.promises),
        habits="" if view.terms is None else _habits_text(view.terms),
        noise=_noise_text(view, at),
        cost=format_cost(view.total_epsilon_micro, view.total_rho_micro),
    )


def _habits_text(terms: ReleaseTerms) -> str:
    """Of 100 guesses about habits, how many may be right at most after some time."""
    lengths = {1: "a day", 7: "a week", 365: "a year"}
    return ", ".join(
        f"{ceil(100 * bound.home_by_day)} after {lengths.get(bound.days, f'{bound.days} days')}"
        for bound in terms.habits
    )


def _noise_text(view: ZoneView, at: int) -> str:
    price = view.prices.get(at)
    if view.terms is None:
        return "See the plan."
    if price is not None and price.scale_wh is None:
        return "None: this price uses no reading."
    slot = view.terms.slot_of_day(at - view.lead_intervals)
    scale_wh = float(view.terms.scale_wh[slot]) if price is None else price.scale_wh or 0.0
    core_wh = int(view.terms.core_wh[slot]) if price is None else price.core_wh
    reach_kwh = half_width_wh(view.terms.distribution, scale_wh, core_wh) / 1000
    return (
        f"{view.terms.distribution.value.capitalize()}, scale {scale_wh / 1000:,.3g} kWh: the demand of the zone is "
        f"moved by at most {reach_kwh:,.3g} kWh, 95 times in 100."
    )


def _format_links(view: ZoneView, base_url: str) -> list[tuple[str, str]]:
    zone = zone_url(view, base_url)
    links = [
        ("Home Assistant, REST", f"{zone}/now"),
        ("evcc", f"{zone}/evcc"),
        ("OpenADR 3.1", f"{base_url}{OPENADR_BASE_PATH}/programs"),
        ("Live, server-sent events", f"{zone}/stream"),
        ("CSV, last week", f"{zone}/history.csv"),
        ("Parquet, last week", f"{zone}/history.parquet"),
        ("Public log", f"{zone}/log.jsonl"),
        ("OpenAPI", f"{base_url}/openapi.json"),
    ]
    if view.currency == "CHF":
        links.insert(3, ("VSE tariffs, v1", f"{zone}/vse/v1/tariffs"))
    return links
