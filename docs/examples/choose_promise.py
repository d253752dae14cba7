"""What a promise means and what it costs: a table and a figure.

python docs/examples/choose_promise.py --out promise.svg

Left: how sure an observer may become, who has no idea before. Right: by how much the price is off, by promise and by
the number of homes. All numbers are computed by the planner, from public numbers: no reading is used.
"""

from __future__ import annotations

import argparse
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import murmurate as mm
from murmurate.lab.plot_style import MUTED_COLOR, NAIVE_COLOR, PRIVATE_COLOR, TEXT_COLOR, set_axes_title
from murmurate.planning.plan_prediction import forecast_errors, make_zone_prediction

PROMISES = (("365 d", "4"), ("365 d", "8"), ("24 h", "1/2"), ("24 h", "1"), ("24 h", "4"))  # any window: epsilon
HOMES = (100, 300, 1_000, 10_000, 100_000)
LINES = (("s-", PRIVATE_COLOR), ("s:", PRIVATE_COLOR), ("o-", MUTED_COLOR), ("o-", TEXT_COLOR), ("o-", NAIVE_COLOR))
ZONE = """
name = "example"
currency = "EUR"
promise = ["any {window}: epsilon {epsilon}, delta 1e-6"]
tariff = {{ alpha = "0.0002", beta = "0.08", tick = "0.00001" }}
[occupancy.resident]
periods = {{ morning = "07:00", noon = "08:00", evening = "16:00", night = "23:00" }}
arrive = {{ morning = 0.98, noon = 0.05, evening = 0.99, night = 0.01 }}
leave = {{ morning = 0.05, noon = 0.95, evening = 0.05, night = 0.995 }}
[[households]]
name = "flat"
count = {homes}
bound_wh = 1000
away = {{ uniform_to = 300 }}
home = {{ uniform_to = 600 }}
occupancy = "resident"
[forecast]
from = "occupancy"
"""


class Cost(NamedTuple):
    """Root mean square error of the demand that is priced, in % of its mean."""

    forecast: float  # no meter is read
    private: float
    exact: float  # exact demand is published


Costs = dict[tuple[str, str], list[Cost]]  # by promise


def surest_guess(epsilon: float, before: float = 0.5) -> float:
    """Return how sure an observer may become, who gave `before` to "home", by a price that is private by epsilon.

    >>> round(surest_guess(1.0), 2)
    0.73
    """
    odds = np.exp(epsilon) * before / (1 - before)
    return float(odds / (1 + odds))


def format_odds(epsilon: float) -> str:
    """Return what 50:50 becomes at worst, rounded up, as pages show it.

    >>> format_odds(1.0)
    '74 : 26'
    """
    sure = ceil(100 * surest_guess(epsilon))
    return f"{sure} : {100 - sure}"


def cost_by_homes(window: str, epsilon: str) -> list[Cost]:
    """Return what a promise costs in zones of each size. The noise is the same in all of them."""
    noise = mm.make_plan(mm.parse_zone(ZONE.format(window=window, epsilon=epsilon, homes=HOMES[0]))).noise
    costs = []
    for homes in HOMES:
        zone = mm.parse_zone(ZONE.format(window=window, epsilon=epsilon, homes=homes))
        errors = forecast_errors(zone, make_zone_prediction(zone, zone.predicted, noise), noise)
        costs.append(Cost(*(100 * error for error in errors)))
    return costs


def draw_odds(axes: Axes) -> None:
    """How sure an observer may become, by epsilon, from three guesses before."""
    epsilons = np.linspace(0, 5, 101)
    for before, style in ((0.5, "-"), (0.1, "--"), (0.01, ":")):
        sure = [100 * surest_guess(epsilon, before) for epsilon in epsilons]
        axes.plot(epsilons, sure, style, color=PRIVATE_COLOR, label=f"{before:.0%} sure before".replace("%", " %"))
    for epsilon in (0.5, 1.0, 2.0, 4.0):
        sure = 100 * surest_guess(epsilon)
        axes.plot(epsilon, sure, "o", color=PRIVATE_COLOR)
        axes.annotate(format_odds(epsilon), (epsilon, sure), (6, -12), textcoords="offset points", fontsize=9)
    axes.set(xlabel="epsilon", ylabel="sure that the home is occupied, at most [%]", xlim=(0, 5), ylim=(0, 100))
    axes.legend(frameon=False, fontsize=8.5, loc="lower right")
    set_axes_title(axes, "What it means", "surest that an observer can become, who may know everything else")


def draw_costs(axes: Axes, costs: Costs) -> None:
    """By how much the price is off, by number of homes, for each promise; between a forecast and exact data."""
    first = next(iter(costs.values()))
    axes.plot(HOMES, [cost.forecast for cost in first], "--", color=MUTED_COLOR, label="forecast only, no meter read")
    for ((window, epsilon), row), (style, color) in zip(costs.items(), LINES, strict=True):
        label = f"any {window}: epsilon {epsilon}"
        axes.plot(HOMES, [cost.private for cost in row], style, ms=4, color=color, label=label)
    axes.plot(HOMES, [cost.exact for cost in first], ":", color=MUTED_COLOR, label="exact demand, not private")
    axes.set(
        xscale="log",
        xticks=HOMES,
        xticklabels=[f"{homes:,}" for homes in HOMES],
        xlabel="homes in the zone",
        ylabel="error of the demand that is priced [%]",
        ylim=(0, None),
    )
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize=8.5)
    set_axes_title(axes, "What it costs", "root mean square, computed by the planner")


def print_costs(costs: Costs) -> None:
    """The numbers of the figure."""
    print("error of the demand that is priced, in % (delta 1e-6)")
    print("              50:50 becomes at most" + "".join(f"{homes:>9,}" for homes in HOMES) + "  homes")
    first = next(iter(costs.values()))
    print(f"{'forecast only':<35}" + "".join(f"{cost.forecast:>9.1f}" for cost in first))
    for (window, epsilon), row in costs.items():
        odds = format_odds(float(Fraction(epsilon)))
        print(
            f"any {window}: epsilon {epsilon:<{13 - len(window)}}{odds:<8}"
            + "".join(f"{cost.private:>9.1f}" for cost in row)
        )
    print(f"{'exact demand, not private':<35}" + "".join(f"{cost.exact:>9.1f}" for cost in first))


def main() -> None:
    """Print the table and write the figure."""
    parser = argparse.ArgumentParser(description="What a promise means and what it costs.")
    parser.add_argument("--out", type=Path, default=Path("promise.svg"))
    out = parser.parse_args().out
    costs = {promise: cost_by_homes(*promise) for promise in PROMISES}
    print_costs(costs)
    mpl.rcParams |= {"svg.hashsalt": "murmurate", "svg.fonttype": "none", "axes.spines.top": False}
    mpl.rcParams |= {"axes.spines.right": False, "font.family": "sans-serif"}
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_odds(left)
    draw_costs(right, costs)
    figure.savefig(out, metadata={"Date": None} if out.suffix == ".svg" else None)
    print(f"The figure is {out}.")


if __name__ == "__main__":
    main()
