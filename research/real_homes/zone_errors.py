"""How far the demand that a price is made for is from the demand of the interval that pays, on real households.

All households of a data set are one zone. The first half is a trial, the second is priced; after four weeks in which
the filter settles, every way is judged on the same weeks. Intervals are 95 % ones of a bootstrap over weeks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from murmurate.prediction.structural_filter import STATES

from murmurate.lab.audit.attack_result import Estimate
from murmurate.prediction.calendar import CalendarSlots
from murmurate.prediction.forecast import degrees_below_base, fit_forecast
from murmurate.units import FloatArray, IntArray
from research.data_sets.homes_data import HomesData
from research.real_homes.release_noise import ExampleNoise
from research.real_homes.trial_knowledge import (
    TrialKnowledge,
    candidate_bounds,
    drop_useless_weather,
    split_trial,
)

LEAD = 2  # intervals from a measurement to the interval whose price it makes
NOISE_DRAWS = 20  # of the whole second half; errors are means over them
_SETTLING_WEEKS = 4
_BOOTSTRAPS = 2000
_EXACT_SD_WH = 1.0
_USUAL_COLD_K = 8.0


class HomesWay(Enum):
    """What the demand of an interval is taken to be."""

    LAST_WEEK = "same interval of last week, exact"
    FORECAST = "forecast, fitted to the trial once"
    REFITTED = "forecast, fitted again every week to exact readings"
    EXACT_ECHO = "echo of exact demand"
    NOISY_ECHO = "echo of noisy demand"
    PRIVATE = "private prediction: forecast and noisy releases"
    EXACT = "the same prediction from exact releases"


PRIVATE_WAYS = (HomesWay.FORECAST, HomesWay.NOISY_ECHO, HomesWay.PRIVATE)  # that show no exact reading


@dataclass(frozen=True, slots=True)
class WayError:
    """The error of one way, relative to the mean demand."""

    error: Estimate  # rms
    against_forecast: Estimate  # rms over that of the forecast fitted once, minus 1; paired by week


@dataclass(frozen=True, slots=True, eq=False)
class ZoneErrors:
    """All ways on the households of one data set."""

    data: HomesData
    trial_intervals: int
    counted_weeks: int
    echo_bound_wh: int
    bound_wh: int  # of the private prediction
    noise_sd_wh: float  # at that bound
    ways: dict[HomesWay, WayError]
    demand_wh: FloatArray  # [interval] of the second half
    release_wh: FloatArray  # [interval] clipped and noisy, the first draw
    predicted_wh: FloatArray  # [interval] by the private prediction, the first draw

    @property
    def mean_wh(self) -> float:
        return float(self.demand_wh.mean())


def measure_zone_errors(data: HomesData, noise: ExampleNoise, seed: int) -> ZoneErrors:
    """Price the second half of a data set in every way. Its households are complete and its days whole."""
    trial, when = split_trial(data), data.calendar()
    data = drop_useless_weather(data, trial)
    end = trial + (len(data.energy_wh) - trial) // (7 * data.slots_per_day) * 7 * data.slots_per_day
    cold_c = data.temperature_c
    known = TrialKnowledge.from_homes(
        data.energy_wh[:trial], when[slice(0, trial)], None if cold_c is None else cold_c[:trial]
    )
    priced = slice(trial, end)
    season = _PricedHalf(data, known, noise, when, priced, np.random.SeedSequence(seed))
    echo_bound, bound = season.best_echo_bound(), season.best_sensor_bound()
    release_wh = season.draw_releases(bound)
    estimates = {
        HomesWay.LAST_WEEK: season.shifted_demand(7 * data.slots_per_day),
        HomesWay.FORECAST: season.expected_wh(known.exact_bound_wh)[:, None],
        HomesWay.REFITTED: season.refitted_forecast(),
        HomesWay.EXACT_ECHO: season.shifted_demand(LEAD),
        HomesWay.NOISY_ECHO: season.echo_releases(echo_bound),
        HomesWay.PRIVATE: season.predict(bound, noise.sd_wh(bound), release_wh),
        HomesWay.EXACT: season.predict(known.exact_bound_wh, _EXACT_SD_WH, season.demand_wh[:, None]),
    }
    skipped = _SETTLING_WEEKS * 7 * data.slots_per_day
    weekly = {way: _weekly_squares(each - season.demand_wh[:, None], skipped, data) for way, each in estimates.items()}
    mean_wh = float(season.demand_wh[skipped:].mean())
    return ZoneErrors(
        data=data,
        trial_intervals=trial,
        counted_weeks=len(weekly[HomesWay.FORECAST]),
        echo_bound_wh=echo_bound,
        bound_wh=bound,
        noise_sd_wh=noise.sd_wh(bound),
        ways=_bootstrap_errors(weekly, mean_wh, seed),
        demand_wh=season.demand_wh,
        release_wh=release_wh[:, 0],
        predicted_wh=estimates[HomesWay.PRIVATE][:, 0],
    )


class _PricedHalf:
    """The second half of a data set as one zone."""

    def __init__(
        self,
        data: HomesData,
        known: TrialKnowledge,
        noise: ExampleNoise,
        when: CalendarSlots,
        priced: slice,
        seed: np.random.SeedSequence,
    ) -> None:
        self._data, self._known, self._noise, self._when, self._priced = data, known, noise, when, priced
        self._seeds = iter(seed.spawn(4))
        self._whole_wh = data.energy_wh.sum(axis=1).astype(np.float64)
        self.demand_wh: FloatArray = self._whole_wh[priced]

    def expected_wh(self, bound_wh: int) -> FloatArray:
        """The forecast that was fitted to the trial, of readings clipped at a bound [interval]."""
        weather = self._data.temperature_c
        forecast = self._known.forecasts[bound_wh]
        one = forecast.demand_wh(self._when[self._priced], None if weather is None else weather[self._priced])
        return one * self._known.households

    def refitted_forecast(self) -> FloatArray:
        """The forecast of each week, fitted to all exact readings before it [interval, 1]."""
        week, weather = 7 * self._data.slots_per_day, self._data.temperature_c
        weeks = []
        for start in range(self._priced.start, self._priced.stop, week):
            before, now = slice(0, start), slice(start, start + week)
            past_c, now_c = (None, None) if weather is None else (weather[before], weather[now])
            fitted = fit_forecast(self._whole_wh[before], self._when[before], past_c)
            weeks.append(fitted.demand_wh(self._when[now], now_c))
        return np.concatenate(weeks)[:, None]

    def shifted_demand(self, intervals: int) -> FloatArray:
        """The exact demand so many intervals before [interval, 1]."""
        return np.asarray(self._whole_wh[self._priced.start - intervals : self._priced.stop - intervals, None])

    def best_echo_bound(self) -> int:
        """The bound with the least error of an echo in the trial: noise grows with it, what is clipped falls."""
        trial = self._data.energy_wh[: self._priced.start]
        clipped = {bound: (trial - np.minimum(trial, bound)).sum(axis=1).mean() for bound in candidate_bounds(trial)}
        return min(clipped, key=lambda bound: float(np.hypot(self._noise.sd_wh(bound), clipped[bound])))

    def best_sensor_bound(self) -> int:
        """The bound at which the filter predicts the least error for itself, from what the trial taught."""
        bounds = sorted(self._known.sensors)
        return min(
            bounds, key=lambda bound: self._known.make_filter(bound, self._noise.sd_wh(bound), LEAD).predicted_error
        )

    def draw_releases(self, bound_wh: int) -> FloatArray:
        """Clipped sums with noise [interval, draw]."""
        sums = np.minimum(self._data.energy_wh[self._priced], bound_wh).sum(axis=1)
        noise_wh = self._noise.draw(bound_wh, (len(sums), NOISE_DRAWS), next(self._seeds))
        return np.asarray(sums[:, None] + noise_wh, np.float64)

    def echo_releases(self, bound_wh: int) -> FloatArray:
        """The releases as estimates of the demand `LEAD` intervals later [interval, draw]."""
        releases = self.draw_releases(bound_wh)
        return np.concatenate([np.repeat(releases[:1], LEAD, axis=0), releases[:-LEAD]])

    def predict(self, bound_wh: int, noise_sd_wh: float, sums_wh: FloatArray) -> FloatArray:
        """The prediction of each interval from the sums `LEAD` intervals before [interval, draw]."""
        its_filter, sensor = self._known.make_filter(bound_wh, noise_sd_wh, LEAD), self._known.sensors[bound_wh]
        expected, expected_sum = self.expected_wh(self._known.exact_bound_wh), self.expected_wh(bound_wh)
        cold, slots = self._cold_k(), self._data.slots_per_day
        states, usable = np.zeros((STATES, sums_wh.shape[1])), np.ones(sums_wh.shape[1], np.bool_)
        estimate = np.repeat(expected[:, None], sums_wh.shape[1], axis=1)
        for t in range(len(sums_wh) - LEAD):
            measured = sensor.read_deviation(sums_wh[t], expected_sum[t], t % slots)
            states = its_filter.step(states, t % slots, float(cold[t]), measured, usable)
            due = t + LEAD
            estimate[due] *= its_filter.predict(states, due % slots, float(cold[due]), LEAD)
        return estimate

    def _cold_k(self) -> FloatArray:
        weather = self._data.temperature_c
        if weather is None:
            return np.full(len(self.demand_wh), _USUAL_COLD_K)
        return degrees_below_base(weather[self._priced])


def _weekly_squares(wrong_wh: FloatArray, skipped: int, data: HomesData) -> FloatArray:
    """Return the mean square error of each counted week [week]."""
    squares = (wrong_wh[skipped:] ** 2).mean(axis=1)
    return np.asarray(squares.reshape(-1, 7 * data.slots_per_day).mean(axis=1))


def _bootstrap_errors(weekly: dict[HomesWay, FloatArray], mean_wh: float, seed: int) -> dict[HomesWay, WayError]:
    weeks = len(weekly[HomesWay.FORECAST])
    drawn: IntArray = np.random.default_rng([seed, weeks]).integers(weeks, size=(_BOOTSTRAPS, weeks))
    forecast, forecasts = _rms(weekly[HomesWay.FORECAST]), np.sqrt(weekly[HomesWay.FORECAST][drawn].mean(axis=1))
    found = {}
    for way, squares in weekly.items():
        several = np.sqrt(squares[drawn].mean(axis=1))
        found[way] = WayError(
            _percentiles(_rms(squares) / mean_wh, several / mean_wh),
            _percentiles(_rms(squares) / forecast - 1, several / forecasts - 1),
        )
    return found


def _rms(squares: FloatArray) -> float:
    return float(np.sqrt(squares.mean()))


def _percentiles(value: float, several: FloatArray) -> Estimate:
    low, high = np.quantile(several, [0.025, 0.975])
    return Estimate(value, float(low), float(high))
