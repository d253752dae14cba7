"""Bodies in lines (JSON, CSV) made into slips.

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
from murmurate.service.doors.slip import Refusals, Slip
from murmurate.service.doors.values import (
    LONGEST_LINE,
    NANO,
    NO_JSON,
    NO_TEXT,
    floored_wh,
    interval_start_s,
    meter_name,
    moment_ns,
    parse_json,
    parse_numeral,
    refuse,
)

_MEMBERS = ("meter", "interval_start", "interval_end", "energy_wh", "signature")
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}){1,256}")
_TOO_LONG = ("line", "too long", f"must have at most {LONGEST_LINE} bytes")
_NO_CSV = ("line", "no CSV", "must have its quotes closed on the line")
_UNREADABLE = frozenset(str(ReadingError(*rule)) for rule in (_TOO_LONG, NO_TEXT, NO_JSON))


def _reading(row: Mapping[str, object], interval_s: int) -> tuple[str, int, int, str | None]:
    meter = meter_name(row.get("meter"))
    start_ns = moment_ns("interval_start", row.get("interval_start"))
    start_s = interval_start_s(start_ns, interval_s)
    if (end := row.get("interval_end")) is not None and moment_ns("interval_end", end) != start_ns + interval_s * NANO:
        raise ReadingError("reading", "of another length", f"covers another stretch than an interval of {interval_s} s")
    signature = row.get("signature")
    if signature is not None and not (isinstance(signature, str) and _HEX.fullmatch(signature)):
        raise ReadingError("signature", "no signature", "must be hex, of at most 256 bytes")
    return meter, start_s, floored_wh("energy_wh", row.get("energy_wh")), signature


def _slip(
    lines: Iterator[tuple[int, bytes]], members: Callable[[bytes], Mapping[str, object]], interval_s: int
) -> tuple[Slip, Refusals]:
    rows: list[tuple[str, int, int, int, str | None]] = []
    refused: Refusals = {}
    for number, line in lines:
        try:
            if not _short(line).isspace():
                meter, start_s, energy_wh, signature = _reading(members(line), interval_s)
                rows.append((meter, start_s, energy_wh, number, signature))
        except ReadingError as error:
            refuse(refused, number, str(error))
    return Slip.of(rows), refused


def _short(line: bytes) -> bytes:
    if len(line) > LONGEST_LINE:
        raise ReadingError(*_TOO_LONG)
    return line


def _lines(body: bytes) -> Iterator[tuple[int, bytes]]:
    return enumerate(io.BytesIO(body.removeprefix(b"\xef\xbb\xbf")), 1)


def json_lines(body: bytes, *, interval_s: int) -> tuple[Slip, Refusals]:
    """One object a line: meter, interval_start, energy_wh; maybe interval_end, signature. Meters go by name."""
    slip, refused = _slip(_lines(body), _members, interval_s)
    if refused and not len(slip) and _UNREADABLE.issuperset(refused.values()):
        raise ReadingError(
            "body", "not JSON lines", f"must have one object a line; line {min(refused)}: {refused[min(refused)]}"
        )
    return slip, refused


def _members(line: bytes) -> Mapping[str, object]:
    row = parse_json(line)
    if not isinstance(row, dict):
        raise ReadingError(*NO_JSON)
    if not row.keys() <= set(_MEMBERS):
        raise ReadingError("line", "with a member too many", f"must have no others than {', '.join(_MEMBERS)}")
    return row


def csv_rows(body: bytes, *, interval_s: int) -> tuple[Slip, Refusals]:
    """Rows below a header (line 1). Each line is read on its own: an open quote spoils one, not all that follow.

    Where fields are separated by semicolons, energy may have a decimal comma as well as a decimal point.
    """
    lines = _lines(body)
    _, header = next(lines, (1, b""))
    delimiter = ";" if b";" in header else ","
    try:
        fields = _fields(header[:LONGEST_LINE], delimiter)
    except ReadingError:
        fields = []
    names = [{"meter_id": "meter"}.get(name, name) for name in (field.strip().lower() for field in fields)]
    if len(set(names)) != len(names) or not {"meter", "interval_start", "energy_wh"} <= set(names) <= set(_MEMBERS):
        columns = "meter_id, interval_start, energy_wh; it may have interval_end and signature"
        raise ReadingError("header", "not of readings", f"must have {columns}")
    return _slip(
        lines, lambda line: _typed(names, _fields(line, delimiter), "." if delimiter == "," else ","), interval_s
    )


def _fields(line: bytes, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line.decode()], delimiter=delimiter, strict=True))
    except UnicodeDecodeError:
        rule = NO_TEXT
    except csv.Error:
        rule = _NO_CSV
    raise ReadingError(*rule)


def _typed(names: list[str], fields: list[str], decimal_sign: str) -> Mapping[str, object]:
    if len(fields) != len(names):
        raise ReadingError("line", "of another length", "must have as many fields as the header")
    texts = {name: field.strip() or None for name, field in zip(names, fields, strict=True)}
    numbers = {n: int(t) for n, t in texts.items() if n not in {"meter", "signature"} and t and _WHOLE.fullmatch(t)}
    energy = texts["energy_wh"]
    if energy and "energy_wh" not in numbers:
        return texts | numbers | {"energy_wh": parse_numeral(energy.replace(decimal_sign, "."))}
    return texts | numbers
