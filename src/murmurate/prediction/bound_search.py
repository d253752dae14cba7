"""Compare bounds of readings by the error that a price is predicted to have. Plans and the laboratory share this.

A low bound needs little noise, and a sum of readings that are cut off at it shows less of the demand. Both are in the
error that the filter predicts for itself: it depends on the noise and on what is known about the sensor, and on nothing
else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

_AS_GOOD = 1.01  # errors within 1 % are taken as equal


class TriedBound(NamedTuple):
    """A bound, the noise that it needs, and the error that is predicted with it."""

    bound_wh: int
    noise_sd_wh: float
    predicted_error: float  # rms of the demand that is priced, relative to the demand


def try_bounds(
    bounds_wh: Iterable[int], try_bound: Callable[[int], TriedBound], *, stop_at: float = float("inf")
) -> tuple[TriedBound, ...]:
    """Try rising bounds. Stop after one whose error is more than `stop_at` times the least so far."""
    tried: list[TriedBound] = []
    for bound_wh in bounds_wh:
        tried.append(try_bound(bound_wh))
        if tried[-1].predicted_error > stop_at * find_least_error(tried).predicted_error:
            break
    return tuple(tried)


def find_least_error(tried: Sequence[TriedBound]) -> TriedBound:
    """Return the bound with the least error; of equals the highest, which cuts off least.

    >>> find_least_error([TriedBound(300, 9e3, 0.05), TriedBound(500, 15e3, 0.04), TriedBound(700, 21e3, 0.06)])
    TriedBound(bound_wh=500, noise_sd_wh=15000.0, predicted_error=0.04)
    """
    return min(tried, key=lambda each: (each.predicted_error, -each.bound_wh))


def find_highest_as_good(tried: Sequence[TriedBound]) -> TriedBound:
    """Return the highest bound whose error is within 1 % of the least."""
    least = find_least_error(tried).predicted_error
    return max((each for each in tried if each.predicted_error <= _AS_GOOD * least), key=lambda each: each.bound_wh)
