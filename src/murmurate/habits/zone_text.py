"""Write learned occupancy models as text that is appended to a zone file."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from murmurate.habits.bound_model import StepChances, find_bound_model, find_slowest_model
from murmurate.habits.hazard_ranges import HazardRanges
from murmurate.habits.transition_counts import HabitCells, name_estimates
from murmurate.units import FloatArray

_MINUTES_PER_DAY = 1440
_MAX_CHANCE = 0.999999  # a zone file needs chances below 1


def write_models(
    name: str,
    cells: HabitCells,
    hazards: HazardRanges,
    *,
    epsilon: Fraction,
    households: int,
    proven: bool = True,
    spread: float = 1.0,
) -> str:
    """Return the text for a zone file: what was spent, an estimate for each type of day, and the bound of all of them.

    The first model is the estimate for the first type of day. The bound is that of `find_bound_model`, or, without
    `proven`, that of `find_slowest_model`. It covers households whose chances at a step differ from the common ones by
    a factor of up to `spread`. Raises PrivacyError if the ranges allow no bound.
    """
    low = _interval_chances(hazards.low.min(axis=1) / spread, cells)
    high = _interval_chances(np.minimum(hazards.high.max(axis=1) * spread, 1), cells)
    bound = find_bound_model(low, high) if proven else find_slowest_model(low)
    names = [*name_estimates(name, cells.day_types), f"{name}_bound"]
    lines = [
        "# Written by murmurate habits. Append this to a zone file and give the kind of household these models:",
        f"#   occupancy = {names}".replace("'", '"'),
        f"[learned.{name}]",
        f'epsilon = "{epsilon}"',
        f"households = {households}",
        f"confidence = {hazards.confidence}",
        f'bound = "{name}_bound"',
        f"proven = {str(proven).lower()}",
    ]
    for kind, model in enumerate(names[:-1]):
        chance = 1 - (1 - hazards.estimate[:, kind]) ** cells.intervals
        lines += _model_lines(model, cells.starts.tolist(), chance, cells)
    every = range(len(cells.period))
    lines += _model_lines(names[-1], every, np.stack([bound.arrive, bound.leave]), cells)
    return "\n".join(lines) + "\n"


def _interval_chances(chances: FloatArray, cells: HabitCells) -> StepChances:
    """Return the chances [arrive and leave, period] for each interval of the day."""
    arrive, leave = chances[:, cells.period]
    return StepChances(arrive=arrive, leave=leave)


def _model_lines(name: str, begins: Iterable[int], chance: FloatArray, cells: HabitCells) -> list[str]:
    """Return the table of a model: periods by their first interval, and chances [arrive and leave, period]."""
    minutes = [begin * _MINUTES_PER_DAY // len(cells.period) for begin in begins]
    clock = [f"{minute // 60:02}:{minute % 60:02}" for minute in minutes]
    keys = [f"from_{time.replace(':', '')}" for time in clock]
    periods = ", ".join(f'{key} = "{time}"' for key, time in zip(keys, clock, strict=True))
    lines = ["", f"[occupancy.{name}]", f"periods = {{ {periods} }}"]
    for direction, chances in zip(("arrive", "leave"), np.minimum(chance, _MAX_CHANCE), strict=True):
        entries = ", ".join(f"{key} = {_format(value)}" for key, value in zip(keys, chances.tolist(), strict=True))
        lines.append(f"{direction} = {{ {entries} }}")
    return lines


def _format(chance: float) -> str:
    return np.format_float_positional(chance, precision=9, trim="0")
