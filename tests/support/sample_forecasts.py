"""Forecasts from made samples, with so little noise that they show what the sample shows."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from murmurate.prediction.forecast import USUAL_WEATHER, Weather
from murmurate.prediction.forecast_sources import forecast_from_sample
from murmurate.prediction.private_sample import cast_votes, choose_layout, release_votes
from murmurate.prediction.public_forecast import SAMPLE_DELTA
from murmurate.privacy.noise import SeededNoise
from murmurate.units import IntArray


def release_sample(
    readings: IntArray,
    when: Any,
    weather: Weather = USUAL_WEATHER,
    *,
    epsilon: Fraction = Fraction(10**6),
    usual_day_wh: int = 30_000,
    seed: int = 1,
) -> Any:
    """The mean vote of readings [interval, household], with noise."""
    households = readings.shape[1]
    layout = choose_layout(when, weather, usual_day_wh=usual_day_wh, epsilon=epsilon, households=households)
    return release_votes(cast_votes(readings, layout), layout, epsilon=epsilon, noise=SeededNoise(seed))


def sample_forecast(
    readings: IntArray,
    when: Any,
    weather: Weather = USUAL_WEATHER,
    *,
    time_zone: str = "Europe/Lisbon",
    **choices: Any,
) -> Any:
    released = release_sample(readings, when, weather, **choices)
    spent = (released.epsilon, SAMPLE_DELTA)
    return forecast_from_sample(released, spent=spent, source="a made sample", time_zone=time_zone)
