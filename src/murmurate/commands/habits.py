"""`murmurate habits`: occupancy models for a zone file, learned from a consented sample with a pure epsilon."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from rich.console import Console

from murmurate.commands.sample_ledger import SampleSpending, record_spending
from murmurate.errors import ModelError, PrivacyError, ReadingError
from murmurate.habits.hazard_ranges import HazardRanges, count_margins, estimate_hazards
from murmurate.habits.private_counts import (
    DAY_TYPE_NAMES,
    HabitCells,
    PrivateCounts,
    StepCount,
    count_steps,
    noise_scales,
    release_counts,
)
from murmurate.habits.zone_text import write_models
from murmurate.prediction.calendar import locate_intervals
from murmurate.privacy.noise import NoiseSampler, SystemNoise
from murmurate.readings.imported_file import LabeledSample, read_sample
from murmurate.time_zones import parse_slot
from murmurate.units import SECONDS_PER_DAY, BoolArray, parse_fraction

_EPOCH = dt.date(1970, 1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class HabitOptions:
    """What the operator asks for. All of it is public and chosen without looking at the sample."""

    epsilon: str
    confidence: float = 0.99
    name: str = "learned"
    kind: str = ""  # households of this kind; empty: all
    periods: str = "06:00,09:00,16:00,22:00"
    interval_minutes: int = 15
    max_changes: int = 6
    day_types: bool = False  # learn workdays, Saturdays and Sundays apart
    holidays: Sequence[str] = ()
    proven: bool = True  # whether the bound has a proof, or tests only
    spread: float = 1.0  # factor by which the chances of a household may differ from the common ones

    def __post_init__(self) -> None:
        if not re.fullmatch("[A-Za-z0-9_-]+", self.name):
            raise ModelError("name", repr(self.name), "must be letters, digits, _ and -")
        if not 0 < self.confidence < 1:
            raise PrivacyError("confidence", self.confidence, "must lie between 0 and 1, for example 0.99")
        if not 1 <= self.spread < np.inf:
            raise PrivacyError("spread", self.spread, "must be 1 or more, and finite")
        if self.max_changes < 1:
            raise ModelError("max_changes", self.max_changes, "must be 1 or more")


def learn_habits(sample_file: Path, out: Path, options: HabitOptions, noise: NoiseSampler | None = None) -> None:
    """Learn occupancy models from a sample, write them for a zone file, and print what was spent.

    `out` must not exist: what it holds has cost epsilon. It is created, and the run stands in the ledger of the sample,
    before any noise is drawn. The file states what all runs on the sample have spent.
    """
    epsilon = parse_fraction(options.epsilon, "epsilon", PrivacyError)
    with Console(stderr=True).status("reading the sample"):
        sample = read_sample(sample_file, 60 * options.interval_minutes)
    occupied, first_s = _choose_kind(sample, options.kind), sample.first_s + sample.utc_offset_s
    if first_s % SECONDS_PER_DAY:
        raise ReadingError("sample", "not of whole days", "must begin at local midnight: import it from there on")
    cells = make_cells(len(occupied), options, first_s // SECONDS_PER_DAY)
    _check_enough_households(cells, options, epsilon, occupied.shape[1])
    counts = count_steps(occupied, cells, options.max_changes)
    console = Console(width=None if Console().is_terminal else 100, highlight=False)
    with out.open("x", encoding="utf-8") as file:
        try:
            spent = record_spending(sample_file, command="habits", kind=options.kind, epsilon=epsilon, out=out)
            released = release_counts(
                counts, cells, max_changes=options.max_changes, epsilon=epsilon, noise=noise or SystemNoise()
            )
            _print_spending(released, spent, console)
            hazards = estimate_hazards(released, options.confidence)
            file.write(_write_text(released, hazards, spent, options))
        except BaseException:
            out.unlink()
            raise
    _print_ranges(hazards, cells, console)
    console.print(f"Written to {out}. Append it to the zone file; its first lines say how to name the models.")


def _write_text(released: PrivateCounts, hazards: HazardRanges, spent: SampleSpending, options: HabitOptions) -> str:
    return write_models(
        options.name,
        released.cells,
        hazards,
        epsilon=spent.epsilon,
        households=released.households,
        proven=options.proven,
        spread=options.spread,
    )


def _print_spending(released: PrivateCounts, spent: SampleSpending, console: Console) -> None:
    cells = released.cells
    console.print(
        f"Took {released.households:,} households that agreed, {len(cells.day_type):,} days: how often they arrived "
        f"and left, in {cells.periods} periods of the day, for {cells.day_types} types of day."
    )
    console.print(
        f"Spent epsilon {released.epsilon} of each of these households (pure, whatever the others do). A second run "
        "on the same sample draws new noise and spends as much again: keep the file."
    )
    console.print(str(spent))


def make_cells(intervals: int, options: HabitOptions, first_day: int = 0) -> HabitCells:
    """Return the cells of a sample of `intervals` intervals. `first_day` is counted from 1970-01-01, in local time."""
    if options.interval_minutes < 1 or 1440 % options.interval_minutes:
        raise ModelError("interval_minutes", options.interval_minutes, "must divide a day of 1440 minutes")
    day = 1440 // options.interval_minutes
    starts = sorted(parse_slot("periods", start.strip(), day) % day for start in options.periods.split(","))
    if len(set(starts)) != len(starts):
        raise ModelError("periods", options.periods, "must be different starts, such as 06:00,09:00,16:00,22:00")
    if intervals % day or not intervals:
        raise ReadingError("sample", f"{intervals} intervals", f"must be whole days of {day} intervals")
    period = (np.searchsorted(starts, np.arange(day), side="right") - 1) % len(starts)
    days = intervals // day
    if not options.day_types:
        return HabitCells(period=period, day_type=np.zeros(days, np.int64))
    try:
        holidays = [(dt.date.fromisoformat(text) - _EPOCH).days for text in options.holidays]
    except ValueError:
        raise ModelError("holiday", repr(options.holidays), "must be a date such as 2026-01-05") from None
    kinds = locate_intervals(first_day + np.arange(days), 1, 0, holidays).day_type
    if len(set(kinds.tolist())) < len(DAY_TYPE_NAMES):
        raise ReadingError("sample", f"{days} days", "must have workdays, a Saturday and a Sunday with --day-types")
    return HabitCells(period=period, day_type=kinds)


def _choose_kind(sample: LabeledSample, kind: str) -> BoolArray:
    if not kind:
        return sample.occupied
    chosen = [column for column, name in enumerate(sample.kind) if name == kind]
    if not chosen:
        raise ReadingError("kind", repr(kind), f"must be one of {', '.join(sorted(set(sample.kind)))}")
    return np.asarray(sample.occupied[:, chosen])


def _check_enough_households(cells: HabitCells, options: HabitOptions, epsilon: Fraction, households: int) -> None:
    """Raise PrivacyError before anything is drawn if the noise would hide one arrival a day of every household.

    This depends on public numbers alone.
    """
    margin = count_margins(noise_scales(cells, options.max_changes, epsilon), options.confidence)
    needed = int(np.ceil((margin[StepCount.ARRIVED] / cells.days[:, None]).max())) + 1
    if households < needed:
        allowed = f"must be {needed:,} or more at epsilon {epsilon} with these periods; nothing was spent"
        raise PrivacyError("households", f"{households:,}", allowed)


def _print_ranges(hazards: HazardRanges, cells: HabitCells, console: Console) -> None:
    """Print the chance to arrive and to leave during each period, with its range."""
    over = [1 - (1 - each) ** cells.intervals for each in (hazards.estimate, hazards.low, hazards.high)]
    kinds = DAY_TYPE_NAMES[: cells.day_types] if cells.day_types > 1 else ("all days",)
    for kind, name in enumerate(kinds):
        for period in range(cells.periods):
            minute = int(cells.starts[period]) * 1440 // len(cells.period)
            arrive, leave = ([value[direction, kind, period] for value in over] for direction in (0, 1))
            console.print(
                f"  {name} from {minute // 60:02}:{minute % 60:02}: "
                f"arrive {arrive[0]:.3f} ({arrive[1]:.3f} to {arrive[2]:.3f}), "
                f"leave {leave[0]:.3f} ({leave[1]:.3f} to {leave[2]:.3f})"
            )
    console.print(f"All ranges hold together with a chance of {hazards.confidence:.4g}.")
