"""What a reading is made of, from whatever format: times, energies, names. Nothing here quotes what it refuses."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime
from decimal import Context, Decimal
from functools import lru_cache
from typing import NoReturn

from murmurate.errors import ReadingError
from murmurate.service.ingest.batch import Refusals

MAX_READING_LINE_BYTES = 4096  # bytes
MAX_METER_NAME_LENGTH = 128  # characters of a meter's name
MAX_REFUSALS = 100_000  # lines of a batch
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
_MIN_INT64, _MAX_INT64 = -(2**63), 2**63 - 1


def interval_start_s(start_ns: int, interval_s: int) -> int:
    """The begin of an interval [s of UTC], if it is one."""
    if start_ns % (interval_s * NANOSECONDS_PER_SECOND):
        raise ReadingError("interval_start", "within an interval", "must begin on an interval boundary")
    return start_ns // NANOSECONDS_PER_SECOND


def floor_to_wh(field: str, value: object, power: int = 0) -> int:
    """The largest whole number that is not above value * 10**power, within 64 bits.

    Every number is taken, whatever its value. What is no number is refused: text, null, true. A huge exponent is
    never written out, so memory stays within a small multiple of what was sent.

    >>> floor_to_wh("energy_wh", Decimal("12.5")), floor_to_wh("energy_wh", Decimal("-0.5")), floor_to_wh("value", 7, 3)
    (12, -1, 7000)
    """
    if type(value) is int and not power:
        return _clip_to_int64(value)
    number = Decimal(value) if type(value) is int else value
    if not isinstance(number, Decimal):
        raise ReadingError(field, "no number", "must be a number")
    digits_before_point = number.adjusted() + power + 1
    if not number or digits_before_point < 1:
        return -1 if number < 0 else 0
    if digits_before_point > len(str(_MAX_INT64)):
        return _MIN_INT64 if number < 0 else _MAX_INT64
    return _clip_to_int64(math.floor(number.scaleb(power, _EXACT_CONTEXT)))


def _clip_to_int64(value: int) -> int:
    return min(max(value, _MIN_INT64), _MAX_INT64)


def parse_numeral(text: str) -> Decimal | None:
    """A number as text, exactly where it can lie between 1 and 2**63; none if the text is no number.

    >>> parse_numeral("-12.50"), parse_numeral("1e999999999999") == Decimal("1e100000"), parse_numeral("five")
    (Decimal('-12.50'), True, None)
    """
    if (match := _NUMERAL_PATTERN.fullmatch(text)) is None or len(text) > MAX_READING_LINE_BYTES:
        return None
    exponent = min(max(int(match[2] or 0), -_MAX_EXPONENT), _MAX_EXPONENT)
    return Decimal(f"{match[1]}e{exponent}")


def parse_meter_name(value: object) -> str:
    """A meter by name; a number is its name in digits."""
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


def add_refusal(refused: Refusals, line: int, reason: str) -> None:
    """Note a refusal. A body of nothing but faults is refused as a whole, or a small body would fill the memory."""
    if len(refused) >= MAX_REFUSALS:
        raise ReadingError("body", "full of faults", f"must have at most {MAX_REFUSALS} lines that are refused")
    refused[line] = reason


def parse_time_ns(field: str, value: object) -> int:
    """A time [ns of UTC]: whole seconds since 1970, or RFC 3339 with its offset from UTC.

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


@lru_cache(1024)  # senders repeat themselves: a body has few times and many meters
def _parse_unix_seconds(text: str) -> int | None:
    try:
        since = datetime.fromisoformat(text) - _EPOCH
    except (ValueError, OverflowError):
        return None
    return since.days * 86_400 + since.seconds


def parse_json(line: bytes) -> object:
    """JSON as RFC 8259 has it, and no member twice. It raises outside `except`: the parser's error quotes the line."""
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
