"""The page of a zone for its residents: what a kilowatt-hour costs, when it is cheap, what that reveals, how to check.

This module computes what is shown; `web/templates/zone.html` holds the markup, `translations` the text.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction

from murmurate.planning.promise_text import PromiseText
from murmurate.service.log_reader.zone_view import Price, PriceKind, ZoneView
from murmurate.service.public_api.formats.openadr_program import OPENADR_BASE_PATH
from murmurate.service.public_api.local_days import day_of_interval, intervals_of_day
from murmurate.service.public_api.pages.formatting import (
    KIND_WORDS,
    PriceFormat,
    TimeLabel,
    clock_label_formatter,
    format_day,
    local_datetime,
)
from murmurate.service.public_api.pages.noise_band import half_width_wh, noise_band
from murmurate.service.public_api.pages.page_values import page_values, promise_text, zone_url
from murmurate.service.public_api.pages.price_chart import ChartedDay, NoiseBand, PriceChart, price_chart
from murmurate.service.public_api.pages.price_levels import DayLevels, PriceWindow, day_levels, windows_ahead
from murmurate.service.web.html import render_page
from murmurate.translations.language import ENGLISH, Language

_EXPECTED = "expected"


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentPrice:
    """The price now, and the next one."""

    price: str | None  # none: there is no price
    kind: str | None  # none: nothing is decided
    meaning: str | None  # key of what its kind means
    level: str | None
    level_percent: int  # from the mean of the day
    start: TimeLabel
    end: TimeLabel
    measured_start: TimeLabel
    measured_end: TimeLabel
    published: TimeLabel | None
    next_price: str | None
    next_expected: str | None  # where the next price is not decided
    first_price_from: str | None  # where the zone has no price yet
    closed_until: str | None  # until when the last price of a zone is paid that was closed


@dataclass(frozen=True, slots=True)
class HourWindow:
    """A stretch of cheap or dear hours, as it is shown."""

    day: str  # key of its word
    start: str
    end: str
    mean: str
    is_final: bool


@dataclass(frozen=True, slots=True)
class HourWindows:
    hours: int
    cheapest: HourWindow
    dearest: HourWindow


@dataclass(frozen=True, slots=True)
class PriceRow:
    start: str
    price: str | None
    level: str | None
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DayPrices:
    """The prices of a local day."""

    name: str
    timezone: str
    prices: tuple[PriceRow, ...]
    has_fallback: bool
    has_withheld: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanText:
    """What the plan promises, in words."""

    promise: PromiseText
    noise_reach: str | None  # [kWh]; none: the price uses no new reading


def zone_page(view: ZoneView, now_s: float, base_url: str, opening_key: str, language: Language = ENGLISH) -> str:
    """Return the page of one zone. It is the same at all moments of an interval, until the log grows.

    `opening_key` signed the first line of its log; a verifier must know it from another source.
    """
    at = view.interval_at(now_s)
    unit = PriceFormat.of_zone(view, language)
    day_of_now = intervals_of_day(view, day_of_interval(view, at))
    levels = day_levels(view, day_of_now)
    day, chart = _day_and_chart(view, at, day_of_now, levels, unit)
    return render_page(
        "zone.html",
        **page_values(view, base_url, opening_key, language),
        unit=unit,
        now=_current_price(view, at, levels, unit),
        windows=_hour_windows(view, at, unit),
        day=day,
        chart=chart,
        plan=PlanText(promise=promise_text(view, now_s, unit.language), noise_reach=_noise_reach(view, at, unit)),
        formats=_format_links(view, base_url),
    )


def _current_price(view: ZoneView, at: int, day: DayLevels, unit: PriceFormat) -> CurrentPrice:
    measured = at - view.lead_intervals
    name = clock_label_formatter(view, range(measured, at + 2))
    price, following = view.prices.get(at), view.prices.get(at + 1)
    now, measured_then = ([TimeLabel(view.start_s(n), name(n)) for n in (first, first + 1)] for first in (at, measured))
    level = day.levels.get(at) if price is not None and price.ticks is not None else None
    distance = abs(day.prices[at] - day.mean) / abs(day.mean) if level is not None and day.mean else Fraction(0)
    return CurrentPrice(
        price=unit.exact(price),
        kind=None if price is None else KIND_WORDS[price.kind],
        meaning=None if price is None else _meaning(view, price.kind),
        level=None if level is None else level.value,
        level_percent=int(100 * distance),
        start=now[0],
        end=now[1],
        measured_start=measured_then[0],
        measured_end=measured_then[1],
        published=None if price is None else _published(view, price),
        next_price=unit.exact(following),
        next_expected=unit.about(view.expected_ticks(at + 1) * view.tick)
        if following is None and view.closed is None
        else None,
        first_price_from=_moment(view, view.first_priced, unit) if at < view.first_priced else None,
        closed_until=None if view.closed is None else _moment(view, view.last_decided + 1, unit),
    )


def _moment(view: ZoneView, interval: int, unit: PriceFormat) -> str:
    """When an interval begins, as a time on a day."""
    begins = local_datetime(view, view.start_s(interval))
    return unit.language.plain(
        "date.clock_on_day", clock=f"{begins:%H:%M}", day=format_day(begins.date(), unit.language)
    )


def _meaning(view: ZoneView, kind: PriceKind) -> str:
    is_predicted = view.terms.prediction is not None and kind is not PriceKind.WITHHELD
    return f"kind.{KIND_WORDS[kind]}_predicted_meaning" if is_predicted else f"kind.{KIND_WORDS[kind]}_meaning"


def _published(view: ZoneView, price: Price) -> TimeLabel:
    return TimeLabel(price.logged_s, local_datetime(view, price.logged_s).strftime("%H:%M"))


def _hour_windows(view: ZoneView, at: int, unit: PriceFormat) -> list[HourWindows]:
    pairs = windows_ahead(view, at)
    ahead = [n for pair in pairs for window in (pair.cheapest, pair.dearest) for n in window.intervals]
    if not ahead:
        return []
    name, today = clock_label_formatter(view, range(at, max(ahead) + 2)), local_datetime(view, view.start_s(at)).date()

    def show(window: PriceWindow) -> HourWindow:
        first, end = window.intervals.start, window.intervals.stop
        is_tomorrow = local_datetime(view, view.start_s(first)).date() >= today + timedelta(days=1)
        day = "tomorrow" if is_tomorrow else "today"
        return HourWindow(day, name(first), name(end), unit.about(window.mean), window.is_final)

    return [HourWindows(pair.hours, show(pair.cheapest), show(pair.dearest)) for pair in pairs]


def _day_and_chart(
    view: ZoneView, at: int, intervals: range, day: DayLevels, unit: PriceFormat
) -> tuple[DayPrices, PriceChart]:
    recent = view.prices
    known = [recent[n] for n in intervals if n in recent]
    name = clock_label_formatter(view, intervals)
    final = [
        PriceRow(name(one.interval), unit.exact(one), day.levels.get(one.interval), KIND_WORDS[one.kind])
        for one in known
    ]
    expected = [
        PriceRow(name(n), unit.about(day.prices[n]), day.levels[n], _EXPECTED) for n in intervals if view.is_expected(n)
    ]
    kinds = {one.kind for one in known}
    prices = DayPrices(
        name=format_day(day_of_interval(view, at), unit.language),
        timezone=view.display.timezone.key,
        prices=(*final, *expected),
        has_fallback=PriceKind.FALLBACK in kinds,
        has_withheld=PriceKind.WITHHELD in kinds,
    )
    short_label = lambda n: local_datetime(view, view.start_s(n)).strftime("%H:%M")  # noqa: E731
    charted = ChartedDay(
        view=view,
        intervals=intervals,
        current=at,
        noise_band=_noise_band(view, known),
        levels=day.levels,
        unit=unit,
    )
    return prices, price_chart(charted, short_label)


def _noise_band(view: ZoneView, prices: list[Price]) -> NoiseBand:
    """Where prices would lie without noise. After a change of plan a filter still holds draws of the earlier one."""
    if view.terms.prediction is not None and view.earlier_plans:
        return {}
    return noise_band(view.terms, prices, lead=view.lead_intervals, since=view.row.since)


def _noise_reach(view: ZoneView, at: int, unit: PriceFormat) -> str | None:
    """How far the noise of an interval reaches, 95 times in 100 [kWh]; None: there is none."""
    price = view.prices.get(at)
    if view.closed is not None if price is None else price.scale_wh is None:
        return None
    slot = view.terms.slot_of_day(at - view.lead_intervals)
    scale_wh = float(view.terms.scale_wh[slot]) if price is None else price.scale_wh or 0.0
    core_wh = int(view.terms.core_wh[slot]) if price is None else price.core_wh
    return unit.decimal(f"{half_width_wh(view.terms.distribution, scale_wh, core_wh) / 1000:.3g}")


def _format_links(view: ZoneView, base_url: str) -> list[tuple[str, str]]:
    zone = zone_url(view, base_url)
    links = [
        ("home_assistant", f"{zone}/now"),
        ("evcc", f"{zone}/evcc"),
        ("openadr", f"{base_url}{OPENADR_BASE_PATH}/programs"),
        ("stream", f"{zone}/stream"),
        ("csv", f"{zone}/history.csv"),
        ("parquet", f"{zone}/history.parquet"),
        ("log", f"{zone}/log.jsonl"),
        ("openapi", f"{base_url}/openapi.json"),
    ]
    if view.currency == "CHF":
        links.insert(3, ("vse", f"{zone}/vse/v1/tariffs"))
    return links
