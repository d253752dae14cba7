"""Import files: read them all into a spool, merge meter by meter, write the outputs and sum up what happened."""

from __future__ import annotations

import shlex
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from murmurate.errors import ReadingError
from murmurate.reading_import.cell_values import MeterNames
from murmurate.reading_import.file_import import FileOptions, ImportTarget, import_file
from murmurate.reading_import.merge import merge_readings
from murmurate.reading_import.meter_columns import MeterPlace
from murmurate.reading_import.output_files import (
    KIND_NAME,
    METERS_NAME,
    READINGS_NAME,
    ReadingsWriter,
    write_meter_table,
    write_zone_files,
)
from murmurate.reading_import.reading_spool import ReadingSpool, SpooledReadings
from murmurate.reading_import.refused_cells import RefusedCells
from murmurate.reading_import.resample import MeterReadings
from murmurate.time_zones import utc_offset_min
from murmurate.units import SECONDS_PER_DAY


@dataclass(slots=True)
class ImportSummary:
    """What an import took and what not. It holds no reading."""

    refused: RefusedCells
    files: list[dict[str, object]] = field(default_factory=list)
    readings: int = 0  # written, at the interval of the zone
    repeated: int = 0  # cells that were there more than once, with the same value
    above_bound: int = 0  # readings that the service would cut off
    meters: list[str] = field(default_factory=list)
    households: int = 0
    household_column: str | None = None  # None: each meter is taken for a household
    zone_files: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)  # sentences
    first_s: int = 2**62
    last_s: int = -(2**62)

    def add_part(self, readings: MeterReadings, names: Sequence[str], bound_wh: int) -> None:
        """Count the readings of some meters."""
        if not len(readings.meter):
            return
        self.readings += len(readings.meter)
        self.above_bound += int((readings.energy_wh > bound_wh).sum())
        self.meters += [names[number] for number in np.unique(readings.meter).tolist()]
        self.first_s = min(self.first_s, int(readings.start_s.min()))
        self.last_s = max(self.last_s, int(readings.start_s.max()))

    def to_document(self) -> dict[str, object]:
        """Return the summary as JSON."""
        return {
            "files": self.files,
            "readings": self.readings,
            "meters": len(self.meters),
            "households": self.households,
            "household_column": self.household_column,
            "warnings": self.warnings,
            "first": _format_utc(self.first_s),
            "last": _format_utc(self.last_s),
            "repeated": self.repeated,
            "above_bound": self.above_bound,
            "refused": self.refused.total,
            "refusals": self.refused.to_document(),
            "zone_files": self.zone_files,
        }


@dataclass(frozen=True, slots=True)
class ImportOutput:
    """Where and for which zone the outputs are written."""

    folder: Path
    zone: str
    bound_wh: int


def import_readings(
    files: Sequence[Path],
    options: FileOptions,
    output: ImportOutput,
    *,
    max_places: int = 5,
    advance: Callable[[int], None] = lambda _: None,
) -> ImportSummary:
    """Import files and write the outputs. Raises ReadingError if a file cannot be read or nothing can be taken.

    `advance` is called with the number of bytes that were read since the call before.
    """
    output.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.folder, prefix=".import-") as spool_folder:
        spool = ReadingSpool(Path(spool_folder))
        target = ImportTarget(spool, RefusedCells(max_places), MeterNames(), list(files), [], advance=advance)
        summary = ImportSummary(target.refused)
        for number in range(len(files)):
            summary.files.append(import_file(number, options, target))
        numbers = {name: number for number, name in enumerate(target.meters.names)}
        places = {place.meter: place for place in target.meter_columns.place_meters(numbers, output.zone, KIND_NAME)}
        path = Path(spool_folder) / READINGS_NAME
        _write_readings(path, options, output, target, summary, places)
        if not summary.readings:
            _raise_nothing_taken(files, summary.refused)
        path.replace(output.folder / READINGS_NAME)
    taken = set(summary.meters)
    rows = [place for name, place in places.items() if name in taken]
    write_meter_table(output.folder / METERS_NAME, rows, output.bound_wh)
    minutes, time_zone = options.interval_s // 60, options.time_zone or "UTC"
    summary.zone_files = write_zone_files(output.folder, rows, minutes, time_zone, output.bound_wh)
    _note_households(
        summary, rows, output.bound_wh, target.meter_columns.find_candidate([numbers[name] for name in taken])
    )
    summary.household_column = target.meter_columns.household_column
    _note_end_stamps(summary, options)
    return summary


def _note_end_stamps(summary: ImportSummary, options: FileOptions) -> None:
    """Say so if times look like the ends of intervals: the first is one interval after midnight, the last midnight."""
    lengths = {minutes for file in summary.files for minutes in file["minutes"]}  # type: ignore[attr-defined]
    is_by_time = all(file.get("layout") == "a row a reading" for file in summary.files)
    length_s = int(60 * max(lengths, default=0))
    if options.is_end or not is_by_time or len(lengths) != 1 or length_s < options.interval_s:
        return
    ends = (summary.first_s, summary.last_s + options.interval_s - length_s)  # as the file has them
    time_zone = options.time_zone or "UTC"
    first, last = ((at_s + 60 * utc_offset_min(time_zone, at_s)) % SECONDS_PER_DAY for at_s in ends)
    if (first, last) == (length_s, 0):
        summary.warnings.append(
            f"The first time is {length_s // 60} minutes after midnight and the last is midnight: times are perhaps "
            "the ends of intervals. If they are, every reading is now an interval late: import again with --stamps end."
        )


def _note_households(
    summary: ImportSummary, rows: Sequence[MeterPlace], bound_wh: int, candidate: tuple[str, int] | None
) -> None:
    """Count households, and say what a plan from these outputs does not hide, or hides at a price."""
    meters = Counter(row.household or row.meter for row in rows)
    summary.households = len(meters)
    if rows[0].household is None:
        summary.warnings.append(
            "Each meter is taken for a household of its own: no column of the household is known. A household with two "
            "meters is then hidden as if it had one, and its promise does not hold. Name the column of the household "
            "with --household-column; the column of the meter says that each meter is a household."
        )
        if candidate is not None:
            name, count = candidate
            summary.warnings.append(
                f"The column {name} has {count:,} values for {len(rows):,} meters, and one for each meter. If it is "
                f"the household, import again with --household-column {shlex.quote(name)}."
            )
    elif (largest := max(meters.values())) > 1:
        summary.warnings.append(
            f"The largest household has {largest} meters: its bound of {largest} × {bound_wh} Wh sets the noise of its "
            "zone. Lower bound_wh of its meters in the meter table for less noise."
        )


def _write_readings(
    path: Path,
    options: FileOptions,
    output: ImportOutput,
    target: ImportTarget,
    summary: ImportSummary,
    places: Mapping[str, MeterPlace],
) -> None:
    def refuse(reason: str, rows: SpooledReadings) -> None:
        places = (target.place(int(row["file"]), int(row["line"]), int(row["column"])) for row in rows)
        target.refused.refuse_many(reason, len(rows), places)

    writer = ReadingsWriter(path, options.time_zone or "UTC", [places[name] for name in target.meters.names])
    try:
        for part in target.spool.read_parts():
            readings, repeated = merge_readings(part, options.interval_s, refuse)
            summary.repeated += repeated
            summary.add_part(readings, target.meters.names, output.bound_wh)
            writer.write_part(readings)
    finally:
        writer.close()


def _raise_nothing_taken(files: Sequence[Path], refused: RefusedCells) -> None:
    first = next(iter(refused.to_document()), None)
    reason = "no rows" if first is None else f"{first['count']} cells refused, most for: {first['reason']}"
    raise ReadingError(", ".join(str(file) for file in files[:3]), "without a reading that can be taken", reason)


def _format_utc(at_s: int) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%dT%H:%M:%SZ}"
