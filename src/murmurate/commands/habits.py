"""`murmurate habits`: occupancy models for a zone file, learned from a consented sample with a pure epsilon."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from murmurate.errors import ModelError, PrivacyError, ReadingError
from murmurate.extras import require_extra
from murmurate.operations.console import print_json, stderr
from murmurate.operations.options import AsJson, optional_imports
from murmurate.units import SECONDS_PER_DAY

with optional_imports():
    import numpy as np

    from murmurate.habits.hazard_ranges import HazardRanges, count_margins, estimate_hazards
    from murmurate.habits.private_counts import (
        DAY_TYPE_NAMES,
        HabitCells,
        StepCount,
        count_steps,
        noise_scales,
        release_counts,
    )
    from murmurate.habits.zone_text import write_models
    from murmurate.operations.sample_ledger import record_spending
    from murmurate.prediction.calendar import locate_intervals
    from murmurate.privacy.noise import NoiseSampler, SystemNoise
    from murmurate.readings.imported_file import read_sample
    from murmurate.time_zones import parse_slot
    from murmurate.units import parse_fraction

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
        if not 1 <= self.spread < float("inf"):
            raise PrivacyError("spread", self.spread, "must be 1 or more, and finite")
        if self.max_changes < 1:
            raise ModelError("max_changes", self.max_changes, "must be 1 or more")


def learn_sample_habits(
    sample_file: Annotated[
        Path,
        typer.Argument(
            help="Readings of households that agreed, imported from a file with a column occupied.", dir_okay=False
        ),
    ],
    epsilon: Annotated[str, typer.Option(help="What each household of the sample spends, such as 1 or 1/2.")],
    out: Annotated[Path, typer.Option(help="Where the models are written.", dir_okay=False)] = Path("habits.toml"),
    name: Annotated[str, typer.Option(help="Name of the occupancy model.")] = "learned",
    kind: Annotated[str, typer.Option(help="Take the households of this kind only.")] = "",
    periods: Annotated[str, typer.Option(help="Starts of the periods of the day.")] = "06:00,09:00,16:00,22:00",
    holidays: Annotated[list[str] | None, typer.Option("--holiday", help="A date that counts as a Sunday.")] = None,
    confidence: Annotated[float, typer.Option(help="Chance that all ranges hold together.")] = 0.99,
    interval_minutes: Annotated[int, typer.Option(help="Length of an interval of the sample.", min=1)] = 15,
    max_changes: Annotated[
        int, typer.Option(help="A household is counted until it has arrived or left this often in a day.", min=1)
    ] = 6,
    spread: Annotated[
        float, typer.Option(help="Factor by which the chances of one household may differ from the common ones.", min=1)
    ] = 1.0,
    *,
    day_types: Annotated[
        bool, typer.Option("--day-types", help="Learn workdays, Saturdays and Sundays apart.")
    ] = False,
    tested_bound: Annotated[
        bool, typer.Option("--tested-bound", help="A bound with less noise, supported by tests but not by a proof.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Learn occupancy models from a sample, and print what was spent."""
    require_extra("service", "pyarrow")
    options = HabitOptions(
        epsilon=epsilon,
        confidence=confidence,
        name=name,
        kind=kind,
        periods=periods,
        interval_minutes=interval_minutes,
        max_changes=max_changes,
        day_types=day_types,
        holidays=tuple(holidays or ()),
        proven=not tested_bound,
        spread=spread,
    )
    learn_habits(sample_file, out, options, SystemNoise(), as_json=as_json)


def learn_habits(
    sample_file: Path, out: Path, options: HabitOptions, noise: NoiseSampler, *, as_json: bool = False
) -> None:
    """Learn occupancy models from a sample, write them for a zone file, and print what was spent.

    `out` must not exist: what it holds has cost epsilon. It is created, and the run stands in the ledger of the sample,
    before any noise is drawn. The file states what all runs on the sample have spent.
    """
    epsilon = parse_fraction(options.epsilon, "epsilon", PrivacyError)
    with stderr.status("reading the sample"):
        sample = read_sample(sample_file, 60 * options.interval_minutes)
    occupied, first_s = sample.occupied, sample.first_s + sample.utc_offset_s
    if options.kind:
        chosen = [column for column, name in enumerate(sample.kind) if name == options.kind]
        if not chosen:
            raise ReadingError("kind", repr(options.kind), f"must be one of {', '.join(sorted(set(sample.kind)))}")
        occupied = np.asarray(occupied[:, chosen])
    if first_s % SECONDS_PER_DAY:
        raise ReadingError("sample", "not of whole days", "must begin at local midnight: import it from there on")
    cells = make_cells(len(occupied), options, first_s // SECONDS_PER_DAY)
    # Noise that hides one arrival a day of every household is useless: public numbers alone say so, before a draw.
    margin = count_margins(noise_scales(cells, options.max_changes, epsilon), options.confidence)
    households, needed = occupied.shape[1], int(np.ceil((margin[StepCount.ARRIVED] / cells.days[:, None]).max())) + 1
    if households < needed:
        allowed = f"must be {needed:,} or more at epsilon {epsilon} with these periods; nothing was spent"
        raise PrivacyError("households", f"{households:,}", allowed)
    counts = count_steps(occupied, cells, options.max_changes)
    console = Console(width=None if Console().is_terminal else 100, highlight=False, stderr=as_json)
    with out.open("x", encoding="utf-8") as file:
        try:
            spent = record_spending(sample_file, command="habits", kind=options.kind, epsilon=epsilon, out=out)
            released = release_counts(counts, cells, max_changes=options.max_changes, epsilon=epsilon, noise=noise)
            console.print(
                f"Took {households:,} households that agreed, {len(cells.day_type):,} days: how often they arrived "
                f"and left, in {cells.periods} periods of the day, for {cells.day_types} types of day."
            )
            spent.print(epsilon, console)
            hazards = estimate_hazards(released, options.confidence)
            text = write_models(
                options.name,
                cells,
                hazards,
                epsilon=spent.epsilon,
                households=households,
                proven=options.proven,
                spread=options.spread,
            )
            file.write(text)
        except BaseException:
            out.unlink()
            raise
    chances = list(_describe_chances(hazards, cells))
    if as_json:
        members = {"households": households, "epsilon": str(epsilon), "spent": str(spent.epsilon), "runs": spent.runs}
        print_json({"file": str(out), **members, "confidence": hazards.confidence, "chances": chances})
        return
    for entry in chances:
        arrive, leave = ("{:.3f} ({:.3f} to {:.3f})".format(*entry[name]) for name in ("arrive", "leave"))
        console.print(f"  {entry['days']} from {entry['from']}: arrive {arrive}, leave {leave}")
    console.print(f"All ranges hold together with a chance of {hazards.confidence:.4g}.")
    console.print(f"Written to {out}. Append it to the zone file; its first lines say how to name the models.")


def _describe_chances(hazards: HazardRanges, cells: HabitCells) -> Iterator[dict[str, Any]]:
    """Yield the chance to arrive and to leave during each period: estimate, and the ends of its range."""
    over = [1 - (1 - each) ** cells.intervals for each in (hazards.estimate, hazards.low, hazards.high)]
    kinds = DAY_TYPE_NAMES[: cells.day_types] if cells.day_types > 1 else ("all days",)
    for kind, name in enumerate(kinds):
        for period in range(cells.periods):
            minute = int(cells.starts[period]) * 1440 // len(cells.period)
            arrive, leave = ([float(value[direction, kind, period]) for value in over] for direction in (0, 1))
            yield {"days": name, "from": f"{minute // 60:02}:{minute % 60:02}", "arrive": arrive, "leave": leave}


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
