"""The three figures of the paper, the errors over many seeds, and what endless releases reveal about one moment."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from murmurate.household.occupancy import OccupancyChains, occupancy_probability
from murmurate.lab.plot_style import (
    MUTED_COLOR,
    NAIVE_COLOR,
    OPTIMAL_COLOR,
    PRIVATE_COLOR,
    TEXT_COLOR,
    set_axes_title,
    style_axes,
)
from murmurate.privacy.leakage import epsilon_for_leakage, periodic_distributions, periodic_leakage
from murmurate.units import QUARTER_HOURS_PER_DAY, FloatArray, IntArray
from research.paper.experiment import PAPER_BLOWFISH_RMSRE, PAPER_NAIVE_RMSRE, PRICING_RULES, ExperimentRun
from research.paper.related_mechanisms import cao_leakage, group_privacy_scale, markov_quilt_scale
from research.paper.simulated_zones import (
    PERIOD_NAMES,
    PaperInterpretation,
    forecast_demand,
    paper_calendar,
    paper_habits,
)

_POINTS = 60  # of a curve of leakage
_PERIOD_COLORS = ("#fff4d6", "#ffffff", "#eaf3fb", "#eceef2")


def write_paper_figures(
    interpretation: PaperInterpretation, run: ExperimentRun, rows: dict[PaperInterpretation, FloatArray], folder: Path
) -> list[Path]:
    """Write the figures as PNG and SVG. The first three show one run of one interpretation."""
    which = f'one run (seed 0) of the interpretation "{interpretation.name}", {len(run.zone.meters):,} households'
    figures = {
        "occupancy": occupancy_figure(run, which),
        "consumption": consumption_figure(run, which),
        "rates": rates_figure(run, which),
        "rmsre": rmsre_figure(rows),
        "leakage": leakage_figure(),
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
        _shade_periods(axes, len(hours))
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
    _shade_periods(axes, horizon)
    axes.set_xlabel("time of day")
    _name_periods(axes, horizon)
    set_axes_title(axes, heading, subtitle)
    return figure, axes


def _hours(values: FloatArray | IntArray) -> FloatArray:
    hours: FloatArray = np.arange(len(values)) * 24 / QUARTER_HOURS_PER_DAY
    return hours


def _shade_periods(axes: Axes, horizon: int) -> None:
    """Shade the four periods of the day, and name the hours."""
    for start, stop, period in _period_spans(horizon):
        axes.axvspan(start / 4, stop / 4, color=_PERIOD_COLORS[period], lw=0, zorder=0)
    hours = horizon * 24 / QUARTER_HOURS_PER_DAY
    ticks = np.arange(0, hours + 0.1, 3 if hours <= 48 else 24)
    axes.set_xlim(0, hours)
    axes.set_xticks(ticks, [f"{int(h % 24):02d}:00" for h in ticks])
    style_axes(axes)


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


def leakage_figure() -> Figure:
    """Draw what endless releases reveal about one moment, and the noise that limits it."""
    chains = _periodic_paper_chains()
    figure = Figure(figsize=(12, 4.9), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    _draw_leakage(left, chains)
    _draw_scales(right, chains)
    return figure


def _periodic_paper_chains() -> OccupancyChains:
    """Return the paper's chain with its four periods, unperturbed habits and its periodic prior."""
    calendar = paper_calendar()
    arrive, leave = (chances[:, None] for chances in paper_habits())
    anywhere = OccupancyChains.independent(initial=[0.5], arrive=arrive, leave=leave, period=calendar)
    laws, _ = periodic_distributions(anywhere, len(calendar))
    home = np.exp(laws.belief[0, 1])
    return OccupancyChains.independent(initial=home, arrive=arrive, leave=leave, period=calendar)


def _draw_leakage(axes: Axes, chains: OccupancyChains) -> None:
    at = 0.5  # the paper's epsilon
    epsilon = np.sort(np.append(np.geomspace(0.01, 1, _POINTS), at))
    day = np.ones(QUARTER_HOURS_PER_DAY)
    exact = np.array([periodic_leakage(chains, e).max() for e in epsilon])
    cao = np.array([cao_leakage(chains, e * day).max() for e in epsilon])
    lines = (
        (epsilon * QUARTER_HOURS_PER_DAY, MUTED_COLOR, "--", "sum over a day, ε T"),
        (cao, NAIVE_COLOR, "-", "Cao et al. (2017)"),
        (exact, PRIVATE_COLOR, "-", "exact (ours)"),
        (epsilon, TEXT_COLOR, ":", "one release alone, ε"),
    )
    for leaked, colour, style, label in lines:
        axes.plot(epsilon, leaked, color=colour, ls=style, lw=2.4, label=label)
    for leaked, colour, above in (
        (exact, PRIVATE_COLOR, False),
        (cao, NAIVE_COLOR, True),
        (lines[0][0], MUTED_COLOR, True),
    ):
        value = float(leaked[epsilon == at][0])
        axes.plot(at, value, "o", color=colour, ms=6)
        offset, side = ((-6, 7), "right") if above else ((6, -13), "left")
        axes.annotate(
            f"{value:.3g}", (at, value), offset, textcoords="offset points", ha=side, color=colour, weight="bold"
        )
    axes.set(xscale="log", yscale="log", xlim=(0.01, 1), ylim=(0.008, 120))
    axes.set_xticks([0.01, 0.05, 0.1, 0.5, 1], ["0.01", "0.05", "0.1", "0.5", "1"])
    axes.set_yticks([0.01, 0.1, 1, 10, 100], ["0.01", "0.1", "1", "10", "100"])
    axes.set_xlabel("ε of each release (a quarter hour)")
    axes.set_ylabel("leakage of one moment, over endless releases", color=TEXT_COLOR)
    axes.legend(frameon=False, loc="lower right", fontsize=10, labelcolor=TEXT_COLOR)
    style_axes(axes)
    set_axes_title(axes, "Leakage of one moment over endless releases")


def _draw_scales(axes: Axes, chains: OccupancyChains) -> None:
    ours = 1 / epsilon_for_leakage(chains, 1.0)
    bars = (
        ("group privacy\n(one day only)", group_privacy_scale(1.0, QUARTER_HOURS_PER_DAY), MUTED_COLOR),
        ("Markov quilt\n(Song et al. 2017)", markov_quilt_scale(chains, 1.0), NAIVE_COLOR),
        ("moment + range\n(ours)", ours, PRIVATE_COLOR),
    )
    for place, (_, scale, colour) in enumerate(bars):
        axes.barh(place, scale, color=colour, height=0.58)
        axes.text(scale + 1.5, place, f"{scale:.1f}", va="center", color=TEXT_COLOR, fontsize=12, weight="bold")
    axes.set_yticks(range(len(bars)), [label for label, _, _ in bars], fontsize=10.5)
    axes.invert_yaxis()
    axes.set_xlim(0, 112)
    axes.set_xlabel("scale b of the noise, in units of a household's bound u", color=TEXT_COLOR)
    style_axes(axes)
    axes.tick_params(axis="y", length=0)
    set_axes_title(axes, "Noise that limits the leakage of every moment to 1")
