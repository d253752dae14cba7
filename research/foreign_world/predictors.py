"""Ways to say what a zone will use in the interval that pays. Each is a function of public numbers and of releases.

A `Predictor` returns the demand of all zones in all intervals [Wh, interval, zone]. For interval t it may use releases
up to t - LEAD and the regional load up to t - LEAD - REGIONAL_DELAY + 1; `find_leak` tests that. Weather is a forecast
of half an hour. The mean use of the season is told to all, off by 4 %. A new way is a function more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache

import numpy as np
from scipy.signal import lfilter

from murmurate.planning.plan import make_plan
from murmurate.planning.plan_prediction import make_zone_prediction
from murmurate.planning.privacy_cost import NoiseSchedule
from murmurate.planning.zone import PredictedDemand
from murmurate.planning.zone_file import parse_zone
from murmurate.prediction.calendar import CalendarSlots, DayType
from murmurate.prediction.forecast_sources import forecast_from_sample
from murmurate.prediction.private_sample import cast_votes, choose_layout, release_votes
from murmurate.prediction.public_forecast import PublicForecast
from murmurate.prediction.sensor import TriedBound, find_least_error, try_bounds
from murmurate.prediction.structural_filter import STATES
from murmurate.prediction.zone_prediction import (
    ZonePrediction,
    advance_states,
    measure_zones,
    predict_zones,
)
from murmurate.privacy.noise import SeededNoise
from murmurate.units import BoolArray, FloatArray, IntArray
from research.foreign_world.homes import SLOTS
from research.foreign_world.region import REGIONAL_DELAY, Public, Weather, Year

LEAD = 2  # intervals from a release to the interval that pays
_MAX_DAY_WH = 25_000  # the default of murmurate forecast
_EXACT_WH = 10_000  # a bound that clips next to nothing
_RIDGE = 3.0
_CLEARLY_WORSE = 1.05  # times the least predicted error: a still higher bound is not tried
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
away = {{ uniform_to = {bound_wh} }}
home = {{ uniform_to = {bound_wh} }}
occupancy = "resident"
"""


@dataclass(frozen=True, slots=True, eq=False)
class Releases:
    """What a plan publishes of zones."""

    noisy_wh: IntArray  # [interval, zone]
    usable: BoolArray  # [interval, zone] whether enough meters reported
    bound_wh: int
    export_bound_wh: int
    noise_sd_wh: float


Predictor = Callable[[Public, Releases], FloatArray]


# Without meters


def predict_flat(public: Public, releases: Releases) -> FloatArray:  # noqa: ARG001 - as every predictor
    """Expect the mean use at every time."""
    return np.tile(public.homes * public.mean_wh, (len(public.year.when), 1))


def predict_time_of_use(public: Public, releases: Releases) -> FloatArray:  # noqa: ARG001 - as every predictor
    """Expect the mean use of night, day and evening, as the sample has it."""

    def block(when: CalendarSlots) -> IntArray:
        return np.where((when.hour < 6) | (when.hour >= 23), 0, np.where((when.hour >= 17) & (when.hour < 22), 2, 1))

    sampled = public.sample_wh.mean(axis=1)
    before = block(public.year_before.when)
    of_block = np.array([sampled[before == number].mean() for number in range(3)])
    return np.asarray(of_block[block(public.year.when)][:, None] * (public.homes * public.mean_wh / sampled.mean()))


def predict_from_weather(public: Public, releases: Releases) -> FloatArray:  # noqa: ARG001 - as every predictor
    """Predict as a competent utility does: by a regression of the sample on calendar and weather; plants are known."""
    return _competent(public, 0.0)


def predict_from_regional_load(public: Public, releases: Releases) -> FloatArray:  # noqa: ARG001 - as every predictor
    """Predict likewise, and from how far the region's load is from its own regression.

    How much of that is seen in homes is learned from the year before: from the sample and the region's load then.
    """
    before, now = _regional_signs(public)
    fitted, _ = _regress(public.year_before, public.year_before, _plain_sample(public))
    deviation = _plain_sample(public) / fitted - 1
    coefficients = _ridge(before, deviation)
    return _competent(public, np.clip(now @ coefficients, -0.5, 0.5))


def _competent(public: Public, deviation: FloatArray | float) -> FloatArray:
    _, plain = _regress(public.year_before, public.year, _plain_sample(public))
    plain = np.maximum(plain, 1.0)
    expected = public.homes * public.mean_wh * (plain / plain.mean() * (1 + deviation))[:, None]
    if public.sample_has_pv.any():
        more = public.sample_wh[:, public.sample_has_pv].mean(axis=1) - _plain_sample(public)
        _, of_plants = _regress(public.year_before, public.year, more)
        expected = expected + public.homes * public.pv_share * of_plants[:, None]
    return np.asarray(expected)


def _plain_sample(public: Public) -> FloatArray:
    """Return the mean reading of homes of the sample without plants [interval]."""
    return np.asarray(public.sample_wh[:, ~public.sample_has_pv].mean(axis=1))


def _regress(fitted: Year, wanted: Year, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Regress values of a year on its calendar and weather. Return what that gives in it, and in another one."""
    design = _design(fitted.when, fitted.weather)
    coefficients = _ridge(design, values)
    return design @ coefficients, _design(wanted.when, wanted.weather) @ coefficients


def _design(when: CalendarSlots, weather: Weather) -> FloatArray:
    """Return harmonics of the day, times types of day, cold, the cold of the last day, darkness, irradiance."""
    angle = 2 * np.pi * when.slot / when.slots_per_day
    waves = [np.ones(len(when)), *(turn(k * angle) for k in range(1, 7) for turn in (np.cos, np.sin))]
    harmonics = np.stack(waves, axis=1)
    air, sun = weather
    walls = lfilter([1 / 58], [1, 1 / 58 - 1], air - air[0]) + air[0]
    factors = (
        np.ones(len(when)), when.day_type == DayType.SATURDAY, when.day_type == DayType.SUNDAY,
        np.maximum(15 - walls, 0) / 8, np.maximum(15 - air, 0) / 8, 1 / (1 + np.exp((sun - 60) / 25)),
    )  # fmt: skip
    shaped = [harmonics * factor[:, None] for factor in factors]
    return np.concatenate([*shaped, harmonics[:, :5] * sun[:, None] / 300, (sun[:, None] / 300) ** 2], axis=1)


def _ridge(design: FloatArray, values: FloatArray) -> FloatArray:
    return np.asarray(
        np.linalg.solve(design.T @ design + _RIDGE * np.eye(design.shape[1]), design.T @ values), np.float64
    )


def _regional_signs(public: Public) -> tuple[FloatArray, FloatArray]:
    """Return what the region's load shows half an hour before, for the year before and this one [interval, sign]."""
    signs, late = [], LEAD + REGIONAL_DELAY - 1
    for year, load in ((public.year_before, public.regional_load_before), (public.year, public.regional_load)):
        fitted, expected = _regress(public.year_before, year, public.regional_load_before)
        shown = load / np.maximum(expected, 0.1 * fitted.mean()) - 1
        so_far = np.cumsum(shown) / np.arange(1, len(shown) + 1)
        day, week = (lfilter([1 / n], [1, 1 / n - 1], shown - shown[0]) + shown[0] for n in (SLOTS, 5 * SLOTS))
        columns = [_delay(each, late) for each in (shown - day, day - week, week - so_far)]
        columns += [_delay(shown - day, late + 4), _delay(shown - day, SLOTS), _delay(shown - day, 7 * SLOTS)]
        signs.append(np.stack(columns, axis=1))
    return signs[0], signs[1]


def _delay(values: FloatArray, intervals: int) -> FloatArray:
    return np.concatenate([np.zeros(min(intervals, len(values))), values[:-intervals]])[: len(values)]


# With meters


def predict_echo(public: Public, releases: Releases) -> FloatArray:  # noqa: ARG001 - as every predictor
    """Expect what was measured last."""
    return np.concatenate([np.repeat(releases.noisy_wh[:1], LEAD, axis=0), releases.noisy_wh[:-LEAD]]).astype(float)


@cache
def plan_noise() -> NoiseSchedule:
    """Return the noise of the promise for a bound of 1,000 Wh, as the planner finds it."""
    return make_plan(parse_zone(_ZONE.format(homes=1000, bound_wh=1000))).noise


def add_noise(sums_wh: IntArray, noise: NoiseSchedule, seed: int) -> IntArray:
    """Return sums [interval, zone] with noise that is drawn for each. The first interval begins at 0 h UTC."""
    slot = np.broadcast_to(np.arange(len(sums_wh))[:, None] % SLOTS, sums_wh.shape)
    core = noise.core_wh[slot] if noise.core_wh.any() else None
    return sums_wh + SeededNoise(seed).draw(noise.distribution, noise.scale_wh[slot], core)


def forecast_with_product(public: Public, epsilon: Fraction, seed: int) -> PublicForecast:
    """Return the forecast that `murmurate forecast --sample --temperature --epsilon` makes, by seeded noise."""
    before = public.year_before
    layout = choose_layout(
        before.when, before.weather.temperature_c, max_day_wh=_MAX_DAY_WH, epsilon=epsilon,
        households=public.sample_wh.shape[1],
    )  # fmt: skip
    votes = release_votes(cast_votes(public.sample_wh, layout), layout, epsilon=epsilon, noise=SeededNoise(seed))
    return forecast_from_sample(votes, spent=epsilon, source="sample", time_zone="UTC", holidays=public.year.holidays)


class ProductPlan:
    """What `murmurate plan` makes of public numbers: the bound, the noise and the filter. It is a `Predictor`."""

    def __init__(self, public: Public, forecast: PublicForecast, *, pooled: bool, exact: bool = False) -> None:
        """Choose the bound by the least predicted error. `exact`: no clipping and no noise."""
        level = public.mean_wh / float(forecast.demand.demand_wh(public.year.when).mean())  # [zone]
        others = public.homes * (len(level) - 1) if pooled else 0
        predicted = PredictedDemand(forecast, float(level.mean()), pool_homes=others)
        bounds = [_EXACT_WH] if exact else [sensor.bound_wh for sensor in forecast.sensors]
        made: dict[int, tuple[ZonePrediction, NoiseSchedule]] = {}

        def try_bound(bound_wh: int) -> TriedBound:
            zone = parse_zone(_ZONE.format(homes=public.homes, bound_wh=bound_wh))
            noise = plan_noise().scaled_by(1e-3 if exact else bound_wh / 1000)
            made[bound_wh] = make_zone_prediction(zone, predicted, noise), noise
            return TriedBound(bound_wh, float(np.sqrt(noise.variance.mean())), made[bound_wh][0].predicted_error)

        chosen = find_least_error(try_bounds(bounds, try_bound, stop_at=_CLEARLY_WORSE))
        self.bound_wh, self.noise_sd_wh, self.predicted_error = chosen
        prediction, self._noise = made[self.bound_wh]
        self._exact, self._expected_wh = exact, forecast.demand.demand_wh(public.year.when)
        self.zones = [replace(prediction, scale=public.homes * each) for each in level.tolist()]

    def release(self, sums_wh: IntArray, usable: BoolArray, seed: int, export_bound_wh: int = 0) -> Releases:
        """Return clipped sums [interval, zone] with the noise of the plan, in proportion to the range of a reading."""
        wider = 1 + export_bound_wh / self.bound_wh
        noisy_wh = sums_wh if self._exact else add_noise(sums_wh, self._noise.scaled_by(wider), seed)
        return Releases(noisy_wh, usable, self.bound_wh, export_bound_wh, wider * self.noise_sd_wh)

    def forecast_wh(self) -> FloatArray:
        """Return what the product predicts without any release [Wh, interval, zone]."""
        return np.outer(self._expected_wh, [zone.scale for zone in self.zones])

    def __call__(self, public: Public, releases: Releases) -> FloatArray:
        """Predict with the releases, step by step as publisher and verifier do."""
        return run_filter(self.zones, public.year.first_interval, releases)


def run_filter(zones: list[ZonePrediction], first: int, releases: Releases) -> FloatArray:
    """Return the demand that zones of one plan are priced for [Wh, interval, zone], with the product's functions.

    Zones are pooled as in a tile (`public_log.predicted_rows`): each sees what all others show, if these are enough.
    """
    count, states, answer = len(zones), np.zeros((len(zones), STATES), np.int64), np.ones(len(zones))
    found = np.zeros(releases.noisy_wh.shape)
    homes, pool_homes = np.array([zone.scale for zone in zones]), zones[0].pool_homes
    for t in range(min(LEAD, len(found))):
        found[t] = predict_zones(zones, states, first + t, 0)
    for t in range(len(found) - LEAD):
        usable = releases.usable[t]
        shown = measure_zones(zones, first + t, releases.noisy_wh[t], usable, answer)
        if pool_homes and count > 1:
            shares = np.rint(np.stack([homes, shown.residual_wh, shown.weight_wh])) * usable
            their_homes, residual_wh, weight_wh = shares.sum(axis=1, keepdims=True) - shares
            shown = shown._replace(
                pooled=residual_wh / np.maximum(weight_wh, 1), pool_usable=2 * their_homes >= pool_homes
            )
        states = advance_states(zones, states, first + t, shown)
        found[t + LEAD] = predict_zones(zones, states, first + t, LEAD)
    return found


def predict_directly(zones: list[ZonePrediction], first: int, releases: Releases) -> FloatArray:
    """Return what `run_filter` does, by a plain loop over zones and floating-point states that are never rounded."""
    model, count = zones[0].model, len(releases.noisy_wh)
    when = [model.locate(first + t) for t in range(count)]
    angle = np.array([2 * np.pi * int(each.slot[0]) / SLOTS for each in when])
    seen = np.ones((count, STATES))  # [interval, state]: fast, day, slow, shape, heat; fast, level, shape, heat, own
    for begin in (3, 12):
        seen[:, begin : begin + 6] = np.stack([turn(k * angle) for k in (1, 2, 3) for turn in (np.cos, np.sin)], axis=1)
    heat = np.array([model.public.demand.usual_cold_k[int(each.month[0])] for each in when]) / 8 - 1
    seen[:, 9], seen[:, 18], seen[:, 20:] = heat, heat, 0.0
    of_demand = np.array([float(model.public.demand.demand_wh(each)[0]) for each in when])
    of_sum = np.array([float(model.sensor.forecast.demand_wh(each)[0]) for each in when])
    found, states = np.outer(of_demand, [zone.scale for zone in zones]), np.zeros((len(zones), STATES))
    for t in range(count - LEAD):
        slot, hour, used = int(when[t].slot[0]), int(when[t].hour[0]), releases.usable[t]
        by_heat = np.where(np.isin(np.arange(STATES), (9, 18)), heat[t], 1.0)
        measured = np.concatenate([seen[t, :19], [model.own_loading[slot], 1.0, 1.0]])
        weight = [model.sensor.response[slot] * of_sum[t] * zone.scale for zone in zones]
        residual = [release - of_sum[t] * zone.scale for release, zone in zip(releases.noisy_wh[t], zones, strict=True)]
        for z, zone in enumerate(zones):
            state = states[z] * model.keep
            if used[z]:
                state += by_heat * zone.zone_gain[hour] * (residual[z] / weight[z] - measured @ state)
            state, others = np.clip(state, -2, 2), [at for at in range(len(zones)) if at != z and used[at]]
            if zone.pool_homes and 2 * sum(round(zones[at].scale) for at in others) >= zone.pool_homes:
                shown = sum(round(residual[at]) for at in others) / sum(round(weight[at]) for at in others)
                state += by_heat * zone.pool_gain[hour] * (shown - seen[t, :10] @ state[:10])
            state = np.clip(state, -2, 2)
            states[z] = state
            later = seen[t + LEAD] @ (state * model.keep**LEAD)
            found[t + LEAD, z] *= min(max(1 + later, 0.05), 3.0)
    return found


def find_leak(predictor: Predictor, public: Public, releases: Releases, t: int) -> float:
    """Return how much a prediction up to interval t changes with what is known only later; 0 for an honest one."""
    noisy, load = releases.noisy_wh.copy(), public.regional_load.copy()
    noisy[t - LEAD + 1 :] += 10_000
    load[t - LEAD - REGIONAL_DELAY + 2 :] *= 1.2
    later = public._replace(regional_load=load)
    before, after = predictor(public, releases), predictor(later, replace(releases, noisy_wh=noisy))
    return float(np.abs(before - after)[: t + 1].max())
