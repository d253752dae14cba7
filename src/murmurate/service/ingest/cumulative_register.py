"""Turn the totals that a meter sends into the energy of intervals, and read such a message.

The energy of an interval comes only from what the register showed within that interval, edges included. So it answers
to what was drawn in this interval and in no other: the promise for a single moment needs that. A straight line from a
point before an edge to a point behind it would carry energy from one interval into the next.

Whether an interval has an energy depends on the times of the points, never on what the register showed.

Points may come in any order: consumers that share a subscription do not keep that of one meter. A late point makes the
span of its own interval wider, or changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from murmurate.errors import ReadingError
from murmurate.readings.field_values import (
    MAX_READING_LINE_BYTES,
    MAX_WH,
    NANOSECONDS_PER_SECOND,
    floor_to_wh,
    parse_json,
    parse_time_ns,
)

MIN_SPAN_SHARE = Fraction(1, 2)  # the least part of an interval that its first and last point must lie apart
_UNIT_POWER = {"Wh": 0, "kWh": 3, "MWh": 6}


@dataclass(frozen=True, slots=True, order=True)
class RegisterReading:
    """What a register showed."""

    at_s: int  # [s of UTC]
    total_wh: int


def interval_energy(first: RegisterReading, last: RegisterReading, *, interval_s: int) -> int | None:
    """The energy of an interval [Wh] from its first and its last point; none if they lie too close together.

    floor((R_last - R_first) * interval_s / (t_last - t_first)): what the register rose, stretched to the whole
    interval. A register that fell counts as one that stood still.

    >>> interval_energy(RegisterReading(0, 1000), RegisterReading(900, 1250), interval_s=900)
    250
    >>> interval_energy(RegisterReading(60, 1000), RegisterReading(660, 1100), interval_s=900)
    150
    >>> interval_energy(RegisterReading(500, 1000), RegisterReading(900, 1250), interval_s=900) is None
    True
    """
    span_s = last.at_s - first.at_s
    if span_s < MIN_SPAN_SHARE * interval_s:
        return None
    return max(0, last.total_wh - first.total_wh) * interval_s // span_s


@dataclass(frozen=True, slots=True)
class RegisterState:
    """What is kept of a register between two messages: two points of the interval in which its last point lies, and two
    of the interval before, for points that come out of order.
    """

    first: RegisterReading  # the first point in that interval, its begin included
    last: RegisterReading
    before: tuple[RegisterReading, RegisterReading] | None = None  # the first and the last one before, its end included

    def advance(self, reading: RegisterReading, *, interval_s: int) -> tuple[RegisterState, list[tuple[int, int]]]:
        """The register after one more point, and (begin [s of UTC], energy [Wh]) of the interval that it completes.

        An interval is complete when a point at or after its end is there, and two points within it that lie far enough
        apart. It has one energy: from then on its points change nothing. A point exactly on an edge belongs to both
        intervals. Of two points of one second the first to come counts. Nothing is carried over a gap: an interval
        without points far enough apart has no energy.

        Points may come in any order, as far as none comes more than an interval late: see `is_too_late`.

        >>> state = RegisterState(RegisterReading(900, 100), RegisterReading(1500, 140))
        >>> after, energies = state.advance(RegisterReading(1800, 151), interval_s=900)
        >>> after.first == after.last == RegisterReading(at_s=1800, total_wh=151), energies
        (True, [(900, 51)])
        """
        if self.is_too_late(reading, interval_s=interval_s):
            return self, []
        start_s = self.last.at_s // interval_s * interval_s
        first = self.first if self.first.at_s >= start_s else self.last  # intervals may have had another length before
        before = self.before
        if before is not None and not start_s - interval_s <= before[0].at_s <= before[1].at_s <= start_s:
            before = None
        end_s = start_s + interval_s
        if reading.at_s < end_s:
            energies = []
            if reading.at_s <= start_s:
                known, before = before, _widen(before, reading)
                if known is None or interval_energy(*known, interval_s=interval_s) is None:
                    energies = _energy_row(start_s - interval_s, before, interval_s)
                else:
                    before = known
            if reading.at_s >= start_s:
                first, last = _widen((first, self.last), reading)
                return RegisterState(first, last, before), energies
            return RegisterState(first, self.last, before), energies
        ended = (first, reading if reading.at_s == end_s else self.last)
        if reading.at_s < end_s + interval_s:
            before = ended
        else:
            before = (reading, reading) if reading.at_s % interval_s == 0 else None
        return RegisterState(reading, reading, before), _energy_row(start_s, ended, interval_s)

    def is_too_late(self, reading: RegisterReading, *, interval_s: int) -> bool:
        """Whether a point lies before the interval before that of the last one: it changes nothing."""
        return reading.at_s < (self.last.at_s // interval_s - 1) * interval_s


def _widen(
    known: tuple[RegisterReading, RegisterReading] | None, reading: RegisterReading
) -> tuple[RegisterReading, RegisterReading]:
    """The first and the last point of an interval with one more; of two points of one second the known one."""
    first, last = known or (reading, reading)
    return (reading if reading.at_s < first.at_s else first, reading if reading.at_s > last.at_s else last)


def _energy_row(
    start_s: int, points: tuple[RegisterReading, RegisterReading], interval_s: int
) -> list[tuple[int, int]]:
    energy_wh = interval_energy(*points, interval_s=interval_s)
    return [] if energy_wh is None else [(start_s, energy_wh)]


def parse_register_reading(payload: bytes, received_s: int) -> tuple[RegisterReading, bool]:
    """A point from a message: {"timestamp", "value", "unit"}, all but the value optional, or a bare number of Wh.

    A value is rounded down to whole Wh. No value is refused, and no error quotes one. A message that does not tell its
    time is as old as its arrival. Returns also whether the message tells its time.

    >>> parse_register_reading(b'{"value": 12.3456, "unit": "kWh"}', 1800)
    (RegisterReading(at_s=1800, total_wh=12345), False)
    """
    if len(payload) > MAX_READING_LINE_BYTES:
        raise ReadingError("message", "too long", f"must have at most {MAX_READING_LINE_BYTES} bytes")
    message = parse_json(payload)
    row = message if isinstance(message, dict) else {"value": message}
    if not {"value"} <= row.keys() <= {"timestamp", "value", "unit"}:
        raise ReadingError("message", "no register reading", "must have value, and may have timestamp and unit")
    unit = row.get("unit", "Wh")
    if not isinstance(unit, str) or unit not in _UNIT_POWER:
        raise ReadingError("unit", "unknown", f"must be one of {', '.join(_UNIT_POWER)}")
    at_s = parse_time_ns("timestamp", row["timestamp"]) // NANOSECONDS_PER_SECOND if "timestamp" in row else received_s
    shown_wh = floor_to_wh("value", row["value"], _UNIT_POWER[unit])
    return RegisterReading(at_s, min(max(shown_wh, -MAX_WH), MAX_WH)), "timestamp" in row
