"""What one moment leaks on an endless stream, and the noise that a promise about it takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from murmurate.household.occupancy import Chains
from murmurate.lab.comparisons import cao_leakage, group_privacy_scale, markov_quilt_scale
from murmurate.lab.figures import INK, MUTED, NAIVE, PRIVATE, title
from murmurate.lab.worlds import paper_calendar, paper_habits
from murmurate.privacy.leakage import Loss, epsilon_for_leakage, periodic_laws, periodic_leakage
from murmurate.quantities import QUARTER_HOURS_PER_DAY

_POINTS = 60


def draw(path: Path) -> None:
    """Write the figure to `path`, in the format its suffix names."""
    chains = _paper_habits()
    figure = Figure(figsize=(12, 4.9), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    _draw_leakage(left, chains)
    _draw_scales(right, chains)
    figure.savefig(path, dpi=200, metadata={"Date": None} if path.suffix == ".svg" else None)


def _paper_habits() -> Chains:
    """The paper's chain with its four periods, no habit perturbed, in its periodic regime."""
    calendar = paper_calendar()
    arrive, leave = (chances[:, None] for chances in paper_habits())
    anywhere = Chains.independent(initial=[0.5], arrive=arrive, leave=leave, period=calendar)
    laws, _ = periodic_laws(anywhere, len(calendar))
    home = np.exp(laws.belief[0, 1])
    return Chains.independent(initial=home, arrive=arrive, leave=leave, period=calendar)


def _draw_leakage(axes: Axes, chains: Chains) -> None:
    at = 0.5  # the paper's epsilon
    epsilon = np.sort(np.append(np.geomspace(0.01, 1, _POINTS), at))
    day = np.ones(QUARTER_HOURS_PER_DAY)
    exact = np.array([periodic_leakage(chains, Loss.symmetric(e)).max() for e in epsilon])
    cao = np.array([cao_leakage(chains, e * day).max() for e in epsilon])
    lines = (
        (epsilon * QUARTER_HOURS_PER_DAY, MUTED, "--", "sum over a day, ε T"),
        (cao, NAIVE, "-", "Cao et al. (2017)"),
        (exact, PRIVATE, "-", "exact (ours)"),
        (epsilon, INK, ":", "one release alone, ε"),
    )
    for leaked, colour, style, label in lines:
        axes.plot(epsilon, leaked, color=colour, ls=style, lw=2.4, label=label)
    for leaked, colour, above in ((exact, PRIVATE, False), (cao, NAIVE, True), (lines[0][0], MUTED, True)):
        value = float(leaked[epsilon == at][0])
        axes.plot(at, value, "o", color=colour, ms=6)
        offset, side = ((-6, 7), "right") if above else ((6, -13), "left")
        axes.annotate(
            f"{value:.3g}", (at, value), offset, textcoords="offset points", ha=side, color=colour, weight="bold"
        )
    axes.set(xscale="log", yscale="log", xlim=(0.01, 1), ylim=(0.008, 120))
    axes.set_xticks([0.01, 0.05, 0.1, 0.5, 1], ["0.01", "0.05", "0.1", "0.5", "1"])
    axes.set_yticks([0.01, 0.1, 1, 10, 100], ["0.01", "0.1", "1", "10", "100"])
    axes.set_xlabel("ε of each release (a quarter hour)", color=INK)
    axes.set_ylabel("leakage of one moment, all releases for ever", color=INK)
    axes.legend(frameon=False, loc="lower right", fontsize=10, labelcolor=INK)
    _tidy(axes)
    title(axes, "What one moment leaks on an endless stream")


def _draw_scales(axes: Axes, chains: Chains) -> None:
    ours = 1 / float(epsilon_for_leakage(chains, 1.0)[0])
    bars = (
        ("group privacy\n(one day only)", group_privacy_scale(1.0, QUARTER_HOURS_PER_DAY), MUTED),
        ("Markov quilt\n(Song et al. 2017)", markov_quilt_scale(chains, 1.0), NAIVE),
        ("moment + range\n(ours)", ours, PRIVATE),
    )
    for place, (_, scale, colour) in enumerate(bars):
        axes.barh(place, scale, color=colour, height=0.58)
        axes.text(scale + 1.5, place, f"{scale:.1f}", va="center", color=INK, fontsize=12, weight="bold")
    axes.set_yticks(range(len(bars)), [label for label, _, _ in bars], fontsize=10.5)
    axes.invert_yaxis()
    axes.set_xlim(0, 112)
    axes.set_xlabel("scale b of the noise on demand, in units of a home's bound u", color=INK)
    _tidy(axes)
    axes.tick_params(axis="y", length=0)
    title(axes, "Noise for leakage 1 of every moment")


def _tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK, which="both")
