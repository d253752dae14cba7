"""A regression on public inputs with slow corrections from releases: the predictor that decision 0026 proposes.

    demand of a zone = scale (use + sun + region + corrections)     [Wh of an interval]

Use and sun are the least squares of a household of the sample on calendar and weather. The region adds the mean day by
which its load leaves its own regression. Corrections are 27 states of a zone: its level, a fast one, its sun, and one
for each hour of the day. Their gains are constants in closed form. Means over the sample are exact: the noise of
private votes is not in them. The constants were chosen by the author of the form on other worlds, none on this one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.signal import lfilter

from murmurate.prediction.calendar import DayType
from murmurate.units import BoolArray, FloatArray, IntArray
from research.foreign_world.homes import SLOTS
from research.foreign_world.predictors import LEAD, Releases, add_noise, plan_noise
from research.foreign_world.region import HOME_SHARE, REGIONAL_DELAY, Public, Year

HOURS = 24
LEVEL, FAST, SUN, HOUR = 0, 1, 2, 3  # states; HOUR is the first of 24
STATE_UNIT, MAX_STATE = 1e-9, 2.0
KEEP = np.exp(-HOURS / SLOTS / np.array([2000.0, 5.0, 2000.0] + [2000.0] * HOURS))  # of a state, in an interval
SPREAD = np.array([0.05, 0.023, 0.36] + [0.035] * HOURS)  # sd of a state where nothing is measured, relative
COMMON_SD = 0.025  # by which all zones leave what is foreseen, relative to the use
SUN_SD = 0.12  # the same of the sun: clouds that public irradiance does not show
OF_SUN = 2 * HOURS + 2  # the last feature
REGION_DAYS, LATE_SHARE, SUN_PACE = 14.0, 0.25, 4.0
ERROR_DAYS, LEARNING_DAYS, PLAN_SD = 28.0, 7, 0.2  # of the running square; how far the plan's square is off, relative
BOUNDS_WH = (500, 700, 1000, 1500, 2100)
NET_BOUNDS_WH = [(export, bound) for bound in (700, 1000, 1500) for export in (300, 700, 1000, 1500, 2000)]
_LATE = LEAD + REGIONAL_DELAY - 1  # intervals from the newest regional load to the interval that pays
_NO_BOUND_WH = 32_000


def build_features(year: Year) -> FloatArray:
    """Return [interval, feature]: hours of workdays, of other days, cold, dark, sun.

    Hours are joined by straight lines between their middles.
    """
    middle = (year.when.slot + 0.5) * HOURS / SLOTS - 0.5
    hour = np.floor(middle).astype(np.int64)
    later, one = (middle - hour)[:, None], np.eye(HOURS)
    hours = one[hour % HOURS] * (1 - later) + one[(hour + 1) % HOURS] * later
    works = (year.when.day_type == DayType.WORKDAY)[:, None]
    air, irradiance = year.weather
    pace = HOURS / SLOTS / 20  # houses feel an exponential mean of 20 h
    felt = lfilter([pace], [1, pace - 1], air - air[0]) + air[0]
    weather = np.maximum(15 - felt, 0) / 8, np.clip((110 - irradiance) / 100, 0, 1), irradiance / 300
    return np.concatenate([hours * works, hours * ~works, np.stack(weather, axis=1)], axis=1)


def fit_base(features: FloatArray, values: FloatArray) -> FloatArray:
    """Return plain least squares [feature]; 0 for a feature that is never seen."""
    return np.asarray(np.linalg.lstsq(features, values, rcond=None)[0])


def follow_region(public: Public) -> FloatArray:
    """Return what the regional load adds to a household, relative to the usual use [interval].

    The base of the load is fitted to the year before, and so is the level that its slow means begin with.
    """
    before, features, slot = build_features(public.year_before), build_features(public.year), public.year.when.slot
    base = fit_base(before, public.regional_load_before)
    use, sun = features[:, :OF_SUN] @ base[:OF_SUN], features[:, OF_SUN]
    usual = usual_base = float((before[:, :OF_SUN] @ base[:OF_SUN]).mean())
    day, roofs, pace = np.zeros(SLOTS), 0.0, 1 / (SLOTS * REGION_DAYS)  # roofs: more or fewer than in the base
    found = np.zeros(len(use))
    for t in range(_LATE, len(use)):
        known = t - _LATE
        load = public.regional_load[known] - (base[OF_SUN] + roofs * usual) * sun[known]
        usual, usual_base = usual + pace * (load - usual), usual_base + pace * (use[known] - usual_base)
        last = (load - usual / usual_base * use[known]) / usual - day[slot[known]]
        day[slot[known]] += last / REGION_DAYS
        roofs += pace * SUN_PACE * sun[known] * last
        found[t] = (day[slot[t]] + roofs * sun[t] + LATE_SHARE * last) / HOME_SHARE
    return found


class Sampled(NamedTuple):
    """Means over the households of the sample, whose readings are clipped to a range."""

    base: FloatArray  # [feature] Wh
    own: FloatArray  # [hour] Wh^2, variance of a reading around what the household uses in that hour
    lasting: FloatArray  # [hour] Wh^2, variance of that between households
    cut_wh: float  # mean of what is clipped off


def summarize_sample(public: Public, features: FloatArray, low_wh: int, high_wh: int) -> Sampled:
    """Return what a plan needs of the sample. `features` are those of the year before."""
    clipped = np.clip(public.sample_wh, low_wh, high_wh)
    by_hour = clipped.reshape(-1, HOURS, SLOTS // HOURS, clipped.shape[1])
    usual = by_hour.mean(axis=(0, 2))  # [hour, household]
    square = np.square(by_hour, dtype=np.float32).mean(axis=(0, 2), dtype=np.float64)
    return Sampled(
        base=fit_base(features, clipped.mean(axis=1)),
        own=(square - usual**2).mean(axis=1),
        lasting=usual.var(axis=1),
        cut_wh=float(np.abs(public.sample_wh - clipped).mean()),
    )


def make_loadings(features: FloatArray, base: FloatArray, mean_wh: float) -> FloatArray:
    """Return how much of each state is in the demand of a household, relative to the mean [interval, state]."""
    use, sun = features[:, :OF_SUN] @ base[:OF_SUN] / mean_wh, features[:, OF_SUN] * base[OF_SUN] / mean_wh
    hour = np.eye(HOURS)[np.arange(len(features)) % SLOTS * HOURS // SLOTS]
    return np.concatenate([np.stack([use, use, sun], axis=1), hour * use[:, None]], axis=1)


def solve_gain(told: FloatArray, fresh: FloatArray, keep: FloatArray = KEEP) -> FloatArray:
    """Return the variance p that measuring for long leaves of a state: 1/p = 1/(keep^2 p + fresh) + told."""
    half = told * fresh + 1 - keep**2
    root = np.sqrt(half**2 + 4 * told * keep**2 * fresh)
    return np.asarray(2 * fresh / (root + half))


def advance_states(states: FloatArray, loading: FloatArray, gain: FloatArray, surprise: FloatArray) -> FloatArray:
    """Return states after a release [state, zone], in whole units of the log. `surprise` is relative [zone]."""
    after = np.clip(states + gain * loading[:, None] * surprise, -MAX_STATE, MAX_STATE)
    return np.asarray(np.rint(after / STATE_UNIT) * STATE_UNIT)


def predict_public_regression(public: Public, releases: Releases) -> FloatArray:  # noqa: ARG001 - as every predictor
    """Predict from the sample, calendar, weather and regional load alone."""
    before, now = build_features(public.year_before), build_features(public.year)
    base = fit_base(before, public.sample_wh.mean(axis=1))
    return np.outer(now @ base + usual_use(before, base) * follow_region(public), find_scale(public, before, now))


def usual_use(before: FloatArray, base: FloatArray) -> float:
    """Return the mean use of a household in the year before [Wh], without its sun."""
    return float((before[:, :OF_SUN] @ base[:OF_SUN]).mean())


def find_scale(public: Public, before: FloatArray, now: FloatArray) -> FloatArray:
    """Return how many households of the sample a zone is like [zone], by its mean use and homes without a roof."""
    without_roof = fit_base(before, public.sample_wh[:, ~public.sample_has_pv].mean(axis=1))
    return np.asarray(public.homes * public.mean_wh / (now @ without_roof).mean())


class Predicted(NamedTuple):
    """What a plan predicts [interval, zone]. The band of 95 % is 1.96 sd wide on both sides."""

    demand_wh: FloatArray
    sd_wh: FloatArray


class RegressionPlan:
    """Bounds, gains and stated errors of zones of one size. It is a `Predictor`."""

    def __init__(self, public: Public) -> None:
        """Choose the bounds: what is clipped off counts wholly as error."""
        self._before, self._now = build_features(public.year_before), build_features(public.year)
        self._whole = summarize_sample(public, self._before, -_NO_BOUND_WH, _NO_BOUND_WH)
        self._homes, self._mean_wh = public.homes, usual_use(self._before, self._whole.base)
        self.scale = find_scale(public, self._before, self._now)
        pairs = NET_BOUNDS_WH if public.sample_has_pv.any() else [(0, bound) for bound in BOUNDS_WH]
        tried = {pair: summarize_sample(public, self._before, -pair[0], pair[1]) for pair in pairs}

        def score(pair: tuple[int, int]) -> float:
            self._set_gains(pair, tried[pair], self.scale.mean(keepdims=True))
            return float(np.hypot(self.stated_wh[0] / self.scale.mean(), tried[pair].cut_wh))

        chosen = min(pairs, key=score)
        self._set_gains(chosen, tried[chosen], self.scale)

    def _set_gains(self, bounds_wh: tuple[int, int], clipped: Sampled, scale: FloatArray) -> None:
        """Find gains, what they leave and the stated error from the inputs of the year before, for zones of a scale."""
        mean_wh, homes = self._mean_wh, self._homes
        self.export_bound_wh, self.bound_wh = bounds_wh
        self._noise = plan_noise().scaled_by(sum(bounds_wh) / 1000)
        self.noise_sd_wh = float(np.sqrt(self._noise.variance.mean()))
        self._noise_square = (self.noise_sd_wh / (scale * mean_wh)) ** 2  # [zone]
        self._clipped, seen = clipped, make_loadings(self._before, clipped.base, mean_wh)
        square = (seen**2).mean(axis=0)
        use = HOURS * seen[:, HOUR:].mean(axis=0) * mean_wh
        spread = SPREAD.copy()
        spread[HOUR:] = np.sqrt(spread[HOUR:] ** 2 + clipped.lasting / homes / use**2)
        noise = self._noise_square + clipped.own.mean() / mean_wh**2 / homes + COMMON_SD**2
        variance = solve_gain(square[:, None] / noise, ((1 - KEEP**2) * spread**2)[:, None], KEEP[:, None])
        ahead = KEEP[:, None] ** (2 * LEAD)
        self._gain, self._left = variance / noise, variance * ahead + spread[:, None] ** 2 * (1 - ahead)
        loading = make_loadings(self._before, self._whole.base, mean_wh)
        self._plan_square = self._variance(loading, self._whole.own).mean(axis=0)  # [zone]
        self._plan_square_clipped = self._variance(seen, clipped.own).mean(axis=0)
        self.stated_wh = np.sqrt(self._plan_square) * scale * mean_wh

    def _variance(self, loading: FloatArray, own: FloatArray) -> FloatArray:
        """Return the variance of a predicted sum, relative to the usual one [interval, zone]."""
        unseen = (COMMON_SD * loading[:, LEVEL]) ** 2 + (SUN_SD * loading[:, SUN]) ** 2
        by_chance = own[np.arange(len(loading)) % SLOTS * HOURS // SLOTS] / self._mean_wh**2 / self._homes
        return np.asarray(loading**2 @ self._left + (unseen + by_chance)[:, None])

    def release(self, sums_wh: IntArray, usable: BoolArray, seed: int) -> Releases:
        """Return clipped sums [interval, zone] with the noise of the plan."""
        noisy_wh = add_noise(sums_wh, self._noise, seed)
        return Releases(noisy_wh, usable, self.bound_wh, self.export_bound_wh, self.noise_sd_wh)

    def predict(self, public: Public, releases: Releases, silent: IntArray | None = None) -> Predicted:
        """Predict step by step. `silent`: meters that the released sum lacks [interval, zone]; the plan fills them in.

        A silent meter counts as the expected sum of a household, within its bounds.
        """
        mean_wh, scale, found = self._mean_wh, self.scale, predict_public_regression(public, releases)
        index = follow_region(public) * usual_use(self._before, self._clipped.base) / mean_wh
        loading = make_loadings(self._now, self._whole.base, mean_wh)
        seen = make_loadings(self._now, self._clipped.base, mean_wh)
        sd_wh = np.sqrt(self._variance(loading, self._whole.own)) * scale * mean_wh
        states, square, age = np.zeros((len(KEEP), len(scale))), np.zeros(len(scale)), np.zeros(len(scale))
        for t in range(len(found) - LEAD):
            states = states * KEEP[:, None]
            expected = (seen[t, LEVEL] + seen[t, SUN] + index[t] + seen[t] @ states) * scale * mean_wh
            sums = releases.noisy_wh[t]
            if silent is not None:
                each = np.clip(expected / self._homes, -self.export_bound_wh, self.bound_wh)
                sums = sums + np.floor(silent[t] * each)
            usable = releases.usable[t]
            surprise = np.where(usable, sums - expected, 0.0) / (scale * mean_wh)
            states = advance_states(states, seen[t], self._gain, surprise)
            if t >= LEARNING_DAYS * SLOTS:
                pace = np.maximum(1 / (SLOTS * ERROR_DAYS), 1 / (age + 1))
                square = square + usable * pace * (surprise**2 - self._noise_square - square)
                age = age + usable
            found[t + LEAD] += loading[t + LEAD] @ (states * KEEP[:, None] ** LEAD) * scale * mean_wh
            sd_wh[t + LEAD] *= np.sqrt(self._correct_square(square, age))
        return Predicted(found, sd_wh)

    def _correct_square(self, square: FloatArray, age: FloatArray) -> float:
        """Return by what the plan's squared error is multiplied: measured over planned in all zones, by its chance."""
        planned = self._plan_square_clipped
        chance = 2 * (self._noise_square + planned) ** 2 / np.clip(age, 1e-9, 2 * SLOTS * ERROR_DAYS)
        weight = planned**2 / chance
        ratio = float((weight * square / planned).sum() / weight.sum())
        return max(1 + (ratio - 1) / (1 + 1 / (PLAN_SD**2 * float(weight.sum()))), 0.25)

    def __call__(self, public: Public, releases: Releases) -> FloatArray:
        """Predict with the releases."""
        return self.predict(public, releases).demand_wh
