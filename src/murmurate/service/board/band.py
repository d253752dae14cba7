"""How far the noise moves a price: where the price without it lies, in 95 of 100 intervals.

A measured price is f(Y) with Y = Z + K, f the tariff's curve and K the noise. With |K| <= h in 95 % of all draws, f(Z)
is between f(Y - h) and f(Y + h). Pr[|K| > h] is about e^(-h/b) for Laplace noise of scale b, so h = b ln 20; for
Gaussian noise h = 1.96 b; for Huber noise it follows from the area of its core and its tails. It is a function of what
is published, and tells nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import exp, log, pi, sqrt

import numpy as np
from scipy.special import ndtr, ndtri

from murmurate.curator.terms import Terms
from murmurate.pricing.rate import RateCurve
from murmurate.privacy.noise import NoiseLaw
from murmurate.quantities import IntArray
from murmurate.service.board.view import Price

_OUTSIDE = 0.05
_FAR_WH = 2**40  # no zone draws more in an interval


def reach_wh(law: NoiseLaw, scale_wh: float, core_wh: int = 0) -> int:
    """What the noise stays within in 95 % of all draws [Wh].

    >>> reach_wh(NoiseLaw.LAPLACE, 1000.0), reach_wh(NoiseLaw.GAUSSIAN, 1000.0), reach_wh(NoiseLaw.HUBER, 1000.0, 2000)
    (2996, 1960, 3374)
    """
    if law is NoiseLaw.GAUSSIAN:
        return round(-float(ndtri(_OUTSIDE / 2)) * scale_wh)
    deviation = sqrt(scale_wh * core_wh)
    tails = 2 * scale_wh * exp(-core_wh / (2 * scale_wh))
    core = deviation * sqrt(2 * pi) * (2 * ndtr(core_wh / deviation) - 1) if core_wh else 0.0
    beyond = tails / (tails + core)
    if beyond >= _OUTSIDE:
        return round(core_wh + scale_wh * log(beyond / _OUTSIDE))
    within = (_OUTSIDE - beyond) * (tails + core) / (2 * deviation * sqrt(2 * pi))
    return round(deviation * float(ndtri(ndtr(core_wh / deviation) - within)))


def band(terms: Terms, prices: Sequence[Price]) -> dict[int, tuple[float, float]]:
    """Lower and upper edge [currency/kWh] by interval, of each measured price that the tariff of `terms` has made."""
    own = [price for price in prices if price.scale_wh is not None and price.tick == terms.curve.tick]
    if not own or not _rises(terms.curve):
        return {}
    ticks = np.array([price.ticks or 0 for price in own], np.int64)
    reach = np.array([reach_wh(terms.law, price.scale_wh or 0.0, price.core_wh) for price in own], np.int64)
    low = terms.curve.price_ticks(_first_at_least(terms.curve, ticks) - reach).tolist()
    high = terms.curve.price_ticks(_first_at_least(terms.curve, ticks + 1) - 1 + reach).tolist()
    tick = terms.curve.tick
    return {price.interval: (float(a * tick), float(b * tick)) for price, a, b in zip(own, low, high, strict=True)}


def _first_at_least(curve: RateCurve, ticks: IntArray) -> IntArray:
    """The smallest demand [Wh] whose price is at least so many ticks, within what a zone can draw."""
    low, high = np.full_like(ticks, -_FAR_WH), np.full_like(ticks, _FAR_WH)
    while (high - low).any():
        middle = (low + high) // 2
        enough = curve.price_ticks(middle) >= ticks
        low, high = np.where(enough, low, middle + 1), np.where(enough, middle, high)
    return low


def _rises(curve: RateCurve) -> bool:
    """Whether more demand never makes a lower price."""
    steps = (after.price - before.price for before, after in pairwise(curve.segments))
    gaps = (before.slope * (after.from_wh - before.from_wh) / 1000 for before, after in pairwise(curve.segments))
    return all(piece.slope >= 0 for piece in curve.segments) and all(s >= g for s, g in zip(steps, gaps, strict=True))
