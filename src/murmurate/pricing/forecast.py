"""The public forecast of the demand: a profile and a causal Kalman filter.

The profile uses no reading. The filter combines it with the noisy releases so far. Both are functions of public
numbers, so neither costs privacy (docs/explanation/theory.md, section 5.2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from murmurate.errors import TariffError
from murmurate.units import FloatArray, IntArray

_CONVERGENCE_DAYS = 60  # iterations until the gains of a daily filter are periodic


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forecast:
    """The expected demand of a day, and its deviation x_t = a_t x_{t-1} + innovation."""

    profile_wh: FloatArray  # [interval of the day]
    variance: FloatArray  # [interval of the day] of the true demand around the profile [Wh^2]
    ar_coefficient: FloatArray  # [interval of the day] share of the previous deviation that remains

    def __post_init__(self) -> None:
        if not self.profile_wh.shape == self.variance.shape == self.ar_coefficient.shape or not len(self.profile_wh):
            shapes = (self.profile_wh.shape, self.variance.shape, self.ar_coefficient.shape)
            raise TariffError(
                "forecast", shapes, "profile, variance and carry must have one entry per interval of the day"
            )

    @property
    def innovation_variance(self) -> FloatArray:
        """The variance of the innovation in each interval: V_t - a_t^2 V_{t-1} [Wh^2]."""
        return np.maximum(self.variance - self.ar_coefficient**2 * np.roll(self.variance, 1), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KalmanFilter:
    """A Kalman filter that repeats daily: estimate = predicted + gain (published - predicted)."""

    profile_wh: FloatArray
    ar_coefficient: FloatArray
    gain: FloatArray  # [interval of the day]
    error_variance: FloatArray  # [interval of the day] of the estimate, if the profile is correct [Wh^2]

    def estimate_demand(self, noisy_wh: IntArray) -> FloatArray:
        """Return estimates of the demand [Wh]. Each uses the releases up to its interval."""
        day, deviation = len(self.profile_wh), 0.0
        estimates = np.zeros(len(noisy_wh))
        for t, noisy in enumerate(noisy_wh):
            predicted = self.ar_coefficient[t % day] * deviation
            deviation = predicted + self.gain[t % day] * (noisy - self.profile_wh[t % day] - predicted)
            estimates[t] = self.profile_wh[t % day] + deviation
        return estimates


def make_kalman_filter(forecast: Forecast, noise_variance: FloatArray) -> KalmanFilter:
    """Return the least-squares causal filter for noise of this variance [Wh^2, interval of the day].

    P- = a^2 P + Q;  K = P-/(P- + R);  P = (1 - K) P-, iterated over days until it is periodic.

    >>> level = Forecast(profile_wh=np.zeros(1), variance=np.ones(1), ar_coefficient=np.zeros(1))
    >>> make_kalman_filter(level, np.ones(1)).gain.tolist()
    [0.5]
    """
    day = len(forecast.profile_wh)
    gain, error = np.zeros(day), np.zeros(day)
    variance_left = float(forecast.variance[-1])
    innovation = forecast.innovation_variance
    for t in range(_CONVERGENCE_DAYS * day):
        predicted = forecast.ar_coefficient[t % day] ** 2 * variance_left + innovation[t % day]
        gain[t % day] = predicted / (predicted + noise_variance[t % day]) if predicted > 0 else 0.0
        variance_left = (1 - gain[t % day]) * predicted
        error[t % day] = variance_left
    return KalmanFilter(
        profile_wh=forecast.profile_wh, ar_coefficient=forecast.ar_coefficient, gain=gain, error_variance=error
    )


def profile_error_bias(kalman_filter: KalmanFilter, bias_wh: FloatArray) -> FloatArray:
    """Return the mean error [Wh] of the filter if the demand is `bias_wh` [interval of the day] above the profile.

    b_t = (1 - K_t) (a_t (b_{t-1} + c_{t-1}) - c_t), iterated over days until it is periodic.
    """
    day, error = len(kalman_filter.gain), 0.0
    errors = np.zeros(day)
    for t in range(_CONVERGENCE_DAYS * day):
        now, before = bias_wh[t % day], bias_wh[(t - 1) % day]
        error = (1 - kalman_filter.gain[t % day]) * (kalman_filter.ar_coefficient[t % day] * (error + before) - now)
        errors[t % day] = error
    return errors
