"""Read one file into the spool: find out how it is written, then parse its rows as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path

from murmurate.errors import ReadingError
from murmurate.reading_import.cell_values import DecimalMark, EnergyCells, EnergyUnit, MeterNames, detect_decimal_mark
from murmurate.reading_import.columns import NO_NAMES, ColumnNames, Columns, find_columns
from murmurate.reading_import.day_rows import DayCells, DayClock, count_by_clock, is_filled
from murmurate.reading_import.green_button import is_feed, read_feed
from murmurate.reading_import.local_time import DateOrder, FileClock, Moment, detect_date_order
from murmurate.reading_import.meter_columns import MeterColumns, WatchedColumn
from murmurate.reading_import.reading_spool import ReadingSpool
from murmurate.reading_import.refused_cells import (
    DAY_LENGTH,
    MISSING,
    NO_SUCH_TIME,
    WRONG_LENGTH,
    WRONG_WIDTH,
    RefusedCells,
)
from murmurate.reading_import.source_interval import check_lengths, find_length
from murmurate.reading_import.table_files import NumberedRow, Row, Table, open_table

_SAMPLE_ROWS = 20_000  # from which interval, decimal mark and order of dates are found
_PROGRESS_ROWS = 5_000


@dataclass(frozen=True, slots=True)
class FileOptions:
    """How files are to be read, where they do not tell."""

    interval_s: int  # of the zone
    time_zone: str | None
    unit: EnergyUnit | None = None
    decimal: DecimalMark | None = None
    date_order: DateOrder | None = None
    source_length_s: int | None = None
    is_end: bool = False  # times are the ends of intervals
    names: ColumnNames = NO_NAMES


@dataclass(slots=True)
class ImportTarget:
    """Where readings and refusals of all files go."""

    spool: ReadingSpool
    refused: RefusedCells
    meters: MeterNames
    files: list[Path]
    headers: list[tuple[str, ...]]
    meter_columns: MeterColumns = field(default_factory=MeterColumns)
    advance: Callable[[int], None] = lambda _: None  # bytes of the file that were read

    def place(self, file: int, line: int, column: int) -> str:
        """Return where a cell stands, for people."""
        header = self.headers[file]
        if not header:
            return f"{self.files[file].name}: reading {line}"
        cell = f", {header[column]}" if column >= 0 else ""
        return f"{self.files[file].name}:{line}{cell}"


@dataclass(slots=True)
class _FileReader:
    """The parsers of one file."""

    number: int
    columns: Columns
    length_s: int
    clock: FileClock
    energies: EnergyCells
    options: FileOptions
    target: ImportTarget
    watched: list[WatchedColumn]

    def refuse(self, reason: str, line: int, column: int = -1) -> None:
        refused = self.target.refused
        place = (self.target.place(self.number, line, column),) if refused.needs_place(reason) else ()
        refused.refuse_many(reason, 1, place)

    def add_cell(self, meter: int, moment: tuple[int, int], cell: str, line: int, column: int) -> None:
        energy_wh = self.energies.parse_cell(cell)
        if isinstance(energy_wh, str):
            self.refuse(energy_wh, line, column)
            return
        self.target.spool.add_reading(
            meter=meter,
            moment=moment,
            length_s=self.length_s,
            energy_wh=energy_wh,
            place=(self.number, line, column),
        )

    def read_meter(self, row: Row, line: int) -> int | None:
        columns, meters = self.columns, self.target.meters
        name = self.target.files[self.number].stem if columns.meter is None else row[columns.meter]
        meter = meters.number_of(name)
        if isinstance(meter, str):
            self.refuse(meter, line)
            return None
        for each in self.watched:
            value = row[each.column].strip()
            if each.values.setdefault(meter, value) != value:
                header, place = self.target.headers[self.number], self.target.place(self.number, line, each.column)
                self.target.meter_columns.drop_or_refuse(each, header, place, meters.names[meter])
                self.watched = [other for other in self.watched if other is not each]
        return meter

    def read_time_row(self, row: Row, line: int) -> None:
        """Add the reading of a row."""
        columns = self.columns
        meter, moment = self.read_meter(row, line), self.clock.parse_time(time_text(row, columns))
        if meter is None:
            return
        if isinstance(moment, str):
            self.refuse(moment, line, columns.time)
            return
        if columns.end is not None and not self._ends_in_time(moment, row[columns.end]):
            self.refuse(WRONG_LENGTH, line, columns.end)
            return
        start_s = moment.start_s - (self.length_s if self.options.is_end else 0)
        energy = columns.energy if columns.energy is not None else 0
        self.add_cell(meter, (start_s, moment.later_s), row[energy], line, energy)

    def _ends_in_time(self, moment: Moment, text: str) -> bool:
        """Whether an interval has its length, by any meaning of local times. An end that clocks skip is ignored."""
        end = self.clock.parse_time(text)
        return isinstance(end, str) or any(
            end.start_s + later - moment.start_s - earlier == self.length_s
            for later in (0, end.later_s)
            for earlier in (0, moment.later_s)
        )

    def read_day_row(self, row: Row, line: int, days: DayClock) -> None:
        """Add the readings of a row with a day."""
        meter, cells = self.read_meter(row, line), days.place_day(row[self.columns.time])
        if meter is None:
            return
        if isinstance(cells, str):
            self.refuse(cells, line, self.columns.time)
            return
        wrong_from = cells.after_change if count_by_clock(cells, row, self.columns) else len(cells.starts)
        self._add_day(meter, cells, row, line, wrong_from)

    def _add_day(self, meter: int, cells: DayCells, row: Row, line: int, wrong_from: int) -> None:
        for slot, start in zip(self.columns.slots, cells.starts, strict=True):
            cell = row[slot.column]
            if slot.number >= wrong_from:
                self.refuse(DAY_LENGTH if cell.strip() else MISSING, line, slot.column)
            elif not isinstance(start, str):
                self.add_cell(meter, (start, 0), cell, line, slot.column)
            elif start is not NO_SUCH_TIME or is_filled(cell):
                self.refuse(start, line, slot.column)


def time_text(row: Row, columns: Columns) -> str:
    """Return the time of a row; an hour alone is a clock time."""
    if columns.clock is None:
        return row[columns.time]
    clock = row[columns.clock].strip()
    return f"{row[columns.time].strip()} {clock if ':' in clock else f'{clock:0>2}:00'}"


def import_file(number: int, options: FileOptions, target: ImportTarget) -> dict[str, object]:
    """Read a file into the spool. Returns what was found out about it. Raises ReadingError if it cannot be read."""
    path = target.files[number]
    with path.open("rb") as file:
        if is_feed(file.read(64)):
            target.headers.append(())
            return _import_feed(number, options, target)
        file.seek(0)
        table = open_table(path, file)
        target.headers.append(table.header)
        return _import_table(number, table, options, target)


def _import_feed(number: int, options: FileOptions, target: ImportTarget) -> dict[str, object]:
    path, rows, lengths = target.files[number], 0, set()
    for reading in read_feed(path, target.refused):
        rows += 1
        if reading.length_s not in lengths:
            check_lengths(str(path), reading.length_s, options.interval_s)
            lengths.add(reading.length_s)
        meter = target.meters.number_of(reading.meter)
        target.spool.add_reading(
            meter=int(meter),
            moment=(reading.start_s, 0),
            length_s=reading.length_s,
            energy_wh=reading.energy_wh,
            place=(number, reading.line, -1),
        )
    target.advance(path.stat().st_size)
    minutes = [length / 60 for length in sorted(lengths)]
    return {"file": path.name, "format": "Green Button", "unit": "Wh", "minutes": minutes, "rows": rows}


def _import_table(number: int, table: Table, options: FileOptions, target: ImportTarget) -> dict[str, object]:
    path = target.files[number]
    columns = find_columns(table.header, str(path), options.names)
    unit = options.unit or columns.unit
    if unit is None:
        raise ReadingError(str(path), "without a unit in its header", "must be read with --unit kWh or --unit Wh")
    sample = list(islice(table.rows, _SAMPLE_ROWS if columns.energy is not None else _SAMPLE_ROWS // 48))
    whole = [row for _, row in sample if len(row) == len(table.header)]
    mark = options.decimal or detect_decimal_mark(_energy_cells(whole, columns), str(path))
    order = options.date_order or detect_date_order((row[columns.time] for row in whole), str(path))
    clock = FileClock(options.time_zone, order)
    length_s = columns.length_s or options.source_length_s or _find_length(path, whole, columns, clock)
    check_lengths(str(path), length_s, options.interval_s)
    watched = target.meter_columns.watch_columns(table.header, columns)
    reader = _FileReader(number, columns, length_s, clock, EnergyCells(unit, mark), options, target, watched)
    rows = _read_rows(reader, table, chain(sample, table.rows))
    return {
        "file": path.name,
        "format": table.dialect,
        "layout": "a row a day" if columns.slots else "a row a reading",
        "unit": unit.value,
        "unit_from": "--unit" if options.unit else f"the column {columns.unit_column}",
        "decimal": {DecimalMark.POINT: "point", DecimalMark.COMMA: "comma"}.get(mark, "none seen"),
        "minutes": [length_s / 60],
        "rows": rows,
    }


def _read_rows(reader: _FileReader, table: Table, rows: Iterator[NumberedRow]) -> int:
    """Read all rows of a file, and return their number."""
    count, done = 0, 0
    days = DayClock(reader.columns, reader.clock, reader.length_s) if reader.columns.slots else None
    for line, row in rows:
        count += 1
        if len(row) != len(table.header):
            reader.refuse(WRONG_WIDTH, line)
        elif days is not None:
            reader.read_day_row(row, line, days)
        else:
            reader.read_time_row(row, line)
        if count % _PROGRESS_ROWS == 0:
            now = table.position()
            reader.target.advance(now - done)
            done = now
    reader.target.advance(table.position() - done)
    return count


def _energy_cells(rows: list[Row], columns: Columns) -> Iterator[str]:
    places = [slot.column for slot in columns.slots] if columns.energy is None else [columns.energy]
    return (row[place] for row in rows for place in places)


def _find_length(path: Path, rows: list[Row], columns: Columns, clock: FileClock) -> int:
    moments = ((row[columns.meter] if columns.meter is not None else "", clock.parse_time(time_text(row, columns)))
               for row in rows)  # fmt: skip
    numbers: dict[str, int] = {}
    times = [(numbers.setdefault(meter, len(numbers)), moment.start_s)
             for meter, moment in moments if not isinstance(moment, str)]  # fmt: skip
    return find_length(str(path), times)
