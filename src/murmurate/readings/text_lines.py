"""Parse bodies in lines (JSON, CSV) into batches.

Two readers give the same result. The strict one reads line by line and defines what is accepted: a line that breaks a
rule is refused by itself, and no rule depends on how much energy it carries or quotes what it refuses. The fast one
reads a body by columns and stops at the first line that is not plain; the strict reader then reads the whole body.
Memory and time stay within a small multiple of what is sent.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
import numpy as np

from murmurate.errors import ReadingError
from murmurate.readings.batch import BatchRow, ReadingBatch, Refusals, add_refusal
from murmurate.readings.field_values import (
    INTEGER_PATTERN,
    MAX_READING_LINE_BYTES,
    NANOSECONDS_PER_SECOND,
    NOT_JSON,
    NOT_UTF8,
    floor_to_wh,
    interval_start_s,
    parse_json,
    parse_meter_name,
    parse_meter_names,
    parse_numeral,
    parse_time_ns,
)

_READING_MEMBERS = ("meter", "interval_start", "interval_end", "energy_wh", "signature")
_SIGNATURE_LENGTHS = frozenset(range(2, 514, 2))  # digits
_LINE_TOO_LONG = ("line", "too long", f"must have at most {MAX_READING_LINE_BYTES} bytes")
NOTHING_READABLE = "not JSON lines"  # the value of the error for a body of which no line can be read
_NOT_CSV = ("line", "no CSV", "must have its quotes closed on the line")
_UNREADABLE_LINE_ERRORS = frozenset(str(ReadingError(*rule)) for rule in (_LINE_TOO_LONG, NOT_UTF8, NOT_JSON))
_NOT_PLAIN = ("body", "not plain", "must be read line by line")
_TIME_TYPES = {str, int, type(None)}


class _JsonLine(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A line of JSON. Its values are checked by the same functions as in the strict reader."""

    meter: Any
    interval_start: Any
    energy_wh: Any
    interval_end: Any = msgspec.UNSET
    signature: Any = msgspec.UNSET


_LINE_DECODER = msgspec.json.Decoder(_JsonLine, float_hook=Decimal)  # exact; InvalidOperation: a huge exponent
_DECODER_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ReadingError, InvalidOperation)


def parse_json_lines(body: bytes, *, interval_s: int) -> tuple[ReadingBatch, Refusals]:
    """Parse one object a line: meter, interval_start, energy_wh; maybe interval_end, signature. Meters go by name."""
    with suppress(*_DECODER_ERRORS):
        return _parse_json_columns(_without_mark(body), interval_s), {}
    return parse_json_lines_strictly(body, interval_s=interval_s)


def parse_csv(body: bytes, *, interval_s: int) -> tuple[ReadingBatch, Refusals]:
    """Parse rows below a header (line 1). Each line is read by itself: an open quote spoils one line, not the rest.

    Where semicolons separate fields, energy may have a decimal comma or a decimal point.
    """
    with suppress(UnicodeDecodeError, ReadingError):
        return _parse_csv_columns(_without_mark(body), interval_s), {}
    return parse_csv_strictly(body, interval_s=interval_s)


def _without_mark(body: bytes) -> bytes:
    return body.removeprefix(b"\xef\xbb\xbf")


def _parse_json_columns(body: bytes, interval_s: int) -> ReadingBatch:
    """Parse a body without backslashes, empty lines, a member twice or a line to refuse; for another, raise an error.

    Without backslashes no text contains a quote. So the body has two quotes for each member and two for each text, and
    more if a line has a member twice. msgspec alone would keep the last one.
    """
    if max(map(len, io.BytesIO(body)), default=0) > MAX_READING_LINE_BYTES or b"\\" in body:
        raise ReadingError(*_NOT_PLAIN)
    decode = _LINE_DECODER.decode
    rows = [decode(line) for line in io.BytesIO(body)]
    columns: dict[str, Sequence[Any]] = {}
    quotes = 0
    for name in _READING_MEMBERS:
        values = [getattr(row, name) for row in rows]
        types = Counter(map(type, values))
        members = len(rows) - types[msgspec.UnsetType]
        quotes += 2 * (members + types[str])
        if members < len(rows):
            values = [None if value is msgspec.UNSET else value for value in values] if members else []
        columns[name] = values
    if body.count(b'"') != quotes:
        raise ReadingError(*_NOT_PLAIN)
    body.decode()
    return _batch_from_columns(columns, range(1, len(rows) + 1), interval_s)


def _parse_csv_columns(body: bytes, interval_s: int) -> ReadingBatch:
    """Parse a body without quotes and without a line to refuse; for another, raise an error."""
    source = io.BytesIO(body)
    names, delimiter = _parse_header(source.readline())
    if b'"' in body or body.count(b"\r") != body.count(b"\r\n"):
        raise ReadingError(*_NOT_PLAIN)
    lines: list[int] = []
    rows: list[list[str]] = []
    for number, line in enumerate(source, 2):
        if len(line) > MAX_READING_LINE_BYTES:
            raise ReadingError(*_NOT_PLAIN)
        if not line.isspace():
            rows.append(line.decode().rstrip("\r\n").split(delimiter))
            lines.append(number)
    if not {len(row) for row in rows} <= {len(names)}:
        raise ReadingError(*_NOT_PLAIN)
    texts = {
        name: [text.strip() or None for text in column]
        for name, column in zip(names, zip(*rows, strict=True), strict=False)  # without rows there are no columns
    }
    decimal_sign = "." if delimiter == "," else ","
    columns: dict[str, Sequence[Any]] = {name: texts.get(name, []) for name in _READING_MEMBERS}
    for name in ("interval_start", "interval_end", "energy_wh"):
        values = {text: _convert_number(name, text, decimal_sign) for text in set(columns[name])}
        columns[name] = [values[text] for text in columns[name]]
    return _batch_from_columns(columns, lines, interval_s)


def _convert_number(name: str, text: str | None, decimal_sign: str) -> int | str | Decimal | None:
    """Return a field of CSV as JSON would have it: a whole number, a time as text, or an energy as a decimal."""
    if text and INTEGER_PATTERN.fullmatch(text):
        return int(text)
    return parse_numeral(text.replace(decimal_sign, ".")) if text and name == "energy_wh" else text


def _batch_from_columns(columns: Mapping[str, Sequence[Any]], lines: Sequence[int], interval_s: int) -> ReadingBatch:
    """Return readings of which the strict reader accepts each; an empty column is absent. Raises ReadingError else."""
    starts, signatures = columns["interval_start"], columns["signature"]
    ends = columns["interval_end"] or [None] * len(starts)
    if not {*map(type, starts), *map(type, ends)} <= _TIME_TYPES:  # true is equal to 1, and no time
        raise ReadingError(*_NOT_PLAIN)
    start_s = {start: _parse_times(start, end, interval_s) for start, end in set(zip(starts, ends, strict=True))}
    texts = [text for text in signatures if text is not None]
    if {*map(type, texts)} - {str} or {*map(len, texts)} - _SIGNATURE_LENGTHS or not _is_hex("".join(texts)):
        raise ReadingError(*_NOT_PLAIN)
    return ReadingBatch(
        meter=parse_meter_names(columns["meter"]),
        start_s=np.array([start_s[start] for start in starts], np.int64),
        energy_wh=np.array([floor_to_wh("energy_wh", energy) for energy in columns["energy_wh"]], np.int64),
        line=np.array(lines, np.int64),
        signature=list(signatures) if texts else None,
    )


def _parse_times(start: object, end: object, interval_s: int) -> int:
    """Return the begin of an interval [s of UTC]. Raises ReadingError if it is none, or ends at another time."""
    start_ns = parse_time_ns("interval_start", start)
    start_s = interval_start_s(start_ns, interval_s)
    if end is not None and parse_time_ns("interval_end", end) != start_ns + interval_s * NANOSECONDS_PER_SECOND:
        raise ReadingError("reading", "of another length", f"covers another stretch than an interval of {interval_s} s")
    return start_s


def _check_signature(signature: object) -> str | None:
    if signature is None:
        return None
    if isinstance(signature, str) and len(signature) in _SIGNATURE_LENGTHS and _is_hex(signature):
        return signature
    raise ReadingError("signature", "no signature", "must be hex, of at most 256 bytes")


def _is_hex(text: str) -> bool:
    try:
        return 2 * len(bytes.fromhex(text)) == len(text)  # it skips spaces
    except ValueError:
        return False


def parse_json_lines_strictly(body: bytes, *, interval_s: int) -> tuple[ReadingBatch, Refusals]:
    """Parse as `parse_json_lines`, line by line: this defines what is accepted and what is refused."""
    batch, refused = _batch_from_lines(enumerate(io.BytesIO(_without_mark(body)), 1), _parse_members, interval_s)
    if refused and not len(batch) and _UNREADABLE_LINE_ERRORS.issuperset(refused.values()):
        raise ReadingError(
            "body", NOTHING_READABLE, f"must have one object a line; line {min(refused)}: {refused[min(refused)]}"
        )
    return batch, refused


def _parse_members(line: bytes) -> Mapping[str, object]:
    row = parse_json(line)
    if not isinstance(row, dict):
        raise ReadingError(*NOT_JSON)
    if not row.keys() <= set(_READING_MEMBERS):
        raise ReadingError("line", "with a member too many", f"must have no others than {', '.join(_READING_MEMBERS)}")
    return row


def parse_csv_strictly(body: bytes, *, interval_s: int) -> tuple[ReadingBatch, Refusals]:
    """Parse as `parse_csv`, line by line: this defines what is accepted and what is refused."""
    source = io.BytesIO(_without_mark(body))
    names, delimiter = _parse_header(source.readline())
    decimal_sign = "." if delimiter == "," else ","

    def parse_fields(line: bytes) -> Mapping[str, object]:
        fields = _split_fields(line, delimiter)
        if len(fields) != len(names):
            raise ReadingError("line", "of another length", "must have as many fields as the header")
        texts = {name: field.strip() or None for name, field in zip(names, fields, strict=True)}
        numbers = {"interval_start", "interval_end", "energy_wh"}
        return {name: _convert_number(name, text, decimal_sign) if name in numbers else text
                for name, text in texts.items()}  # fmt: skip

    return _batch_from_lines(enumerate(source, 2), parse_fields, interval_s)


def _batch_from_lines(
    lines: Iterator[tuple[int, bytes]], members: Callable[[bytes], Mapping[str, object]], interval_s: int
) -> tuple[ReadingBatch, Refusals]:
    rows: list[BatchRow] = []
    refused: Refusals = {}
    for number, line in lines:
        if len(line) > MAX_READING_LINE_BYTES:
            add_refusal(refused, number, str(ReadingError(*_LINE_TOO_LONG)))
            continue
        try:
            if not line.isspace():
                row = members(line)
                meter = parse_meter_name(row.get("meter"))
                start_s = _parse_times(row.get("interval_start"), row.get("interval_end"), interval_s)
                signature = _check_signature(row.get("signature"))
                rows.append((meter, start_s, floor_to_wh("energy_wh", row.get("energy_wh")), number, signature))
        except ReadingError as error:
            add_refusal(refused, number, str(error))
    return ReadingBatch.from_rows(rows), refused


def _parse_header(header: bytes) -> tuple[list[str], str]:
    """Return the names of the columns, and their separator."""
    delimiter = ";" if b";" in header else ","
    try:
        fields = _split_fields(header[:MAX_READING_LINE_BYTES], delimiter)
    except ReadingError:
        fields = []
    names = [{"meter_id": "meter"}.get(name, name) for name in (field.strip().lower() for field in fields)]
    if len(set(names)) != len(names) or not {"meter", "interval_start", "energy_wh"} <= set(names) <= set(
        _READING_MEMBERS
    ):
        columns = "meter_id, interval_start, energy_wh; it may have interval_end and signature"
        raise ReadingError("header", "not of readings", f"must have {columns}")
    return names, delimiter


def _split_fields(line: bytes, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line.decode()], delimiter=delimiter, strict=True))
    except UnicodeDecodeError:
        rule = NOT_UTF8
    except csv.Error:
        rule = _NOT_CSV
    raise ReadingError(*rule)
