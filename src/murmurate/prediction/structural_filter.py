"""A filter that predicts the demand of the interval that pays, from noisy releases of a zone and of its region.

Gains depend on public numbers alone. They are computed once, stand in the plan, and repeat daily. The filter itself
adds, multiplies and divides numbers one by one in a fixed order, so it gives the same bits on every machine and anyone
can compute each price again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from murmurate.prediction.deviation_states import (
    COMMON,
    COMMON_HEAT,
    HEAT,
    OF_DEMAND,
    OWN,
    SENSOR,
    STATES,
    DeviationStates,
    demand_loadings,
)
from murmurate.prediction.sensor import ClippedSensor
from murmurate.units import BoolArray, FloatArray, IntArray

HEATS = [COMMON_HEAT, HEAT]
_HOURS = 24
_GAIN_DIGITS = 7
_CONVERGENCE_DAYS = 40
MAX_DEVIATION = 2.0  # a deviation is at most this, and demand is never below a twentieth of its forecast
MIN_DEMAND = 0.05


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
        loading = demand_loadings(slot, self.slots_per_day, cold_k)
        loading[OWN], loading[SENSOR] = self.own_loading[slot], 1.0
        gain = self._gain(self.zone_gain, slot, loading)
        return step_states(states, self.keep, loading, gain[:, None], measured, usable)

    def _gain(self, gains: FloatArray, slot: int, loading: FloatArray) -> FloatArray:
        return gain_at(gains[slot * _HOURS // self.slots_per_day][:, None], loading)[:, 0]

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
    return np.asarray(np.clip(states + gain * surprise, -MAX_DEVIATION, MAX_DEVIATION))


def pool_states(
    states: FloatArray, loading: FloatArray, gain: FloatArray, pooled: FloatArray, usable: BoolArray
) -> FloatArray:
    """Return the states after what other zones show was seen [state, zone]. It is what they have in common."""
    surprise = np.where(usable, pooled - weigh(states[COMMON], loading[COMMON]), 0.0)
    return np.asarray(np.clip(states + gain * surprise, -MAX_DEVIATION, MAX_DEVIATION))


def predict_demand(states: FloatArray, keep: FloatArray, loading: FloatArray, lead: int) -> FloatArray:
    """Return demand over forecast, `lead` intervals after the states [zone]. `loading` is that of the later time."""
    for _ in range(lead):
        states = states * keep[:, None]
    return np.asarray(np.clip(1.0 + weigh(states, loading), MIN_DEMAND, 1.0 + MAX_DEVIATION))


def weigh(states: FloatArray, loading: FloatArray) -> FloatArray:
    """Return the sum of states times loadings [zone], added in the order of the states."""
    total = states[0] * loading[0]
    for number in range(1, len(states)):
        total = total + states[number] * loading[number]
    return np.asarray(total)


def make_filter(
    states: DeviationStates,
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
    slots = len(expected_wh)
    gain_wh = sensor.response * expected_sum_wh
    noise = (noise_sd_wh / gain_wh) ** 2 + households * sensor.hidden_variance / gain_wh**2
    own_loading = np.round(sensor.own * expected_wh / gain_wh, 6)
    loadings = np.array([[demand_loadings(slot, slots, cold) for slot in range(slots)] for cold in cold_k])
    keep, fresh = states.keep, (1 - states.keep**2) * states.sd**2
    seen_by_pool = loadings.copy()
    seen_by_pool[:, :, COMMON.stop :] = 0.0
    covariance = np.diag(states.sd**2)
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
        error[day, slot] = _error_ahead(states, covariance, loadings[day, (slot + lead) % slots], lead)
    hours = np.arange(slots) * _HOURS // slots
    return StructuralFilter(
        keep=keep,
        zone_gain=_by_hour(_per_loading(zone_gain, loadings), hours),
        pool_gain=_by_hour(_per_loading(pool_gain, loadings), hours),
        own_loading=own_loading,
        predicted_error=float(np.sqrt(np.average(error.mean(axis=0), weights=expected_wh**2))),
    )


def _error_ahead(states: DeviationStates, covariance: FloatArray, loading: FloatArray, lead: int) -> float:
    """Return the mean square error of a prediction. `loading` is that of the interval that is predicted."""
    ahead = states.keep**lead
    left = loading * ahead
    unseen = float(np.sum((loading**2 * states.sd**2 * (1 - ahead**2))[OF_DEMAND]))
    return float(left @ covariance @ left) + unseen


def _correct(covariance: FloatArray, seen: FloatArray, variance: float) -> tuple[FloatArray, FloatArray]:
    shown = covariance @ seen
    gain = shown / (float(seen @ shown) + variance)
    return gain, covariance - np.outer(gain, shown)


def _per_loading(gain: FloatArray, loadings: FloatArray) -> FloatArray:
    """The gain of the response to cold is proportional to how cold it is."""
    heat, scaled = loadings[:, :, HEAT], gain.mean(axis=0)
    weight = float(np.sum(heat**2))
    for state in HEATS:
        scaled[:, state] = float(np.sum(gain[:, :, state] * heat)) / weight if weight > 0 else 0.0
    return np.asarray(scaled)


def _by_hour(gain: FloatArray, hours: IntArray) -> FloatArray:
    means = np.array([gain[hours == hour].mean(axis=0) for hour in range(_HOURS)])
    return np.asarray(np.round(means, _GAIN_DIGITS))
