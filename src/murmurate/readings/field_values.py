"""The fields of a reading in every format: times, energies, names. No error quotes the value that it refuses."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any, NoReturn

from murmurate.errors import ReadingError

MAX_READING_LINE_BYTES = 4096  # bytes
MAX_METER_NAME_LENGTH = 128  # characters of a meter's name
_METER_NAME_LENGTHS = frozenset(range(1, MAX_METER_NAME_LENGTH + 1))
MAX_UNIX_TIME_S = 253_402_300_800  # s of UTC: the year 10,000
MAX_WH = 2**53 - 1  # whole numbers up to here are the same in every language
NANOSECONDS_PER_SECOND = 10**9
NOT_UTF8 = ("line", "no text", "must be UTF-8")
NOT_JSON = ("line", "no JSON", "must be one JSON object")
INTEGER_PATTERN = re.compile(r"-?[0-9]{1,18}")
_RFC3339_PATTERN = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMERAL_PATTERN = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:[eE]([+-]?[0-9]+))?")
_MAX_EXPONENT = 10**5  # no line has digits enough for a larger one to bring a number back between 1 and 2**63
_EXACT_CONTEXT = Context(prec=2 * MAX_READING_LINE_BYTES)  # no line has a number with more digits
_MIN_INT64, _MAX_INT64, _INT64_DIGITS = -(2**63), 2**63 - 1, 19


def interval_start_s(start_ns: int, interval_s: int) -> int:
    """Return the begin of an interval [s of UTC]. Raises ReadingError if it is none."""
    if start_ns % (interval_s * NANOSECONDS_PER_SECOND):
        raise ReadingError("interval_start", "within an interval", "must begin on an interval boundary")
    return start_ns // NANOSECONDS_PER_SECOND


def floor_to_wh(field: str, value: object, power: int = 0) -> int:
    """Return the largest whole number that is not above value * 10**power, within 64 bits.

    Every number is accepted. Raises ReadingError for text, null and true. A huge exponent is never written out, so
    memory stays within a small multiple of what was sent.

    >>> floor_to_wh("energy_wh", Decimal("12.5")), floor_to_wh("energy_wh", Decimal("-0.5")), floor_to_wh("value", 7, 3)
    (12, -1, 7000)
    """
    if type(value) is int and not power:
        return value if _MIN_INT64 <= value <= _MAX_INT64 else min(max(value, _MIN_INT64), _MAX_INT64)
    number = Decimal(value) if type(value) is int else value
    if not isinstance(number, Decimal):
        raise ReadingError(field, "no number", "must be a number")
    digits_before_point = number.adjusted() + power + 1
    if not power and 0 < digits_before_point < _INT64_DIGITS:  # nearly every energy
        return math.floor(number)
    if not number or digits_before_point < 1:
        return -1 if number < 0 else 0
    if digits_before_point > _INT64_DIGITS:
        return _MIN_INT64 if number < 0 else _MAX_INT64
    return min(max(math.floor(number.scaleb(power, _EXACT_CONTEXT) if power else number), _MIN_INT64), _MAX_INT64)


def parse_numeral(text: str) -> Decimal | None:
    """Return the number of a text, exactly where it can lie between 1 and 2**63; None if the text is no number.

    >>> parse_numeral("-12.50"), parse_numeral("1e999999999999") == Decimal("1e100000"), parse_numeral("five")
    (Decimal('-12.50'), True, None)
    """
    if (match := _NUMERAL_PATTERN.fullmatch(text)) is None or len(text) > MAX_READING_LINE_BYTES:
        return None
    exponent = min(max(int(match[2] or 0), -_MAX_EXPONENT), _MAX_EXPONENT)
    return Decimal(f"{match[1]}e{exponent}")


def parse_meter_name(value: object) -> str:
    """Return the name of a meter; a number becomes its digits. Raises ReadingError for anything else."""
    name = str(value) if type(value) is int else value
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= MAX_METER_NAME_LENGTH
        or not name.isprintable()
        or name != name.strip()
    ):
        raise ReadingError(
            "meter", "no name", f"must be 1 to {MAX_METER_NAME_LENGTH} printable characters, no space around them"
        )
    return name


def parse_meter_names(values: Sequence[object]) -> list[str]:
    """Return `parse_meter_name` of each: at once where they are texts without spaces."""
    names: list[Any] = [str(value) if type(value) is int else value for value in values]
    if {*map(type, names)} <= {str} and {*map(len, names)} <= _METER_NAME_LENGTHS:
        together = "".join(names)
        if " " not in together and together.isprintable():  # no other space is printable
            return names
    return [parse_meter_name(name) for name in names]


def parse_time_ns(field: str, value: object) -> int:
    """Return a time [ns of UTC] from whole seconds since 1970, or from RFC 3339 with its offset from UTC.

    >>> parse_time_ns("timestamp", "1970-01-01T01:00:01.5+01:00")
    1500000000
    """
    seconds, part = value, "0"
    if isinstance(value, str) and len(value) <= 40 and (match := _RFC3339_PATTERN.fullmatch(value)):
        day, clock, fraction, zone = match.groups()
        if not zone:
            raise ReadingError(field, "without a zone", "must end in Z or in an offset such as +01:00")
        seconds, part = _parse_unix_seconds(f"{day}T{clock}{zone.upper()}"), fraction or "0"
    if type(seconds) is not int or not 0 <= seconds < MAX_UNIX_TIME_S:
        raise ReadingError(field, "no time", "must be RFC 3339 with a zone, or whole seconds since 1970")
    return seconds * NANOSECONDS_PER_SECOND + int(part.ljust(9, "0"))


@lru_cache(1024)  # a body has few times and many meters
def _parse_unix_seconds(text: str) -> int | None:
    try:
        since = datetime.fromisoformat(text) - _EPOCH
    except (ValueError, OverflowError):
        return None
    return since.days * 86_400 + since.seconds


def parse_json(line: bytes) -> object:
    """Parse JSON of RFC 8259 without a member twice. It raises outside `except`: the parser's error quotes the line."""
    try:
        value: object = _JSON_DECODER.decode(line.decode())
    except UnicodeDecodeError:
        rule = NOT_UTF8
    except (ValueError, RecursionError):
        rule = NOT_JSON
    else:
        return value
    raise ReadingError(*rule)


def _reject_duplicate_members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    row = dict(pairs)
    if len(row) != len(pairs):
        raise ReadingError("line", "with a member twice", "must have each member once")
    return row


def _reject_constant(_constant: str) -> NoReturn:
    raise ReadingError("line", "with NaN or Infinity", "must have numbers as JSON has them")


_JSON_DECODER = json.JSONDecoder(
    object_pairs_hook=_reject_duplicate_members, parse_constant=_reject_constant, parse_float=parse_numeral
)
