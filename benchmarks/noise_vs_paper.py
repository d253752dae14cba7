"""The rms noise on the demand for the same promise under the paper's rule and under ours.

    python -m benchmarks.noise_vs_paper

Laws U(0, u/2) away and U(0, u) at home, the paper's; u = 1000 Wh; figures in u (docs/explanation/theory.md,
sections 3.4 and 4.8). `range` asks nothing of consumption: it is the rule of every plan. `shift` and `exact` are
research (`research.consumption_laws`): ranks must not answer to occupancy, readings must be independent over time.
Ends with status 1 if a gain over the paper's rule misses its target:
- interval, epsilon 1/2, `exact`: at least 3.3;
- day, (1, 1e-6), Gaussian `exact`: at least 9;
- every moment 1, for ever, `range`: at least 3.7.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from fractions import Fraction
from math import sqrt
from typing import NamedTuple

import numpy as np
from research.consumption_laws import RULES, calibrate_scale, gaussian_pair_curve, laplace_pair_curve, shift_wh
from research.paper.related_mechanisms import group_privacy_scale
from research.paper.simulated_zones import paper_calendar, paper_habits

from benchmarks.goals import Goals
from murmurate.household.occupancy import OccupancyChains
from murmurate.privacy.accountant import PldAccountant, PrivacyEvent
from murmurate.privacy.calibration import min_scale
from murmurate.privacy.divergence import GaussianCurve, HuberCurve, PrivacyCurve, SecretPair
from murmurate.privacy.leakage import epsilon_for_leakage, periodic_distributions

U_WH = 1000
PAPER = SecretPair.from_pmfs([1 / 501] * 501 + [0] * 500, [1 / 1001] * 1001)  # U(0, u/2) and U(0, u)
DAY = 96


class Row(NamedTuple):
    noise: str
    rms: float  # in u
    target: float | None = None  # least gain over the paper's rule


def laplace_rms(epsilon: Fraction, rule: str) -> float:
    """Return the rms of the noise that keeps epsilon in one interval, in u."""
    return sqrt(2) * calibrate_scale(PAPER, epsilon, rule) / U_WH


def interval(epsilon: Fraction) -> list[Row]:
    """The paper's rule is `range`."""
    targets = {"exact": 3.3}
    return [Row(f"Laplace {rule}", laplace_rms(epsilon, rule), targets.get(rule)) for rule in RULES]


def day(delta: float) -> list[Row]:
    """(1, delta) for a day's trajectory. The paper's rule is pure: epsilon T = 1 (its Theorem 2)."""

    def least(curve: Callable[[float], PrivacyCurve]) -> float:
        def keeps(scale: float) -> bool:
            return PldAccountant().epsilon([(PrivacyEvent((curve(scale),)), DAY)], delta) <= 1

        return min_scale(keeps, DAY * float(U_WH), tolerance=1e-4) / U_WH

    return [
        Row("Laplace range, epsilon T", laplace_rms(Fraction(1, DAY), "range")),
        Row("Laplace range", sqrt(2) * least(lambda scale: HuberCurve(U_WH, scale, 0))),
        Row("Gaussian range", least(lambda sigma: GaussianCurve(U_WH, sigma))),
        Row("Gaussian shift", least(lambda sigma: GaussianCurve(shift_wh(PAPER), sigma))),
        Row("Laplace exact", sqrt(2) * least(lambda scale: laplace_pair_curve(PAPER, scale))),
        Row("Gaussian exact", least(lambda sigma: gaussian_pair_curve(PAPER, sigma)), 9.0),
    ]


def paper_chain() -> OccupancyChains:
    """The paper's four periods of a day, habits not perturbed, in their periodic regime."""
    calendar = paper_calendar()
    arrive, leave = (chances[:, None] for chances in paper_habits())
    started = OccupancyChains.independent(initial=[0.5], arrive=arrive, leave=leave, period=calendar)
    settled = np.exp(periodic_distributions(started, DAY)[0].belief[0, 1])
    return OccupancyChains.independent(initial=settled, arrive=arrive, leave=leave, period=calendar)


def moment(leakage: float) -> list[Row]:
    """Every moment given all releases, for ever. The paper's rule is group privacy over a day, and ends with it."""
    epsilon = Fraction(epsilon_for_leakage(paper_chain(), leakage))
    targets = {"range": 3.7}
    ours = [Row(f"Laplace {rule}, by moment", laplace_rms(epsilon, rule), targets.get(rule)) for rule in RULES]
    return [Row("Laplace range, group of a day", sqrt(2) * group_privacy_scale(leakage, DAY)), *ours]


def main() -> int:
    """Print the noise of each promise, the paper's rule first. Return 1 where a gain over it misses its goal."""
    goals = Goals()
    tables = {
        "interval, 1/2": interval(Fraction(1, 2)),
        "day, (1, 1e-6)": day(1e-6),
        "every moment 1, for ever": moment(1.0),
    }
    for promise, rows in tables.items():
        for row in rows:
            goals.print_figure(f"{promise}: {row.noise}, rms", row.rms, "u")
            if row.target is not None:
                goals.print_figure("  the paper's rule / this", rows[0].rms / row.rms, at_least=row.target)
    return goals.exit_status()


if __name__ == "__main__":
    sys.exit(main())
