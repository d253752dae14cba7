"""Forecasts from made samples, with so little noise that they show what the sample shows."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from murmurate.prediction.forecast_sources import forecast_from_sample
from murmurate.prediction.private_sample import cast_votes, choose_layout, release_votes
from murmurate.privacy.noise import SeededNoise
from murmurate.units import FloatArray, IntArray


def release_sample(
    readings: IntArray,
    when: Any,
    temperature_c: FloatArray | None = None,
    *,
    epsilon: Fraction = Fraction(10**6),
    max_day_wh: int = 100_000,
    seed: int = 1,
) -> Any:
    """The mean vote of readings [interval, household], with noise."""
    households = readings.shape[1]
    layout = choose_layout(when, temperature_c, max_day_wh=max_day_wh, epsilon=epsilon, households=households)
    return release_votes(cast_votes(readings, layout), layout, epsilon=epsilon, noise=SeededNoise(seed))


def sample_forecast(
    readings: IntArray,
    when: Any,
    temperature_c: FloatArray | None = None,
    *,
    time_zone: str = "Europe/Lisbon",
    **choices: Any,
) -> Any:
    released = release_sample(readings, when, temperature_c, **choices)
    return forecast_from_sample(released, spent=released.epsilon, source="a made sample", time_zone=time_zone)
