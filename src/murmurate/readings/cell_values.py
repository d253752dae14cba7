"""Cells of a file: energies, meter names and times, and why a cell is refused. Each distinct text is parsed once.

A reason never holds the text of the cell: readings are confidential, and an import is often logged. When clocks go
back, an hour of local time occurs twice; when they go forward, an hour does not occur at all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from enum import Enum
from functools import lru_cache
from itertools import islice
from typing import NamedTuple
from zoneinfo import ZoneInfo

from murmurate.errors import ReadingError
from murmurate.readings.field_values import parse_meter_name
from murmurate.time_zones import load_time_zone
from murmurate.units import WH_PER_KWH

MISSING = "no value: the cell is empty, or says that it is missing"
NOT_A_READING = "not a reading: must be a number with one decimal mark, such as 0.25, or -0.25 for energy fed in"
NOT_A_TIME = "not a time: must be such as 2026-01-31 18:30, 31.01.2026 18:30 or seconds since 1970"
NOT_A_METER = "no meter: must be named by 1 to 128 printable characters"
NO_SUCH_TIME = "a local time that does not exist: the clocks went forward over it"
OCCURS_TWICE = (
    "a local time that occurs twice, because the clocks went back, and is there once or more than twice: "
    "give times with an offset, or in UTC"
)
DAY_LENGTH = (
    "on a day of another length, after the clocks changed, with as many columns as on other days: "
    "export times with an offset, or 46 and 50 columns"
)
OFF_GRID = "not at the beginning of an interval"
WRONG_LENGTH = "of another length than the intervals of the file"
TWO_VALUES = "two different readings of one interval: delete the wrong one"
INCOMPLETE = "part of an interval whose other parts are missing"
NEGATIVE_EXPORT = (
    "below zero in a column or file of export, which is subtracted: must be 0 or more; if the column has net energy, "
    "name it with --energy-column"
)
ONE_DIRECTION = (
    "import without export of the same interval, or export without import, of a meter that has both: "
    "complete the file, with 0 where nothing flowed"
)
NOT_OCCUPANCY = "not an occupancy: must be 0 or 1"
WRONG_WIDTH = "a row with another number of columns than the header"
_MAX_KWH = 1_000_000  # of one reading of a household: more is a fault of the file
_MAX_REMEMBERED_TEXTS = 200_000  # of one kind: some tens of MB
_MISSING_TEXTS = frozenset({"", "null", "nan", "na", "n/a", "none", "-", "--"})
_NUMERAL = re.compile(r"[+-]?[0-9]+(?:[.,][0-9]+)?(?:[eE][+-]?[0-9]{1,3})?|[+-]?[.,][0-9]+")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNIX_DIGITS = re.compile(r"([0-9]{9,10})(?:000)?(?:\.0+)?")  # seconds or milliseconds since 1970
_DAY_FIRST = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4})(?:[ T,]+(.+))?", re.ASCII)
_END_OF_DAY = re.compile(r"(.*[ T])24:00(?::00)?", re.ASCII)
_FRACTION = re.compile(r"(:\d\d)\.0+(?=$|[+-]|Z)", re.ASCII)


class RefusedCells:
    """Counts of refused cells by reason, and the places of the first ones."""

    def __init__(self, max_places: int = 5) -> None:
        self.counts: Counter[str] = Counter()
        self.places: dict[str, list[str]] = {}
        self._max_places = max_places

    def refuse(self, reason: str, places: Iterable[str], count: int = 1) -> None:
        """Count refused cells. `places` is only read as far as places are kept: to write one is costly."""
        self.counts[reason] += count
        kept = self.places.setdefault(reason, [])
        kept.extend(islice(places, self._max_places - len(kept)))

    @property
    def total(self) -> int:
        return self.counts.total()

    def to_document(self) -> list[dict[str, object]]:
        """Return counts and places, the most frequent reason first."""
        return [
            {"reason": reason, "count": count, "first": self.places[reason]}
            for reason, count in sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))
        ]


class EnergyUnit(Enum):
    """The unit of a column; the value is how a header and an option write it."""

    KWH = "kWh"
    WH = "Wh"

    @property
    def wh(self) -> int:
        return WH_PER_KWH if self is EnergyUnit.KWH else 1


class DecimalMark(Enum):
    """The character before the fraction of a number."""

    POINT = "."
    COMMA = ","
    EITHER = "., "  # no fraction was seen yet


def detect_decimal_mark(cells: Iterable[str], place: str) -> DecimalMark:
    """Return the decimal mark of some cells. Raises ReadingError if both occur.

    >>> detect_decimal_mark(["0,25", "1", "Null"], "a.csv")
    <DecimalMark.COMMA: ','>
    """
    marks = {mark for cell in cells if _NUMERAL.fullmatch(cell.strip()) for mark in ".," if mark in cell}
    if len(marks) > 1:
        allowed = "must have one; say which with --decimal point or --decimal comma"
        raise ReadingError(place, "with decimal points and decimal commas", allowed)
    return DecimalMark(marks.pop()) if marks else DecimalMark.EITHER


def parse_energy(text: str, wh_per_unit: int, place: str) -> int:
    """Return a reading in kWh (1000 Wh) or Wh (1 Wh) as whole Wh, half a Wh away from zero. It may be below zero.

    `place` is the file and row. Raises ReadingError for anything but a number.

    >>> parse_energy("140.5", 1, "row 2"), parse_energy("-140.5", 1, "row 3")
    (141, -141)
    """
    try:
        energy = Decimal(text.strip())
    except InvalidOperation:
        energy = Decimal("NaN")
    if not (energy.is_finite() and abs(energy) <= _MAX_KWH * WH_PER_KWH // wh_per_unit):
        unit = "kWh" if wh_per_unit == WH_PER_KWH else "Wh"
        raise ReadingError(place, "not a reading", f"must be a number of {unit}, such as 0.14")
    return int((energy * wh_per_unit).quantize(Decimal(1), ROUND_HALF_UP))


def energy_parser(unit: EnergyUnit, mark: DecimalMark) -> Callable[[str], int | str]:
    """Return a parser of cells that gives whole Wh, rounded by `parse_energy`, or the reason of a refusal."""

    @lru_cache(_MAX_REMEMBERED_TEXTS)
    def parse_cell(cell: str) -> int | str:
        text = cell.strip()
        if text.lower() in _MISSING_TEXTS:
            return MISSING
        if not _NUMERAL.fullmatch(text) or any(other in text for other in ".," if other not in mark.value):
            return NOT_A_READING
        try:
            return parse_energy(text.replace(",", "."), unit.wh, "")
        except ReadingError:
            return NOT_A_READING

    return parse_cell


class MeterNames:
    """Numbers meters in the order in which they appear. Names follow the rules of the service."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}

    def number_of(self, text: str) -> int | str:
        """Return the number of a meter, or the reason why its row is refused."""
        if (known := self._numbers.get(text)) is not None:
            return known
        try:
            name = parse_meter_name(text.strip())
        except ReadingError:
            return NOT_A_METER
        if name not in self._numbers:
            self._numbers[name] = len(self.names)
            self.names.append(name)
        return self._numbers[name]


class DateOrder(Enum):
    """Which number of a date such as 03/04/2026 is the day."""

    DAY_FIRST = "dmy"
    MONTH_FIRST = "mdy"


class Moment(NamedTuple):
    """A time of a file [s of UTC]."""

    start_s: int
    later_s: int = 0  # by how much later the second meaning of a local time is that occurs twice; else 0


def detect_date_order(cells: Iterable[str], place: str) -> DateOrder:
    """Return the order of dates such as 31/01/2026. Raises ReadingError where slashes leave it open.

    >>> detect_date_order(["03/04/2026", "03/31/2026"], "a.csv")
    <DateOrder.MONTH_FIRST: 'mdy'>
    """
    found: set[DateOrder] = set()
    is_open = False
    for match in (_DAY_FIRST.fullmatch(cell.strip()) for cell in set(cells)):
        if match is not None and match[2] != ".":
            is_open = True
            found |= {DateOrder.DAY_FIRST} if int(match[1]) > 12 else set()
            found |= {DateOrder.MONTH_FIRST} if int(match[3]) > 12 else set()
    if is_open and len(found) != 1:
        what = "with the day first and the month first" if found else "with dates that can be read in two ways"
        raise ReadingError(place, what, "must be told which comes first: --dates dmy or --dates mdy")
    return found.pop() if found else DateOrder.DAY_FIRST


class FileClock:
    """Reads times of a file. `time_zone` None: every time must have an offset from UTC, or be in Unix time."""

    def __init__(self, time_zone: str | None, order: DateOrder = DateOrder.DAY_FIRST) -> None:
        self._zone = None if time_zone is None else load_time_zone(time_zone)
        self._order = order
        self._remembered = lru_cache(_MAX_REMEMBERED_TEXTS)(self._parse)

    def parse_time(self, text: str) -> Moment | str:
        """Return a time, or the reason why it is refused. Raises ReadingError if a time zone is needed."""
        return self._remembered(text.strip())

    def parse_date(self, text: str) -> date | None:
        """Return the day that a cell names, at midnight or without a time."""
        when = _parse_naive(text.strip(), self._order)
        return None if when is None or when.time() != datetime.min.time() else when.date()

    @property
    def zone(self) -> ZoneInfo:
        """The zone of local times. Raises ReadingError if none was given."""
        if self._zone is None:
            allowed = "name the clock that they are read on, with --timezone Europe/Zurich or --timezone UTC"
            raise ReadingError("the offset of times from UTC", "missing", allowed)
        return self._zone

    def _parse(self, text: str) -> Moment | str:
        if match := _UNIX_DIGITS.fullmatch(text):
            return Moment(int(match[1]))
        when = _parse_naive(text, self._order)
        if when is None or when.microsecond:
            return NOT_A_TIME
        return Moment(_to_seconds(when)) if when.tzinfo is not None else place_local_time(when, self.zone)


def place_local_time(local: datetime, zone: ZoneInfo) -> Moment | str:
    """Return when a local time was, or the reason why it never was.

    >>> zone = load_time_zone("Europe/Zurich")
    >>> place_local_time(datetime(2025, 10, 26, 2, 30), zone)
    Moment(start_s=1761438600, later_s=3600)
    """
    first, second = (_to_seconds(local.replace(tzinfo=zone, fold=fold)) for fold in (0, 1))
    if first > second:  # the offset before a gap is the smaller one
        return NO_SUCH_TIME
    return Moment(first, second - first)


def local_midnight(day: date, zone: ZoneInfo) -> int:
    """Return when a local day begins [s of UTC]; where clocks skip midnight, with the first time after it."""
    return _to_seconds(datetime(day.year, day.month, day.day, tzinfo=zone))


def _parse_naive(text: str, order: DateOrder) -> datetime | None:
    if match := _END_OF_DAY.fullmatch(text):
        before = _parse_naive(f"{match[1]}00:00", order)
        return None if before is None else before + timedelta(days=1)
    if match := _DAY_FIRST.fullmatch(text):
        first, second, year, clock = match[1], match[3], match[4], match[5]
        is_month_first = order is DateOrder.MONTH_FIRST and match[2] != "."
        day, month = (second, first) if is_month_first else (first, second)
        text = f"{year}-{month:0>2}-{day:0>2}T{(clock or '00:00').zfill(5)}"
    try:
        return datetime.fromisoformat(_FRACTION.sub(r"\1", text))
    except ValueError:
        return None


def _to_seconds(when: datetime) -> int:
    since = when.astimezone(UTC) - _EPOCH
    return since.days * 86_400 + since.seconds
