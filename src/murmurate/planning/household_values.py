"""Values of a `[[households]]` table of a zone file: consumption distributions and public hours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from murmurate.errors import ModelError
from murmurate.planning.local_hours import LocalHours
from murmurate.units import FloatArray


def read_consumption_pmf(field: str, table: Mapping[str, Any], bound_wh: int) -> FloatArray:
    """A law on 0, .., bound from { uniform_to = .. } or { histogram = [..], step_wh = .. }."""
    law = np.zeros(bound_wh + 1)
    if set(table) == {"uniform_to"}:
        top = int(table["uniform_to"])
        if not 0 <= top <= bound_wh:
            raise ModelError(field, top, f"uniform_to must lie between 0 and bound_wh, {bound_wh}")
        law[: top + 1] = 1 / (top + 1)
        return law
    if set(table) == {"histogram", "step_wh"}:
        step, weights = int(table["step_wh"]), np.array(table["histogram"], np.float64)
        if step < 1 or len(weights) * step > bound_wh + 1 or not (weights >= 0).all() or weights.sum() <= 0:
            allowed = f"must be weights of bins of step_wh that end at bound_wh, {bound_wh}, or below"
            raise ModelError(field, f"{len(weights)} bins of {step} Wh", allowed)
        law[: len(weights) * step] = np.repeat(weights / (weights.sum() * step), step)
        return law
    raise ModelError(field, sorted(table), "must be { uniform_to = 600 } or { histogram = [3, 2, 1], step_wh = 200 }")


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
