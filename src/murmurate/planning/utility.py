"""The utility of a plan: errors of demand, price and bill due to its noise, and those of a forecast without data."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from murmurate.planning.plan import Plan
from murmurate.planning.plan_prediction import expected_day
from murmurate.units import WH_PER_KWH, FloatArray

DAYS_PER_YEAR = 365
FORECAST_ERROR_SHARE = 0.10  # by which the demand lies above the forecast in `Utility.wrong_forecast_error_wh`


class Utility(NamedTuple):
    """The errors and the yearly costs of a plan."""

    release_error_wh: float  # rms error of a release over a day: its noise
    forecast_error_wh: float  # the same of a forecast without data, if the models are right
    wrong_forecast_error_wh: float  # the same if the demand lies 10 % above the forecast
    mean_price: float  # mean public price [money/kWh]
    price_error: float  # rms [money/kWh]
    misallocation: float  # cost of mispricing, alpha Var/2 summed over a year [money]
    bill: float  # yearly bill of a typical household [money]
    bill_error: float  # rms change of the bill due to the noise [money]


def plan_utility(plan: Plan) -> Utility:
    """Return what the noise of a plan costs: errors of demand and price, misallocation, effect on a bill.

    All numbers are closed forms of the public numbers of the plan. No reading is used.

    Args:
        plan: The plan.

    Returns:
        A named tuple: `release_error_wh`, `forecast_error_wh` and `wrong_forecast_error_wh` (root mean square errors of
        the demand [Wh] as released, as forecast, and as forecast if the demand lies 10 % above it), `mean_price` and
        `price_error` [money/kWh], `misallocation` [money/year], `bill` and `bill_error` of one household [money/year].

    Example:
        >>> import murmurate as mm
        >>> text = mm.EXAMPLE_ZONE_FILE.replace("any 24 h: epsilon 1, delta 1e-6", "interval: 0.5")
        >>> text = text.replace(', "any moment: 1"', "")
        >>> cost = mm.plan_utility(mm.make_plan(mm.parse_zone(text)))
        >>> round(cost.mean_price, 4), round(cost.price_error, 4)
        (0.1154, 0.0006)
    """
    zone, noise = plan.zone, plan.noise_variance
    expected_wh, variance = zone.forecast_moments
    bias_wh, error_wh = FORECAST_ERROR_SHARE * expected_wh, np.sqrt(noise)
    forecast_error, wrong_forecast_error = _rms(variance), _rms(variance + bias_wh**2)
    if plan.prediction is not None:
        expected_wh = expected_day(zone, plan.prediction)
        usual_wh = plan.prediction.scale * plan.prediction.model.mean_wh
        error_wh = np.full_like(expected_wh, plan.prediction.predicted_error * usual_wh)
    curve = zone.curve
    starts = np.array([segment.from_wh for segment in curve.segments[1:]])
    slope = np.array([float(segment.slope) for segment in curve.segments])  # alpha [money/kWh per kWh]
    slope = slope[np.searchsorted(starts, expected_wh, side="right")]
    for at, wh in enumerate(expected_wh):
        cost = curve.marginal_cost(int(wh))
        below, above = curve.floor is not None and cost < curve.floor, curve.cap is not None and cost > curve.cap
        if below or above:
            slope[at] = 0.0
    price = np.array([float(curve.price(int(wh))) for wh in expected_wh])
    error_kwh, use_kwh = error_wh / WH_PER_KWH, expected_wh / WH_PER_KWH / zone.household_count
    return Utility(
        release_error_wh=_rms(noise),
        forecast_error_wh=forecast_error,
        wrong_forecast_error_wh=wrong_forecast_error,
        mean_price=float(price.mean()),
        price_error=float(np.sqrt(np.mean((slope * error_kwh) ** 2))),
        misallocation=float(DAYS_PER_YEAR * np.sum(slope * error_kwh**2 / 2)),
        bill=float(DAYS_PER_YEAR * np.sum(use_kwh * price)),
        bill_error=float(np.sqrt(DAYS_PER_YEAR * np.sum((use_kwh * slope * error_kwh) ** 2))),
    )


def _rms(variance: FloatArray) -> float:
    return float(np.sqrt(np.mean(variance)))
