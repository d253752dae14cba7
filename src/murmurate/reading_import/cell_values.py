"""Energies and meter names as cells have them. Each distinct text is parsed once: files repeat themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from enum import Enum
from functools import lru_cache

from murmurate.errors import ReadingError
from murmurate.reading_import.refused_cells import MISSING, NOT_A_METER, NOT_A_READING
from murmurate.service.ingest.field_values import parse_meter_name
from murmurate.units import WH_PER_KWH

_MAX_KWH = 1_000_000  # of one reading of a household: more is a fault of the file
MAX_REMEMBERED_TEXTS = 200_000  # of one kind: some tens of MB
_MISSING_TEXTS = frozenset({"", "null", "nan", "na", "n/a", "none", "-", "--"})
_NUMERAL = re.compile(r"[+-]?[0-9]+(?:[.,][0-9]+)?(?:[eE][+-]?[0-9]{1,3})?|[+-]?[.,][0-9]+")


class EnergyUnit(Enum):
    """The unit of a column; the value is how a header and an option write it."""

    KWH = "kWh"
    WH = "Wh"

    @property
    def wh(self) -> int:
        return WH_PER_KWH if self is EnergyUnit.KWH else 1


class DecimalMark(Enum):
    """What stands before the fraction of a number."""

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
    """Return a reading in kWh (1000 Wh) or Wh (1 Wh) as whole Wh, half a Wh upwards.

    `place` is the file and row. Raises ReadingError for anything but a number of 0 or more.

    >>> parse_energy("140.5", 1, "row 2")
    141
    """
    try:
        energy = Decimal(text.strip())
    except InvalidOperation:
        energy = Decimal("NaN")
    if not (energy.is_finite() and 0 <= energy <= _MAX_KWH * WH_PER_KWH // wh_per_unit):
        unit = "kWh" if wh_per_unit == WH_PER_KWH else "Wh"
        raise ReadingError(place, "not a reading", f"must be a number of {unit}, 0 or more, such as 0.14")
    return int((energy * wh_per_unit).quantize(Decimal(1), ROUND_HALF_UP))


class EnergyCells:
    """Parses cells of one unit and decimal mark."""

    def __init__(self, unit: EnergyUnit, mark: DecimalMark) -> None:
        self._unit, self._mark = unit, mark
        self._remembered = lru_cache(MAX_REMEMBERED_TEXTS)(self._parse)

    def parse_cell(self, text: str) -> int | str:
        """Return whole Wh, rounded by `parse_energy`; or the reason why the cell is refused."""
        return self._remembered(text.strip())

    def _parse(self, text: str) -> int | str:
        if text.lower() in _MISSING_TEXTS:
            return MISSING
        if not _NUMERAL.fullmatch(text) or any(mark in text for mark in ".," if mark not in self._mark.value):
            return NOT_A_READING
        try:
            return parse_energy(text.replace(",", "."), self._unit.wh, "")
        except ReadingError:
            return NOT_A_READING


class MeterNames:
    """Numbers meters in the order in which they appear. Names follow the rules of the service."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int | str] = {}

    def number_of(self, text: str) -> int | str:
        """Return the number of a meter, or the reason why its row is refused."""
        found = self._numbers.get(text)
        return self._add_name(text) if found is None else found

    def _add_name(self, text: str) -> int | str:
        try:
            name = parse_meter_name(text.strip())
        except ReadingError:
            return NOT_A_METER
        if name not in self._numbers:
            self._numbers[name] = len(self.names)
            self.names.append(name)
        return self._numbers[name]
