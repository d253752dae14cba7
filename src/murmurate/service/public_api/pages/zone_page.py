"""The page of a zone for its residents: what a kilowatt-hour costs, when it is cheap, what that reveals, how to check.

The level of a price compares it with the mean of its local day. Prices that are not decided yet count as the plan
expects them, for levels and for the cheapest hours ahead.

This module computes what is shown; `web/templates/zone.html` holds the markup, `translations` the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from fractions import Fraction
from importlib.util import find_spec
from itertools import accumulate, groupby
from math import floor, lcm, log10

from murmurate.service.log_reader.zone_view import PriceKind, ZoneView
from murmurate.service.public_api.local_days import day_of_interval, intervals_of_day
from murmurate.service.public_api.openadr import OPENADR_BASE_PATH
from murmurate.service.public_api.pages.formatting import (
    KIND_WORDS,
    PriceFormat,
    TimeLabel,
    clock_label_formatter,
    format_day,
    format_error,
    local_datetime,
    page_values,
    promise_text,
    zone_url,
)
from murmurate.service.public_api.pages.noise_band import half_width_wh, noise_band
from murmurate.service.web.html import render_page
from murmurate.translations.language import ENGLISH, Language
from murmurate.units import SECONDS_PER_DAY

CHART_HEIGHT_PX, PLOT_TOP_PX, PLOT_BOTTOM_PX = 300, 34, 270  # [px] of all, and where the plot begins and ends
PLOT_LEFT_MARGIN_PX = 48  # [px] that the style sheet leaves to the left, for the price labels
LEVEL_LINE_DISTANCE_PX = 8  # [px] from the line of prices: cheap below it, dear above
LEVEL_DISTANCE = Fraction(1, 10)  # from the mean of the day, from which a price is called cheap or dear
WINDOW_HOURS = (1, 2, 3)
_SECONDS_PER_HOUR = 3600
_FORMAT_PATHS = {  # of the zone, but for those of all zones
    "home_assistant": "/now",
    "evcc": "/evcc",
    "openadr": f"{OPENADR_BASE_PATH}/programs",
    "vse": "/vse/v1/tariffs",
    "stream": "/stream",
    "csv": "/history.csv",
    "parquet": "/history.parquet",
    "log": "/log.jsonl",
    "openapi": "/openapi.json",
}
_WRITES_PARQUET = find_spec("pyarrow") is not None
_AT_ROOT = (OPENADR_BASE_PATH, "/openapi.json")
NoiseBand = Mapping[int, tuple[float, float]]  # [currency/kWh] by interval


class PriceLevel(StrEnum):
    """How a price compares with the mean of its day."""

    CHEAP = "cheap"
    NORMAL = "normal"
    DEAR = "dear"


@dataclass(frozen=True, slots=True)
class PriceWindow:
    """Successive intervals and their mean price [currency/kWh]."""

    intervals: range
    mean: Fraction
    is_final: bool  # whether every price in it is decided


@dataclass(frozen=True, slots=True)
class DayLevels:
    """The mean price of a day [currency/kWh], and the level of each interval that has a price."""

    prices: Mapping[int, Fraction]
    mean: Fraction
    levels: Mapping[int, PriceLevel]


def known_prices(view: ZoneView, intervals: Iterable[int]) -> dict[int, Fraction]:
    """Return the final price of each interval, or the expected one where it is not decided [currency/kWh].

    An interval whose price was withheld, or is too old to be in the view, has none.
    """
    recent, found = view.prices, {}
    for n in intervals:
        price = recent.get(n)
        if price is not None and price.ticks is not None:
            found[n] = price.ticks * price.tick
        elif view.is_expected(n):
            found[n] = view.expected_ticks(n) * view.tick
    return found


def price_level(price: Fraction, mean: Fraction, distance: Fraction) -> PriceLevel:
    """Return the level of a price that is cheap or dear at some distance from the mean of its day.

    >>> [price_level(Fraction(price), Fraction(100), Fraction(10)).value for price in (90, 91, 109, 110)]
    ['cheap', 'normal', 'normal', 'dear']
    """
    if price == mean or abs(price - mean) < distance:
        return PriceLevel.NORMAL
    return PriceLevel.CHEAP if price < mean else PriceLevel.DEAR


def day_levels(view: ZoneView, intervals: range) -> DayLevels:
    """Return the levels of the prices of a day, final or expected."""
    prices = known_prices(view, intervals)
    mean = sum(prices.values(), Fraction(0)) / max(len(prices), 1)
    distance = LEVEL_DISTANCE * abs(mean)
    return DayLevels(prices, mean, {n: price_level(price, mean, distance) for n, price in prices.items()})


def windows_ahead(view: ZoneView, at: int) -> dict[int, tuple[PriceWindow, PriceWindow]]:
    """Return the cheapest and the dearest stretch, by its hours, of the 24 hours that follow the interval `at`.

    Of equal ones it is the first. A stretch is whole intervals that all have a price.
    """
    ahead = range(at + 1, at + 1 + SECONDS_PER_DAY // view.interval_s)
    prices = known_prices(view, ahead)
    unit = lcm(*(price.denominator for price in prices.values()))
    own = (prices.get(n, Fraction(0)) for n in ahead)
    totals = [0, *accumulate(price.numerator * (unit // price.denominator) for price in own)]
    missing = [0, *accumulate(n not in prices for n in ahead)]
    found = {}
    for hours in WINDOW_HOURS:
        count, rest = divmod(hours * _SECONDS_PER_HOUR, view.interval_s)
        starts = range(0 if rest else len(ahead) - count + 1)
        sums = {ahead.start + k: totals[k + count] - totals[k] for k in starts if missing[k + count] == missing[k]}
        if sums:
            cheapest, dearest = (
                PriceWindow(
                    range(first, first + count),
                    Fraction(sums[first], unit * count),
                    is_final=first + count - 1 <= view.last_decided,
                )
                for first in (min(sums, key=sums.__getitem__), max(sums, key=sums.__getitem__))
            )
            found[hours] = cheapest, dearest
    return found


@dataclass(frozen=True, slots=True)
class ChartFrame:
    """Converts intervals and prices into positions and paths of the chart. Paths count intervals from the left."""

    intervals: range
    low: float  # price at the lower edge of the plot, in the unit that the page shows
    high: float

    def x(self, interval: float) -> float:
        """From the left edge [%]."""
        return 100 * (interval - self.intervals[0]) / len(self.intervals)

    def y(self, price: float) -> float:
        """From the upper edge [px]."""
        return PLOT_BOTTOM_PX - (PLOT_BOTTOM_PX - PLOT_TOP_PX) * (price - self.low) / (self.high - self.low)

    def dot(self, interval: int, price: float) -> tuple[str, str]:
        """The middle of an interval at a price."""
        return f"{self.x(interval + 0.5):.3f}", f"{self.y(price):.1f}"

    def steps(self, prices: Iterable[tuple[int, float]]) -> str:
        """A path that is level within each interval, and starts again after a gap."""
        path, last = "", None
        for interval, price in prices:
            x, y = interval - self.intervals[0], f"{self.y(price):.1f}"
            path += f"V{y}H{x + 1}" if last == interval - 1 else f"M{x} {y}H{x + 1}"
            last = interval
        return path

    def band(self, edges: NoiseBand) -> str:
        """One outline for each run of intervals: along the upper edge, and back along the lower one."""
        path = ""
        for run in _runs(edges):
            upper = self.steps((n, edges[n][1]) for n in run)
            lower = "".join(f"V{self.y(edges[n][0]):.1f}H{n - self.intervals[0]}" for n in reversed(run))
            path += f"{upper}{lower}Z"
        return path

    def level_lines(self, prices: Mapping[int, float], level: PriceLevel) -> str:
        """A level line for each run of intervals that have a level: below cheap prices, above dear ones."""
        path = ""
        for run in _runs(prices):
            heights = [self.y(prices[n]) for n in run]
            is_cheap = level is PriceLevel.CHEAP
            y = max(heights) + LEVEL_LINE_DISTANCE_PX if is_cheap else min(heights) - LEVEL_LINE_DISTANCE_PX
            path += f"M{run[0] - self.intervals[0]} {y:.1f}H{run[-1] + 1 - self.intervals[0]}"
        return path


def _runs(intervals: Iterable[int]) -> list[list[int]]:
    """Return intervals as runs without a gap."""
    grouped = groupby(enumerate(sorted(intervals)), key=lambda pair: pair[1] - pair[0])
    return [[n for _, n in run] for _, run in grouped]


def price_chart(
    view: ZoneView,
    intervals: range,
    current: int,
    noise_band: NoiseBand,
    levels: Mapping[int, PriceLevel],
    unit: PriceFormat,
) -> dict[str, object]:
    """Return what the template draws of a day in which the interval `current` is paid now: x in %, y in px."""
    units, recent = unit.units, view.prices
    known = [recent[n] for n in intervals if n in recent]
    final = {price.interval: price.value * units for price in known if price.value is not None}
    fallback = [(p.interval, final[p.interval]) for p in known if p.kind is PriceKind.FALLBACK]
    expected = [(n, view.expected_price(n) * units) for n in intervals if view.is_expected(n)]
    band = {n: (low * units, high * units) for n, (low, high) in noise_band.items()}
    edges = [edge for pair in band.values() for edge in pair]
    shown = [*final.values(), *(level for _, level in expected), *edges]
    low, high = min(shown, default=0.0), max(shown, default=1.0)
    by_level: dict[PriceLevel | None, dict[int, float]] = {level: {} for level in PriceLevel}
    for n, price in (*final.items(), *expected):
        by_level[levels[n]][n] = price
    room = 0.04 * (high - low) or max(abs(high), 1e-9) * 0.5
    frame = ChartFrame(intervals, low - room, high + room)
    middle_x = frame.x(current + 0.5)
    return {
        "interval_count": len(intervals),
        "interval_width": f"{100 / len(intervals):.3f}",
        "final_count": len(final),
        "fallback_count": len(fallback),
        "withheld_count": len(known) - len(final),
        "lowest": unit.rounded(min(final.values(), default=0) / units),  # of the final prices
        "highest": unit.rounded(max(final.values(), default=0) / units),
        "grid": _grid_lines(frame, unit),
        "hours": _hour_labels(frame, view),
        "band_path": frame.band(band),
        "expected_path": frame.steps(expected),
        "final_path": frame.steps(final.items()),
        "fallback_path": "".join(frame.steps([one]) for one in fallback),
        "fallback_dots": [frame.dot(n, level) for n, level in fallback],
        "cheap_path": frame.level_lines(by_level[PriceLevel.CHEAP], PriceLevel.CHEAP),
        "dear_path": frame.level_lines(by_level[PriceLevel.DEAR], PriceLevel.DEAR),
        "withheld_x": [f"{frame.x(price.interval):.3f}" for price in known if price.value is None],
        "current_x": f"{frame.x(current):.3f}" if current in intervals else None,
        "current_dot": frame.dot(current, final[current]) if current in final else None,
        "current_anchor": "start" if middle_x < 8 else "end" if middle_x > 92 else "middle",  # it stays inside
        "height": CHART_HEIGHT_PX,
        "top": PLOT_TOP_PX,
        "bottom": PLOT_BOTTOM_PX,
        "left_margin": PLOT_LEFT_MARGIN_PX,
    }


def _grid_lines(frame: ChartFrame, unit: PriceFormat) -> list[tuple[str, str, str]]:
    """Return y of each line, y of its label, and the label."""
    step = nice_step((frame.high - frame.low) / 6)
    digits = max(0, -floor(log10(step) + 1e-9) + (1 if f"{step:e}".startswith("2.5") else 0))
    levels = [n * step for n in range(floor(frame.low / step) + 1, floor(frame.high / step) + 1)]
    return [
        (f"{frame.y(level):.1f}", f"{frame.y(level) + 4:.1f}", unit.decimal(f"{level:.{digits}f}")) for level in levels
    ]


def nice_step(min_step: float) -> float:
    """Return a round step that is at least `min_step`.

    >>> [nice_step(min_step) for min_step in (0.012, 0.0021, 3.0, 7.0)]
    [0.02, 0.0025, 5.0, 10.0]
    """
    whole = 10.0 ** floor(log10(min_step))
    return next(float(f"{by * whole:.3g}") for by in (1, 2, 2.5, 5, 10) if by * whole >= min_step * 0.999999)


def _hour_labels(frame: ChartFrame, view: ZoneView) -> list[tuple[str, str, bool]]:
    """Return every third hour and the end of the day: x, label, and whether a phone leaves it out."""
    labels = []
    for interval in frame.intervals[:-1]:
        at = local_datetime(view, view.start_s(interval))
        if at.minute == 0 and at.hour % 3 == 0:
            labels.append((f"{frame.x(interval):.3f}", f"{at:%H:%M}", bool(at.hour % 6)))
    end = local_datetime(view, view.start_s(frame.intervals[-1] + 1))
    return [*labels, ("100", f"{end:%H:%M}", False)]


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
    final = [(name(p.interval), unit.final(p), levels.levels.get(p.interval), KIND_WORDS[p.kind]) for p in known]
    undecided = [n for n in intervals if view.is_expected(n)]
    expected = [(name(n), unit.rounded(levels.prices[n]), levels.levels[n], "expected") for n in undecided]
    kinds = {price.kind for price in known}
    day = {
        "name": format_day(today, unit.language),
        "timezone": view.display.timezone.key,
        "prices": [*final, *expected],  # start, price, level, kind
        "has_fallback": PriceKind.FALLBACK in kinds,
        "has_withheld": PriceKind.WITHHELD in kinds,
    }
    # After a change of plan corrections still hold draws of the earlier one, whose noise is not known.
    has_band = view.terms.prediction is None or not view.earlier_plans
    band = noise_band(view.terms, known, lead=view.lead_intervals, since=view.row.since) if has_band else {}
    return render_page(
        "zone.html",
        language,
        **page_values(view, base_url, opening_key, language),
        unit=unit,
        now=_current_price(view, at, levels, unit),
        windows=_hour_windows(view, at, unit),
        day=day,
        chart=price_chart(view, intervals, at, band, levels.levels, unit),
        promise=promise_text(view, now_s, unit.language),
        reads_meters=view.terms.reads_meters,
        noise_reach=_noise_reach(view, at, unit),
        error=format_error(view, unit),
        formats=[
            (name, f"{base_url}{path}" if path.startswith(_AT_ROOT) else f"{zone_url(view, base_url)}{path}")
            for name, path in _FORMAT_PATHS.items()
            if (name != "vse" or view.currency == "CHF") and (name != "parquet" or _WRITES_PARQUET)
        ],
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
        of_release = price.kind in {PriceKind.MEASURED, PriceKind.FALLBACK}
        is_predicted = view.terms.prediction is not None and of_release
        meaning = f"kind.{kind}_predicted_meaning" if is_predicted else f"kind.{kind}_meaning"
        published = TimeLabel(price.logged_s, local_datetime(view, price.logged_s).strftime("%H:%M"))
    if following is None and view.closed is None:
        next_expected = unit.rounded(view.expected_ticks(at + 1) * view.tick)

    def moment(interval: int) -> str:
        """When an interval begins, as a time on a day."""
        begins = local_datetime(view, view.start_s(interval))
        named_day = format_day(begins.date(), unit.language)
        return unit.language.plain("date.clock_on_day", clock=f"{begins:%H:%M}", day=named_day)

    return {
        "price": unit.final(price),
        "kind": kind,
        "meaning": meaning,  # key of what its kind means
        "level": None if level is None else level.value,
        "level_percent": int(100 * distance),  # from the mean of the day
        "start": now[0],
        "end": now[1],
        "measured_start": measured_then[0],
        "measured_end": measured_then[1],
        "published": published,
        "next_price": unit.final(following),
        "next_expected": next_expected,  # where the next price is not decided
        "first_price_from": moment(view.first_priced) if at < view.first_priced else None,
        "closed_until": None if view.closed is None else moment(view.last_decided + 1),  # the last price is paid
    }


def _hour_windows(view: ZoneView, at: int, unit: PriceFormat) -> list[tuple[int, dict[str, object], dict[str, object]]]:
    """Return for each number of hours the cheapest and the dearest stretch ahead, as they are shown."""
    found = windows_ahead(view, at)
    ends = [window.intervals.stop for pair in found.values() for window in pair]
    name = clock_label_formatter(view, range(at, max(ends, default=at) + 1))
    tomorrow = local_datetime(view, view.start_s(at)).date() + timedelta(days=1)

    def show(window: PriceWindow) -> dict[str, object]:
        first, end = window.intervals.start, window.intervals.stop
        return {
            "day": "tomorrow" if local_datetime(view, view.start_s(first)).date() >= tomorrow else "today",
            "start": name(first),
            "end": name(end),
            "mean": unit.rounded(window.mean),
            "is_final": window.is_final,
        }

    return [(hours, show(cheapest), show(dearest)) for hours, (cheapest, dearest) in found.items()]


def _noise_reach(view: ZoneView, at: int, unit: PriceFormat) -> str | None:
    """Return how far the noise of an interval reaches, 95 times in 100 [kWh]; None: there is none."""
    price = view.prices.get(at)
    is_open = view.closed is None and view.terms.reads_meters
    if not is_open if price is None else price.scale_wh is None:
        return None
    slot = view.terms.slot_of_day(at - view.lead_intervals)
    scale_wh = float(view.terms.scale_wh[slot]) if price is None else price.scale_wh or 0.0
    core_wh = int(view.terms.core_wh[slot]) if price is None else price.core_wh
    return unit.decimal(f"{half_width_wh(view.terms.distribution, scale_wh, core_wh) / 1000:.3g}")
