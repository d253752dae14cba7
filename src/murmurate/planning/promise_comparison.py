"""A day's promise and a year's beside each other: what each costs a zone, and which one fits its size."""

from __future__ import annotations

from typing import cast

import numpy as np

from murmurate.planning.noise_schedule import NoiseSchedule
from murmurate.planning.noise_search import gaussian_deviation
from murmurate.planning.plan_prediction import make_zone_prediction
from murmurate.planning.zone import Zone
from murmurate.privacy.noise import MIN_SCALE_WH, NoiseDistribution
from murmurate.privacy.promise import WindowPromise, parse_promise

A_DAY = "any 24 h: epsilon 1, delta 1e-6"
A_YEAR = "any 365 d: epsilon 4, delta 1e-6"
A_WEAKER_YEAR = "any 365 d: epsilon 8, delta 1e-6"
MIN_HOMES_FOR_A_YEAR = 10_000  # with the pool; there a year costs about one point of error more than a day


def recommended_promise(homes: int) -> str:
    """Return the promise to begin with, by the number of homes whose releases a price is made from.

    A year bounds what prices tell about habits and holidays, without any model; a day says little about either.

    >>> recommended_promise(800), recommended_promise(12_000)
    ('any 24 h: epsilon 1, delta 1e-6', 'any 365 d: epsilon 4, delta 1e-6')
    """
    return A_YEAR if homes >= MIN_HOMES_FOR_A_YEAR else A_DAY


def compare_promises(zone: Zone) -> dict[str, float]:
    """Return the predicted error of the priced demand under a year's window and a day's, relative to the demand.

    Each is kept by Gaussian noise alone. Its deviation is that of noise on the line, near enough for an error; a plan
    searches and proves its own. Empty for a zone that does not predict.
    """
    if zone.predicted is None:
        return {}
    errors = {}
    for text in (A_YEAR, A_WEAKER_YEAR, A_DAY):
        promise = cast("WindowPromise", parse_promise(text, zone.intervals_per_day))
        bounds_wh = np.array([max(kind.bound_wh for kind in kinds) for kinds in zone.protected_kinds], np.float64)
        scale_wh = np.maximum(gaussian_deviation(promise) * bounds_wh, MIN_SCALE_WH)
        noise = NoiseSchedule.from_scales(NoiseDistribution.GAUSSIAN, scale_wh)
        errors[text] = make_zone_prediction(zone, zone.predicted, noise).predicted_error
    return errors
