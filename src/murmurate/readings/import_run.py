"""Import files: read them all into a spool, merge meter by meter, write readings and meter table, sum up.

Evaluate, backtest, habits, forecast and ingest take the readings, `murmurate serve` the meter table.
"""

from __future__ import annotations

import csv
import shlex
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from murmurate.errors import ReadingError
from murmurate.readings.cell_values import RefusedCells
from murmurate.readings.file_import import ImportOptions, ImportTarget, TableReader, import_feed
from murmurate.readings.merge import MeterReadings, ReadingSpool, SpooledReadings, merge_readings
from murmurate.readings.meter_columns import MeterPlace
from murmurate.readings.table_files import open_table
from murmurate.time_zones import utc_offset_min
from murmurate.units import SECONDS_PER_DAY

READINGS_NAME, METERS_NAME = "readings.parquet", "meters.csv"
_FEED_IN_STEP_WH = 10
KIND_NAME = "home"  # of the households of a file that names no kind


@dataclass(slots=True)
class ImportSummary:
    """Counts and places of accepted and refused cells. It holds no reading."""

    refused: RefusedCells
    files: list[dict[str, object]] = field(default_factory=list)
    readings: int = 0  # written, at the interval of the zone
    repeated: int = 0  # cells that were there more than once, with the same value
    above_bound: int = 0  # readings that the service would cut off
    below_zero: int = 0
    below_export_bound: int = 0  # readings that the service would cut off
    feeding_meters: int = 0  # with a reading below zero
    export_alone: int = 0  # meters of which the files have export and no import
    feed_in: Counter[int] = field(default_factory=Counter)  # readings below zero by what was fed in, to the next 10 Wh
    meters: list[str] = field(default_factory=list)
    places: list[MeterPlace] = field(default_factory=list)  # of the meters, zone by zone
    households: int = 0
    household_column: str | None = None  # None: each meter is taken for a household
    zone_files: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)  # sentences
    first_s: int = 2**62
    last_s: int = -(2**62)

    def add_part(self, readings: MeterReadings, names: Sequence[str], options: ImportOptions) -> None:
        """Count the readings of some meters."""
        if not len(readings.meter):
            return
        self.readings += len(readings.meter)
        self.above_bound += int((readings.energy_wh > options.bound_wh).sum())
        below = readings.energy_wh < 0
        self.below_zero += int(below.sum())
        self.below_export_bound += int((readings.energy_wh < -(options.export_bound_wh or 0)).sum())
        self.feeding_meters += len(np.unique(readings.meter[below]))
        fed_in, count = np.unique(
            -(readings.energy_wh[below] // _FEED_IN_STEP_WH) * _FEED_IN_STEP_WH, return_counts=True
        )
        self.feed_in.update(dict(zip(fed_in.tolist(), count.tolist(), strict=True)))
        self.meters += [names[number] for number in np.unique(readings.meter).tolist()]
        self.first_s = min(self.first_s, int(readings.start_s.min()))
        self.last_s = max(self.last_s, int(readings.start_s.max()))

    @property
    def full_export_bound_wh(self) -> int:
        """The `export_bound_wh` with which 99.9 % of the readings below zero count in full; 0 if there are none."""
        needed, covered = self.below_zero * 999, 0
        for fed_in_wh, count in sorted(self.feed_in.items()):
            covered += 1000 * count
            if covered >= needed:
                return fed_in_wh
        return 0

    def to_document(self) -> dict[str, object]:
        """Return the summary as JSON."""
        first, last = (datetime.fromtimestamp(at_s, UTC) for at_s in (self.first_s, self.last_s))
        return {
            "files": self.files,
            "readings": self.readings,
            "meters": len(self.meters),
            "households": self.households,
            "household_column": self.household_column,
            "warnings": self.warnings,
            "first": f"{first:%Y-%m-%dT%H:%M:%SZ}",
            "last": f"{last:%Y-%m-%dT%H:%M:%SZ}",
            "repeated": self.repeated,
            "above_bound": self.above_bound,
            "below_zero": self.below_zero,
            "below_export_bound": self.below_export_bound,
            "feeding_meters": self.feeding_meters,
            "full_export_bound_wh": self.full_export_bound_wh,
            "refused": self.refused.total,
            "refusals": self.refused.to_document(),
            "zone_files": self.zone_files,
        }


class ReadingsWriter:
    """Writes readings to a Parquet file, part by part.

    `interval_start` is in UTC, as `murmurate readings ingest` wants it; `timestamp` is the same in the time
    zone, so that the days of `murmurate evaluate` are local ones. `household` and `occupied` are there where they are
    known. `zone` and `kind` are those of the meter table.
    """

    def __init__(self, path: Path, time_zone: str, places: Sequence[MeterPlace], *, has_occupancy: bool) -> None:
        self._texts = {"zone": [place.zone for place in places], "kind": [place.kind for place in places]}
        if all(place.household is not None for place in places):
            self._texts["household"] = [str(place.household) for place in places]
        self._texts["meter_id"] = [place.meter for place in places]
        columns = {
            "timestamp": pa.timestamp("ms", time_zone),
            "meter_id": pa.string(),
            "interval_start": pa.timestamp("ms", "UTC"),
            "energy_wh": pa.int64(),
        }
        columns |= dict.fromkeys(self._texts, pa.string()) | ({"occupied": pa.bool_()} if has_occupancy else {})
        self._schema = pa.schema(columns)
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")

    def write_part(self, readings: MeterReadings) -> None:
        """Append the readings of some meters."""
        numbers, index = np.unique(readings.meter, return_inverse=True)
        columns: dict[str, Any] = {
            "timestamp": pa.array(readings.start_s * 1000, self._schema.field("timestamp").type),
            "interval_start": pa.array(readings.start_s * 1000, self._schema.field("interval_start").type),
            "energy_wh": pa.array(readings.energy_wh),
            "occupied": pa.array(readings.occupied == 1, mask=readings.occupied < 0),
        }
        for name, texts in self._texts.items():
            distinct = pa.array([texts[number] for number in numbers.tolist()], pa.string())
            columns[name] = pa.DictionaryArray.from_arrays(pa.array(index.astype(np.int32)), distinct).cast(pa.string())
        self._writer.write_table(pa.table([columns[name] for name in self._schema.names], schema=self._schema))

    def close(self) -> None:
        self._writer.close()


def write_meter_table(path: Path, places: Sequence[MeterPlace], bound_wh: int, export_bound_wh: int | None) -> None:
    """Write the meter table, with the columns that the service and `murmurate plan` read.

    Each meter has the same bounds; `export_bound_wh` is a column where it is given. So the bound of a household is
    that times the number of its meters, and a plan from this table hides the household with most of them.
    """
    has_households = any(place.household is not None for place in places)
    export_name, export_value = ([], []) if export_bound_wh is None else (["export_bound_wh"], [export_bound_wh])
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
        names = ["meter", "id", "zone", "bound_wh", *export_name, "kind", *(["household"] if has_households else [])]
        table.writerow(names)
        for number, place in enumerate(places):
            household = [place.household] if has_households else []
            table.writerow([number, place.meter, place.zone, bound_wh, *export_value, place.kind, *household])


def run_import(
    files: Sequence[Path],
    options: ImportOptions,
    check_zone: Callable[[str, str], object],
    *,
    max_places: int = 5,
    advance: Callable[[int], None] = lambda _: None,
) -> ImportSummary:
    """Import files, and write readings and meter table. Raises ReadingError if a file cannot be read or nothing fits.

    `check_zone` raises for a name that no zone can have. `advance` is called with the number of bytes that were read
    since the call before.
    """
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.folder, prefix=".import-") as spool_folder:
        spool = ReadingSpool(Path(spool_folder))
        target = ImportTarget(spool, max_places, files, advance)
        summary = ImportSummary(target.refused)
        for number, path in enumerate(files):
            with path.open("rb") as file:
                if file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
                    summary.files.append(import_feed(number, options, target))
                else:
                    file.seek(0)
                    table = open_table(path, file)  # keeps its text open until the file is closed
                    summary.files.append(TableReader(number, table, options, target).read_rows())
        numbers = {name: number for number, name in enumerate(target.meters.names)}
        places = target.meter_columns.place_meters(numbers, options.zone, KIND_NAME, check_zone)
        path = Path(spool_folder) / READINGS_NAME
        _write_readings(path, options, target, summary, sorted(places, key=lambda at: numbers[at.meter]))
        if not summary.readings:
            first = next(iter(target.refused.to_document()), None)
            reason = "no rows" if first is None else f"{first['count']} cells were refused with: {first['reason']}"
            raise ReadingError(
                ", ".join(str(file) for file in files[:3]), "without a reading that can be taken", reason
            )
        path.replace(options.folder / READINGS_NAME)
    taken = set(summary.meters)
    summary.places = [place for place in places if place.meter in taken]
    write_meter_table(options.folder / METERS_NAME, summary.places, options.bound_wh, options.export_bound_wh)
    summary.household_column = target.meter_columns.household_column
    candidate = target.meter_columns.find_candidate([numbers[name] for name in taken])
    _note_households(summary, options.bound_wh, candidate)
    _note_end_stamps(summary, options)
    _note_feed_in(summary, options)
    return summary


def _note_feed_in(summary: ImportSummary, options: ImportOptions) -> None:
    """Warn where readings below zero would not count as what they are."""
    if summary.export_alone:
        summary.warnings.append(
            f"The files have export and no import of {summary.export_alone:,} meters: all their readings are 0 or "
            "less. If import is in another file, import both files at once, with the same names of meters."
        )
    if summary.below_zero and options.export_bound_wh is None:
        share = 100 * summary.below_zero / summary.readings
        example_wh = 10_000 * options.interval_s // 3600
        summary.warnings.append(
            f"{summary.below_zero:,} readings ({share:.3g} %) of {summary.feeding_meters:,} meters are below zero, as "
            f"these meters feed in; they count as zero while {METERS_NAME} has no export_bound_wh, and 99.9 % of them "
            f"count in full if you import again with --export-bound-wh {summary.full_export_bound_wh}. This bound is "
            "public and adds to the noise: choose it by the power of the plants, not by readings that will be priced "
            f"(10 kW feeds in up to {example_wh:,} Wh in {options.interval_s // 60} minutes)."
        )


def _note_end_stamps(summary: ImportSummary, options: ImportOptions) -> None:
    """Warn if times look like the ends of intervals: the first is one interval after midnight, the last midnight."""
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


def _note_households(summary: ImportSummary, bound_wh: int, candidate: tuple[str, int] | None) -> None:
    """Count households, and warn where a plan from these outputs would not hide one, or hide it at a price."""
    meters = Counter(place.household or place.meter for place in summary.places)
    summary.households = len(meters)
    if summary.places[0].household is None:
        summary.warnings.append(
            "Each meter is taken for a household of its own: no column of the household is known. A household with two "
            "meters is then hidden as if it had one, and its promise does not hold. Name the column of the household "
            "with --household-column; the column of the meter says that each meter is a household."
        )
        if candidate is not None:
            name, count = candidate
            summary.warnings.append(
                f"The column {name} has {count:,} values for {len(summary.places):,} meters, and one for each meter. "
                f"If it is the household, import again with --household-column {shlex.quote(name)}."
            )
    elif (largest := max(meters.values())) > 1:
        summary.warnings.append(
            f"The largest household has {largest} meters: its bound of {largest} × {bound_wh} Wh sets the noise of its "
            "zone. Lower bound_wh of its meters in the meter table for less noise."
        )


def _write_readings(
    path: Path,
    options: ImportOptions,
    target: ImportTarget,
    summary: ImportSummary,
    places: Sequence[MeterPlace],
) -> None:
    def refuse(reason: str, rows: SpooledReadings) -> None:
        at = (target.place(int(row["file"]), int(row["line"]), int(row["column"])) for row in rows)
        target.refused.refuse(reason, at, len(rows))

    writer = ReadingsWriter(path, options.time_zone or "UTC", places, has_occupancy=target.has_occupancy)
    try:
        for part in target.spool.read_parts():
            exported, imported = (np.unique(part["meter"][part["is_export"] == way]) for way in (1, 0))
            summary.export_alone += len(np.setdiff1d(exported, imported))
            readings, repeated = merge_readings(part, options.interval_s, refuse)
            summary.repeated += repeated
            summary.add_part(readings, target.meters.names, options)
            writer.write_part(readings)
    finally:
        writer.close()
