"""The figures of a back-test: how bills change, and how noise averages out."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from murmurate.lab.backtest.bill_statistics import change_percent
from murmurate.lab.backtest.bills import Rate
from murmurate.lab.backtest.zone_back_test import ZoneBackTest
from murmurate.lab.plot_style import MUTED_COLOR, PRIVATE_COLOR, TEXT_COLOR, set_axes_title

BILLS_FIGURE = "bills"
_LOOKS = {
    Rate.FORECAST: (MUTED_COLOR, "--", 1.6),
    Rate.EXACT: (TEXT_COLOR, ":", 2.2),
    Rate.PRIVATE: (PRIVATE_COLOR, "-", 2.2),
}


def write_bills_figure(test: ZoneBackTest, out: Path) -> None:
    """Write the figure as PNG and SVG."""
    figure = draw_bills_figure(test)
    with mpl.rc_context({"svg.hashsalt": BILLS_FIGURE}):
        figure.savefig(out / f"{BILLS_FIGURE}.png", dpi=200)
        figure.savefig(out / f"{BILLS_FIGURE}.svg", metadata={"Date": None})


def draw_bills_figure(test: ZoneBackTest) -> Figure:
    """Homes by the change of their bill, and the noise in a price, a day, a month and the period."""
    drawn = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = drawn.subplots(1, 2, width_ratios=(1.35, 1))
    _plot_changes(left, test)
    _plot_noise(right, test)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=TEXT_COLOR)
        for label in (axes.xaxis.label, axes.yaxis.label):
            label.set_color(TEXT_COLOR)
    return drawn


def _plot_changes(axes: Axes, test: ZoneBackTest) -> None:
    share = 100 * (np.arange(test.readings.households) + 0.5) / test.readings.households
    for rate, (color, style, width) in _LOOKS.items():
        axes.plot(np.sort(change_percent(test.bills, rate)), share, color=color, ls=style, lw=width, label=rate.value)
    axes.axvline(0, color=TEXT_COLOR, lw=0.8)
    axes.set_ylim(0, 100)
    axes.grid(color="#e6eaee", lw=0.8)
    axes.set_xlabel("change of the bill beside a flat rate, %")
    axes.set_ylabel("% of homes with this change or less")
    axes.legend(frameon=False, loc="lower right", fontsize=9, labelcolor=TEXT_COLOR)
    set_axes_title(
        axes, "Who pays more, who pays less", "all rates collect the same; right of 0: more than at the flat rate"
    )


def _plot_noise(axes: Axes, test: ZoneBackTest) -> None:
    noise = test.statistics.noise
    names = (
        "price of an\ninterval",
        "bill of\na day",
        "bill of\na month",
        f"bill of {int(test.bills.days.sum())}\ndays",
    )
    of_month = float(np.average(noise.month_percent, weights=test.bills.days))
    values = (noise.interval_percent, noise.day_percent, of_month, noise.period_percent)
    bars = axes.bar(range(len(values)), values, color=PRIVATE_COLOR, width=0.6)
    axes.bar_label(bars, [f"{value:.2g} %" for value in values], padding=3, color=TEXT_COLOR, fontsize=9)
    axes.set_xticks(range(len(values)), names, fontsize=9)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.margins(y=0.12)
    axes.set_ylabel("standard deviation, %")
    set_axes_title(axes, "What the noise alone does", "beside the same plan without noise; bills: median home")
