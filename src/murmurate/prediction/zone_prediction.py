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
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from murmurate.errors import ModelError
from murmurate.prediction.calendar import CalendarSlots, locate_intervals
from murmurate.prediction.corrections import (
    CORRECTIONS,
    MEASURED_DAYS,
    MIN_USE,
    SUN,
    correct,
    fading,
    make_loadings,
    weigh,
)
from murmurate.prediction.forecast import CalendarForecast, Weather
from murmurate.prediction.public_forecast import MAX_WH, PublicForecast
from murmurate.prediction.public_inputs import NO_INPUTS, NO_SERIES, THOUSANDTHS, Inputs, InputSeries, InputValue
from murmurate.pricing.rate import RateCurve
from murmurate.time_zones import utc_offset_min
from murmurate.units import SECONDS_PER_DAY, BoolArray, FloatArray, IntArray

STATE_UNIT = 1e-9  # of a state in the log
MAX_GAIN, MAX_SCALE = 1000.0, 1e9
MAX_DEMAND_WH = 1e15  # no public input makes it larger: a price is made from whole numbers of 64 bits
GAIN_DIGITS = 7
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


class ExpectedUse(NamedTuple):
    """What is expected of one household in an interval, without corrections [Wh]."""

    use_wh: float
    sun_wh: float  # what the sun adds: below zero where roofs feed in
    deviation_wh: float  # what the public says that all households use more
    loading: FloatArray  # [correction]

    @property
    def demand_wh(self) -> float:
        return self.use_wh + self.sun_wh + self.deviation_wh


@dataclass(frozen=True, slots=True, eq=False)
class PredictionModel:
    """What zones of one make share: a public forecast for one range of readings, and which series it takes."""

    public: PublicForecast  # that knows one range
    clipped: CalendarForecast  # of the reading of a household within its range
    mean_wh: float  # mean use of a household
    shown: float  # share of it that is within the range
    keep: FloatArray  # [correction] share that remains after an interval
    series: InputSeries = NO_SERIES

    @classmethod
    def of(cls, public: PublicForecast, series: InputSeries) -> PredictionModel:
        """The model of a forecast for one range of readings, with numbers as they stand in a plan."""
        clipped, keep = public.clip_demand(), fading(public.demand.slots_per_day).round(_KEEP_DIGITS)
        mean_wh, clipped_wh = public.mean_use_wh(), public.mean_use_wh(clipped)
        return cls(public, clipped, round(mean_wh, GAIN_DIGITS), round(clipped_wh / mean_wh, GAIN_DIGITS), keep, series)

    @property
    def slots_per_day(self) -> int:
        return self.public.demand.slots_per_day

    def locate(self, interval: int) -> CalendarSlots:
        """Return where an interval falls in the local calendar."""
        return _locate(interval, self.slots_per_day, self.public.time_zone, self.public.holidays)

    def weather(self, inputs: Inputs, moment: str) -> Weather:
        """Return the weather `now` or `ahead` [one interval]."""
        temperature, irradiance = (
            None if (value := _find_value(inputs, name, moment)) is None else np.array([value])
            for name in (self.series.temperature, self.series.irradiance)
        )
        return Weather(temperature, irradiance)

    def expect_demand(self, interval: int, inputs: Inputs = NO_INPUTS, moment: str = "now") -> ExpectedUse:
        """Return what is expected of a household in an interval, whose inputs are those of `moment`."""
        return self._expect(self.public.demand, interval, inputs, moment, 1.0)

    def expect_sum(self, interval: int, inputs: Inputs = NO_INPUTS) -> ExpectedUse:
        """Return what is expected of the reading of a household, clipped to its range."""
        return self._expect(self.clipped, interval, inputs, "now", self.shown)

    def _expect(
        self, forecast: CalendarForecast, interval: int, inputs: Inputs, moment: str, shown: float
    ) -> ExpectedUse:
        when, weather = self.locate(interval), self.weather(inputs, moment)
        use_wh, sun_wh = float(forecast.use_wh(when, weather)[0]), float(forecast.fed_in_wh(when, weather)[0])
        deviation = _find_value(inputs, self.series.deviation, moment) or 0.0
        loading = make_loadings(use_wh, sun_wh, self.mean_wh, int(when.hour[0]))
        return ExpectedUse(use_wh, sun_wh, deviation * self.mean_wh * shown, loading)


def _find_value(inputs: Inputs, series: str, moment: str) -> float | None:
    value = getattr(inputs.get(series, InputValue()), moment)
    return None if value is None else value / THOUSANDTHS


@lru_cache(maxsize=4096)
def _locate(interval: int, slots_per_day: int, time_zone: str, holidays: tuple[int, ...]) -> CalendarSlots:
    try:
        offset_min = utc_offset_min(time_zone, interval * (SECONDS_PER_DAY // slots_per_day))
    except (OverflowError, OSError, ValueError):
        raise ModelError("interval", interval, f"must be a time that clocks of {time_zone} have") from None
    return locate_intervals(np.array([interval]), slots_per_day, offset_min, holidays)


@dataclass(frozen=True, slots=True, eq=False)
class ZonePrediction:
    """How one zone is predicted: its model, its size, and the gains of its corrections."""

    model: PredictionModel
    scale: float  # households, times how much more than the forecast's they use
    gain: FloatArray  # [correction]
    surprise_square: float  # mean square of what a release is off, relative, noise included
    price_response: PriceResponse
    predicted_error: float  # rms, relative to the mean use
    read_meters: bool = True  # False: the forecast is never corrected, and a price depends on no reading

    def measured_error(self, square_units: int) -> tuple[float, float]:
        """Return between which errors the last four weeks were, by the last state of a row of the log.

        That is two standard errors around the mean square of the releases' surprise, less what noise does to it. Single
        squares are taken to spread as those of Laplace noise do.
        """
        more = square_units * STATE_UNIT
        square, surprise_square = self.predicted_error**2 + more, self.surprise_square + max(more, 0.0)
        margin = 2 * surprise_square * sqrt(5 / (2 * MEASURED_DAYS * self.model.slots_per_day))
        return sqrt(max(square - margin, 0.0)), sqrt(max(square + margin, 0.0))

    def expect_ticks(self, curve: RateCurve, interval: IntArray) -> IntArray:
        """Return prices at the forecast demand of intervals [ticks], at usual weather and without corrections."""
        model, step_s = self.model, SECONDS_PER_DAY // self.model.slots_per_day
        offset_min = [utc_offset_min(model.public.time_zone, at * step_s) for at in interval.tolist()]
        when = locate_intervals(interval, model.slots_per_day, np.array(offset_min), model.public.holidays)
        return self.price_response.meet(curve, model.public.demand.demand_wh(when) * self.scale)

    def to_document(self) -> dict[str, Any]:
        """Return the members of a plan that prices are predicted with."""
        series = {name: series for name, series in self.model.series._asdict().items() if series}
        return (
            ({} if self.read_meters else {"read_meters": False})
            | series
            | {
                "forecast": self.model.public.to_document(),
                "mean_wh": self.model.mean_wh,
                "shown": self.model.shown,
                "keep": self.model.keep.tolist(),
                "scale": round(self.scale, GAIN_DIGITS),
                "gain": (self.gain.round(GAIN_DIGITS) + 0.0).tolist(),
                "surprise_square": round(self.surprise_square, GAIN_DIGITS),
                "elasticity": self.price_response.elasticity,
                "reference_ticks": self.price_response.reference_ticks,
                "predicted_error": round(self.predicted_error, 6),
            }
        )

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> ZonePrediction:
        """Return the prediction in members of a plan. Raises ModelError, KeyError, TypeError or ValueError."""
        gain, scale = np.array(document["gain"], np.float64), float(document["scale"])
        square = float(document["surprise_square"])
        small = bool((np.abs(gain) <= MAX_GAIN).all()) and 0 < scale <= MAX_SCALE and 0 <= square <= MAX_SCALE
        if gain.shape != (CORRECTIONS,) or not small:
            allowed = f"must have {CORRECTIONS} numbers, at most {MAX_GAIN}, and a scale above 0"
            raise ModelError("gain", gain.shape, allowed)
        read_meters = document.get("read_meters", True)
        if not isinstance(read_meters, bool) or (gain.any() and not read_meters):
            raise ModelError("read_meters", read_meters, "must be true, or false with gains of 0")
        series = InputSeries(**{name: str(document[name]) for name in InputSeries._fields if name in document})
        return cls(
            model=_model(json.dumps([document[name] for name in ("forecast", "mean_wh", "shown", "keep")]), series),
            scale=scale,
            gain=gain,
            surprise_square=square,
            price_response=PriceResponse(float(document["elasticity"]), int(document["reference_ticks"])),
            predicted_error=float(document["predicted_error"]),
            read_meters=read_meters,
        )


@lru_cache(maxsize=256)  # zones of one make share a model
def _model(text: str, series: InputSeries) -> PredictionModel:
    forecast, mean_wh, shown, keep = json.loads(text)
    series.check()
    public, faded = PublicForecast.from_document(forecast), np.array(keep, np.float64)
    possible = ((faded >= 0) & (faded <= 1)).all() and 0 < mean_wh <= MAX_WH and 0 <= shown <= 1.5
    if faded.shape != (CORRECTIONS,) or not possible:
        raise ModelError("keep", faded.shape, f"must be {CORRECTIONS} shares between 0 and 1, of a use above 0")
    return PredictionModel(public, public.clip_demand(), float(mean_wh), float(shown), faded, series)


def expect_sums(
    zones: Sequence[ZonePrediction], states: IntArray, interval: int, inputs: Inputs = NO_INPUTS
) -> FloatArray:
    """Return the clipped sums expected of zones with one model in an interval [Wh], at the reference price.

    `states` are those after the interval before [zone, state].
    """
    model = zones[0].model
    seen, faded = model.expect_sum(interval, inputs), _to_floats(states)
    faded[:CORRECTIONS] *= model.keep[:, None]
    return _within_limits((seen.demand_wh + model.mean_wh * weigh(faded, seen.loading)) * _scales(zones))


def advance_states(
    zones: Sequence[ZonePrediction],
    states: IntArray,
    interval: int,
    noisy_wh: IntArray,
    usable: BoolArray,
    paid_factor: FloatArray,
    inputs: Inputs = NO_INPUTS,
) -> IntArray:
    """Return the states of zones with one model after an interval [zone, state], in units of the log.

    `noisy_wh` is the release of the interval, where `usable`; `paid_factor` what the price that was paid in it did to
    the demand. What a zone feeds in does not answer to a price.
    """
    model = zones[0].model
    seen, faded = model.expect_sum(interval, inputs), _to_floats(states)
    faded[:CORRECTIONS] *= model.keep[:, None]
    usual = _scales(zones) * model.mean_wh
    expected = (seen.demand_wh + model.mean_wh * weigh(faded, seen.loading)) * _scales(zones)
    factor = np.where(expected < 0, 1.0, paid_factor)
    surprise = np.where(usable, (noisy_wh / factor - expected) / usual, 0.0)
    gain = np.stack([zone.gain for zone in zones], axis=1)
    planned = np.array([zone.surprise_square for zone in zones])
    after = correct(faded, seen.loading, gain, surprise, planned, model.slots_per_day)
    after = np.where(usable, after, faded)
    return np.asarray(np.rint(after / STATE_UNIT).astype(np.int64).T)


def predict_zones(
    zones: Sequence[ZonePrediction], states: IntArray, interval: int, lead: int, inputs: Inputs = NO_INPUTS
) -> FloatArray:
    """Return the demand of zones with one model in the interval that pays [Wh], at the reference price.

    `states` are those after `interval` [zone, state]; `lead` is the number of intervals until the one that pays.
    """
    model = zones[0].model
    expected, faded = model.expect_demand(interval + lead, inputs, "ahead"), _to_floats(states)[:CORRECTIONS]
    for _ in range(lead):
        faded = faded * model.keep[:, None]
    of_use = expected.loading.copy()
    of_use[SUN] = 0.0
    use_wh = expected.use_wh + expected.deviation_wh + model.mean_wh * weigh(faded, of_use)
    use_wh = np.maximum(use_wh, MIN_USE * expected.use_wh)
    return _within_limits((use_wh + expected.sun_wh * (1.0 + faded[SUN])) * _scales(zones))


def _within_limits(demand_wh: FloatArray) -> FloatArray:
    return np.asarray(np.minimum(np.maximum(demand_wh, -MAX_DEMAND_WH), MAX_DEMAND_WH))


def _scales(zones: Sequence[ZonePrediction]) -> FloatArray:
    return np.array([zone.scale for zone in zones])


def _to_floats(states: IntArray) -> FloatArray:
    """Return states of the log as relative numbers [state, zone]."""
    return np.asarray(states.T.astype(np.float64) * STATE_UNIT)
