"""The figure of leakage: what endless releases reveal about one moment, and the noise that limits it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from murmurate.household.occupancy import OccupancyChains
from murmurate.lab.paper.related_mechanisms import cao_leakage, group_privacy_scale, markov_quilt_scale
from murmurate.lab.paper.simulated_zones import paper_calendar, paper_habits
from murmurate.lab.plot_style import MUTED_COLOR, NAIVE_COLOR, PRIVATE_COLOR, TEXT_COLOR, set_axes_title
from murmurate.privacy.leakage import epsilon_for_leakage, periodic_distributions, periodic_leakage
from murmurate.units import QUARTER_HOURS_PER_DAY

_POINTS = 60


def write_leakage_figure(path: Path) -> None:
    """Write the figure to `path`, in the format of its suffix."""
    chains = _periodic_paper_chains()
    figure = Figure(figsize=(12, 4.9), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    _draw_leakage(left, chains)
    _draw_scales(right, chains)
    figure.savefig(path, dpi=200, metadata={"Date": None} if path.suffix == ".svg" else None)


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
    axes.set_xlabel("ε of each release (a quarter hour)", color=TEXT_COLOR)
    axes.set_ylabel("leakage of one moment, over endless releases", color=TEXT_COLOR)
    axes.legend(frameon=False, loc="lower right", fontsize=10, labelcolor=TEXT_COLOR)
    _style_leakage_axes(axes)
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
    _style_leakage_axes(axes)
    axes.tick_params(axis="y", length=0)
    set_axes_title(axes, "Noise that limits the leakage of every moment to 1")


def _style_leakage_axes(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=TEXT_COLOR, which="both")
