"""What anybody can expect of the demand, and how to use it: a public profile and a causal filter.

The profile reads no meter. The filter weighs it against the noisy releases published so far; both are functions of
public numbers, so neither costs privacy (THEORY, section 5).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from murmurate.errors import TariffError
from murmurate.quantities import FloatArray, IntArray

_DAYS = 60  # until the gains of a daily filter repeat


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forecast:
    """A day's expected demand, and how the true demand strays from it: x_t = carry_t x_{t-1} + fresh noise."""

    profile_wh: FloatArray  # [interval of the day]
    variance: FloatArray  # [interval of the day] of the true demand around the profile [Wh^2]
    carry: FloatArray  # [interval of the day] how much of yesterinterval's straying is still there

    def __post_init__(self) -> None:
        if not self.profile_wh.shape == self.variance.shape == self.carry.shape or not len(self.profile_wh):
            shapes = (self.profile_wh.shape, self.variance.shape, self.carry.shape)
            raise TariffError(
                "forecast", shapes, "profile, variance and carry must have one entry per interval of the day"
            )

    @property
    def fresh(self) -> FloatArray:
        """Variance of what is new in each interval: V_t - carry_t^2 V_{t-1} [Wh^2]."""
        return np.maximum(self.variance - self.carry**2 * np.roll(self.variance, 1), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Filter:
    """A Kalman filter that repeats daily: estimate = predicted + gain (published - predicted)."""

    profile_wh: FloatArray
    carry: FloatArray
    gain: FloatArray  # [interval of the day]
    error_variance: FloatArray  # [interval of the day] of the estimate, if the profile is right [Wh^2]

    def apply(self, noisy_wh: IntArray) -> FloatArray:
        """Estimates of the demand [Wh] from released values, each from those up to its own interval."""
        day, straying = len(self.profile_wh), 0.0
        estimates = np.zeros(len(noisy_wh))
        for t, noisy in enumerate(noisy_wh):
            predicted = self.carry[t % day] * straying
            straying = predicted + self.gain[t % day] * (noisy - self.profile_wh[t % day] - predicted)
            estimates[t] = self.profile_wh[t % day] + straying
        return estimates


def make_filter(forecast: Forecast, noise_variance: FloatArray) -> Filter:
    """The least-squares causal filter for noise of that variance [Wh^2, interval of the day].

    P- = carry^2 P + fresh;  K = P-/(P- + R);  P = (1 - K) P-, day after day until it repeats.

    >>> level = Forecast(profile_wh=np.zeros(1), variance=np.ones(1), carry=np.zeros(1))
    >>> make_filter(level, np.ones(1)).gain.tolist()
    [0.5]
    """
    day = len(forecast.profile_wh)
    gain, error = np.zeros(day), np.zeros(day)
    known = float(forecast.variance[-1])
    fresh = forecast.fresh
    for t in range(_DAYS * day):
        predicted = forecast.carry[t % day] ** 2 * known + fresh[t % day]
        gain[t % day] = predicted / (predicted + noise_variance[t % day]) if predicted > 0 else 0.0
        known = (1 - gain[t % day]) * predicted
        error[t % day] = known
    return Filter(profile_wh=forecast.profile_wh, carry=forecast.carry, gain=gain, error_variance=error)


def wrong_profile_bias(chosen: Filter, bias_wh: FloatArray) -> FloatArray:
    """The mean error [Wh] of the filter where the true demand lies `bias_wh` [interval of the day] above the profile.

    b_t = (1 - K_t) (carry_t (b_{t-1} + c_{t-1}) - c_t), day after day until it repeats.
    """
    day, error = len(chosen.gain), 0.0
    found = np.zeros(day)
    for t in range(_DAYS * day):
        now, before = bias_wh[t % day], bias_wh[(t - 1) % day]
        error = (1 - chosen.gain[t % day]) * (chosen.carry[t % day] * (error + before) - now)
        found[t % day] = error
    return found
