"""The prices of a day as a drawing: what is final, what is expected, and how far the noise may have moved it.

It is as wide as the page is. Lines lie in an inner drawing that is stretched; words, dots and hatched gaps do not
stretch, and are placed by percentages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from html import escape
from itertools import groupby
from math import floor, log10

from murmurate.publication.record import Kind
from murmurate.service.board.view import Price, ZoneView

HEIGHT, TOP, FOOT = 300, 34, 270  # [px] of all, and where the plot begins and ends
GUTTER = 48  # [px] that the style sheet leaves to the left, for the names of prices
Band = Mapping[int, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a moment and a price are drawn."""

    intervals: range
    low: float  # [currency/kWh] at the foot
    high: float

    def x(self, interval: float) -> float:
        """From the left [%]."""
        return 100 * (interval - self.intervals[0]) / len(self.intervals)

    def y(self, price: float) -> float:
        """From above [px]."""
        return FOOT - (FOOT - TOP) * (price - self.low) / (self.high - self.low)


def curve(view: ZoneView, intervals: range, at: int, band: Band, hour: Callable[[int], str]) -> str:
    """The intervals of a day, of which `at` pays now. `hour` names the begin of an interval as a clock there does."""
    known = [view.prices[n] for n in intervals if n in view.prices]
    planned = [n for n in intervals if n > view.decided]
    levels = [price.value for price in known if price.value is not None] + [view.expected(n) for n in planned]
    levels += [edge for edges in band.values() for edge in edges]
    frame = _frame(intervals, levels)
    marks = _hours(frame, view, hour) + _unread(frame, known) + _here(frame, view.prices.get(at))
    lines = _band(frame, band) + _planned(frame, view, planned) + _final(frame, known)
    return (
        f'<div class="plot"><svg class="curve" role="img" aria-labelledby="curve-title curve-desc" height="{HEIGHT}">\n'
        f'<title id="curve-title">Prices of the day in {escape(view.currency)} per kWh</title>\n'
        f'<desc id="curve-desc">{escape(_described(known, view.currency))}</desc>\n'
        f"{_HATCH}{_paying(frame, at)}{_grid(frame, view.currency)}{_gaps(frame, known)}"
        f'<svg width="100%" height="{HEIGHT}" viewBox="0 0 {len(intervals)} {HEIGHT}" preserveAspectRatio="none">\n'
        f"{lines}</svg>\n{marks}</svg></div>\n"
    )


_HATCH = (
    '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<path d="M0 0V6"/></pattern></defs>\n'
)


def _frame(intervals: range, levels: list[float]) -> Frame:
    low, high = min(levels, default=0.0), max(levels, default=1.0)
    room = 0.04 * (high - low) or max(abs(high), 1e-9) * 0.5
    return Frame(intervals, low - room, high + room)


def _described(known: list[Price], currency: str) -> str:
    values = [price.value for price in known if price.value is not None]
    if not values:
        return "No price of this day is decided yet. The plan's expectation is drawn dashed."
    missing = sum(price.value is None for price in known)
    forecast = sum(price.kind is Kind.FORECAST for price in known)
    return (
        f"{len(values)} prices are final, from {min(values):g} to {max(values):g} {currency} per kWh; {forecast} of "
        f"them come from the forecast. {missing} intervals have no price. What the plan expects of the rest is drawn "
        "dashed. The table below has every number."
    )


def _steps(frame: Frame, levels: Iterable[tuple[int, float]]) -> str:
    """A path that is level within each interval, and begins anew after a gap."""
    path, last = "", None
    for interval, level in levels:
        x, y = interval - frame.intervals[0], f"{frame.y(level):.1f}"
        path += f"V{y}H{x + 1}" if last == interval - 1 else f"M{x} {y}H{x + 1}"
        last = interval
    return path


def _path(style: str, path: str) -> str:
    return f'<path class="{style}" d="{path}"/>\n' if path else ""


def _final(frame: Frame, known: list[Price]) -> str:
    priced = [(price.interval, price.value, price.kind) for price in known if price.value is not None]
    unread = "".join(_steps(frame, [(n, level)]) for n, level, kind in priced if kind is Kind.FORECAST)
    return _path("final", _steps(frame, [(n, level) for n, level, _ in priced])) + _path("unread", unread)


def _planned(frame: Frame, view: ZoneView, planned: list[int]) -> str:
    return _path("planned", _steps(frame, [(n, view.expected(n)) for n in planned]))


def _band(frame: Frame, band: Band) -> str:
    """One outline for each run of intervals: along the upper edge, and back along the lower one."""
    path = ""
    for _, run in groupby(enumerate(sorted(band)), key=lambda pair: pair[1] - pair[0]):
        own = [n for _, n in run]
        upper = _steps(frame, [(n, band[n][1]) for n in own])
        lower = "".join(f"V{frame.y(band[n][0]):.1f}H{n - frame.intervals[0]}" for n in reversed(own))
        path += f"{upper}{lower}Z"
    return _path("band", path)


def _gaps(frame: Frame, known: list[Price]) -> str:
    wide = 100 / len(frame.intervals)
    return "".join(
        f'<rect class="gap" x="{frame.x(price.interval):.3f}%" y="{TOP}" width="{wide:.3f}%" height="{FOOT - TOP}"/>\n'
        for price in known
        if price.value is None
    )


def _unread(frame: Frame, known: list[Price]) -> str:
    """A ring on each price that uses no reading: its stretch of the line may be thin on a phone."""
    return "".join(
        f'<circle class="ring" cx="{frame.x(price.interval + 0.5):.3f}%" cy="{frame.y(price.value):.1f}" r="4"/>\n'
        for price in known
        if price.kind is Kind.FORECAST and price.value is not None
    )


def _paying(frame: Frame, at: int) -> str:
    if at not in frame.intervals:
        return ""
    x, wide = frame.x(at), 100 / len(frame.intervals)
    return f'<rect class="paying" x="{x:.3f}%" y="{TOP}" width="{wide:.3f}%" height="{FOOT - TOP}"/>\n'


def _here(frame: Frame, price: Price | None) -> str:
    if price is None or price.value is None or price.interval not in frame.intervals:
        return ""
    x, y = frame.x(price.interval + 0.5), frame.y(price.value)
    side = "start" if x < 8 else "end" if x > 92 else "middle"
    return (
        f'<circle class="dot" cx="{x:.3f}%" cy="{y:.1f}" r="5"/>\n'
        f'<text class="here" x="{x:.3f}%" y="{TOP - 8}" text-anchor="{side}">now</text>\n'
    )


def _grid(frame: Frame, currency: str) -> str:
    step = nice_step((frame.high - frame.low) / 6)
    digits = max(0, -floor(log10(step) + 1e-9) + (1 if f"{step:e}".startswith("2.5") else 0))
    marks = [n * step for n in range(floor(frame.low / step) + 1, floor(frame.high / step) + 1)]
    drawn = ""
    for mark in marks:
        y = frame.y(mark)
        drawn += f'<line class="grid" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>'
        drawn += f'<text x="{-GUTTER}" y="{y + 4:.1f}">{mark:.{digits}f}</text>\n'
    drawn += f'<text x="{-GUTTER}" y="12">{escape(currency)}/kWh</text>\n'
    return drawn + f'<line class="base" x1="0" x2="100%" y1="{FOOT}" y2="{FOOT}"/>\n'


def nice_step(about: float) -> float:
    """A round step that is at least `about`.

    >>> [nice_step(about) for about in (0.012, 0.0021, 3.0, 7.0)]
    [0.02, 0.0025, 5.0, 10.0]
    """
    whole = 10.0 ** floor(log10(about))
    return next(float(f"{by * whole:.3g}") for by in (1, 2, 2.5, 5, 10) if by * whole >= about * 0.999999)


def _hours(frame: Frame, view: ZoneView, hour: Callable[[int], str]) -> str:
    """Every third hour of the clock; every sixth on a phone."""
    drawn = ""
    for interval in frame.intervals:
        name = hour(interval)
        if name[2:] != ":00" or int(name[:2]) % 3 or interval == frame.intervals[-1]:
            continue
        x = frame.x(interval)
        side = "start" if x < 2 else "middle"
        odd = ' class="odd"' if int(name[:2]) % 6 else ""
        drawn += f'<text{odd} x="{x:.3f}%" y="{HEIGHT - 10}" text-anchor="{side}">{escape(name)}</text>\n'
    end = hour(view.at(view.begin_s(frame.intervals[-1] + 1)))
    return drawn + f'<text x="100%" y="{HEIGHT - 10}" text-anchor="end">{escape(end)}</text>\n'
