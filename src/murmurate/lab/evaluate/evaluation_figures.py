"""The two figures of an evaluation: how many homes a zone needs, and what a stronger promise costs."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from murmurate.lab.evaluate.evaluation import Evaluation
from murmurate.lab.evaluate.zone_pricing import Way
from murmurate.lab.plot_style import MUTED_COLOR, NAIVE_COLOR, PRIVATE_COLOR, TEXT_COLOR, set_axes_title

HOMES_FIGURE, PROMISE_FIGURE = "homes", "promise"
_PROMISE_COLORS = (PRIVATE_COLOR, "#4aa3d8", "#9acbea")  # from the strongest promise to the weakest
_SIZE_COLORS = ("#a3b8c6", "#7fb4d6", "#3b97cf", PRIVATE_COLOR, TEXT_COLOR)
_MARKERS = ("o", "s", "^", "D", "v")


def write_figures(evaluation: Evaluation, out: Path) -> None:
    """Write both figures as PNG and SVG."""
    drawn = {HOMES_FIGURE: draw_homes_figure(evaluation), PROMISE_FIGURE: draw_promise_figure(evaluation)}
    for name, figure in drawn.items():
        with mpl.rc_context({"svg.hashsalt": name}):
            for kind in ("png", "svg"):
                metadata = {"Date": None} if kind == "svg" else None
                figure.savefig(out / f"{name}.{kind}", dpi=200, metadata=metadata)


def draw_homes_figure(evaluation: Evaluation) -> Figure:
    """Error against the number of homes, and the share of what exact data add."""
    drawn = Figure(figsize=(11, 5.2), layout="constrained")
    left, right = drawn.subplots(1, 2, width_ratios=(1.25, 1))
    sizes = evaluation.sizes
    _plot_way(left, evaluation, Way.FORECAST, color=MUTED_COLOR, marker="x", label="forecast only, no data")
    _plot_way(left, evaluation, Way.EXACT_ECHO, color=NAIVE_COLOR, marker="+", label="echo of exact demand")
    for number, noise in enumerate(evaluation.promises):
        color, marker = _PROMISE_COLORS[number % 3], _MARKERS[number % len(_MARKERS)]
        errors = [100 * of_size[number].results[Way.PRIVATE].error for of_size in evaluation.comparisons.values()]
        left.plot(sizes, errors, color=color, marker=marker, ms=5, lw=2, label=f"private: {noise.short}")
        shares = [100 * of_size[number].value_of_data for of_size in evaluation.comparisons.values()]
        right.plot(sizes, shares, color=color, marker=marker, ms=5, lw=2)
    _plot_way(left, evaluation, Way.EXACT, color=TEXT_COLOR, marker=".", label="prediction from exact demand")
    left.set_ylim(bottom=0)
    left.set_ylabel("rms error of the demand, % of its mean")
    right.axhline(100, color=TEXT_COLOR, lw=1, ls=":")
    right.set_ylim(min([0, *right.get_ylim()]), 105)
    right.set_ylabel("% of what exact data add")
    set_axes_title(left, "How many homes do I need?", "error of the demand that a price is made for; lower is better")
    set_axes_title(right, "How much of what data add is kept?", "0 %: as good as the forecast; 100 %: as exact data")
    for axes in (left, right):
        _set_size_axis(axes, sizes)
    _set_legend(drawn, left, 3)
    return drawn


def draw_promise_figure(evaluation: Evaluation) -> Figure:
    """Error and loss from no data, over each promise, to exact data, one line for each size."""
    drawn = Figure(figsize=(11, 5.2), layout="constrained")
    panels = drawn.subplots(1, 2)
    order = sorted(range(len(evaluation.promises)), key=lambda number: -evaluation.promises[number].law.sd)
    names = [
        "no data:\nforecast only",
        *(_wrap(evaluation.promises[n].short) for n in order),
        "exact data,\nno promise",
    ]
    colors = _SIZE_COLORS[-len(evaluation.sizes) :]
    for number, (homes, of_size) in enumerate(evaluation.comparisons.items()):
        plain = of_size[0].results
        results = [plain[Way.FORECAST], *(of_size[n].results[Way.PRIVATE] for n in order), plain[Way.EXACT]]
        look = {"color": colors[number % len(colors)], "marker": _MARKERS[number % 5], "ms": 5, "lw": 2}
        label = f"{homes:,} homes"
        panels[0].plot(range(len(names)), [100 * result.error for result in results], label=label, **look)
        panels[1].plot(range(len(names)), [result.loss for result in results], label=label, **look)
    panels[0].set_ylabel("rms error of the demand, % of its mean")
    panels[1].set_ylabel("EUR per household and year")
    set_axes_title(panels[0], "What does a stronger promise cost me?", "error of the demand that a price is made for")
    set_axes_title(panels[1], "The same in money", "welfare lost to the best price, by a predicted price")
    for axes in panels:
        axes.set_ylim(bottom=0)
        axes.set_xlim(-0.3, len(names) - 0.7)
        axes.set_xticks(range(len(names)), names, fontsize=8.5)
        _set_style(axes)
    _set_legend(drawn, panels[0], 5)
    return drawn


def _plot_way(axes: Axes, evaluation: Evaluation, way: Way, *, color: str, marker: str, label: str) -> None:
    errors = [100 * of_size[0].results[way].error for of_size in evaluation.comparisons.values()]
    axes.plot(evaluation.sizes, errors, color=color, marker=marker, ms=6, lw=1.6, ls="--", label=label)


def _set_legend(figure: Figure, axes: Axes, columns: int) -> None:
    """One legend for both panels, below them."""
    lines, labels = axes.get_legend_handles_labels()
    figure.legend(
        lines, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=9, labelcolor=TEXT_COLOR
    )


def _set_size_axis(axes: Axes, sizes: tuple[int, ...]) -> None:
    axes.set_xscale("log")
    axes.set_xticks(sizes)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda homes, _: f"{homes:,.0f}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("homes in the zone")
    _set_style(axes)


def _set_style(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=TEXT_COLOR)
    axes.grid(axis="y", color="#e6eaee", lw=0.8)
    axes.set_axisbelow(True)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_color(TEXT_COLOR)


def _wrap(promise: str) -> str:
    """
    >>> _wrap("any 24 h: epsilon 1 + any moment: 1")
    'any 24 h:\\nepsilon 1 +\\nany moment: 1'
    """
    return promise.replace("h: epsilon", "h:\nepsilon").replace("d: epsilon", "d:\nepsilon").replace(" + ", " +\n")
