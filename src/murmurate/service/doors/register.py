"""A meter that sends its total, every so often, made into the energy of intervals; and how such a message is read.

Between two points the register R is a straight line, floored to whole Wh. The energy of an interval [b, b + d) is
R(b + d) - R(b). Neighbours share a boundary, so energies telescope: nothing is lost, nothing is counted twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

from murmurate.errors import ReadingError
from murmurate.service.doors.values import LONGEST_LINE, MOST_WH, NANO, moment_ns, parse_json

LONGEST_GAP_S = 3 * 3600  # longer, and a straight line says nothing of what happened in between
_UNIT_WH = {"Wh": 1, "kWh": 10**3, "MWh": 10**6}
_MOST_DIGITS = 18  # before the point, and behind it


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """What a register showed."""

    at_s: int  # [s of UTC]
    wh: int


def between(last: Point | None, new: Point, *, interval_s: int, longest_gap_s: int) -> list[tuple[int, int]]:
    """The register [Wh] at each interval boundary [s of UTC] after `last`, up to and with `new`.

    R(b) = w0 + floor((w1 - w0) (b - t0) / (t1 - t0)). Where the line is broken only `new` itself is known.

    >>> between(Point(600, 10), Point(2400, 20), interval_s=900, longest_gap_s=3600)
    [(900, 11), (1800, 16)]
    """
    if last is None or not _goes_on(last, new, longest_gap_s):
        return [] if new.at_s % interval_s else [(new.at_s, new.wh)]
    first = (last.at_s // interval_s + 1) * interval_s
    rise_wh, run_s = new.wh - last.wh, new.at_s - last.at_s
    return [(b, last.wh + rise_wh * (b - last.at_s) // run_s) for b in range(first, new.at_s + 1, interval_s)]


def _goes_on(last: Point, new: Point, longest_gap_s: int) -> bool:
    """Whether one line leads from point to point: not where the register fell, time stood still or nobody knows."""
    return 0 < new.at_s - last.at_s <= longest_gap_s and new.wh >= last.wh


def _came_late(last: Point, new: Point, longest_gap_s: int) -> bool:
    """A point from the past of this same line: sent twice, or overtaken. To begin anew there would count twice.

    A clock that was set back shows itself by a register that went on while time did not; then the line is broken.
    """
    return 0 <= last.at_s - new.at_s <= longest_gap_s and new.wh <= last.wh


@dataclass(frozen=True, slots=True)
class Register:
    """What is kept of a meter between two messages. Its boundary is the last one that is not after its last point."""

    last: Point
    boundary_wh: int | None = None  # the register at that boundary, where it is known

    @staticmethod
    def follow(
        register: Register | None, new: Point, *, interval_s: int, longest_gap_s: int = LONGEST_GAP_S
    ) -> tuple[Register, list[tuple[int, int]]]:
        """As `advance`; a meter that nobody has heard of begins here."""
        begin = register or Register(new, None if new.at_s % interval_s else new.wh)
        return begin.advance(new, interval_s=interval_s, longest_gap_s=longest_gap_s)

    def advance(
        self, new: Point, *, interval_s: int, longest_gap_s: int = LONGEST_GAP_S
    ) -> tuple[Register, list[tuple[int, int]]]:
        """The register after one more point, and (begin [s of UTC], energy [Wh]) of each interval that it completes.

        An interval that a reset, a gap or a clock set back touches has no energy: nobody knows it.

        >>> Register(Point(900, 100), 100).advance(Point(2700, 151), interval_s=900)
        (Register(last=Point(at_s=2700, wh=151), boundary_wh=151), [(900, 25), (1800, 26)])
        """
        if _came_late(self.last, new, longest_gap_s):
            return self, []
        known = between(self.last, new, interval_s=interval_s, longest_gap_s=longest_gap_s)
        if self.boundary_wh is not None and _goes_on(self.last, new, longest_gap_s):
            known.insert(0, (self.last.at_s // interval_s * interval_s, self.boundary_wh))
        energies = [(start_s, after_wh - before_wh) for (start_s, before_wh), (_, after_wh) in pairwise(known)]
        return Register(new, known[-1][1] if known else None), energies


def parse_point(payload: bytes, received_s: int) -> Point:
    """A point from a message: {"timestamp", "value", "unit"}, all but the value optional, or a bare number of Wh.

    No error quotes the value. A message that does not tell its time is as old as its arrival.

    >>> parse_point(b'{"value": 12.345, "unit": "kWh"}', 1800)
    Point(at_s=1800, wh=12345)
    """
    if len(payload) > LONGEST_LINE:
        raise ReadingError("message", "too long", f"must have at most {LONGEST_LINE} bytes")
    message = parse_json(payload)
    row = message if isinstance(message, dict) else {"value": message}
    if not {"value"} <= row.keys() <= {"timestamp", "value", "unit"}:
        raise ReadingError("message", "no register reading", "must have value, and may have timestamp and unit")
    unit = row.get("unit", "Wh")
    if not isinstance(unit, str) or unit not in _UNIT_WH:
        raise ReadingError("unit", "unknown", f"must be one of {', '.join(_UNIT_WH)}")
    at_s = moment_ns("timestamp", row["timestamp"]) // NANO if "timestamp" in row else received_s
    return Point(at_s, _register_wh(row["value"], _UNIT_WH[unit]))


def _register_wh(value: object, unit_wh: int) -> int:
    """Exact, and in small numbers only: 1e999999999 is eleven bytes here and a gigabyte as an integer."""
    number = Decimal(value) if type(value) is int else value
    if not isinstance(number, Decimal):
        raise ReadingError("value", "no number", "must be a number")
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or number.adjusted() > _MOST_DIGITS or exponent < -_MOST_DIGITS:
        raise ReadingError(
            "value", "out of range", f"must have at most {_MOST_DIGITS} digits before and behind the point"
        )
    energy = Fraction(number) * unit_wh
    if energy.denominator != 1 or not 0 <= energy < MOST_WH:
        raise ReadingError("value", "no register", "must be a whole number of Wh, 0 or more and below 2**53")
    return energy.numerator
