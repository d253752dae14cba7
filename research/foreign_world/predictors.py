"""Ways to say what a zone will use in the interval that pays. Each is a function of public numbers and of releases.

A `Predictor` returns the demand of all zones in all intervals [Wh, interval, zone]. For interval t it may use releases
up to t - LEAD and the regional load up to t - LEAD - REGIONAL_DELAY + 1; `find_leak` tests that. Weather is a forecast
of half an hour. The mean use of the season is told to all, off by 4 %. A new way is a function more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.signal import lfilter

from murmurate.prediction.calendar import CalendarSlots, DayType
from murmurate.units import BoolArray, FloatArray, IntArray
from research.foreign_world.homes import SLOTS
from research.foreign_world.region import REGIONAL_DELAY, Public, Weather, Year

LEAD = 2  # intervals from a release to the interval that pays
_RIDGE = 3.0


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


def find_leak(predictor: Predictor, public: Public, releases: Releases, t: int) -> float:
    """Return how much a prediction up to interval t changes with what is known only later; 0 for an honest one."""
    noisy, load = releases.noisy_wh.copy(), public.regional_load.copy()
    noisy[t - LEAD + 1 :] += 10_000
    load[t - LEAD - REGIONAL_DELAY + 2 :] *= 1.2
    later = public._replace(regional_load=load)
    before, after = predictor(public, releases), predictor(later, replace(releases, noisy_wh=noisy))
    return float(np.abs(before - after)[: t + 1].max())
