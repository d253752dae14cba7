"""The page of a zone for its residents: what a kilowatt-hour costs, when it is cheap, what that reveals, how to check.

This module computes what is shown; `web/templates/zone.html` holds the markup, `translations` the text.
"""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction

from murmurate.service.log_reader.zone_view import PriceKind, ZoneView
from murmurate.service.public_api.local_days import day_of_interval, intervals_of_day
from murmurate.service.public_api.openadr import OPENADR_BASE_PATH
from murmurate.service.public_api.pages.formatting import (
    KIND_WORDS,
    PriceFormat,
    TimeLabel,
    clock_label_formatter,
    format_day,
    local_datetime,
    page_values,
    promise_text,
    zone_url,
)
from murmurate.service.public_api.pages.noise_band import half_width_wh, noise_band
from murmurate.service.public_api.pages.price_chart import price_chart
from murmurate.service.public_api.pages.price_levels import DayLevels, PriceWindow, day_levels, windows_ahead
from murmurate.service.web.html import render_page
from murmurate.translations.language import ENGLISH, Language


def zone_page(view: ZoneView, now_s: float, base_url: str, opening_key: str, language: Language = ENGLISH) -> str:
    """Return the page of one zone. It is the same at all moments of an interval, until the log grows.

    `opening_key` signed the first line of its log; a verifier must know it from another source.
    """
    at = view.interval_at(now_s)
    unit = PriceFormat.of_zone(view, language)
    today = day_of_interval(view, at)
    intervals = intervals_of_day(view, today)
    levels = day_levels(view, intervals)
    recent = view.prices
    known = [recent[n] for n in intervals if n in recent]
    name = clock_label_formatter(view, intervals)
    final = [(name(p.interval), unit.exact(p), levels.levels.get(p.interval), KIND_WORDS[p.kind]) for p in known]
    undecided = [n for n in intervals if view.is_expected(n)]
    expected = [(name(n), unit.about(levels.prices[n]), levels.levels[n], "expected") for n in undecided]
    kinds = {price.kind for price in known}
    day = {
        "name": format_day(today, unit.language),
        "timezone": view.display.timezone.key,
        "prices": [*final, *expected],  # start, price, level, kind
        "has_fallback": PriceKind.FALLBACK in kinds,
        "has_withheld": PriceKind.WITHHELD in kinds,
    }
    # After a change of plan a filter still holds draws of the earlier one, whose noise is not known.
    has_band = view.terms.prediction is None or not view.earlier_plans
    band = noise_band(view.terms, known, lead=view.lead_intervals, since=view.row.since) if has_band else {}
    return render_page(
        "zone.html",
        **page_values(view, base_url, opening_key, language),
        unit=unit,
        now=_current_price(view, at, levels, unit),
        windows=_hour_windows(view, at, unit),
        day=day,
        chart=price_chart(view, intervals, at, band, levels.levels, unit),
        promise=promise_text(view, now_s, unit.language),
        noise_reach=_noise_reach(view, at, unit),
        formats=_format_links(view, base_url),
    )


def _current_price(view: ZoneView, at: int, day: DayLevels, unit: PriceFormat) -> dict[str, object]:
    """Return the price now, and the next one. None stands for what does not apply."""
    measured = at - view.lead_intervals
    name = clock_label_formatter(view, range(measured, at + 2))
    price, following = view.prices.get(at), view.prices.get(at + 1)
    now, measured_then = ([TimeLabel(view.start_s(n), name(n)) for n in (first, first + 1)] for first in (at, measured))
    level = day.levels.get(at) if price is not None and price.ticks is not None else None
    distance = abs(day.prices[at] - day.mean) / abs(day.mean) if level is not None and day.mean else Fraction(0)
    kind = meaning = published = next_expected = None
    if price is not None:
        kind = KIND_WORDS[price.kind]
        is_predicted = view.terms.prediction is not None and price.kind is not PriceKind.WITHHELD
        meaning = f"kind.{kind}_predicted_meaning" if is_predicted else f"kind.{kind}_meaning"
        published = TimeLabel(price.logged_s, local_datetime(view, price.logged_s).strftime("%H:%M"))
    if following is None and view.closed is None:
        next_expected = unit.about(view.expected_ticks(at + 1) * view.tick)

    def moment(interval: int) -> str:
        """When an interval begins, as a time on a day."""
        begins = local_datetime(view, view.start_s(interval))
        named_day = format_day(begins.date(), unit.language)
        return unit.language.plain("date.clock_on_day", clock=f"{begins:%H:%M}", day=named_day)

    return {
        "price": unit.exact(price),
        "kind": kind,
        "meaning": meaning,  # key of what its kind means
        "level": None if level is None else level.value,
        "level_percent": int(100 * distance),  # from the mean of the day
        "start": now[0],
        "end": now[1],
        "measured_start": measured_then[0],
        "measured_end": measured_then[1],
        "published": published,
        "next_price": unit.exact(following),
        "next_expected": next_expected,  # where the next price is not decided
        "first_price_from": moment(view.first_priced) if at < view.first_priced else None,
        "closed_until": None if view.closed is None else moment(view.last_decided + 1),  # the last price is paid
    }


def _hour_windows(view: ZoneView, at: int, unit: PriceFormat) -> list[tuple[int, dict[str, object], dict[str, object]]]:
    """Return for each number of hours the cheapest and the dearest stretch ahead, as they are shown."""
    pairs = windows_ahead(view, at)
    ahead = [n for pair in pairs for window in (pair.cheapest, pair.dearest) for n in window.intervals]
    if not ahead:
        return []
    name, today = clock_label_formatter(view, range(at, max(ahead) + 2)), local_datetime(view, view.start_s(at)).date()

    def show(window: PriceWindow) -> dict[str, object]:
        first, end = window.intervals.start, window.intervals.stop
        is_tomorrow = local_datetime(view, view.start_s(first)).date() >= today + timedelta(days=1)
        return {
            "day": "tomorrow" if is_tomorrow else "today",
            "start": name(first),
            "end": name(end),
            "mean": unit.about(window.mean),
            "is_final": window.is_final,
        }

    return [(pair.hours, show(pair.cheapest), show(pair.dearest)) for pair in pairs]


def _noise_reach(view: ZoneView, at: int, unit: PriceFormat) -> str | None:
    """Return how far the noise of an interval reaches, 95 times in 100 [kWh]; None: there is none."""
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
