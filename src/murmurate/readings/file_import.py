"""Read one file into the spool: find out how it is written, then parse its rows as they come.

A file has a row for each reading, or a row for each meter and day. Columns of a day that are named by the clock
(00:00..23:30) leave out the hour that clocks skip, and need more columns for the hour that occurs twice (`02:00 (2)`).
Numbered ones (HH1..HH48) count since midnight: a day has 46, 48 or 50 half hours. Where a file has too few columns for
a day, the cells after the clock change are refused, not guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import lru_cache
from itertools import chain, islice, pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

from murmurate.errors import ReadingError
from murmurate.readings.cell_values import (
    DAY_LENGTH,
    MISSING,
    NEGATIVE_EXPORT,
    NO_SUCH_TIME,
    NOT_A_TIME,
    NOT_OCCUPANCY,
    WRONG_LENGTH,
    WRONG_WIDTH,
    DateOrder,
    DecimalMark,
    EnergyUnit,
    FileClock,
    MeterNames,
    Moment,
    RefusedCells,
    detect_date_order,
    detect_decimal_mark,
    energy_parser,
    local_midnight,
    place_local_time,
)
from murmurate.readings.columns import NO_NAMES, ColumnNames, Columns, find_columns
from murmurate.readings.green_button import read_feed
from murmurate.readings.merge import ReadingSpool
from murmurate.readings.meter_columns import MeterColumns
from murmurate.readings.table_files import Row, Table
from murmurate.units import SECONDS_PER_DAY

_SAMPLE_ROWS = 20_000  # from which interval, decimal mark and order of dates are found
_PROGRESS_ROWS = 5_000
_MAX_FEED_BYTES = 2**30
_MAX_DAYS = 20_000  # that are remembered: 50 years
_HOUR_S = 3600
_OCCUPANCY = {"1": 1, "true": 1, "0": 0, "false": 0}
_DayCells = tuple[tuple[int | str, ...], int]  # start of each slot [s of UTC] or why not; first slot after a change


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Where readings are written, for which zone, and how files are read where they do not tell."""

    folder: Path  # of the outputs
    zone: str  # of files without a column of the zone
    bound_wh: int  # of each meter
    interval_s: int  # of the zone
    time_zone: str | None
    unit: EnergyUnit | None = None
    decimal: DecimalMark | None = None
    date_order: DateOrder | None = None
    source_length_s: int | None = None
    is_end: bool = False  # times are the ends of intervals
    names: ColumnNames = NO_NAMES
    export_files: tuple[Path, ...] = ()  # of energy fed in, which is subtracted
    export_bound_wh: int | None = None  # of each meter; None: the meter table has no such column


class ImportTarget:
    """The readings and refusals of all files."""

    def __init__(
        self, spool: ReadingSpool, max_places: int, files: Sequence[Path], advance: Callable[[int], None]
    ) -> None:
        self.spool, self.files = spool, files
        self.advance = advance  # takes the bytes of the file that were read
        self.refused = RefusedCells(max_places)
        self.headers: list[tuple[str, ...]] = []
        self.meters = MeterNames()
        self.meter_columns = MeterColumns()
        self.has_occupancy = False

    def place(self, file: int, line: int, column: int = -1) -> str:
        """Return the place of a cell, for people."""
        header = self.headers[file]
        if not header:
            return f"{self.files[file].name}: reading {line}"
        cell = f", {header[column]}" if column >= 0 else ""
        return f"{self.files[file].name}:{line}{cell}"


def check_lengths(place: str, length_s: int, interval_s: int) -> None:
    """Raise ReadingError if intervals of a file cannot become those of the zone."""
    if length_s % interval_s and interval_s % length_s:
        allowed = f"must divide the zone's {interval_s // 60} minutes or be a multiple: change --interval-minutes"
        raise ReadingError(place, f"in intervals of {length_s / 60:g} minutes", allowed)


def import_feed(number: int, options: ImportOptions, target: ImportTarget) -> dict[str, object]:
    """Read a Green Button file into the spool. Returns its properties. Raises ReadingError if it cannot be read.

    Energies are rounded down to whole Wh, as when the service takes the feed.
    """
    path = target.files[number]
    if path in options.export_files:
        raise ReadingError(str(path), "Green Button", "tells what is received: give it without --export-file")
    if path.stat().st_size > _MAX_FEED_BYTES:
        raise ReadingError(
            str(path), "too large", f"must have at most {_MAX_FEED_BYTES:,} bytes; export less at a time"
        )
    target.headers.append(())
    try:
        readings, refused = read_feed(path.read_bytes(), None)
    except ReadingError as error:
        raise ReadingError(f"{path}: {error.field}", error.value, error.allowed) from None
    rows, lengths = 0, sorted({length_s for length_s, _, _ in readings})
    for length_s in lengths:
        check_lengths(str(path), length_s, options.interval_s)
    for length_s, is_export, (meter, start_s, energy_wh, line, _) in readings:
        if is_export and energy_wh < 0:
            refused[line] = NEGATIVE_EXPORT
            continue
        rows += 1
        target.spool.add_reading(
            int(target.meters.number_of(meter)), start_s, 0, length_s, energy_wh, -1, number, line, -1, int(is_export)
        )
    for line, reason in sorted(refused.items()):
        target.refused.refuse(reason, [target.place(number, line)])
    target.advance(path.stat().st_size)
    minutes = [length / 60 for length in lengths]
    found = {"file": path.name, "format": "Green Button", "unit": "Wh", "minutes": minutes, "rows": rows}
    return found | ({"subtracted": "received energy"} if any(is_export for _, is_export, _ in readings) else {})


def find_length(place: str, times: Sequence[tuple[str, int]]) -> int:
    """Return the most frequent distance between two readings of a meter [s], from (meter, start).

    Raises ReadingError if there is none, or it does not divide an hour.

    >>> find_length("a.csv", [("a", 0), ("a", 1800), ("b", 0), ("b", 1800), ("b", 5400), ("b", 3600)])
    1800
    """
    ordered = sorted(set(times))
    steps = Counter(later - start for (meter, start), (other, later) in pairwise(ordered) if meter == other)
    if not steps:  # one reading of each meter: a file in the order of time
        steps = Counter(later - start for start, later in pairwise(sorted({start for _, start in ordered})))
    if not steps:
        raise ReadingError(place, "without two times to compare", "name its interval, with --source-minutes 30")
    length_s, _ = max(steps.items(), key=lambda item: (item[1], -item[0]))
    if _HOUR_S % length_s:
        allowed = "must be an hour or a part of it; if most rows are missing, say --source-minutes 30"
        raise ReadingError(place, f"with readings {length_s / 60:g} minutes apart", allowed)
    return length_s


def _time_text(row: Row, columns: Columns) -> str:
    """Return the time of a row; an hour alone is a clock time."""
    if columns.clock is None:
        return row[columns.time]
    clock = row[columns.clock].strip()
    return f"{row[columns.time].strip()} {clock if ':' in clock else f'{clock:0>2}:00'}"


class TableReader:
    """Reads one table into the spool. Raises ReadingError if it cannot be read."""

    def __init__(self, number: int, table: Table, options: ImportOptions, target: ImportTarget) -> None:
        """Find columns, unit, decimal mark, order of dates and interval of a file from its header and first rows."""
        target.headers.append(table.header)
        place = str(target.files[number])
        columns = find_columns(table.header, place, options.names)
        unit = options.unit or columns.unit
        if unit is None:
            raise ReadingError(place, "without a unit in its header", "add --unit kWh or --unit Wh")
        is_export = target.files[number] in options.export_files
        if is_export and columns.energy is not None and columns.export is not None:
            both = f"with {table.header[columns.energy]} and {table.header[columns.export]}"
            raise ReadingError(place, both, "has import and export: give it without --export-file")
        sample = list(islice(table.rows, _SAMPLE_ROWS // 48 if columns.slots else _SAMPLE_ROWS))
        whole = [row for _, row in sample if len(row) == len(table.header)]
        found = [column for column in (columns.energy, columns.export) if column is not None]
        cells = found or [slot.column for slot in columns.slots]
        mark = options.decimal or detect_decimal_mark((row[cell] for row in whole for cell in cells), place)
        order = options.date_order or detect_date_order((row[columns.time] for row in whole), place)
        clock = FileClock(options.time_zone, order)
        length_s = columns.length_s or options.source_length_s
        if length_s is None:
            meters = (row[columns.meter] if columns.meter is not None else "" for row in whole)
            moments = zip(meters, (clock.parse_time(_time_text(row, columns)) for row in whole), strict=True)
            length_s = find_length(place, [(meter, at.start_s) for meter, at in moments if not isinstance(at, str)])
        check_lengths(place, length_s, options.interval_s)
        target.has_occupancy |= columns.occupied is not None
        self._number, self._target, self._table, self._columns = number, target, table, columns
        self._rows = chain(sample, table.rows)
        self._clock, self._length_s, self._is_end = clock, length_s, options.is_end
        self._parse_energy, self._is_export, self._energy_columns = energy_parser(unit, mark), is_export, found
        self._watched = target.meter_columns.watch_columns(table.header, columns)
        self._properties: dict[str, object] = {
            "file": target.files[number].name,
            "format": table.dialect,
            "layout": "a row a day" if columns.slots else "a row a reading",
            "unit": unit.value,
            "unit_from": "--unit" if options.unit else f"the column {columns.unit_column}",
            "decimal": {DecimalMark.POINT: "point", DecimalMark.COMMA: "comma"}.get(mark, "none seen"),
            "minutes": [length_s / 60],
        }
        if is_export or found == [columns.export]:
            self._properties["subtracted"] = "the whole file"
        elif columns.export is not None:
            self._properties["subtracted"] = f"the column {table.header[columns.export]}"
        if columns.unused_export:
            self._properties["unused_export"] = columns.unused_export

    def read_rows(self) -> dict[str, object]:
        """Read all rows, and return the properties of the file."""
        count, done, position = 0, 0, self._table.position
        place_day = lru_cache(_MAX_DAYS)(self._place_day)
        for line, row in self._rows:
            count += 1
            if len(row) != len(self._table.header):
                self._refuse(WRONG_WIDTH, line)
            elif (meter := self._read_meter(row, line)) is not None:
                if self._columns.slots:
                    self._read_day_row(meter, row, line, place_day(row[self._columns.time]))
                else:
                    self._read_time_row(meter, row, line)
            if count % _PROGRESS_ROWS == 0:
                now = position()
                self._target.advance(now - done)
                done = now
        self._target.advance(position() - done)
        return self._properties | {"rows": count}

    def _refuse(self, reason: str, line: int, column: int = -1) -> None:
        self._target.refused.refuse(reason, (self._target.place(self._number, line, at) for at in (column,)))

    def _add_cell(self, meter: int, moment: Moment, cell: str, line: int, column: int, occupied: int = -1) -> None:
        energy_wh = self._parse_energy(cell)
        is_export = self._is_export or column == self._columns.export
        if isinstance(energy_wh, str) or (is_export and energy_wh < 0):
            self._refuse(energy_wh if isinstance(energy_wh, str) else NEGATIVE_EXPORT, line, column)
        else:
            self._target.spool.add_reading(
                meter, *moment, self._length_s, energy_wh, occupied, self._number, line, column, int(is_export)
            )

    def _read_meter(self, row: Row, line: int) -> int | None:
        columns, target = self._columns, self._target
        meter = target.meters.number_of(
            target.files[self._number].stem if columns.meter is None else row[columns.meter]
        )
        if isinstance(meter, str):
            self._refuse(meter, line)
            return None
        for each in self._watched:
            value = row[each.column].strip()
            if each.values.setdefault(meter, value) != value:
                place = target.place(self._number, line, each.column)
                target.meter_columns.drop_or_refuse(
                    each, target.headers[self._number], place, target.meters.names[meter]
                )
                self._watched = [other for other in self._watched if other is not each]
        return meter

    def _read_time_row(self, meter: int, row: Row, line: int) -> None:
        columns = self._columns
        moment = self._clock.parse_time(_time_text(row, columns))
        if isinstance(moment, str):
            self._refuse(moment, line, columns.time)
            return
        if columns.end is not None:  # an end that clocks skip is ignored; local times may have two meanings
            end = self._clock.parse_time(row[columns.end])
            if not isinstance(end, str) and all(
                end.start_s + later - moment.start_s - earlier != self._length_s
                for later in (0, end.later_s)
                for earlier in (0, moment.later_s)
            ):
                self._refuse(WRONG_LENGTH, line, columns.end)
                return
        occupied = -1 if columns.occupied is None else _OCCUPANCY.get(row[columns.occupied].strip().lower(), -1)
        if columns.occupied is not None and occupied < 0:
            self._refuse(NOT_OCCUPANCY, line, columns.occupied)
            return
        if self._is_end:
            moment = moment._replace(start_s=moment.start_s - self._length_s)
        for column in self._energy_columns:
            self._add_cell(meter, moment, row[column], line, column, occupied)

    def _read_day_row(self, meter: int, row: Row, line: int, cells: _DayCells | str) -> None:
        if isinstance(cells, str):
            self._refuse(cells, line, self._columns.time)
            return
        starts, change = cells
        slots = list(zip(self._columns.slots, starts, strict=True))
        # Values beyond the end of a short day: the columns do not count since midnight.
        is_by_clock = not self._columns.by_clock and any(
            start is NO_SUCH_TIME and _is_filled(row[slot.column]) for slot, start in slots
        )
        for slot, start in slots:
            cell = row[slot.column]
            if is_by_clock and slot.number >= change:
                self._refuse(DAY_LENGTH if cell.strip() else MISSING, line, slot.column)
            elif not isinstance(start, str):
                self._add_cell(meter, Moment(start), cell, line, slot.column)
            elif start is not NO_SUCH_TIME or _is_filled(cell):
                self._refuse(start, line, slot.column)

    def _place_day(self, text: str) -> _DayCells | str:
        """Return the cells of the day that a cell names, or the reason why the row is refused."""
        day, columns = self._clock.parse_date(text), self._columns
        if day is None:
            return NOT_A_TIME
        zone, count = self._clock.zone, len(columns.slots)
        if columns.by_clock:
            return tuple(self._starts_by_clock(day, zone)), count
        midnight_s = local_midnight(day, zone)
        length = (local_midnight(day + timedelta(days=1), zone) - midnight_s) // self._length_s
        change = count  # the first interval whose local time differs from that of other days, or occurs twice
        if length != SECONDS_PER_DAY // self._length_s:
            starts_s = [midnight_s + number * self._length_s for number in range(length)]
            offsets = [datetime.fromtimestamp(at_s, zone).utcoffset() or timedelta(0) for at_s in starts_s]
            change = next((number for number, offset in enumerate(offsets) if offset != offsets[0]), length)
            if change < length:
                change -= max(int((offsets[0] - offsets[change]).total_seconds()) // self._length_s, 0)
        starts: list[int | str] = []
        for slot in columns.slots:
            is_open = count < length and slot.number >= change
            start = DAY_LENGTH if is_open else midnight_s + slot.number * self._length_s
            starts.append(NO_SUCH_TIME if slot.number >= length else start)
        return tuple(starts), change

    def _starts_by_clock(self, day: date, zone: ZoneInfo) -> Iterator[int | str]:
        repeated = {slot.number for slot in self._columns.slots if slot.is_repeated}
        for slot in self._columns.slots:
            local = datetime(day.year, day.month, day.day) + timedelta(seconds=slot.number * self._length_s)  # noqa: DTZ001
            moment = place_local_time(local, zone)
            if isinstance(moment, str):
                yield moment
            elif slot.is_repeated:
                yield moment.start_s + moment.later_s if moment.later_s else NO_SUCH_TIME
            else:
                yield DAY_LENGTH if moment.later_s and slot.number not in repeated else moment.start_s


def _is_filled(cell: str) -> bool:
    """Return whether a cell that should be empty has a value. Some files write zeros for nothing."""
    return bool(cell.strip().strip("0.,-")) and cell.strip().lower() not in {"null", "nan", "na", "n/a"}
