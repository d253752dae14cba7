"""What a plan's noise costs the zone: in price, in money, on a bill; beside it what needs no data at all."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from murmurate.curator.plan import Plan
from murmurate.pricing.forecast import make_filter, wrong_profile_bias
from murmurate.quantities import WH_PER_KWH, FloatArray, IntArray

DAYS_PER_YEAR = 365
WRONG_PROFILE = 0.10  # the share by which the profile of the second column is off


class Errors(NamedTuple):
    """Root mean square errors of the demand over a day [Wh]: what is published, filtered, and forecast alone."""

    raw: float
    filtered: float
    forecast: float


class Utility(NamedTuple):
    """The price of a promise."""

    right: Errors  # the public profile is right
    wrong: Errors  # the true demand lies 10 % above it
    price: float  # mean public price [money/kWh]
    price_error: float  # rms [money/kWh]
    misallocation: float  # cost of mispricing, alpha Var/2 summed over a year [money]
    bill: float  # a typical household's year [money]
    bill_error: float  # rms of what the noise adds to or takes from it [money]


def utility(plan: Plan) -> Utility:
    """The errors and costs of a plan, in closed form from its public numbers."""
    zone, noise = plan.zone, plan.noise_variance
    forecast = zone.forecast
    chosen = make_filter(forecast, noise)
    bias = WRONG_PROFILE * forecast.profile_wh
    right = Errors(_rms(noise), _rms(chosen.error_variance), _rms(forecast.variance))
    wrong = Errors(
        _rms(noise),
        _rms(chosen.error_variance + wrong_profile_bias(chosen, bias) ** 2),
        _rms(forecast.variance + bias**2),
    )
    slope = _slope(plan)
    price = np.array([float(zone.curve.price(int(wh))) for wh in forecast.profile_wh])
    error_kwh = np.sqrt(chosen.error_variance if zone.filtered else noise) / WH_PER_KWH
    use_kwh = forecast.profile_wh / WH_PER_KWH / zone.households
    return Utility(
        right=right,
        wrong=wrong,
        price=float(price.mean()),
        price_error=float(np.sqrt(np.mean((slope * error_kwh) ** 2))),
        misallocation=float(DAYS_PER_YEAR * np.sum(slope * error_kwh**2 / 2)),
        bill=float(DAYS_PER_YEAR * np.sum(use_kwh * price)),
        bill_error=float(np.sqrt(DAYS_PER_YEAR * np.sum((use_kwh * slope * error_kwh) ** 2))),
    )


def _rms(variance: FloatArray) -> float:
    return float(np.sqrt(np.mean(variance)))


def _slope(plan: Plan) -> FloatArray:
    """alpha where the forecast lies on the curve [money/kWh per kWh, interval of the day]."""
    segments = plan.zone.curve.segments
    starts = np.array([segment.from_wh for segment in segments[1:]])
    piece = np.searchsorted(starts, plan.zone.forecast.profile_wh, side="right")
    return np.array([float(segment.slope) for segment in segments])[piece]


class Cap(NamedTuple):
    """A bound on readings, and what it costs: noise that grows with it, and a bias from what it cuts off [Wh]."""

    bound_wh: int
    noise: float
    bias: float

    @property
    def error(self) -> float:
        return float(np.hypot(self.noise, self.bias))


def best_cap(sample_wh: IntArray, households: int, scale_per_bound: float, candidates: int = 200) -> Cap:
    """The bound with the least total error for a zone like the sample [interval, household].

    error^2 = 2 (bound * scale_per_bound)^2 + (households * mean of what lies above the bound)^2, for Laplace noise of
    scale bound * scale_per_bound. Choose it from public, consented or old data: the bound itself is published.

    >>> best_cap(np.array([[100, 200, 5000]] * 4), households=3, scale_per_bound=2.0).bound_wh
    200
    """
    levels = np.unique(np.quantile(sample_wh, np.linspace(0.5, 1.0, candidates), method="higher").astype(np.int64))
    caps = [
        Cap(
            int(level),
            float(np.sqrt(2) * level * scale_per_bound),
            float(households * np.maximum(sample_wh - level, 0).mean()),
        )
        for level in levels[levels >= 1]
    ]
    return min(caps, key=lambda cap: cap.error)
