"""The paper's figures, and the one it lacks: what many seeds say."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from murmurate.household.occupancy import occupancy_probability
from murmurate.lab.paper import PAPER_BLOWFISH, PAPER_NAIVE, RULES, Run
from murmurate.lab.worlds import PERIODS, PaperReading, forecast_wh, paper_calendar
from murmurate.quantities import QUARTER_HOURS_PER_DAY, FloatArray, IntArray

INK = "#22303c"
MUTED = "#8a97a3"
OPTIMAL, PRIVATE, NAIVE = INK, "#0072b2", "#e69f00"  # told apart without colour vision
_SHADES = ("#fff4d6", "#ffffff", "#eaf3fb", "#eceef2")


def draw_all(reading: PaperReading, done: Run, rows: dict[PaperReading, FloatArray], folder: Path) -> list[Path]:
    """Write the four figures, each as PNG and SVG; the first three show one run of one reading."""
    which = f'one run (seed 0) of the reading "{reading.name}", {len(done.town.meters):,} households'
    figures = {
        "occupancy": occupancy(done, which),
        "consumption": consumption(done, which),
        "rates": rates(done, which),
        "rmsre": rmsre(rows),
    }
    written = []
    for name, figure in figures.items():
        for kind in ("png", "svg"):
            written.append(folder / f"{name}.{kind}")
            figure.savefig(written[-1], dpi=200, metadata={"Date": None} if kind == "svg" else None)
    return written


def occupancy(done: Run, which: str) -> Figure:
    """Mean occupancy (the paper's figure 2a)."""
    figure, axes = _day("Who is active at home", which, len(done.day.occupied))
    expected = occupancy_probability(done.town.theta.models[0], len(done.day.occupied)).mean(axis=1)
    hours = _hours(expected)
    axes.plot(hours, 100 * expected, color=MUTED, lw=5, alpha=0.5, label="expected from the public model")
    axes.plot(hours, 100 * done.day.occupied.mean(axis=1), color=PRIVATE, lw=1.8, label="this town, this day")
    axes.set(ylabel="households active at home [%]", ylim=(0, 108))
    _legend(axes)
    return figure


def consumption(done: Run, which: str) -> Figure:
    """Mean consumption (the paper's figure 2b)."""
    figure, axes = _day("What a household uses", which, len(done.day.occupied))
    hours = _hours(done.day.demand_wh)
    households = len(done.town.meters)
    expected = forecast_wh(done.town, len(hours)) / households
    axes.plot(hours, expected, color=MUTED, lw=5, alpha=0.5, label="expected from the public model")
    axes.plot(hours, done.day.demand_wh / households, color=PRIVATE, lw=1.8, label="this town, this day")
    axes.set(ylabel="mean consumption [Wh per quarter hour]", ylim=(0, None))
    axes.margins(y=0.15)
    _legend(axes)
    return figure


def rates(done: Run, which: str) -> Figure:
    """Rates (the paper's figure 2c), and below them the errors, which the paper's figure cannot show."""
    figure = Figure(figsize=(9, 6.2), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1.2))
    tick, optimal = float(done.town.curve.tick), done.day.price_ticks
    hours = _hours(optimal)
    upper.plot(hours, done.naive * tick, color=NAIVE, lw=1.6, label="naive private")
    upper.plot(hours, done.blowfish_alone * tick, color=PRIVATE, lw=1.6, label="private (Blowfish)")
    upper.plot(hours, optimal * tick, color=OPTIMAL, lw=1.6, ls="--", label="optimal")
    upper.set(ylabel="rate [money/kWh]")
    upper.margins(y=0.12)
    lower.axhline(0, color=OPTIMAL, lw=1)
    lower.plot(hours, (done.naive - optimal) * tick, color=NAIVE, lw=1.2)
    lower.plot(hours, (done.blowfish_alone - optimal) * tick, color=PRIVATE, lw=1.2)
    lower.set(ylabel="error [money/kWh]")
    for axes in (upper, lower):
        _clean(axes, len(hours))
    lower.set_xlabel("time of day")
    _name_periods(upper, len(hours))
    _legend(upper)
    scale = 100 * (1 - done.sensitivity_wh.mean() / done.town.largest_bound_wh)
    title(upper, "Rates: optimal, private and naive private", f"{which}; their scales of noise differ by {scale:.2g} %")
    return figure


def rmsre(rows: dict[PaperReading, FloatArray]) -> Figure:
    """RMSRE over seeds in every reading of the paper's text, with the two numbers the paper prints."""
    figure = Figure(figsize=(9, 1.1 + 1.05 * len(rows)), layout="constrained")
    panels = figure.subplots(len(rows), 1, sharex=True, squeeze=False)[:, 0]
    naive, blowfish = RULES.index("naive"), RULES.index("blowfish")
    shown = np.concatenate([found[:, [naive, blowfish]].ravel() for found in rows.values()])
    bins = 1e3 * np.linspace(0.97 * min(shown.min(), PAPER_BLOWFISH), 1.03 * max(shown.max(), PAPER_NAIVE), 60)
    for axes, (reading, found) in zip(panels, rows.items(), strict=True):
        axes.hist(1e3 * found[:, naive], bins, color=NAIVE, alpha=0.45, label="naive, our seeds")
        axes.hist(1e3 * found[:, blowfish], bins, color=PRIVATE, histtype="step", lw=1.6, label="Blowfish, our seeds")
        axes.axvline(
            1e3 * PAPER_NAIVE, color=NAIVE, lw=2.2, ls="--", label=f"the paper's naive run {1e3 * PAPER_NAIVE}"
        )
        label = f"the paper's Blowfish run {1e3 * PAPER_BLOWFISH}"
        axes.axvline(1e3 * PAPER_BLOWFISH, color=PRIVATE, lw=2.2, ls="--", label=label)
        axes.set_yticks([])
        axes.set_ylabel(reading.label.replace(" (", "\n("), rotation=0, ha="right", va="center", color=INK)
        axes.spines[["top", "right", "left"]].set_visible(False)
    panels[-1].set_xlabel("RMSRE of one run, as the paper normalises it [10⁻³]        * not private")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8.5, labelcolor=INK)
    seeds = len(next(iter(rows.values())))
    title(panels[0], f"What one run may find: {seeds:,} seeds in each reading of the paper")
    return figure


def _day(heading: str, which: str, horizon: int) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    axes = figure.subplots()
    _clean(axes, horizon)
    axes.set_xlabel("time of day")
    _name_periods(axes, horizon)
    title(axes, heading, which)
    return figure, axes


def _hours(values: FloatArray | IntArray) -> FloatArray:
    hours: FloatArray = np.arange(len(values)) * 24 / QUARTER_HOURS_PER_DAY
    return hours


def _clean(axes: Axes, horizon: int) -> None:
    """Shade the four periods and keep only the lines that say something."""
    for start, stop, period in _stretches(horizon):
        axes.axvspan(start / 4, stop / 4, color=_SHADES[period], lw=0, zorder=0)
    hours = horizon * 24 / QUARTER_HOURS_PER_DAY
    ticks = np.arange(0, hours + 0.1, 3 if hours <= 48 else 24)
    axes.set_xlim(0, hours)
    axes.set_xticks(ticks, [f"{int(h % 24):02d}:00" for h in ticks])
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK)
    axes.xaxis.label.set_color(INK)
    axes.yaxis.label.set_color(INK)


def _name_periods(axes: Axes, horizon: int) -> None:
    if horizon > QUARTER_HOURS_PER_DAY:
        return
    for start, stop, period in _stretches(horizon):
        narrow = stop - start <= 4
        axes.text(
            (start + stop) / 8,
            0.985,
            PERIODS[period],
            transform=axes.get_xaxis_transform(),
            rotation=90 if narrow else 0,
            ha="center",
            va="top",
            color=MUTED,
            fontsize=8,
        )


def _stretches(horizon: int) -> list[tuple[int, int, int]]:
    calendar = np.resize(paper_calendar(), horizon)
    edges = [0, *(np.flatnonzero(np.diff(calendar)) + 1).tolist(), horizon]
    return [(start, stop, int(calendar[start])) for start, stop in pairwise(edges)]


def _legend(axes: Axes) -> None:
    axes.legend(frameon=False, loc="lower right", fontsize=9, labelcolor=INK)


def title(axes: Axes, text: str, below: str = "") -> None:
    axes.set_title(text, loc="left", fontsize=12, fontweight="bold", color=INK, pad=22 if below else 10)
    axes.text(0, 1.02, below, transform=axes.transAxes, fontsize=8.5, color=MUTED, va="bottom")
