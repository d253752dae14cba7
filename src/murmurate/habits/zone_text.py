"""Occupancy models as text for a zone file: an estimate, and a bound that leaks at least as much as every model.

The evidence that neighbours of a moment give about it grows when four chances fall: to arrive and to leave at a step,
and the same two for the reversed chain, P(before = home | now = away) and P(before = away | now = home). A model whose
four chances are at most the least within the ranges, at each interval of the day, leaks at least as much as each model
within them. The smallest chances to arrive and leave are not enough: the reversed chances depend on the prior.

Fluxes make this linear. With pi the probability to be home, leaving with chance l is a flux l pi of probability, and
the reversed chance is the same flux divided by 1 - pi after the step. A linear program finds the largest fluxes.
Proof: `learned_habits.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.sparse import coo_array

from murmurate.errors import PrivacyError
from murmurate.habits.hazard_ranges import HazardRanges
from murmurate.habits.private_counts import HabitCells, name_estimates
from murmurate.units import FloatArray, IntArray

_MINUTES_PER_DAY = 1440
_MAX_CHANCE = 0.999999  # a zone file needs chances below 1
_MARGINS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)  # by how much the program tightens its conditions; the result is checked
_DECIMALS = 9  # of the chances, as they are written to a file
_MIN_PRIOR = 1e-6
SLOWEST_FACTOR = 0.8  # the slowest corner is slowed by this, since other corners leak up to some percent more


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepChances:
    """The chances to arrive and to leave at the step into each interval of the day."""

    arrive: FloatArray  # [interval of the day]
    leave: FloatArray  # likewise


def find_bound_model(low: StepChances, high: StepChances) -> StepChances:
    """Return the chances of a model that leaks at least as much as every model between `low` and `high`.

    The models between them may change from day to day. At each step a household that was home is at least as likely to
    be home as one that was away: arrive + leave <= 1. Raises PrivacyError if there is no such model or none that mixes.
    """
    _check_changes_seen(low)
    if (low.arrive + low.leave >= 1).any():
        raise PrivacyError("chances", "above 1 together", "must be smaller: occupancy may not alternate at each step")
    reversed_low = least_reversed_chances(low, high)
    for margin in _MARGINS:
        model = _largest_fluxes(low, reversed_low, 1 - margin)
        if model.arrive.any() and model.leave.any() and is_bounded(model, low, reversed_low):
            return model
    raise PrivacyError("bound", "not found", "take more households, a larger epsilon or fewer periods")


def find_slowest_model(low: StepChances) -> StepChances:
    """Return the smallest chances, reduced by a fifth.

    That no model between the ranges leaks more is tested on random models, not proven.
    Raises PrivacyError if the chances to arrive or to leave are all 0.
    """
    _check_changes_seen(low)
    return StepChances(arrive=_round_down(SLOWEST_FACTOR * low.arrive), leave=_round_down(SLOWEST_FACTOR * low.leave))


def _check_changes_seen(low: StepChances) -> None:
    if not (low.arrive.any() and low.leave.any()):
        allowed = "must exceed the noise: take more households, a larger epsilon or fewer periods"
        raise PrivacyError("arrivals and departures", "too few", allowed)


def is_bounded(model: StepChances, low: StepChances, reversed_low: StepChances) -> bool:
    """Whether the four chances of a model are at most these, at each interval of the day."""
    turned = reverse_chances(model, periodic_home_probability(model))
    pairs = ((model, low), (turned, reversed_low))
    return all(bool((mine.arrive <= least.arrive).all() and (mine.leave <= least.leave).all()) for mine, least in pairs)


def least_reversed_chances(low: StepChances, high: StepChances) -> StepChances:
    """Return the least chances of the reversed chain that any model between `low` and `high` may have."""
    most_home = StepChances(arrive=np.minimum(high.arrive, 1 - low.leave), leave=low.leave)
    least_home = StepChances(arrive=low.arrive, leave=np.minimum(high.leave, 1 - low.arrive))
    arrive = reverse_chances(low, periodic_home_probability(least_home)).arrive
    return StepChances(arrive=arrive, leave=reverse_chances(low, periodic_home_probability(most_home)).leave)


def reverse_chances(model: StepChances, home: FloatArray) -> StepChances:
    """Return P(before = home | now = away) and P(before = away | now = home), for a prior `home` after each step."""
    before = np.roll(home, 1)
    left, stayed_away = before * model.leave, (1 - before) * (1 - model.arrive)
    arrived, stayed_home = (1 - before) * model.arrive, before * (1 - model.leave)
    return StepChances(arrive=_share(left, stayed_away), leave=_share(arrived, stayed_home))


def _share(part: FloatArray, rest: FloatArray) -> FloatArray:
    """Return part/(part + rest), and 0 where both are 0: the state after the step is then impossible."""
    return np.asarray(np.divide(part, part + rest, out=np.zeros_like(part), where=part > 0))


def periodic_home_probability(model: StepChances) -> FloatArray:
    """Return the probability to be home after each step, for a chain in its periodic regime.

    >>> model = StepChances(arrive=np.array([0.5, 0.0]), leave=np.array([0.0, 0.5]))
    >>> periodic_home_probability(model).round(4).tolist()
    [0.6667, 0.3333]
    """
    kept = 1 - model.arrive - model.leave
    factor, offset = 1.0, 0.0
    for k, a in zip(kept, model.arrive, strict=True):
        factor, offset = factor * k, offset * k + a
    home = np.empty(len(kept))
    now = offset / (1 - factor)
    for t, (k, a) in enumerate(zip(kept, model.arrive, strict=True)):
        now = now * k + a
        home[t] = now
    return home


def _largest_fluxes(low: StepChances, reversed_low: StepChances, factor: float) -> StepChances:
    """Return the model with the largest fluxes whose four chances are at most `factor` times the least ones.

    Unknowns are the prior after each step and, relative to the least chances, the fluxes of arrivals x and of
    departures y. With pi before and pi' after the step:

        x <= f (1 - pi),  a x <= f l~ pi',  y <= f pi,  l y <= f a~ (1 - pi'),  pi' - pi = a x - l y.
    """
    from scipy.optimize import linprog  # noqa: PLC0415 - slow to import, and no other command needs it

    day = len(low.arrive)
    step: IntArray = np.arange(day)
    previous: IntArray = np.roll(step, 1)
    zero, one = np.zeros(day), np.ones(day)
    with np.errstate(divide="ignore", invalid="ignore"):
        after_arrival = np.where(low.arrive > 0, reversed_low.leave / low.arrive, 0.0)
        after_departure = np.where(low.leave > 0, reversed_low.arrive / low.leave, 0.0)
    rows = [
        ((day + step, one), (previous, factor * one), factor * one),
        ((day + step, one), (step, -factor * after_arrival), zero),
        ((2 * day + step, one), (previous, -factor * one), zero),
        ((2 * day + step, one), (step, factor * after_departure), factor * after_departure),
    ]
    limits = _sparse([row[:2] for row in rows], day)
    balance = _sparse([((step, one), (previous, -one), (day + step, -low.arrive), (2 * day + step, low.leave))], day)
    found = linprog(
        -np.concatenate([zero, low.arrive, low.leave]),
        A_ub=limits,
        b_ub=np.concatenate([row[2] for row in rows]),
        A_eq=balance,
        b_eq=zero,
        bounds=[(_MIN_PRIOR, 1 - _MIN_PRIOR)] * day + [(0, 1)] * (2 * day),
        method="highs",
    )
    if not found.success:
        return StepChances(arrive=zero, leave=zero)
    home, arrivals, departures = np.asarray(found.x, np.float64).reshape(3, day)
    before = np.roll(home, 1)
    return StepChances(
        arrive=_round_down(low.arrive * arrivals / (1 - before)), leave=_round_down(low.leave * departures / before)
    )


def _sparse(blocks: Sequence[Sequence[tuple[IntArray, FloatArray]]], day: int) -> coo_array:
    """Return a matrix with one block of `day` rows for each entry: pairs of columns and their coefficients."""
    parts = [(number * day + np.arange(day), *pair) for number, block in enumerate(blocks) for pair in block]
    row, column, value = (np.concatenate([part[axis] for part in parts]) for axis in range(3))
    return coo_array((value, (row, column)), shape=(len(blocks) * day, 3 * day))


def _round_down(chance: FloatArray) -> FloatArray:
    return np.asarray(np.floor(np.clip(chance, 0, 1) * 10**_DECIMALS) / 10**_DECIMALS)


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
        entries = ", ".join(
            f"{key} = {np.format_float_positional(value, precision=9, trim='0')}"
            for key, value in zip(keys, chances.tolist(), strict=True)
        )
        lines.append(f"{direction} = {{ {entries} }}")
    return lines
