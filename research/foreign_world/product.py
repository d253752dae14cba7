"""The product in the foreign world: its forecast, plan, releases and prediction, all by the functions of the service.

What it knows before the first release comes from the sample of the year before, exactly or with the noise of a private
one. While zones are priced it takes three public series: temperature, irradiance, and how far the regional load is from
what is usual, an hour late.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import NamedTuple

import numpy as np

from murmurate.planning.plan import make_plan
from murmurate.planning.plan_prediction import make_zone_prediction
from murmurate.planning.privacy_cost import NoiseSchedule
from murmurate.planning.zone import PredictedDemand
from murmurate.planning.zone_file import parse_zone
from murmurate.prediction.corrections import STATES, Spread
from murmurate.prediction.forecast import HOURS, Weather, fit_forecast, fit_forecasts
from murmurate.prediction.forecast_sources import forecast_from_sample
from murmurate.prediction.private_sample import cast_votes, choose_layout, release_votes
from murmurate.prediction.public_forecast import SAMPLE_DELTA, CutAbove, CutBelow, PublicForecast
from murmurate.prediction.public_inputs import THOUSANDTHS, Inputs, InputSeries, InputValue
from murmurate.prediction.zone_prediction import ZonePrediction, advance_states, expect_sums, predict_zones
from murmurate.privacy.noise import SeededNoise
from murmurate.units import BoolArray, FloatArray, IntArray
from research.foreign_world.homes import SLOTS
from research.foreign_world.predictors import LEAD, Releases
from research.foreign_world.region import HOME_SHARE, REGIONAL_DELAY, Public

SERIES = InputSeries("temperature", "irradiance", "deviation")
USUAL_DAY_WH = 10_000  # the default of murmurate forecast
BOUNDS_WH, EXPORT_BOUNDS_WH = (500, 700, 1000, 1500, 2100), (0, 300, 700, 1000, 1500, 2000)
_REGION_DAYS, _LATE_SHARE = 14.0, 0.25  # of the mean day of the regional load; of what is seen of its last deviation
_LATE = LEAD + REGIONAL_DELAY - 1  # intervals from the newest regional load to the interval that pays
_ZONE = """
name = "foreign"
currency = "EUR"
interval_minutes = 15
time_zone = "UTC"
promise = ["any 24 h: epsilon 1, delta 1e-6", "any moment: 1"]
[tariff]
alpha = "0.0002"
beta = "0.08"
tick = "0.00001"
[occupancy.resident]
periods = {{ day = "07:00", night = "23:00" }}
arrive = {{ day = 0.9, night = 0.1 }}
leave = {{ day = 0.9, night = 0.1 }}
[[households]]
name = "home"
count = {homes}
bound_wh = {bound_wh}
export_bound_wh = {export_bound_wh}
away = {{ uniform_to = {bound_wh} }}
home = {{ uniform_to = {bound_wh} }}
occupancy = "resident"
"""


@cache
def plan_noise() -> NoiseSchedule:
    """Return the noise of the promise for a range of 1,000 Wh, as the planner finds it."""
    return make_plan(parse_zone(_ZONE.format(homes=1000, bound_wh=1000, export_bound_wh=0))).noise


def know_exactly(public: Public) -> PublicForecast:
    """Return what `murmurate forecast` would know of the sample if its numbers had no noise."""
    sample, before = public.sample_wh, public.year_before
    weather, hour = Weather(*before.weather), before.when.hour
    demand = fit_forecast(sample.mean(axis=1), before.when, weather)
    of_hour = [hour == each for each in range(HOURS)]
    above = [
        CutAbove(bound, np.array([np.maximum(sample[chosen] - bound, 0).mean() for chosen in of_hour]))
        for bound in BOUNDS_WH
    ]
    below = [CutBelow(bound, 1.0) for bound in EXPORT_BOUNDS_WH]
    if public.sample_has_pv.any():
        cut = np.stack([np.maximum(sample, -bound).mean(axis=1) for bound in EXPORT_BOUNDS_WH], axis=1)
        shown = [each.sun_wh / demand.sun_wh for each in fit_forecasts(cut, before.when, weather)]
        below = [
            CutBelow(bound, min(max(share, 0.0), 1.0)) for bound, share in zip(EXPORT_BOUNDS_WH, shown, strict=True)
        ]
    usual = np.stack([sample[chosen].mean(axis=0) for chosen in of_hour])  # [hour, household]
    square = np.array([np.square(sample[chosen], dtype=np.float32).mean(dtype=np.float64) for chosen in of_hour])
    own = float((square - (usual**2).mean(axis=1)).mean())
    made = PublicForecast(
        source="sample", time_zone="UTC", holidays=public.year.holidays, demand=demand, error=None,
        above=(*above, CutAbove(10 * BOUNDS_WH[-1], np.zeros(HOURS))), below=tuple(below),
    )  # fmt: skip
    mean_wh = made.mean_use_wh()
    return replace(made, spread=Spread(own**0.5 / mean_wh, float(usual.var(axis=1).mean()) ** 0.5 / mean_wh))


def know_privately(public: Public, epsilon: Fraction, seed: int) -> PublicForecast:
    """Return what `murmurate forecast --sample --weather --epsilon` makes of the sample, with seeded noise."""
    before, households = public.year_before, public.sample_wh.shape[1]
    weather = Weather(*before.weather)
    layout = choose_layout(before.when, weather, usual_day_wh=USUAL_DAY_WH, epsilon=epsilon, households=households)
    votes = release_votes(cast_votes(public.sample_wh, layout), layout, epsilon=epsilon, noise=SeededNoise(seed))
    spent = epsilon, SAMPLE_DELTA
    return forecast_from_sample(votes, spent=spent, source="sample", time_zone="UTC", holidays=public.year.holidays)


def find_deviation(public: Public) -> FloatArray:
    """Return what all households use more than usual, by the regional load an hour before [interval].

    The load is compared with its forecast from calendar and weather, and that with its mean day of two weeks.
    """
    before, now = public.year_before, public.year
    base = fit_forecast(public.regional_load_before, before.when, Weather(*before.weather))
    usual = float(base.use_wh(before.when, Weather(*before.weather)).mean())
    relative = (public.regional_load - base.demand_wh(now.when, Weather(*now.weather))) / usual
    level, day, found = 0.0, np.zeros(SLOTS), np.zeros(len(relative))
    for t in range(_LATE, len(relative)):
        known, slot = relative[t - _LATE], now.when.slot[t - _LATE]
        level += (known - level) / (SLOTS * _REGION_DAYS)
        last = known - level - day[slot]
        day[slot] += last / _REGION_DAYS
        found[t] = _LATE_SHARE * last / HOME_SHARE
    return found


def state_inputs(public: Public) -> list[Inputs]:
    """Return the public inputs that the tile of each interval states [interval]."""
    columns = {
        name: np.rint(np.asarray(values) * THOUSANDTHS).astype(np.int64).tolist()
        for name, values in zip(SERIES, (*public.year.weather, find_deviation(public)), strict=True)
    }
    last = len(public.year.when) - 1
    return [
        {name: InputValue(values[t], values[min(t + LEAD, last)]) for name, values in columns.items()}
        for t in range(last + 1)
    ]


class Predicted(NamedTuple):
    """What a plan predicts [Wh, interval, zone], and without any release."""

    demand_wh: FloatArray
    forecast_wh: FloatArray


class ProductPlan:
    """What `murmurate plan` makes of public numbers: the range of readings, the noise and the prediction of zones."""

    def __init__(self, public: Public, forecast: PublicForecast) -> None:
        """Choose the range by the least predicted error."""
        year = public.year
        level = public.mean_wh / float(forecast.demand.use_wh(year.when, Weather(*year.weather)).mean())  # [zone]
        exports = EXPORT_BOUNDS_WH if public.sample_has_pv.any() else (0,)
        made: dict[tuple[int, int], ZonePrediction] = {}
        for export_bound_wh in exports:
            for bound_wh in BOUNDS_WH:
                text = _ZONE.format(homes=public.homes, bound_wh=bound_wh, export_bound_wh=export_bound_wh)
                noise = plan_noise().scaled_by((bound_wh + export_bound_wh) / 1000)
                predicted = PredictedDemand(forecast, float(level.mean()), series=SERIES)
                made[export_bound_wh, bound_wh] = make_zone_prediction(parse_zone(text), predicted, noise)
        (self.export_bound_wh, self.bound_wh), chosen = min(made.items(), key=lambda each: each[1].predicted_error)
        self._noise = plan_noise().scaled_by((self.bound_wh + self.export_bound_wh) / 1000)
        self.noise_sd_wh = float(np.sqrt(self._noise.variance.mean()))
        self._homes, self.predicted_error = public.homes, chosen.predicted_error
        self.zones = [replace(chosen, scale=public.homes * each) for each in level.tolist()]

    @property
    def stated_wh(self) -> FloatArray:
        """The error that the plan states [Wh, zone]."""
        return np.array([zone.predicted_error * zone.scale * zone.model.mean_wh for zone in self.zones])

    def release(self, sums_wh: IntArray, usable: BoolArray, seed: int) -> Releases:
        """Return clipped sums [interval, zone] with the noise of the plan. The first interval begins at 0 h UTC."""
        slot = np.broadcast_to(np.arange(len(sums_wh))[:, None] % SLOTS, sums_wh.shape)
        core = self._noise.core_wh[slot] if self._noise.core_wh.any() else None
        drawn = SeededNoise(seed).draw(self._noise.distribution, self._noise.scale_wh[slot], core)
        return Releases(sums_wh + drawn, usable, self.bound_wh, self.export_bound_wh, self.noise_sd_wh)

    def predict(self, public: Public, releases: Releases, silent: IntArray | None = None) -> Predicted:
        """Predict step by step, as publisher and verifier do. `silent`: meters that a sum lacks [interval, zone].

        A silent meter counts as the expected sum of a household, as in `release.fill_silent_meters`.
        """
        inputs, first, zones = state_inputs(public), public.year.first_interval, self.zones
        states, nothing = np.zeros((len(zones), STATES), np.int64), np.zeros((len(zones), STATES), np.int64)
        found, forecast, as_it_is = (
            np.zeros(releases.noisy_wh.shape),
            np.zeros(releases.noisy_wh.shape),
            np.ones(len(zones)),
        )
        for t in range(min(LEAD, len(found))):
            found[t] = forecast[t] = predict_zones(zones, nothing, first + t, 0, inputs[t])
        for t in range(len(found) - LEAD):
            sums = releases.noisy_wh[t]
            if silent is not None:
                each = expect_sums(zones, states, first + t, inputs[t]) / self._homes
                sums = sums + np.floor(silent[t] * np.clip(each, -self.export_bound_wh, self.bound_wh)).astype(np.int64)
            states = advance_states(zones, states, first + t, sums, releases.usable[t], as_it_is, inputs[t])
            found[t + LEAD] = predict_zones(zones, states, first + t, LEAD, inputs[t])
            forecast[t + LEAD] = predict_zones(zones, nothing, first + t, LEAD, inputs[t])
        return Predicted(found, forecast)

    def __call__(self, public: Public, releases: Releases) -> FloatArray:
        """Predict with the releases."""
        return self.predict(public, releases).demand_wh
