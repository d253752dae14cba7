"""The cost of generation whose marginal rate is affine."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from murmurate.errors import TariffError
from murmurate.pricing.rate import ExactNumber, RateCurve
from murmurate.units import wh_to_kwh


@dataclass(frozen=True, slots=True, kw_only=True)
class QuadraticCost:
    """The cost of generation J(Z) = alpha/2 Z^2 + beta Z + gamma [money], Z in kWh (paper, section II-A).

    >>> cost = QuadraticCost(alpha=Fraction(1), beta=Fraction(125, 2))
    >>> str(cost.cost(2000)), str(cost.rate_curve(tick="0.001").price(2000))
    ('127', '129/2')
    """

    alpha: Fraction
    beta: Fraction
    gamma: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if self.alpha <= 0:
            raise TariffError("alpha", self.alpha, "must be positive, or the cost has no least point")

    def cost(self, demand_wh: int) -> Fraction:
        """J(Z) [money]."""
        z = wh_to_kwh(demand_wh)
        return self.alpha / 2 * z * z + self.beta * z + self.gamma

    def rate_curve(
        self, *, tick: ExactNumber, floor: ExactNumber | None = None, cap: ExactNumber | None = None
    ) -> RateCurve:
        """The marginal rate r = J'(Z) = alpha Z + beta."""
        return RateCurve.affine(alpha=self.alpha, beta=self.beta, tick=tick, floor=floor, cap=cap)
