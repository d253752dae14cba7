"""Forecasts from made samples, with so little noise that they show what the sample shows."""

from fractions import Fraction

from murmurate.prediction.forecast_sources import forecast_from_sample
from murmurate.prediction.private_sample import cast_votes, choose_layout, release_votes
from murmurate.privacy.noise import SeededNoise


def release_sample(readings, when, temperature_c=None, *, epsilon=Fraction(10**6), max_day_wh=100_000, seed=1):
    """The mean vote of readings [interval, household], with noise."""
    households = readings.shape[1]
    layout = choose_layout(when, temperature_c, max_day_wh=max_day_wh, epsilon=epsilon, households=households)
    return release_votes(cast_votes(readings, layout), layout, epsilon=epsilon, noise=SeededNoise(seed))


def sample_forecast(readings, when, temperature_c=None, *, time_zone="Europe/Lisbon", **choices):
    released = release_sample(readings, when, temperature_c, **choices)
    return forecast_from_sample(released, spent=released.epsilon, source="a made sample", time_zone=time_zone)
