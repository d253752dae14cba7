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
from murmurate.service.doors.slip import Refusals

LONGEST_LINE = 4096  # bytes
LONGEST_NAME = 128  # characters of a meter's name
MOST_REFUSED = 100_000  # lines: more are not a slip with faults but something else
MOST_SECONDS = 253_402_300_800  # s of UTC: the year 10,000
MAX_WH = 2**53 - 1  # whole numbers up to here are the same in every language
NANO = 10**9
NO_TEXT = ("line", "no text", "must be UTF-8")
NO_JSON = ("line", "no JSON", "must be one JSON object")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMERAL = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:[eE]([+-]?[0-9]+))?")
_MAX_EXPONENT = 10**5  # no line has digits enough for a larger one to bring a number back between 1 and 2**63
_EXACT = Context(prec=2 * LONGEST_LINE)  # no line has a number with more digits
_LEAST_INT64, _MAX_INT64 = -(2**63), 2**63 - 1


def interval_start_s(start_ns: int, interval_s: int) -> int:
    """The begin of an interval [s of UTC], if it is one."""
    if start_ns % (interval_s * NANO):
        raise ReadingError("interval_start", "within an interval", "must begin on an interval boundary")
    return start_ns // NANO


def floored_wh(field: str, value: object, power: int = 0) -> int:
    """The largest whole number that is not above value * 10**power, within 64 bits.

    Every number is taken, whatever its value. What is no number is refused: text, null, true. A huge exponent is
    never written out, so memory stays within a small multiple of what was sent.

    >>> floored_wh("energy_wh", Decimal("12.5")), floored_wh("energy_wh", Decimal("-0.5")), floored_wh("value", 7, 3)
    (12, -1, 7000)
    """
    if type(value) is int and not power:
        return _within_64_bits(value)
    number = Decimal(value) if type(value) is int else value
    if not isinstance(number, Decimal):
        raise ReadingError(field, "no number", "must be a number")
    digits_before_point = number.adjusted() + power + 1
    if not number or digits_before_point < 1:
        return -1 if number < 0 else 0
    if digits_before_point > len(str(_MAX_INT64)):
        return _LEAST_INT64 if number < 0 else _MAX_INT64
    return _within_64_bits(math.floor(number.scaleb(power, _EXACT)))


def _within_64_bits(value: int) -> int:
    return min(max(value, _LEAST_INT64), _MAX_INT64)


def parse_numeral(text: str) -> Decimal | None:
    """A number as text, exactly where it can lie between 1 and 2**63; none if the text is no number.

    >>> parse_numeral("-12.50"), parse_numeral("1e999999999999") == Decimal("1e100000"), parse_numeral("five")
    (Decimal('-12.50'), True, None)
    """
    if (found := _NUMERAL.fullmatch(text)) is None or len(text) > LONGEST_LINE:
        return None
    exponent = min(max(int(found[2] or 0), -_MAX_EXPONENT), _MAX_EXPONENT)
    return Decimal(f"{found[1]}e{exponent}")


def meter_name(value: object) -> str:
    """A meter by name; a number is its name in digits."""
    name = str(value) if type(value) is int else value
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable() or name != name.strip():
        raise ReadingError(
            "meter", "no name", f"must be 1 to {LONGEST_NAME} printable characters, no space around them"
        )
    return name


def refuse(refused: Refusals, line: int, why: str) -> None:
    """Note a refusal. A body of nothing but faults is refused as a whole, or a small body would fill the memory."""
    if len(refused) >= MOST_REFUSED:
        raise ReadingError("body", "full of faults", f"must have at most {MOST_REFUSED} lines that are refused")
    refused[line] = why


def moment_ns(field: str, value: object) -> int:
    """A time [ns of UTC]: whole seconds since 1970, or RFC 3339 with its zone; without one nobody knows when it is.

    >>> moment_ns("timestamp", "1970-01-01T01:00:01.5+01:00")
    1500000000
    """
    seconds, part = value, "0"
    if isinstance(value, str) and len(value) <= 40 and (found := _TIME.fullmatch(value)):
        day, clock, fraction, zone = found.groups()
        if not zone:
            raise ReadingError(field, "without a zone", "must end in Z or in an offset such as +01:00")
        seconds, part = _seconds(f"{day}T{clock}{zone.upper()}"), fraction or "0"
    if type(seconds) is not int or not 0 <= seconds < MOST_SECONDS:
        raise ReadingError(field, "no time", "must be RFC 3339 with a zone, or whole seconds since 1970")
    return seconds * NANO + int(part.ljust(9, "0"))


@lru_cache(1024)  # senders repeat themselves: a body has few times and many meters
def _seconds(text: str) -> int | None:
    try:
        since = datetime.fromisoformat(text) - _EPOCH
    except (ValueError, OverflowError):
        return None
    return since.days * 86_400 + since.seconds


def parse_json(line: bytes) -> object:
    """JSON as RFC 8259 has it, and no member twice. It raises outside `except`: the parser's error quotes the line."""
    try:
        value: object = _JSON.decode(line.decode())
    except UnicodeDecodeError:
        rule = NO_TEXT
    except (ValueError, RecursionError):
        rule = NO_JSON
    else:
        return value
    raise ReadingError(*rule)


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    row = dict(pairs)
    if len(row) != len(pairs):
        raise ReadingError("line", "with a member twice", "must have each member once")
    return row


def _no_number(_constant: str) -> NoReturn:
    raise ReadingError("line", "with NaN or Infinity", "must have numbers as JSON has them")


_JSON = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_number, parse_float=parse_numeral)
