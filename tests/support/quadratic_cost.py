"""The cost of generation whose marginal rate is affine."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple


class QuadraticCost(NamedTuple):
    """The cost of generation J(Z) = alpha/2 Z^2 + beta Z + gamma [money], Z in kWh (paper, section II-A)."""

    alpha: Fraction
    beta: Fraction
    gamma: Fraction

    def cost(self, demand_wh: int) -> Fraction:
        """J(Z) [money]."""
        z = Fraction(demand_wh, 1000)
        return self.alpha / 2 * z * z + self.beta * z + self.gamma
