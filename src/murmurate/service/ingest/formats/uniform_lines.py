"""A fast reader for bodies whose lines all have the form of the first one, which is what a program writes.

PyArrow splits the body into columns, and is not trusted: the lines are put together again from the columns and from the
fixed text of the first line, and must be the body byte by byte. What remains open is then whether each value is what
the strict reader would take, and that is checked value by value. If anything is not proven, the answer is None, and
the strict reader decides (`text_lines`). So the result is that of the strict reader on every input.

Proof that equal bytes are enough: the body has as many newlines and quotation marks (CSV: separators) as the fixed
texts of its rows, so no value has one; it has no backslash, no control character and no byte beyond ASCII. So each line
is the fixed text around values that need no escape, and whole numbers are written in the one canonical way.

Bodies with fractions, exponents, escapes, other alphabets, empty fields or any line to refuse go to the strict reader.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
import pyarrow.json as pj

from murmurate.errors import ReadingError
from murmurate.service.ingest.batch import ReadingBatch
from murmurate.service.ingest.field_values import (
    INTEGER_PATTERN,
    MAX_METER_NAME_LENGTH,
    MAX_READING_LINE_BYTES,
    NANOSECONDS_PER_SECOND,
    interval_start_s,
    parse_time_ns,
)
from murmurate.units import IntArray

MIN_UNIFORM_LINES = 16  # below it the strict reader is as fast
MAX_UNIFORM_BYTES = 2**30  # a block of PyArrow's readers has fewer than 2**31
_MAX_SIGNATURE_LENGTH = 512  # hexadecimal digits
_MEMBER = rb'"(?:meter|interval_start|interval_end|energy_wh|signature)" *: *(?:"[^"]*"|-?(?:0|[1-9][0-9]*))'
_JSON_LINE = re.compile(rb" *\{ *" + _MEMBER + rb"(?: *, *" + _MEMBER + rb"){2,4} *\} *\r?\n")
_JSON_VALUE = re.compile(rb'"([a-z_]+)" *: *(?:"([^"]*)"|(-?[0-9]+))')
_FORBIDDEN_BYTES = bytes({*range(32), 127, ord("\\")} - set(b"\r\n"))


class _NotUniformError(Exception):
    """The body is not proven to be uniform."""


def parse_uniform_json_lines(body: bytes, *, interval_s: int) -> ReadingBatch | None:
    """The readings of a body of JSON lines without its byte order mark, or None if the strict reader must decide."""
    first = body[: body.find(b"\n") + 1][:MAX_READING_LINE_BYTES]
    if _JSON_LINE.fullmatch(first) is None:
        return None
    matches = list(_JSON_VALUE.finditer(first))
    names = [match[1].decode() for match in matches]
    spans = [match.span(2 if match[3] is None else 3) for match in matches]
    fixed = [first[end:begin] for (_, end), (begin, _) in zip([(0, 0), *spans], [*spans, (len(first), 0)], strict=True)]
    types = {name: pa.string() if match[3] is None else pa.int64() for name, match in zip(names, matches, strict=True)}
    if types.get("energy_wh") != pa.int64() or len(types) < len(names):
        return None

    def read_table(body: bytes) -> pa.Table:
        if body.count(b"{") != body.count(b"\n") or b"[" in body:  # before a parser that recurses sees it
            raise _NotUniformError
        options = pj.ParseOptions(explicit_schema=pa.schema(types), unexpected_field_behavior="error")
        return pj.read_json(pa.BufferReader(body), pj.ReadOptions(use_threads=False, block_size=len(body) + 1), options)

    return _parse_uniform_body(body, names, fixed, read_table, b'"', interval_s=interval_s, first_line=1)


def parse_uniform_csv(body: bytes, names: Sequence[str], delimiter: str, *, interval_s: int) -> ReadingBatch | None:
    """The readings of the lines below a header, or None if the strict reader must decide."""
    line_end = b"\r\n" if body[: body.find(b"\n") + 1].endswith(b"\r\n") else b"\n"
    fixed = [b"", *[delimiter.encode()] * (len(names) - 1), line_end]
    types = dict.fromkeys(names, pa.string()) | {"energy_wh": pa.int64()}

    def read_table(body: bytes) -> pa.Table:
        if b'"' in body:
            raise _NotUniformError
        return pv.read_csv(
            pa.BufferReader(body),
            pv.ReadOptions(use_threads=False, column_names=list(names), block_size=len(body) + 1),
            pv.ParseOptions(delimiter=delimiter, quote_char=False, ignore_empty_lines=False),
            pv.ConvertOptions(column_types=types, null_values=[], strings_can_be_null=False),
        )

    return _parse_uniform_body(body, names, fixed, read_table, delimiter.encode(), interval_s=interval_s, first_line=2)


def _parse_uniform_body(
    body: bytes,
    names: Sequence[str],
    fixed: Sequence[bytes],
    read_table: Callable[[bytes], pa.Table],
    mark: bytes,
    *,
    interval_s: int,
    first_line: int,
) -> ReadingBatch | None:
    """`fixed` is the text before, between and after the values of a line; `mark` is what may not stand in a value."""
    if len(body) > MAX_UNIFORM_BYTES or body.count(b"\n") < MIN_UNIFORM_LINES:
        return None
    if not {"meter", "interval_start", "energy_wh"} <= set(names):
        return None
    whole = body if body.endswith(b"\n") else body + (b"\r\n" if fixed[-1].endswith(b"\r\n") else b"\n")
    try:
        _check_marks(whole, fixed, mark)
        table = read_table(whole).combine_chunks()
        _check_same_bytes(whole, table, names, fixed)
        return _decode_columns(table, interval_s, first_line, _csv_time if first_line == 2 else _json_time)
    except (_NotUniformError, ReadingError, pa.ArrowException, UnicodeDecodeError):
        return None


def _check_marks(body: bytes, fixed: Sequence[bytes], mark: bytes) -> None:
    rows, line = body.count(b"\n"), b"".join(fixed)
    same = all(body.count(each) == rows * line.count(each) for each in (mark, b"\r"))
    if not same or not body.isascii() or len(body.translate(None, _FORBIDDEN_BYTES)) != len(body):
        raise _NotUniformError


def _check_same_bytes(body: bytes, table: pa.Table, names: Sequence[str], fixed: Sequence[bytes]) -> None:
    """Put the lines together from their values, and compare them with the body."""
    if len(table) != body.count(b"\n") or any(table[name].null_count for name in names):
        raise _NotUniformError
    pieces = [pa.scalar(fixed[0].decode())]
    for name, after in zip(names, fixed[1:], strict=True):
        pieces += [_single_chunk(table, name).cast(pa.string()), pa.scalar(after.decode())]
    lines = pc.binary_join_element_wise(*pieces, "")
    lengths = pc.binary_length(lines)
    if pc.max(lengths).as_py() > MAX_READING_LINE_BYTES or pc.sum(lengths).as_py() != len(body) or lines.offset:
        raise _NotUniformError
    if not lines.buffers()[2].slice(0, len(body)).equals(pa.py_buffer(body)):
        raise _NotUniformError


def _single_chunk(table: pa.Table, name: str) -> pa.Array:
    return table[name].chunk(0)


def _decode_columns(
    table: pa.Table, interval_s: int, first_line: int, time_of: Callable[[object], object]
) -> ReadingBatch:
    """The readings, if the strict reader would take every one."""
    columns = {name: _single_chunk(table, name) for name in table.column_names}
    meter = columns["meter"].cast(pa.string())
    length = pc.min_max(pc.binary_length(meter)).as_py()
    spaces = pc.or_(pc.starts_with(meter, " "), pc.ends_with(meter, " "))
    if length["min"] < 1 or length["max"] > MAX_METER_NAME_LENGTH or pc.any(spaces).as_py():
        raise _NotUniformError
    start_s = _map_values(columns["interval_start"], lambda value: _parse_start_s(time_of(value), interval_s))
    if "interval_end" in columns:
        end_s = _map_values(columns["interval_end"], lambda value: _parse_whole_s(time_of(value)))
        if (end_s != start_s + interval_s).any():
            raise _NotUniformError
    return ReadingBatch(
        meter=meter.to_pylist(),
        start_s=start_s,
        energy_wh=columns["energy_wh"].to_numpy().astype(np.int64),
        line=np.arange(first_line, first_line + len(table), dtype=np.int64),
        signature=_decode_signatures(columns["signature"]) if "signature" in columns else None,
    )


def _map_values(column: pa.Array, parse: Callable[[object], int]) -> IntArray:
    """A column of times, each different one parsed once: a body has few times and many meters."""
    coded = pc.dictionary_encode(column)
    parsed = np.array([parse(value) for value in coded.dictionary.to_pylist()], np.int64)
    mapped: IntArray = parsed[coded.indices.to_numpy()]
    return mapped


def _json_time(value: object) -> object:
    return value


def _csv_time(value: object) -> object:
    """As the strict reader: spaces are cut off, whole numbers are numbers, and an empty field is none."""
    text = str(value).strip()
    return int(text) if INTEGER_PATTERN.fullmatch(text) else text or None


def _parse_start_s(value: object, interval_s: int) -> int:
    return interval_start_s(parse_time_ns("interval_start", value), interval_s)


def _parse_whole_s(value: object) -> int:
    seconds, rest_ns = divmod(parse_time_ns("interval_end", value), NANOSECONDS_PER_SECOND)
    if rest_ns:
        raise _NotUniformError
    return seconds


def _decode_signatures(column: pa.Array) -> list[str]:
    length = pc.binary_length(column)
    if not pa.types.is_string(column.type) or pc.any(pc.not_equal(pc.bit_wise_and(length, 1), 0)).as_py():
        raise _NotUniformError
    bounds = pc.min_max(length).as_py()
    is_hex = pc.all(pc.match_substring_regex(column, "^[0-9a-fA-F]+$")).as_py()
    if bounds["min"] < 2 or bounds["max"] > _MAX_SIGNATURE_LENGTH or not is_hex:
        raise _NotUniformError
    signatures: list[str] = column.to_pylist()
    return signatures
