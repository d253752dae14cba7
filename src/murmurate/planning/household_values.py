"""Values of a `[[households]]` table of a zone file: consumption distributions and public hours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from murmurate.errors import ModelError
from murmurate.planning.local_hours import LocalHours
from murmurate.units import FloatArray

MAX_BOUND_WH = 1_000_000  # of a household in an interval: 4 MW over a quarter hour; its laws have so many numbers


def read_consumption_pmf(field: str, table: Mapping[str, Any], bound_wh: int, *, clipped: bool = False) -> FloatArray:
    """A law on 0, .., bound from { uniform_to = .. } or { histogram = [..], step_wh = .. }.

    A law that reaches above the bound is refused, or, if `clipped`, what lies above counts as the bound.

    >>> read_consumption_pmf("home", {"uniform_to": 3}, 2, clipped=True).tolist()
    [0.25, 0.25, 0.5]
    """
    if set(table) == {"uniform_to"}:
        top = int(table["uniform_to"])
        if top < 0 or (top > bound_wh and not clipped):
            raise ModelError(field, top, f"uniform_to must lie between 0 and bound_wh, {bound_wh}")
        return _law_of_bins(np.ones(1), top + 1, bound_wh)
    if set(table) == {"histogram", "step_wh"}:
        step, weights = int(table["step_wh"]), np.array(table["histogram"], np.float64)
        above = len(weights) * step > bound_wh + 1 and not clipped
        if step < 1 or above or not (weights >= 0).all() or weights.sum() <= 0:
            allowed = f"must be weights of bins of step_wh that end at bound_wh, {bound_wh}, or below"
            raise ModelError(field, f"{len(weights)} bins of {step} Wh", allowed)
        return _law_of_bins(weights, step, bound_wh)
    raise ModelError(field, sorted(table), "must be { uniform_to = 600 } or { histogram = [3, 2, 1], step_wh = 200 }")


def _law_of_bins(weights: FloatArray, step_wh: int, bound_wh: int) -> FloatArray:
    """A law that is even in each bin of `step_wh`; what lies above the bound counts as the bound."""
    law = np.zeros(bound_wh + 1)
    each = weights / (weights.sum() * step_wh)
    end = min(len(weights) * step_wh, bound_wh + 1)
    law[:end] = each[np.arange(end) // step_wh]
    if len(weights) * step_wh > bound_wh + 1:
        law[-1] = 1 - law[:-1].sum()
    return law


def read_public_hours(hours_text: Any, hours: LocalHours) -> tuple[bool, ...]:
    """The word always, or local hours such as ["08:00-20:00"] at which anybody may know the occupancy.

    An interval of UTC is public only if all of it lies within the hours under every offset of the time zone: where
    clocks change, an hour on either side stays protected all year.
    """
    if hours_text == "always":
        return (True,) * hours.intervals_per_day
    known = np.zeros(hours.intervals_per_day, np.bool_)
    for stretch in [hours_text] if isinstance(hours_text, str) else hours_text:
        begin, _, end = str(stretch).partition("-")
        first, last = hours.parse_slot("public", begin), hours.parse_slot("public", end)
        if first == last:
            raise ModelError("public", repr(stretch), 'must be hours such as "08:00-20:00", or "always"')
        length = last - first if last > first else last - first + hours.intervals_per_day
        known |= (np.arange(hours.intervals_per_day) - first) % hours.intervals_per_day < length
    if known.any() and not hours.has_time_zone:
        raise ModelError("public", "hours", 'need time_zone at the top of the file, such as "Europe/Zurich"')
    return hours.holds_at_all_offsets(known)
