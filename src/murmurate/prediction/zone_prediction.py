"""Predict the demand of zones in the interval that pays: what a plan says, and one step for many zones.

States are whole numbers in the public log. Products, sums and quotients here are those of single numbers, in a fixed
order. So a reader with the plan and two rows of the log computes the same price, bit for bit.

A price for predicted demand changes that demand. So the answer to earlier prices is taken out of what was measured, and
the price is the one at which the curve and the answer agree: price = curve(demand without answer * factor(price)).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from murmurate.errors import ModelError
from murmurate.prediction.calendar import CalendarSlots, locate_intervals
from murmurate.prediction.forecast import HOURS
from murmurate.prediction.public_forecast import PublicForecast
from murmurate.prediction.public_inputs import NO_INPUTS, THOUSANDTHS, Inputs, InputValue, check_series_name
from murmurate.prediction.sensor import ClippedSensor
from murmurate.prediction.structural_filter import (
    GAIN_DIGITS,
    OWN,
    SENSOR,
    STATES,
    demand_loadings,
    gain_at,
    pool_states,
    predict_demand,
    step_states,
    weigh,
)
from murmurate.pricing.rate import RateCurve
from murmurate.time_zones import utc_offset_min
from murmurate.units import SECONDS_PER_DAY, BoolArray, FloatArray, IntArray

STATE_UNIT = 1e-9  # of a state in the log: relative deviation
MAX_GAIN, MAX_SCALE = 100.0, 1e9
_KEEP_DIGITS = 12


@dataclass(frozen=True, slots=True)
class PriceResponse:
    """Demand falls by about `elasticity` percent where the price rises by one percent from `reference_ticks`.

    The factor is (1 + a)/(1 + a r) with r the price over the reference and a = e/(1 - e): a quotient, so that every
    machine computes the same bits.

    >>> PriceResponse(0.0, 1000).factor(np.array([500.0, 2000.0])).tolist()
    [1.0, 1.0]
    >>> PriceResponse(0.2, 1000).factor(np.array([1000.0, 1010.0])).round(4).tolist()
    [1.0, 0.998]
    """

    elasticity: float  # 0: demand does not answer
    reference_ticks: int

    def __post_init__(self) -> None:
        if not 0 <= self.elasticity < 1:
            raise ModelError("elasticity", self.elasticity, "must be 0 or more and below 1, for example 0.1")
        if self.reference_ticks < 1:
            raise ModelError("reference price", self.reference_ticks, "must be at least one tick")

    def factor(self, price_ticks: FloatArray) -> FloatArray:
        """Return demand at prices over demand at the reference price."""
        return response_factor(self.elasticity, self.reference_ticks, price_ticks)

    def meet(self, curve: RateCurve, demand_wh: FloatArray) -> IntArray:
        """Return the price where curve and answer meet; see `meeting_price`."""
        return meeting_price(curve, demand_wh, self.elasticity, self.reference_ticks)


def response_factor(
    elasticity: FloatArray | float, reference_ticks: FloatArray | float, price_ticks: FloatArray
) -> FloatArray:
    """Return demand at prices over demand at the reference price, for one answer or for one of each zone."""
    share = elasticity / (1 - elasticity)
    relative = np.maximum(price_ticks, 0.0) / reference_ticks
    return np.asarray((1 + share) / (1 + share * relative))


def meeting_price(
    curve: RateCurve,
    demand_wh: FloatArray,
    elasticity: FloatArray | float,
    reference_ticks: FloatArray | float,
) -> IntArray:
    """Return the lowest price [ticks] that is at least the curve's at the demand which answers to it.

    `demand_wh` is the demand at the reference price. The curve must rise or stay level with demand. What a zone feeds
    in does not answer: where the demand is negative, the price is the curve's there.
    """

    def curve_at(price_ticks: IntArray) -> IntArray:
        factor = response_factor(elasticity, reference_ticks, price_ticks.astype(np.float64))
        answered = np.where(demand_wh < 0, demand_wh, demand_wh * factor)
        return curve.price_ticks(np.rint(answered).astype(np.int64))

    low = curve_at(np.full(len(demand_wh), 2**40))  # at a huge price demand is least
    high = curve_at(np.zeros(len(demand_wh), np.int64))
    while (low < high).any():
        middle = (low + high) // 2
        enough = curve_at(middle) <= middle
        high, low = np.where(enough, middle, high), np.where(enough, low, np.minimum(middle + 1, high))
    return high


@dataclass(frozen=True, slots=True, eq=False)
class PredictionModel:
    """What zones of one make share: a public forecast with one sensor, and how long deviations last."""

    public: PublicForecast
    own_loading: FloatArray  # [slot] of the households' own chance in the measurement
    keep: FloatArray  # [state] share that remains after an interval
    temperature: str = ""  # the series of public inputs that says how cold it is outdoors [°C]; empty: as usual

    def __post_init__(self) -> None:
        shapes, slots = (self.own_loading.shape, self.keep.shape), self.slots_per_day
        numbers = np.concatenate([self.own_loading.ravel(), self.keep.ravel()])
        if shapes != ((slots,), (STATES,)) or len(self.public.sensors) != 1 or not (np.abs(numbers) <= MAX_GAIN).all():
            raise ModelError("prediction", shapes, f"must have one sensor, {slots} intervals and {STATES} states")

    @property
    def sensor(self) -> ClippedSensor:
        return self.public.sensors[0]

    @property
    def slots_per_day(self) -> int:
        return self.public.demand.slots_per_day

    def locate(self, interval: int) -> CalendarSlots:
        """Return where an interval falls in the local calendar."""
        return _locate(interval, self.slots_per_day, self.public.time_zone, self.public.holidays)

    def temperature_c(self, inputs: Inputs, moment: str) -> FloatArray | None:
        """Return the temperature `now` or `ahead` [one interval]; None: not known."""
        value = getattr(inputs.get(self.temperature, InputValue()), moment)
        return None if value is None else np.array([value / THOUSANDTHS])

    def loadings(self, when: CalendarSlots, temperature_c: FloatArray | None = None) -> FloatArray:
        """Return how much of each state is in the demand [state]. Without a temperature it is taken as usual."""
        cold_k = float(self.public.demand.cold_k(when, temperature_c)[0])
        return demand_loadings(int(when.slot[0]), self.slots_per_day, cold_k)

    def sensor_loadings(self, when: CalendarSlots, temperature_c: FloatArray | None = None) -> FloatArray:
        """Return how much of each state is in what the sensor shows [state]."""
        seen = self.loadings(when, temperature_c).copy()
        seen[OWN], seen[SENSOR] = self.own_loading[int(when.slot[0])], 1.0
        return seen


@lru_cache(maxsize=4096)
def _locate(interval: int, slots_per_day: int, time_zone: str, holidays: tuple[int, ...]) -> CalendarSlots:
    try:
        offset_min = utc_offset_min(time_zone, interval * (SECONDS_PER_DAY // slots_per_day))
    except (OverflowError, OSError, ValueError):
        raise ModelError("interval", interval, f"must be a time that clocks of {time_zone} have") from None
    return locate_intervals(np.array([interval]), slots_per_day, offset_min, holidays)


@dataclass(frozen=True, slots=True, eq=False)
class ZonePrediction:
    """How one zone is predicted: its model, its size, and the gains of its filter."""

    model: PredictionModel
    scale: float  # households, times how much more than the forecast's they use
    zone_gain: FloatArray  # [hour, state]
    pool_gain: FloatArray  # [hour, state]
    pool_homes: int  # other zones are used if they have at least half of this number of households; 0: never
    price_response: PriceResponse
    predicted_error: float  # rms, relative to the forecast

    def to_document(self) -> dict[str, Any]:
        """Return the members of a plan that prices are predicted with."""
        temperature = {"temperature": self.model.temperature} if self.model.temperature else {}
        return temperature | {
            "forecast": self.model.public.to_document(),
            "own_loading": self.model.own_loading.round(GAIN_DIGITS).tolist(),
            "keep": self.model.keep.round(_KEEP_DIGITS).tolist(),
            "scale": round(self.scale, GAIN_DIGITS),
            "zone_gain": (self.zone_gain.round(GAIN_DIGITS) + 0.0).tolist(),
            "pool_gain": (self.pool_gain.round(GAIN_DIGITS) + 0.0).tolist(),
            "pool_homes": self.pool_homes,
            "elasticity": self.price_response.elasticity,
            "reference_ticks": self.price_response.reference_ticks,
            "predicted_error": round(self.predicted_error, 6),
        }

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> ZonePrediction:
        """Return the prediction in members of a plan. Raises ModelError, KeyError, TypeError or ValueError."""
        zone_gain, pool_gain = (np.array(document[name], np.float64) for name in ("zone_gain", "pool_gain"))
        scale, pool_homes = float(document["scale"]), int(document["pool_homes"])
        small = all(bool((np.abs(gain) <= MAX_GAIN).all()) for gain in (zone_gain, pool_gain))
        small &= 0 < scale <= MAX_SCALE and 0 <= pool_homes <= MAX_SCALE
        if {zone_gain.shape, pool_gain.shape} != {(HOURS, STATES)} or not small:
            allowed = f"must have {HOURS} hours and {STATES} states, at most {MAX_GAIN}, and a scale above 0"
            raise ModelError("gain", zone_gain.shape, allowed)
        return cls(
            model=_model(
                json.dumps([document[name] for name in ("forecast", "own_loading", "keep")]),
                str(document.get("temperature", "")),
            ),
            scale=scale,
            zone_gain=zone_gain,
            pool_gain=pool_gain,
            pool_homes=pool_homes,
            price_response=PriceResponse(float(document["elasticity"]), int(document["reference_ticks"])),
            predicted_error=float(document["predicted_error"]),
        )


@lru_cache(maxsize=256)  # zones of one make share a model
def _model(text: str, temperature: str) -> PredictionModel:
    forecast, own_loading, keep = json.loads(text)
    numbers = (np.array(own_loading, np.float64), np.array(keep, np.float64))
    if temperature:
        check_series_name(temperature, "temperature")
    return PredictionModel(PublicForecast.from_document(forecast), *numbers, temperature)


class ZoneMeasures(NamedTuple):
    """Releases compared with their forecasts [zone], and what the other zones of a shard show together."""

    residual_wh: FloatArray  # release, without the answer to the price that was paid, less what was expected
    weight_wh: FloatArray  # what it would be if the demand were twice the forecast
    usable: BoolArray  # whether there is a release
    pooled: FloatArray | None = None  # deviation of the other zones from their forecast, relative; None: not used
    pool_usable: BoolArray | None = None  # whether they are enough households for the zone's plan; None: never


def measure_zones(
    zones: Sequence[ZonePrediction],
    interval: int,
    noisy_wh: IntArray,
    usable: BoolArray,
    paid_factor: FloatArray,
    inputs: Inputs = NO_INPUTS,
) -> ZoneMeasures:
    """Compare releases with the forecast of zones with one model.

    `noisy_wh` is the release of the interval, where `usable`; `paid_factor` what the price that was paid in it did to
    the demand.
    """
    expected, weight = _forecast_sums(zones, interval, inputs)
    return ZoneMeasures(noisy_wh / paid_factor - expected, weight, usable)


def expect_sums(
    zones: Sequence[ZonePrediction], states: IntArray, interval: int, inputs: Inputs = NO_INPUTS
) -> FloatArray:
    """Return the clipped sums expected of zones with one model in an interval [Wh], at the reference price.

    `states` are those after the interval before [zone, state].
    """
    model = zones[0].model
    expected, weight = _forecast_sums(zones, interval, inputs)
    seen = model.sensor_loadings(model.locate(interval), model.temperature_c(inputs, "now"))
    deviation = weigh(_to_floats(states) * model.keep[:, None], seen)
    return np.asarray(expected + weight * deviation)


def _forecast_sums(zones: Sequence[ZonePrediction], interval: int, inputs: Inputs) -> tuple[FloatArray, FloatArray]:
    """Return the forecast of the clipped sums, and what they would grow by if the demand were twice the forecast."""
    model = zones[0].model
    when = model.locate(interval)
    one_wh = model.sensor.forecast.demand_wh(when, model.temperature_c(inputs, "now"))
    expected = float(one_wh[0]) * np.array([zone.scale for zone in zones])
    return expected, model.sensor.response[int(when.slot[0])] * expected


def advance_states(
    zones: Sequence[ZonePrediction],
    states: IntArray,
    interval: int,
    measures: ZoneMeasures,
    inputs: Inputs = NO_INPUTS,
) -> IntArray:
    """Return the states of zones with one model after an interval [zone, state], in units of the log."""
    model = zones[0].model
    when = model.locate(interval)
    hour, temperature_c = int(when.hour[0]), model.temperature_c(inputs, "now")
    loading, seen = model.loadings(when, temperature_c), model.sensor_loadings(when, temperature_c)
    gain = gain_at(np.stack([zone.zone_gain[hour] for zone in zones], axis=1), loading)
    shown = measures.residual_wh / measures.weight_wh
    after = step_states(_to_floats(states), model.keep, seen, gain, shown, measures.usable)
    if measures.pooled is not None and measures.pool_usable is not None and measures.pool_usable.any():
        gain = gain_at(np.stack([zone.pool_gain[hour] for zone in zones], axis=1), loading)
        after = pool_states(after, loading, gain, measures.pooled, measures.pool_usable)
    return np.asarray(np.rint(after / STATE_UNIT).astype(np.int64).T)


def predict_zones(
    zones: Sequence[ZonePrediction], states: IntArray, interval: int, lead: int, inputs: Inputs = NO_INPUTS
) -> FloatArray:
    """Return the demand of zones with one model in the interval that pays [Wh], at the reference price.

    `states` are those after `interval` [zone, state]; `lead` is the number of intervals until the one that pays.
    """
    model = zones[0].model
    when, temperature_c = model.locate(interval + lead), model.temperature_c(inputs, "ahead")
    relative = predict_demand(_to_floats(states), model.keep, model.loadings(when, temperature_c), lead)
    scale = np.array([zone.scale for zone in zones])
    return np.asarray(float(model.public.demand.demand_wh(when, temperature_c)[0]) * scale * relative)


def _to_floats(states: IntArray) -> FloatArray:
    """Return states of the log as relative deviations [state, zone]."""
    return np.asarray(states.T.astype(np.float64) * STATE_UNIT)
