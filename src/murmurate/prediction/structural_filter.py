"""A filter that predicts the demand of the interval that pays, from noisy releases of a zone and of its region.

Demand deviates from its forecast by 22 independent states, each of which fades at its own pace:

    deviation(t) = sum of L_j(t) x_j(t),   x_j(t+1) = a_j x_j(t) + fresh

Some are common to a region and seen in the releases of all its zones together: deviations that last for hours, days or
weeks, a shape of the day, a response to cold. Some belong to a zone: the same, and the households' own chance. Two
belong to the sensor alone: a sum of clipped readings does not show every deviation in full.

Gains depend on public numbers alone. They are computed once, stand in the plan, and repeat daily. The filter itself
adds, multiplies and divides numbers one by one in a fixed order, so it gives the same bits on every machine and anyone
can compute each price again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import NamedTuple

import numpy as np

from murmurate.prediction.forecast import HOURS
from murmurate.prediction.sensor import ClippedSensor
from murmurate.units import BoolArray, FloatArray

COMMON = slice(0, 10)  # of the region: fast, day, slow, shape, heat
COMMON_SHAPE, COMMON_HEAT = slice(3, 9), 9
SHAPE, HEAT, OWN = slice(12, 18), 18, 19  # of the zone; fast and level come before
SENSOR = slice(20, 22)
STATES = 22
OF_DEMAND = slice(0, 20)  # all but those of the sensor
HEATS = [COMMON_HEAT, HEAT]

GAIN_DIGITS = 7
MAX_DEVIATION = 2.0  # a deviation is at most this, and demand is never below a twentieth of its forecast
MIN_DEMAND = 0.05
_CONVERGENCE_DAYS = 40

COMMON_HOURS = (4.0, 36.0, 240.0)
OWN_HOURS = 0.85  # how long the households' own chance lasts
_SHAPE_HOURS, _HEAT_HOURS = (480.0,) * 6, 720.0
_STATE_HOURS = (
    *COMMON_HOURS,
    *_SHAPE_HOURS,
    _HEAT_HOURS,
    6.0,
    480.0,
    *_SHAPE_HOURS,
    _HEAT_HOURS,
    OWN_HOURS,
    2.0,
    120.0,
)
_COMMON_SD = (0.02, 0.02, 0.015, 0.015, 0.01, 0.01, 0.03)  # shape, heat
_ZONE_SD = (0.02, 0.035, 0.02, 0.02, 0.015, 0.015, 0.01, 0.01, 0.02)  # fast, level, shape, heat
_USUAL_COLD_K = 8.0

# cos and sin of 1/96 of a turn; those of the other slots follow by multiplication, the same on every machine
_TURN_PARTS = 96
_COS, _SIN = 0.99785892323860348, 0.06540312923014306
_TURNS = [(1.0, 0.0)]
for _ in range(_TURN_PARTS - 1):
    _TURNS.append((_TURNS[-1][0] * _COS - _TURNS[-1][1] * _SIN, _TURNS[-1][1] * _COS + _TURNS[-1][0] * _SIN))


class Volatility(NamedTuple):
    """How large deviations are, relative to the demand."""

    common: tuple[float, float, float]  # standard deviations: 4 h, 36 h, 10 d
    own: float  # of one household around what is expected of it; a zone of n has 1/sqrt(n) of it
    own_hours: float = OWN_HOURS


def state_deviations(volatility: Volatility, households: int, sensor: ClippedSensor) -> FloatArray:
    """Return the stationary standard deviation of each state of a zone, relative to the demand [state]."""
    own = volatility.own / households**0.5
    return np.array([*volatility.common, *_COMMON_SD, *_ZONE_SD, own, *sensor.mismatch])


def harmonics(slot: int, slots_per_day: int) -> FloatArray:
    """Return cos and sin of one, two and three turns a day, bit for bit the same on every machine.

    >>> np.abs(harmonics(24, 96) - [0, 1, -1, 0, 0, -1]).max() < 1e-12
    np.True_
    """
    part = slot * _TURN_PARTS // slots_per_day
    return np.array([_TURNS[part * turns % _TURN_PARTS] for turns in (1, 2, 3)]).ravel()


@lru_cache(maxsize=2**14)  # the intervals of a season are predicted many times
def demand_loadings(slot: int, slots_per_day: int, cold_k: float) -> FloatArray:
    """Return how much of each state is in the demand of an interval [state]. `cold_k`: K below the heating base."""
    loading = np.ones(STATES)
    loading[SHAPE] = loading[COMMON_SHAPE] = harmonics(slot, slots_per_day)
    loading[HEAT] = loading[COMMON_HEAT] = (cold_k - _USUAL_COLD_K) / _USUAL_COLD_K
    loading[SENSOR] = 0.0
    loading.flags.writeable = False
    return loading


def fit_common(
    residuals: FloatArray, *, own_sd: float, slots_per_day: int = 96, noise_variance: FloatArray | None = None
) -> tuple[float, float, float]:
    """Return the standard deviations of the common states from residuals of a forecast out of sample.

    `own_sd` is what the households of the sample contribute by chance, `noise_variance` is that of noise in the
    residuals, fresh in each interval [interval]. Residuals that are NaN are left out. Non-negative least squares on the
    mean square of the change over each lag, relative to itself: the changes within an hour decide how good a prediction
    can be.
    """
    longest = min(10 * slots_per_day, len(residuals) // 2)
    lags = np.unique(np.geomspace(1, longest, 40).round().astype(int))
    hours = lags * 24 / slots_per_day
    change = np.array([_mean((residuals[lag:] - residuals[:-lag]) ** 2) for lag in lags])
    own = 2 * own_sd**2 * -np.expm1(-hours / OWN_HOURS)
    shapes = -2 * np.expm1(-hours[:, None] / np.array(COMMON_HOURS))
    target = np.maximum(change - own, 0.0)
    if noise_variance is not None:
        of_noise = np.where(np.isfinite(residuals), noise_variance, np.nan)
        target -= np.array([_mean(of_noise[lag:] + of_noise[:-lag]) for lag in lags])
    used = change > 0  # not NaN: some pairs were seen
    shapes, target = shapes[used] / change[used, None], target[used] / change[used]
    best, found = float(np.sum(target**2)), np.zeros(3)
    for chosen in ([0, 1, 2], [0, 1], [0, 2], [1, 2], [0], [1], [2]):  # the best subset with positive coefficients
        values = np.linalg.lstsq(shapes[:, chosen], target, rcond=None)[0]
        left = float(np.sum((target - shapes[:, chosen] @ values) ** 2))
        if (values > 0).all() and left < best:
            best, found = left, np.zeros(3)
            found[chosen] = values
    fast, day, slow = np.sqrt(found).tolist()
    return fast, day, slow


def _mean(numbers: FloatArray) -> float:
    """The mean of those that are numbers; NaN where none is."""
    known = numbers[np.isfinite(numbers)]
    return float(np.mean(known)) if len(known) else float("nan")


@dataclass(frozen=True, slots=True, eq=False)
class StructuralFilter:
    """States of a zone with the gains by which measurements correct them."""

    keep: FloatArray  # [state] share that remains after an interval
    zone_gain: FloatArray  # [hour, state] for the zone's own measurement; those of HEATS are multiplied by loadings
    pool_gain: FloatArray  # [hour, state] for the pooled deviation, likewise
    own_loading: FloatArray  # [slot] of the households' own chance in the measurement
    predicted_error: float  # rms of the prediction, relative to the forecast

    @property
    def slots_per_day(self) -> int:
        return len(self.own_loading)

    def pool(self, states: FloatArray, slot: int, cold_k: float, pooled: float) -> FloatArray:
        """Return the states after the deviation of the other zones in their own interval was seen [state, zone]."""
        loading = demand_loadings(slot, self.slots_per_day, cold_k)
        gain = self._gain(self.pool_gain, slot, loading)
        everywhere = np.ones(states.shape[1], np.bool_)
        return pool_states(states, loading, gain[:, None], np.full(states.shape[1], pooled), everywhere)

    def step(self, states: FloatArray, slot: int, cold_k: float, measured: FloatArray, usable: BoolArray) -> FloatArray:
        """Return the states after the next interval [state, zone].

        `measured` is what the release of each zone shows (`ClippedSensor.read_deviation`), where `usable`.
        """
        loading = demand_loadings(slot, self.slots_per_day, cold_k).copy()
        loading[OWN], loading[SENSOR] = self.own_loading[slot], 1.0
        gain = self._gain(self.zone_gain, slot, loading)
        return step_states(states, self.keep, loading, gain[:, None], measured, usable)

    def _gain(self, gains: FloatArray, slot: int, loading: FloatArray) -> FloatArray:
        return gain_at(gains[slot * HOURS // self.slots_per_day][:, None], loading)[:, 0]

    def predict(self, states: FloatArray, slot: int, cold_k: float, lead: int) -> FloatArray:
        """Return demand over forecast, `lead` intervals after the last step [zone]. `slot`, `cold_k`: of that time."""
        return predict_demand(states, self.keep, demand_loadings(slot, self.slots_per_day, cold_k), lead)


def gain_at(gain: FloatArray, loading: FloatArray) -> FloatArray:
    """Return the gains of an interval [state, zone]: those of the response to cold grow with how cold it is."""
    scaled = gain.copy()
    scaled[HEATS] *= loading[HEATS, None]
    return np.asarray(scaled)


def step_states(
    states: FloatArray, keep: FloatArray, loading: FloatArray, gain: FloatArray, measured: FloatArray, usable: BoolArray
) -> FloatArray:
    """Return the states after an interval [state, zone], corrected by what was measured where that is usable."""
    states = states * keep[:, None]
    surprise = np.where(usable, measured - weigh(states, loading), 0.0)
    return np.minimum(np.maximum(states + gain * surprise, -MAX_DEVIATION), MAX_DEVIATION)


def pool_states(
    states: FloatArray, loading: FloatArray, gain: FloatArray, pooled: FloatArray, usable: BoolArray
) -> FloatArray:
    """Return the states after what other zones show was seen [state, zone]. It is what they have in common."""
    surprise = np.where(usable, pooled - weigh(states[COMMON], loading[COMMON]), 0.0)
    return np.minimum(np.maximum(states + gain * surprise, -MAX_DEVIATION), MAX_DEVIATION)


def predict_demand(states: FloatArray, keep: FloatArray, loading: FloatArray, lead: int) -> FloatArray:
    """Return demand over forecast, `lead` intervals after the states [zone]. `loading` is that of the later time."""
    for _ in range(lead):
        states = states * keep[:, None]
    return np.minimum(np.maximum(1.0 + weigh(states, loading), MIN_DEMAND), 1.0 + MAX_DEVIATION)


def weigh(states: FloatArray, loading: FloatArray) -> FloatArray:
    """Return the sum of states times loadings [zone], added in the order of the states."""
    return np.asarray(reduce(np.add, states * loading[:, None]))


def make_filter(
    volatility: Volatility,
    sensor: ClippedSensor,
    expected_wh: FloatArray,
    expected_sum_wh: FloatArray,
    *,
    households: int,
    noise_sd_wh: FloatArray | float,
    pool_variance: float | None,
    cold_k: Sequence[float],
    lead: int,
) -> StructuralFilter:
    """Return the filter for a zone, with the error that it predicts for itself.

    `expected_wh` and `expected_sum_wh` are forecasts of a usual day, of demand and clipped sum [slot]; `noise_sd_wh` is
    that of the release, one number or one for each slot; `pool_variance` that of what other zones show together, None:
    there are none; `cold_k` the K below the heating base of some usual days. The covariance equation is iterated over
    days.
    """
    slots, sd, hours = len(expected_wh), state_deviations(volatility, households, sensor), np.array(_STATE_HOURS)
    hours[OWN] = volatility.own_hours
    keep = np.exp(-24 / slots / hours)
    gain_wh = sensor.response * expected_sum_wh
    noise = (noise_sd_wh / gain_wh) ** 2 + households * sensor.hidden_variance / gain_wh**2
    own_loading = np.round(sensor.own * expected_wh / gain_wh, 6)
    loadings = np.array([[demand_loadings(slot, slots, cold) for slot in range(slots)] for cold in cold_k])
    fresh, ahead = (1 - keep**2) * sd**2, keep**lead
    seen_by_pool = loadings.copy()
    seen_by_pool[:, :, COMMON.stop :] = 0.0
    covariance = np.diag(sd**2)
    zone_gain, pool_gain = (np.zeros((len(cold_k), slots, STATES)) for _ in range(2))
    error = np.zeros((len(cold_k), slots))
    for t in range(_CONVERGENCE_DAYS * slots):
        day, slot = t // slots % len(cold_k), t % slots
        covariance = np.outer(keep, keep) * covariance
        covariance[np.diag_indices(STATES)] += fresh
        seen = loadings[day, slot].copy()
        seen[OWN], seen[SENSOR] = own_loading[slot], 1.0
        zone_gain[day, slot], covariance = _correct(covariance, seen, float(noise[slot]))
        if pool_variance is not None:
            pool_gain[day, slot], covariance = _correct(covariance, seen_by_pool[day, slot], pool_variance)
        later = loadings[day, (slot + lead) % slots]
        unseen = float(np.sum((later**2 * sd**2 * (1 - ahead**2))[OF_DEMAND]))
        error[day, slot] = float((later * ahead) @ covariance @ (later * ahead)) + unseen
    return StructuralFilter(
        keep=keep,
        zone_gain=_gains_by_hour(zone_gain, loadings),
        pool_gain=_gains_by_hour(pool_gain, loadings),
        own_loading=own_loading,
        predicted_error=float(np.sqrt(np.average(error.mean(axis=0), weights=expected_wh**2))),
    )


def _correct(covariance: FloatArray, seen: FloatArray, variance: float) -> tuple[FloatArray, FloatArray]:
    shown = covariance @ seen
    gain = shown / (float(seen @ shown) + variance)
    return gain, covariance - np.outer(gain, shown)


def _gains_by_hour(gain: FloatArray, loadings: FloatArray) -> FloatArray:
    """Return mean gains [hour, state]. The gain of the response to cold is proportional to how cold it is."""
    heat, scaled = loadings[:, :, HEAT], gain.mean(axis=0)
    weight = float(np.sum(heat**2))
    for state in HEATS:
        scaled[:, state] = float(np.sum(gain[:, :, state] * heat)) / weight if weight > 0 else 0.0
    hours = np.arange(len(scaled)) * HOURS // len(scaled)
    return np.round([scaled[hours == hour].mean(axis=0) for hour in range(HOURS)], GAIN_DIGITS)
