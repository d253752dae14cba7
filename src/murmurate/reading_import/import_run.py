"""Import files: read them all into a spool, merge meter by meter, write the outputs and sum up what happened."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from murmurate.errors import ReadingError
from murmurate.reading_import.cell_values import MeterNames
from murmurate.reading_import.file_import import FileOptions, ImportTarget, import_file
from murmurate.reading_import.merge import merge_readings
from murmurate.reading_import.output_files import (
    METERS_NAME,
    READINGS_NAME,
    ZONE_NAME,
    ReadingsWriter,
    write_meter_table,
    write_zone_file,
)
from murmurate.reading_import.reading_spool import ReadingSpool, SpooledReadings
from murmurate.reading_import.refused_cells import RefusedCells
from murmurate.reading_import.resample import MeterReadings


@dataclass(slots=True)
class ImportSummary:
    """What an import took and what not. It holds no reading."""

    refused: RefusedCells
    files: list[dict[str, object]] = field(default_factory=list)
    readings: int = 0  # written, at the interval of the zone
    repeated: int = 0  # cells that were there more than once, with the same value
    above_bound: int = 0  # readings that the service would cut off
    meters: list[str] = field(default_factory=list)
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
            "first": _format_utc(self.first_s),
            "last": _format_utc(self.last_s),
            "repeated": self.repeated,
            "above_bound": self.above_bound,
            "refused": self.refused.total,
            "refusals": self.refused.to_document(),
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
        target = ImportTarget(spool, RefusedCells(max_places), MeterNames(), list(files), [], advance)
        summary = ImportSummary(target.refused)
        for number in range(len(files)):
            summary.files.append(import_file(number, options, target))
        path = Path(spool_folder) / READINGS_NAME
        _write_readings(path, options, output, target, summary)
        if not summary.readings:
            _raise_nothing_taken(files, summary.refused)
        path.replace(output.folder / READINGS_NAME)
    write_meter_table(output.folder / METERS_NAME, sorted(summary.meters), output.zone, output.bound_wh)
    write_zone_file(
        output.folder / ZONE_NAME,
        zone=output.zone,
        homes=len(summary.meters),
        minutes=options.interval_s // 60,
        time_zone=options.time_zone or "UTC",
        bound_wh=output.bound_wh,
    )
    return summary


def _write_readings(
    path: Path, options: FileOptions, output: ImportOutput, target: ImportTarget, summary: ImportSummary
) -> None:
    def refuse(reason: str, rows: SpooledReadings) -> None:
        places = (target.place(int(row["file"]), int(row["line"]), int(row["column"])) for row in rows)
        target.refused.refuse_many(reason, len(rows), places)

    writer = ReadingsWriter(path, options.time_zone or "UTC")
    try:
        for part in target.spool.read_parts():
            readings, repeated = merge_readings(part, options.interval_s, refuse)
            summary.repeated += repeated
            summary.add_part(readings, target.meters.names, output.bound_wh)
            writer.write_part(readings, target.meters.names)
    finally:
        writer.close()


def _raise_nothing_taken(files: Sequence[Path], refused: RefusedCells) -> None:
    first = next(iter(refused.to_document()), None)
    reason = "no rows" if first is None else f"{first['count']} cells refused, most for: {first['reason']}"
    raise ReadingError(", ".join(str(file) for file in files[:3]), "without a reading that can be taken", reason)


def _format_utc(at_s: int) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%dT%H:%M:%SZ}"
