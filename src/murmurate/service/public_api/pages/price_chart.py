"""The prices of a day as a chart: what is final, what is expected, and how far the noise may have moved it.

This module computes where each part of the chart lies. `web/templates/price_chart.html` holds the markup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from math import floor, log10

from murmurate.service.log_reader.zone_view import PriceKind, ZoneView
from murmurate.service.public_api.pages.formatting import PriceFormat
from murmurate.service.public_api.pages.price_levels import PriceLevel

CHART_HEIGHT_PX, PLOT_TOP_PX, PLOT_BOTTOM_PX = 300, 34, 270  # [px] of all, and where the plot begins and ends
PLOT_LEFT_MARGIN_PX = 48  # [px] that the style sheet leaves to the left, for the price labels
LEVEL_LINE_DISTANCE_PX = 2  # [px] from the edge of the plot: cheap at the bottom, dear at the top
NoiseBand = Mapping[int, tuple[float, float]]  # [currency/kWh] by interval


@dataclass(frozen=True, slots=True)
class ChartFrame:
    """Converts an interval and a price into a position of the chart."""

    intervals: range
    low: float  # price at the lower edge of the plot, in the unit that the page shows
    high: float

    def x(self, interval: float) -> float:
        """From the left edge [%]."""
        return 100 * (interval - self.intervals[0]) / len(self.intervals)

    def y(self, price: float) -> float:
        """From the upper edge [px]."""
        return PLOT_BOTTOM_PX - (PLOT_BOTTOM_PX - PLOT_TOP_PX) * (price - self.low) / (self.high - self.low)


@dataclass(frozen=True, slots=True)
class GridLine:
    y: str  # [px]
    label_y: str  # [px]
    label: str


@dataclass(frozen=True, slots=True)
class HourLabel:
    x: str  # [%]
    label: str
    anchor: str = "middle"
    is_minor: bool = False  # left out on a phone


@dataclass(frozen=True, slots=True)
class ChartDot:
    x: str  # [%]
    y: str  # [px]


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceChart:
    """What the template draws. Paths count intervals from the left; x of everything else is in %, y in px."""

    interval_count: int
    interval_width: str
    final_count: int
    fallback_count: int
    withheld_count: int
    lowest: str  # of the final prices
    highest: str
    grid: tuple[GridLine, ...]
    hours: tuple[HourLabel, ...]
    band_path: str
    expected_path: str
    final_path: str
    fallback_path: str
    fallback_dots: tuple[ChartDot, ...]
    cheap_path: str
    dear_path: str
    withheld_x: tuple[str, ...]
    current_x: str | None  # of the interval whose price is paid now
    current_dot: ChartDot | None
    current_anchor: str
    height: int = CHART_HEIGHT_PX
    top: int = PLOT_TOP_PX
    bottom: int = PLOT_BOTTOM_PX
    left_margin: int = PLOT_LEFT_MARGIN_PX


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartedDay:
    """The day that a chart shows. Prices are in currency per kWh."""

    view: ZoneView
    intervals: range
    current: int  # the interval that is paid now
    noise_band: NoiseBand
    levels: Mapping[int, PriceLevel]
    unit: PriceFormat


def price_chart(day: ChartedDay, clock_label: Callable[[int], str]) -> PriceChart:
    """Return the chart of a day. `clock_label` names the start of an interval as a clock in the zone shows it."""
    view, intervals, units = day.view, day.intervals, day.unit.units
    recent = view.prices
    known = [recent[n] for n in intervals if n in recent]
    final = [(price.interval, price.value * units) for price in known if price.value is not None]
    kinds = {price.interval: price.kind for price in known}
    fallback = [(n, level) for n, level in final if kinds[n] is PriceKind.FALLBACK]
    expected = [(n, view.expected_price(n) * units) for n in intervals if view.is_expected(n)]
    band = {n: (low * units, high * units) for n, (low, high) in day.noise_band.items()}
    values = [level for _, level in final]
    edges = [edge for pair in band.values() for edge in pair]
    frame = _frame(intervals, values + [level for _, level in expected] + edges)
    return PriceChart(
        interval_count=len(intervals),
        interval_width=f"{100 / len(intervals):.3f}",
        final_count=len(values),
        fallback_count=len(fallback),
        withheld_count=len(known) - len(values),
        lowest=day.unit.decimal(f"{min(values, default=0):g}"),
        highest=day.unit.decimal(f"{max(values, default=0):g}"),
        grid=_grid_lines(frame, day.unit),
        hours=_hour_labels(frame, view, clock_label),
        band_path=_noise_band_path(frame, band),
        expected_path=_steps(frame, expected),
        final_path=_steps(frame, final),
        fallback_path="".join(_steps(frame, [one]) for one in fallback),
        fallback_dots=tuple(_dot(frame, n, level) for n, level in fallback),
        cheap_path=_level_path(day, PriceLevel.CHEAP, PLOT_BOTTOM_PX - LEVEL_LINE_DISTANCE_PX),
        dear_path=_level_path(day, PriceLevel.DEAR, PLOT_TOP_PX + LEVEL_LINE_DISTANCE_PX),
        withheld_x=tuple(f"{frame.x(price.interval):.3f}" for price in known if price.value is None),
        current_x=f"{frame.x(day.current):.3f}" if day.current in intervals else None,
        current_dot=_current_dot(frame, dict(final), day.current),
        current_anchor=_anchor(frame.x(day.current + 0.5)),
    )


def _level_path(day: ChartedDay, level: PriceLevel, y: int) -> str:
    """A level line below or above the intervals that have this level."""
    path = ""
    at_level = [n for n in day.intervals if day.levels.get(n) is level]
    for _, run in groupby(enumerate(at_level), key=lambda pair: pair[1] - pair[0]):
        own = [n for _, n in run]
        path += f"M{own[0] - day.intervals[0]} {y}H{own[-1] + 1 - day.intervals[0]}"
    return path


def _frame(intervals: range, levels: list[float]) -> ChartFrame:
    low, high = min(levels, default=0.0), max(levels, default=1.0)
    room = 0.04 * (high - low) or max(abs(high), 1e-9) * 0.5
    return ChartFrame(intervals, low - room, high + room)


def _steps(frame: ChartFrame, levels: Iterable[tuple[int, float]]) -> str:
    """A path that is level within each interval, and starts again after a gap."""
    path, last = "", None
    for interval, level in levels:
        x, y = interval - frame.intervals[0], f"{frame.y(level):.1f}"
        path += f"V{y}H{x + 1}" if last == interval - 1 else f"M{x} {y}H{x + 1}"
        last = interval
    return path


def _noise_band_path(frame: ChartFrame, noise_band: NoiseBand) -> str:
    """One outline for each run of intervals: along the upper edge, and back along the lower one."""
    path = ""
    for _, run in groupby(enumerate(sorted(noise_band)), key=lambda pair: pair[1] - pair[0]):
        intervals = [n for _, n in run]
        upper = _steps(frame, [(n, noise_band[n][1]) for n in intervals])
        lower = "".join(f"V{frame.y(noise_band[n][0]):.1f}H{n - frame.intervals[0]}" for n in reversed(intervals))
        path += f"{upper}{lower}Z"
    return path


def _dot(frame: ChartFrame, interval: int, price: float) -> ChartDot:
    return ChartDot(f"{frame.x(interval + 0.5):.3f}", f"{frame.y(price):.1f}")


def _current_dot(frame: ChartFrame, final: Mapping[int, float], current: int) -> ChartDot | None:
    return _dot(frame, current, final[current]) if current in final else None


def _anchor(x: float) -> str:
    """The end of a label that stays inside the chart."""
    return "start" if x < 8 else "end" if x > 92 else "middle"


def _grid_lines(frame: ChartFrame, unit: PriceFormat) -> tuple[GridLine, ...]:
    step = nice_step((frame.high - frame.low) / 6)
    digits = max(0, -floor(log10(step) + 1e-9) + (1 if f"{step:e}".startswith("2.5") else 0))
    levels = [n * step for n in range(floor(frame.low / step) + 1, floor(frame.high / step) + 1)]
    return tuple(
        GridLine(f"{frame.y(level):.1f}", f"{frame.y(level) + 4:.1f}", unit.decimal(f"{level:.{digits}f}"))
        for level in levels
    )


def nice_step(min_step: float) -> float:
    """Return a round step that is at least `min_step`.

    >>> [nice_step(min_step) for min_step in (0.012, 0.0021, 3.0, 7.0)]
    [0.02, 0.0025, 5.0, 10.0]
    """
    whole = 10.0 ** floor(log10(min_step))
    return next(float(f"{by * whole:.3g}") for by in (1, 2, 2.5, 5, 10) if by * whole >= min_step * 0.999999)


def _hour_labels(frame: ChartFrame, view: ZoneView, clock_label: Callable[[int], str]) -> tuple[HourLabel, ...]:
    """Every third hour of the clock, and the end of the day."""
    labels = []
    for interval in frame.intervals:
        label = clock_label(interval)
        if label[2:] != ":00" or int(label[:2]) % 3 or interval == frame.intervals[-1]:
            continue
        x = frame.x(interval)
        labels.append(HourLabel(f"{x:.3f}", label, "start" if x < 2 else "middle", bool(int(label[:2]) % 6)))
    end = clock_label(view.interval_at(view.start_s(frame.intervals[-1] + 1)))
    return *labels, HourLabel("100", end, "end")
