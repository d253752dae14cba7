"""Find the columns of a file by their names: meter, time and energy; or meter, day and one column for each interval."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from murmurate.errors import ReadingError
from murmurate.readings.cell_values import EnergyUnit

_METERS = (
    "meter_id", "meter", "meterid", "meter_number", "meter_serial", "lclid", "mpan", "mpxn", "nmi", "dataid", "pod",
    "zaehler", "zähler", "zaehlernummer", "zählernummer", "zaehlpunkt", "zählpunkt",
)  # fmt: skip
_HOUSEHOLDS = (  # without a column of the meter they are the meter too
    "household", "household_id", "haushalt", "home", "home_id", "customer_id", "customer", "customer_number",
    "account_id", "account", "account_number", "kunde", "kundennummer", "kunden_nr", "kundennr", "vertragskonto",
    "anschlussnutzer", "anschluss",
)  # fmt: skip
_ROW_NUMBERS = ("id",)  # often the number of the row: the meter where no other column is
_TIMES = (
    "interval_start", "timestamp", "datetime", "date_time", "date_&_time", "tstp", "start", "start_time", "from",
    "time", "utc", "local_15min", "localminute", "zeitstempel", "von", "data_collection_log_timestamp", "unix",
)  # fmt: skip
_DAYS = ("date", "day", "datum", "settlement_date", "reading_date", "read_date")
_CLOCKS = ("time", "hour", "clock", "uhrzeit", "zeit")
_ENDS = ("interval_end", "end", "end_time", "to", "bis")
_ENERGIES = (
    "energy", "value", "consumption", "usage", "use", "reading", "import", "energie", "verbrauch", "bezug", "wert",
)  # fmt: skip
_EXPORT = re.compile(  # OBIS 2.8.0 and 2.29.0 are energy fed in
    r"export(ed)?|feed[ _-]?in|(r(ü|ue)ck)?einspeis(ung|ungen)?|r(ü|ue)ck(lieferung|speisung)|teruglevering|injection"
    r"|(?<![0-9.])([0-9]-[0-9]+:)?2\.(8|29)\.[0-9](?![0-9])"
)
_NET = re.compile(r"(?<![a-z])(net|netto|saldo|balance)(?![a-z])")
_GENERATION = re.compile(r"generat|solar|(?<![a-z])pv(?![a-z])|produ[ck]|erzeug")
_OCCUPIED = ("occupied",)  # of a sample with known occupancy
_UNIT = re.compile(r"(?<![a-z])(k?)w\.?h(?![a-z])", re.IGNORECASE)
_NUMBERED = re.compile(r"(?:hh|h|p|sp|period|slot|interval|value|v|q)?_?0*(\d{1,3})", re.ASCII)
_CLOCK_NAME = re.compile(r"(?:hh|h|t)?_?(\d{1,2})[:.h](\d{2})(?::00)?(_?\(?2\)?|_?b|_?\(?second\)?)?", re.ASCII)
_MINUTES_PER_DAY = 1440
_WHOLE_DAYS = (24, 48, 96, 144, 288)  # columns of a file with a row a day; hours to five minutes
_LONG_OR_WIDE = (
    "must have meter_id, timestamp and kwh or energy_wh; or meter_id, date and a column for each interval "
    "(00:00..23:30 or HH1..HH48). Name other columns with --meter-column, --time-column and --energy-column"
)


@dataclass(frozen=True, slots=True)
class DaySlot:
    """A column of a file with a row a day."""

    column: int
    number: int  # of the interval of the day, from 0; counted by the clock or since midnight
    is_repeated: bool = False  # the second time that the clocks show it


@dataclass(frozen=True, slots=True)
class Columns:
    """The positions of the columns of a file. It has `energy`, `export` or `slots`."""

    meter: int | None  # none: a file is a meter
    household: int | None  # none: not known; that of the meter, if meters are named by their household
    zone: int | None
    kind: int | None
    time: int  # a time; or a day, if there are `slots` or a `clock`
    clock: int | None
    end: int | None
    energy: int | None
    export: int | None  # energy fed in, which is subtracted; a file without `energy` is of export alone
    unused_export: str  # name of a column that looks like export and is not used; empty: none
    occupied: int | None
    slots: tuple[DaySlot, ...]
    by_clock: bool  # slots are named by what the clock shows, not counted since midnight
    length_s: int | None  # of an interval, where columns tell
    unit: EnergyUnit | None
    unit_column: str  # whose name has the unit; empty: none has

    @property
    def taken(self) -> set[int | None]:
        """The columns that have a meaning."""
        single = {self.meter, self.household, self.zone, self.kind, self.time, self.clock, self.end, self.energy}
        return single | {self.export, self.occupied} | {slot.column for slot in self.slots}


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """Names that the user gives."""

    meter: str | None = None
    time: str | None = None
    energy: str | None = None
    household: str | None = None
    zone: str | None = None
    kind: str | None = None
    export: str | None = None


NO_NAMES = ColumnNames()


def find_columns(header: Sequence[str], place: str, given: ColumnNames) -> Columns:
    """Return the columns of a file. Raises ReadingError with the names that are known."""
    names = [  # lower case, without the unit: `HH1 kWh` is `hh1`
        re.sub(r"[\s_]+", "_", re.sub(rf"[\[(]?{_UNIT.pattern}[\])]?", " ", name.lower())).strip("_ ")
        for name in header
    ]
    known = (*_METERS, *_HOUSEHOLDS, *_ROW_NUMBERS)
    meter = _find_given(header, given.meter, place) if given.meter else _find(names, known)
    household, zone, kind = (
        _find_given(header, name, place) if name else None for name in (given.household, given.zone, given.kind)
    )
    if household is None and meter is not None:
        household = meter if names[meter] in _HOUSEHOLDS else _find(names, _HOUSEHOLDS)
    slots, by_clock = _find_slots(names)
    time, clock = _find_time(header, names, given, place, is_wide=bool(slots))
    occupied = None if slots else _find(names, _OCCUPIED)
    energy, export, unused_export = None, None, ""
    if not slots:
        taken = {meter, household, zone, kind, time, clock, occupied}
        energy, export, unused_export = _find_energy(header, names, given, place, taken)
    of_energy = [column for column in (energy, export) if column is not None] or [slot.column for slot in slots]
    if time is None or not of_energy or (slots and meter is None):
        raise ReadingError(place, f"a file with the columns {_shorten(header)}", _LONG_OR_WIDE)
    if len({match[0] for column in of_energy if (match := _UNIT.search(header[column].replace("_", " ").lower()))}) > 1:
        raise ReadingError(place, "with energy in kWh and in Wh", "must have one unit in all columns of energy")
    unit, unit_column = None, ""
    for name in (*(header[column] for column in of_energy), *header):
        if match := _UNIT.search(name.replace("_", " ")):
            unit, unit_column = (EnergyUnit.KWH if match[1] else EnergyUnit.WH), name
            break
    return Columns(
        meter=meter,
        household=household,
        zone=zone,
        kind=kind,
        time=time,
        clock=clock,
        end=None if slots else _find(names, _ENDS),
        energy=energy,
        export=export,
        unused_export=unused_export,
        occupied=occupied,
        slots=slots,
        by_clock=by_clock,
        length_s=_slot_length(slots, by_clock=by_clock, place=place) if slots else None,
        unit=unit,
        unit_column=unit_column,
    )


def _find(names: Sequence[str], known: Sequence[str]) -> int | None:
    return next((names.index(name) for name in known if name in names), None)


def _find_energy(
    header: Sequence[str], names: Sequence[str], given: ColumnNames, place: str, taken: set[int | None]
) -> tuple[int | None, int | None, str]:
    """Return the columns of energy and of export, and the name of a column of export that is not used.

    Where a column of export is there, nothing is guessed: what it is subtracted from must be clear.
    """
    left = [column for column in range(len(header)) if column not in taken]
    with_unit = [column for column in left if _UNIT.search(header[column].replace("_", " "))]
    exports = [
        column for column in left
        if (_EXPORT.search(names[column]) if column in with_unit else _EXPORT.fullmatch(names[column]))
    ]  # fmt: skip
    unused = header[exports[0]] if exports else ""
    export = _find_given(header, given.export, place) if given.export else None
    if given.energy:
        return _find_given(header, given.energy, place), export, "" if export is not None else unused
    energies = [column for column in with_unit if column not in {export, *exports}]
    energies = energies or [column for column in left if names[column] in _ENERGIES and column != export]
    net = [column for column in energies if _NET.search(names[column])]
    if export is None and exports and net:
        return net[0], None, unused
    if export is None and not exports:
        return next(iter(energies), None), None, ""
    if (
        len(energies) > 1
        or (export is None and len(exports) > 1)
        or any(_GENERATION.search(names[e]) for e in energies)
    ):
        several = ", ".join(header[column] for column in sorted({*energies, *exports}))
        allowed = (
            "must be named: --energy-column for import or net energy, --export-column for what is subtracted from it"
        )
        raise ReadingError(place, f"with several columns of energy and export: {several}", allowed)
    return next(iter(energies), None), exports[0] if export is None else export, ""


def _find_given(header: Sequence[str], name: str, place: str) -> int:
    if name not in header:
        raise ReadingError(place, f"without the column {name}", f"must be one of {_shorten(header)}")
    return list(header).index(name)


def _find_time(
    header: Sequence[str], names: Sequence[str], given: ColumnNames, place: str, *, is_wide: bool
) -> tuple[int | None, int | None]:
    """Return the column of the time, and that of the clock where a time is in two columns."""
    if given.time:
        return _find_given(header, given.time, place), None
    day, clock = _find(names, _DAYS), _find(names, _CLOCKS)
    if is_wide:
        return (day if day is not None else _find(names, _TIMES)), None
    if day is not None and clock is not None:
        return day, clock
    time = _find(names, _TIMES)
    return (time, None) if time is not None else (day, None)


def _find_slots(names: Sequence[str]) -> tuple[tuple[DaySlot, ...], bool]:
    """Return the columns of a row a day, and whether they are named by the clock.

    Where 00:30 is the first name and 24:00 or 00:00 the last, names are ends of intervals.
    """
    found = [(column, match) for column, name in enumerate(names) if (match := _CLOCK_NAME.fullmatch(name))]
    if len(found) < _WHOLE_DAYS[0]:
        found = [(column, match) for column, name in enumerate(names) if (match := _NUMBERED.fullmatch(name))]
        first = min((int(match[1]) for _, match in found), default=0)
        slots = [DaySlot(column, int(match[1]) - first) for column, match in found]
        return tuple(slots) if len(slots) >= _WHOLE_DAYS[0] else (), False
    clocks = [(column, 60 * int(match[1]) + int(match[2]), match[3]) for column, match in found]
    minutes = sorted({minute for _, minute, _ in clocks})
    step = minutes[1] - minutes[0]
    in_order = [minute for _, minute, again in clocks if not again]
    shift = step if in_order[0] == step and in_order[-1] in {0, _MINUTES_PER_DAY} else 0
    seen: set[int] = set()
    slots = []
    for column, minute, again in clocks:
        number = (minute - shift) % _MINUTES_PER_DAY // step
        slots.append(DaySlot(column, number, is_repeated=bool(again) or minute in seen))
        seen.add(minute)
    return tuple(slots), True


def _slot_length(slots: Sequence[DaySlot], *, by_clock: bool, place: str) -> int:
    """Return the length of the intervals [s] of a file with a row a day."""
    numbers = sorted(slot.number for slot in slots if not slot.is_repeated)
    count = len(numbers)
    nominal = max((whole for whole in _WHOLE_DAYS if whole <= count), default=0)
    extra = count - nominal  # columns for the hour that occurs twice
    if numbers != list(range(count)) or extra not in ({0} if by_clock else {0, nominal // 24}):
        allowed = f"must be {', '.join(map(str, _WHOLE_DAYS))} columns that follow each other, or an hour more"
        raise ReadingError(place, f"with {count} columns of intervals", allowed)
    return _MINUTES_PER_DAY * 60 // nominal


def _shorten(header: Sequence[str]) -> str:
    return ", ".join(header[:8]) + (f" and {len(header) - 8} more" if len(header) > 8 else "")
