"""How far the demand that a price is made for is from the demand of the interval that pays, on real households.

All households of a data set are one zone. The first half is a trial, the second is priced; after four weeks in which
corrections settle, every way is judged on the same weeks. Intervals are 95 % ones of a bootstrap over weeks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from murmurate.lab.audit.attack import Estimate
from murmurate.lab.evaluate.corrected_zones import CorrectedZones
from murmurate.lab.evaluate.public_knowledge import expect_readings
from murmurate.planning.bound_choice import find_least_error
from murmurate.prediction.calendar import CalendarSlots
from murmurate.prediction.forecast import Weather, fit_forecast
from murmurate.prediction.public_forecast import PublicForecast
from murmurate.units import FloatArray, IntArray
from research.data_sets.homes_data import HomesData
from research.real_homes.release_noise import ExampleNoise
from research.real_homes.trial_knowledge import drop_useless_weather, learn_from_trial, split_trial

LEAD = 2  # intervals from a measurement to the interval whose price it makes
NOISE_DRAWS = 20  # of the whole second half; errors are means over them
_SETTLING_WEEKS = 4
_BOOTSTRAPS = 2000


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
    weather, priced, before = Weather(data.temperature_c), slice(trial, end), slice(0, trial)
    known = learn_from_trial(data.energy_wh[before], when[before], weather.select(before))
    season = _PricedHalf(data, known, noise, when, priced, np.random.SeedSequence(seed))
    echo_bound, bound, exact_bound = season.best_echo_bound(), season.best_bound(), known.above[-1].bound_wh
    release_wh = season.draw_releases(bound)
    estimates = {
        HomesWay.LAST_WEEK: season.shifted_demand(7 * data.slots_per_day),
        HomesWay.FORECAST: season.reading_wh[:, -1:] * len(data.households),
        HomesWay.REFITTED: season.refitted_forecast(),
        HomesWay.EXACT_ECHO: season.shifted_demand(LEAD),
        HomesWay.NOISY_ECHO: season.echo_releases(echo_bound),
        HomesWay.PRIVATE: season.predict(bound, noise.sd_wh(bound), release_wh),
        HomesWay.EXACT: season.predict(exact_bound, 0.0, season.demand_wh[:, None]),
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
        known: PublicForecast,
        noise: ExampleNoise,
        when: CalendarSlots,
        priced: slice,
        seed: np.random.SeedSequence,
    ) -> None:
        self._data, self._known, self._noise, self._when, self._priced = data, known, noise, when, priced
        self._seeds = iter(seed.spawn(4))
        self._whole_wh = data.energy_wh.sum(axis=1).astype(np.float64)
        self.demand_wh: FloatArray = self._whole_wh[priced]

        self._bounds_wh, self._weather = [each.bound_wh for each in known.above], Weather(data.temperature_c)
        self.reading_wh = expect_readings(known, when[priced], self._weather.select(priced))  # [interval, bound]

    def refitted_forecast(self) -> FloatArray:
        """The forecast of each week, fitted to all exact readings before it [interval, 1]."""
        week, weeks = 7 * self._data.slots_per_day, []
        for start in range(self._priced.start, self._priced.stop, week):
            before, now = slice(0, start), slice(start, start + week)
            fitted = fit_forecast(self._whole_wh[before], self._when[before], self._weather.select(before))
            weeks.append(fitted.demand_wh(self._when[now], self._weather.select(now)))
        return np.concatenate(weeks)[:, None]

    def shifted_demand(self, intervals: int) -> FloatArray:
        """The exact demand so many intervals before [interval, 1]."""
        return np.asarray(self._whole_wh[self._priced.start - intervals : self._priced.stop - intervals, None])

    def best_echo_bound(self) -> int:
        """The bound with the least error of an echo in the trial: noise grows with it, what is clipped falls."""
        trial = self._data.energy_wh[: self._priced.start]
        clipped = {bound: (trial - np.minimum(trial, bound)).sum(axis=1).mean() for bound in self._bounds_wh}
        return min(clipped, key=lambda bound: float(np.hypot(self._noise.sd_wh(bound), clipped[bound])))

    def best_bound(self) -> int:
        """The bound with the least predicted error, by the rule of a plan, from what the trial taught."""
        tried = [self._plan_zones(bound, self._noise.sd_wh(bound), 1).tried for bound in self._bounds_wh]
        return find_least_error(tried).bound_wh

    def _plan_zones(self, bound_wh: int, noise_sd_wh: float, draws: int) -> CorrectedZones:
        homes = len(self._data.households)
        scale = np.full(draws, float(homes))
        return CorrectedZones(self._known, bound_wh, homes=homes, noise_sd_wh=noise_sd_wh, lead=LEAD, scale=scale)

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
        zones = self._plan_zones(bound_wh, noise_sd_wh, sums_wh.shape[1])
        reading_wh, use_wh = self.reading_wh[:, self._bounds_wh.index(bound_wh)], self.reading_wh[:, -1]
        hour = self._when[self._priced].hour
        estimate = np.repeat(use_wh[:, None] * len(self._data.households), sums_wh.shape[1], axis=1)
        for t in range(len(sums_wh) - LEAD):
            zones.observe(float(reading_wh[t]), int(hour[t]), sums_wh[t])
            estimate[t + LEAD] = zones.predict(float(use_wh[t + LEAD]), int(hour[t + LEAD]))
        return estimate


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
