"""Parse bodies in lines (JSON, CSV) into batches.

A line that cannot be read is refused by a rule and the rest goes on. No line is refused for how much energy it
carries. No rule quotes what it refuses: a refusal is kept in logs, and must not carry a reading. Memory and time stay
within a small multiple of what is sent.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping

from murmurate.errors import ReadingError
from murmurate.service.ingest.batch import ReadingBatch, Refusals
from murmurate.service.ingest.field_values import (
    INTEGER_PATTERN,
    MAX_READING_LINE_BYTES,
    NANOSECONDS_PER_SECOND,
    NOT_JSON,
    NOT_UTF8,
    add_refusal,
    floor_to_wh,
    interval_start_s,
    parse_json,
    parse_meter_name,
    parse_numeral,
    parse_time_ns,
)
from murmurate.service.ingest.formats.uniform_lines import parse_uniform_csv, parse_uniform_json_lines

_READING_MEMBERS = ("meter", "interval_start", "interval_end", "energy_wh", "signature")
_SIGNATURE_PATTERN = re.compile(r"(?:[0-9a-fA-F]{2}){1,256}")
_LINE_TOO_LONG = ("line", "too long", f"must have at most {MAX_READING_LINE_BYTES} bytes")
NOTHING_READABLE = "not JSON lines"  # the value of the error for a body of which no line can be read
_NOT_CSV = ("line", "no CSV", "must have its quotes closed on the line")
_UNREADABLE_LINE_ERRORS = frozenset(str(ReadingError(*rule)) for rule in (_LINE_TOO_LONG, NOT_UTF8, NOT_JSON))


def _parse_reading(row: Mapping[str, object], interval_s: int) -> tuple[str, int, int, str | None]:
    meter = parse_meter_name(row.get("meter"))
    start_ns = parse_time_ns("interval_start", row.get("interval_start"))
    start_s = interval_start_s(start_ns, interval_s)
    if (end := row.get("interval_end")) is not None and parse_time_ns(
        "interval_end", end
    ) != start_ns + interval_s * NANOSECONDS_PER_SECOND:
        raise ReadingError("reading", "of another length", f"covers another stretch than an interval of {interval_s} s")
    signature = row.get("signature")
    if signature is not None and not (isinstance(signature, str) and _SIGNATURE_PATTERN.fullmatch(signature)):
        raise ReadingError("signature", "no signature", "must be hex, of at most 256 bytes")
    return meter, start_s, floor_to_wh("energy_wh", row.get("energy_wh")), signature


def _batch_from_lines(
    lines: Iterator[tuple[int, bytes]], members: Callable[[bytes], Mapping[str, object]], interval_s: int
) -> tuple[ReadingBatch, Refusals]:
    rows: list[tuple[str, int, int, int, str | None]] = []
    refused: Refusals = {}
    for number, line in lines:
        try:
            if not _check_line_length(line).isspace():
                meter, start_s, energy_wh, signature = _parse_reading(members(line), interval_s)
                rows.append((meter, start_s, energy_wh, number, signature))
        except ReadingError as error:
            add_refusal(refused, number, str(error))
    return ReadingBatch.from_rows(rows), refused


def _check_line_length(line: bytes) -> bytes:
    if len(line) > MAX_READING_LINE_BYTES:
        raise ReadingError(*_LINE_TOO_LONG)
    return line


def _without_mark(body: bytes) -> bytes:
    return body.removeprefix(b"\xef\xbb\xbf")


def _lines(body: bytes) -> Iterator[tuple[int, bytes]]:
    return enumerate(io.BytesIO(_without_mark(body)), 1)


def parse_json_lines(body: bytes, *, interval_s: int) -> tuple[ReadingBatch, Refusals]:
    """One object a line: meter, interval_start, energy_wh; maybe interval_end, signature. Meters go by name.

    A body of lines of one form is read by columns; the result is that of `parse_json_lines_strictly`.
    """
    if (batch := parse_uniform_json_lines(_without_mark(body), interval_s=interval_s)) is not None:
        return batch, {}
    return parse_json_lines_strictly(body, interval_s=interval_s)


def parse_json_lines_strictly(body: bytes, *, interval_s: int) -> tuple[ReadingBatch, Refusals]:
    """As `parse_json_lines`, line by line: it defines what is accepted and what is refused."""
    batch, refused = _batch_from_lines(_lines(body), _parse_members, interval_s)
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


def parse_csv(body: bytes, *, interval_s: int) -> tuple[ReadingBatch, Refusals]:
    """Rows below a header (line 1). Each line is read on its own: an open quote spoils one, not all that follow.

    Where fields are separated by semicolons, energy may have a decimal comma as well as a decimal point. A body of
    lines of one form is read by columns; the result is that of `parse_csv_strictly`.
    """
    whole = _without_mark(body)
    header = whole[: whole.find(b"\n") + 1]
    if header:
        names, delimiter = _parse_header(header)
        if (batch := parse_uniform_csv(whole[len(header) :], names, delimiter, interval_s=interval_s)) is not None:
            return batch, {}
    return parse_csv_strictly(body, interval_s=interval_s)


def parse_csv_strictly(body: bytes, *, interval_s: int) -> tuple[ReadingBatch, Refusals]:
    """As `parse_csv`, line by line: it defines what is accepted and what is refused."""
    lines = _lines(body)
    _, header = next(lines, (1, b""))
    names, delimiter = _parse_header(header)
    return _batch_from_lines(
        lines,
        lambda line: _convert_fields(names, _split_fields(line, delimiter), "." if delimiter == "," else ","),
        interval_s,
    )


def _parse_header(header: bytes) -> tuple[list[str], str]:
    """The names of the columns, and what separates them."""
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


def _convert_fields(names: list[str], fields: list[str], decimal_sign: str) -> Mapping[str, object]:
    if len(fields) != len(names):
        raise ReadingError("line", "of another length", "must have as many fields as the header")
    texts = {name: field.strip() or None for name, field in zip(names, fields, strict=True)}
    numbers = {
        n: int(t) for n, t in texts.items() if n not in {"meter", "signature"} and t and INTEGER_PATTERN.fullmatch(t)
    }
    energy = texts["energy_wh"]
    if energy and "energy_wh" not in numbers:
        return texts | numbers | {"energy_wh": parse_numeral(energy.replace(decimal_sign, "."))}
    return texts | numbers
