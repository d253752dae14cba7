"""The three figures of the paper, and a fourth: the errors over many seeds."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from murmurate.household.occupancy import occupancy_probability
from murmurate.lab.paper.experiment import PAPER_BLOWFISH_RMSRE, PAPER_NAIVE_RMSRE, PRICING_RULES, ExperimentRun
from murmurate.lab.paper.simulated_zones import PERIOD_NAMES, PaperInterpretation, forecast_demand, paper_calendar
from murmurate.lab.plot_style import MUTED_COLOR, NAIVE_COLOR, OPTIMAL_COLOR, PRIVATE_COLOR, TEXT_COLOR, set_axes_title
from murmurate.units import QUARTER_HOURS_PER_DAY, FloatArray, IntArray

_PERIOD_COLORS = ("#fff4d6", "#ffffff", "#eaf3fb", "#eceef2")


def write_paper_figures(
    interpretation: PaperInterpretation, run: ExperimentRun, rows: dict[PaperInterpretation, FloatArray], folder: Path
) -> list[Path]:
    """Write the four figures as PNG and SVG. The first three show one run of one interpretation."""
    which = f'one run (seed 0) of the interpretation "{interpretation.name}", {len(run.zone.meters):,} households'
    figures = {
        "occupancy": occupancy_figure(run, which),
        "consumption": consumption_figure(run, which),
        "rates": rates_figure(run, which),
        "rmsre": rmsre_figure(rows),
    }
    written = []
    for name, figure in figures.items():
        for kind in ("png", "svg"):
            written.append(folder / f"{name}.{kind}")
            figure.savefig(written[-1], dpi=200, metadata={"Date": None} if kind == "svg" else None)
    return written


def occupancy_figure(run: ExperimentRun, subtitle: str) -> Figure:
    """Draw the mean occupancy (the paper's figure 2a)."""
    figure, axes = _day_axes("Households active at home", subtitle, len(run.day.occupied))
    expected = occupancy_probability(run.zone.theta.models[0], len(run.day.occupied)).mean(axis=1)
    hours = _hours(expected)
    axes.plot(hours, 100 * expected, color=MUTED_COLOR, lw=5, alpha=0.5, label="expected from the public model")
    axes.plot(hours, 100 * run.day.occupied.mean(axis=1), color=PRIVATE_COLOR, lw=1.8, label="simulated day")
    axes.set(ylabel="households active at home [%]", ylim=(0, 108))
    _legend(axes)
    return figure


def consumption_figure(run: ExperimentRun, subtitle: str) -> Figure:
    """Draw the mean consumption (the paper's figure 2b)."""
    figure, axes = _day_axes("Consumption of a household", subtitle, len(run.day.occupied))
    hours = _hours(run.day.demand_wh)
    households = len(run.zone.meters)
    expected = forecast_demand(run.zone, len(hours)) / households
    axes.plot(hours, expected, color=MUTED_COLOR, lw=5, alpha=0.5, label="expected from the public model")
    axes.plot(hours, run.day.demand_wh / households, color=PRIVATE_COLOR, lw=1.8, label="simulated day")
    axes.set(ylabel="mean consumption [Wh per quarter hour]", ylim=(0, None))
    axes.margins(y=0.15)
    _legend(axes)
    return figure


def rates_figure(run: ExperimentRun, subtitle: str) -> Figure:
    """Draw the rates (the paper's figure 2c), and their errors below them."""
    figure = Figure(figsize=(9, 6.2), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1.2))
    tick, optimal = float(run.zone.curve.tick), run.day.price_ticks
    hours = _hours(optimal)
    upper.plot(hours, run.naive * tick, color=NAIVE_COLOR, lw=1.6, label="naive private")
    upper.plot(hours, run.blowfish_alone * tick, color=PRIVATE_COLOR, lw=1.6, label="private (Blowfish)")
    upper.plot(hours, optimal * tick, color=OPTIMAL_COLOR, lw=1.6, ls="--", label="optimal")
    upper.set(ylabel="rate [money/kWh]")
    upper.margins(y=0.12)
    lower.axhline(0, color=OPTIMAL_COLOR, lw=1)
    lower.plot(hours, (run.naive - optimal) * tick, color=NAIVE_COLOR, lw=1.2)
    lower.plot(hours, (run.blowfish_alone - optimal) * tick, color=PRIVATE_COLOR, lw=1.2)
    lower.set(ylabel="error [money/kWh]")
    for axes in (upper, lower):
        _style_axes(axes, len(hours))
    lower.set_xlabel("time of day")
    _name_periods(upper, len(hours))
    _legend(upper)
    scale = 100 * (1 - run.sensitivity_wh.mean() / run.zone.max_bound_wh)
    set_axes_title(
        upper,
        "Rates: optimal, private, naive private",
        f"{subtitle}; the noise scales differ by {scale:.2g} %",
    )
    return figure


def rmsre_figure(rows: dict[PaperInterpretation, FloatArray]) -> Figure:
    """Draw the RMSRE over seeds for every interpretation of the paper, with the paper's two numbers."""
    figure = Figure(figsize=(9, 1.1 + 1.05 * len(rows)), layout="constrained")
    panels = figure.subplots(len(rows), 1, sharex=True, squeeze=False)[:, 0]
    naive, blowfish = PRICING_RULES.index("naive"), PRICING_RULES.index("blowfish")
    shown = np.concatenate([found[:, [naive, blowfish]].ravel() for found in rows.values()])
    bins = 1e3 * np.linspace(
        0.97 * min(shown.min(), PAPER_BLOWFISH_RMSRE), 1.03 * max(shown.max(), PAPER_NAIVE_RMSRE), 60
    )
    for axes, (interpretation, found) in zip(panels, rows.items(), strict=True):
        axes.hist(1e3 * found[:, naive], bins, color=NAIVE_COLOR, alpha=0.45, label="naive, our seeds")
        axes.hist(
            1e3 * found[:, blowfish], bins, color=PRIVATE_COLOR, histtype="step", lw=1.6, label="Blowfish, our seeds"
        )
        axes.axvline(
            1e3 * PAPER_NAIVE_RMSRE,
            color=NAIVE_COLOR,
            lw=2.2,
            ls="--",
            label=f"the paper's naive run {1e3 * PAPER_NAIVE_RMSRE}",
        )
        label = f"the paper's Blowfish run {1e3 * PAPER_BLOWFISH_RMSRE}"
        axes.axvline(1e3 * PAPER_BLOWFISH_RMSRE, color=PRIVATE_COLOR, lw=2.2, ls="--", label=label)
        axes.set_yticks([])
        axes.set_ylabel(
            interpretation.label.replace(" (", "\n("), rotation=0, ha="right", va="center", color=TEXT_COLOR
        )
        axes.spines[["top", "right", "left"]].set_visible(False)
    panels[-1].set_xlabel("RMSRE of one run, as the paper normalises it [10⁻³]        * not private")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8.5, labelcolor=TEXT_COLOR
    )
    seeds = len(next(iter(rows.values())))
    set_axes_title(panels[0], f"The error of one run: {seeds:,} seeds for each interpretation of the paper")
    return figure


def _day_axes(heading: str, subtitle: str, horizon: int) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    axes = figure.subplots()
    _style_axes(axes, horizon)
    axes.set_xlabel("time of day")
    _name_periods(axes, horizon)
    set_axes_title(axes, heading, subtitle)
    return figure, axes


def _hours(values: FloatArray | IntArray) -> FloatArray:
    hours: FloatArray = np.arange(len(values)) * 24 / QUARTER_HOURS_PER_DAY
    return hours


def _style_axes(axes: Axes, horizon: int) -> None:
    """Shade the four periods, and hide the upper and right spines."""
    for start, stop, period in _period_spans(horizon):
        axes.axvspan(start / 4, stop / 4, color=_PERIOD_COLORS[period], lw=0, zorder=0)
    hours = horizon * 24 / QUARTER_HOURS_PER_DAY
    ticks = np.arange(0, hours + 0.1, 3 if hours <= 48 else 24)
    axes.set_xlim(0, hours)
    axes.set_xticks(ticks, [f"{int(h % 24):02d}:00" for h in ticks])
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=TEXT_COLOR)
    axes.xaxis.label.set_color(TEXT_COLOR)
    axes.yaxis.label.set_color(TEXT_COLOR)


def _name_periods(axes: Axes, horizon: int) -> None:
    if horizon > QUARTER_HOURS_PER_DAY:
        return
    for start, stop, period in _period_spans(horizon):
        narrow = stop - start <= 4
        axes.text(
            (start + stop) / 8,
            0.985,
            PERIOD_NAMES[period],
            transform=axes.get_xaxis_transform(),
            rotation=90 if narrow else 0,
            ha="center",
            va="top",
            color=MUTED_COLOR,
            fontsize=8,
        )


def _period_spans(horizon: int) -> list[tuple[int, int, int]]:
    calendar = np.resize(paper_calendar(), horizon)
    edges = [0, *(np.flatnonzero(np.diff(calendar)) + 1).tolist(), horizon]
    return [(start, stop, int(calendar[start])) for start, stop in pairwise(edges)]


def _legend(axes: Axes) -> None:
    axes.legend(frameon=False, loc="lower right", fontsize=9, labelcolor=TEXT_COLOR)
