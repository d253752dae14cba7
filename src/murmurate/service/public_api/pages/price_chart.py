"""The prices of a day as a chart: what is final, what is expected, and how far the noise may have moved it.

This module computes where each part of the chart lies. `web/templates/price_chart.html` holds the markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from math import floor, log10

from murmurate.service.log_reader.zone_view import PriceKind, ZoneView
from murmurate.service.public_api.pages.formatting import PriceFormat, local_datetime
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


def price_chart(
    view: ZoneView,
    intervals: range,
    current: int,
    noise_band: NoiseBand,
    levels: Mapping[int, PriceLevel],
    unit: PriceFormat,
) -> dict[str, object]:
    """Return what the template draws of a day in which the interval `current` is paid now.

    Paths count intervals from the left; x of everything else is in %, y in px.
    """
    units, recent = unit.units, view.prices
    known = [recent[n] for n in intervals if n in recent]
    final = {price.interval: price.value * units for price in known if price.value is not None}
    fallback = [(p.interval, final[p.interval]) for p in known if p.kind is PriceKind.FALLBACK]
    expected = [(n, view.expected_price(n) * units) for n in intervals if view.is_expected(n)]
    band = {n: (low * units, high * units) for n, (low, high) in noise_band.items()}
    edges = [edge for pair in band.values() for edge in pair]
    frame = _frame(intervals, [*final.values(), *(level for _, level in expected), *edges])
    bottom, top = PLOT_BOTTOM_PX - LEVEL_LINE_DISTANCE_PX, PLOT_TOP_PX + LEVEL_LINE_DISTANCE_PX
    middle_x = frame.x(current + 0.5)
    return {
        "interval_count": len(intervals),
        "interval_width": f"{100 / len(intervals):.3f}",
        "final_count": len(final),
        "fallback_count": len(fallback),
        "withheld_count": len(known) - len(final),
        "lowest": unit.decimal(f"{min(final.values(), default=0):g}"),  # of the final prices
        "highest": unit.decimal(f"{max(final.values(), default=0):g}"),
        "grid": _grid_lines(frame, unit),
        "hours": _hour_labels(frame, view),
        "band_path": _noise_band_path(frame, band),
        "expected_path": _steps(frame, expected),
        "final_path": _steps(frame, final.items()),
        "fallback_path": "".join(_steps(frame, [one]) for one in fallback),
        "fallback_dots": [_dot(frame, n, level) for n, level in fallback],
        "cheap_path": _level_path(intervals, [n for n in intervals if levels.get(n) is PriceLevel.CHEAP], bottom),
        "dear_path": _level_path(intervals, [n for n in intervals if levels.get(n) is PriceLevel.DEAR], top),
        "withheld_x": [f"{frame.x(price.interval):.3f}" for price in known if price.value is None],
        "current_x": f"{frame.x(current):.3f}" if current in intervals else None,
        "current_dot": _dot(frame, current, final[current]) if current in final else None,
        "current_anchor": "start" if middle_x < 8 else "end" if middle_x > 92 else "middle",  # it stays inside
        "height": CHART_HEIGHT_PX,
        "top": PLOT_TOP_PX,
        "bottom": PLOT_BOTTOM_PX,
        "left_margin": PLOT_LEFT_MARGIN_PX,
    }


def _level_path(intervals: range, at_level: list[int], y: int) -> str:
    """Return a line below or above the intervals that have a level."""
    path = ""
    for _, run in groupby(enumerate(at_level), key=lambda pair: pair[1] - pair[0]):
        own = [n for _, n in run]
        path += f"M{own[0] - intervals[0]} {y}H{own[-1] + 1 - intervals[0]}"
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


def _dot(frame: ChartFrame, interval: int, price: float) -> tuple[str, str]:
    return f"{frame.x(interval + 0.5):.3f}", f"{frame.y(price):.1f}"


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


def _hour_labels(frame: ChartFrame, view: ZoneView) -> list[tuple[str, str, str, bool]]:
    """Return every third hour and the end of the day: x, label, anchor, and whether a phone leaves it out."""
    labels = []
    for interval in frame.intervals[:-1]:
        at = local_datetime(view, view.start_s(interval))
        if at.minute == 0 and at.hour % 3 == 0:
            x = frame.x(interval)
            labels.append((f"{x:.3f}", f"{at:%H:%M}", "start" if x < 2 else "middle", bool(at.hour % 6)))
    end = local_datetime(view, view.start_s(frame.intervals[-1] + 1))
    return [*labels, ("100", f"{end:%H:%M}", "end", False)]
