"""Bodies as senders write them (JSON lines, CSV, Parquet) made into slips.

A line that cannot be read is refused by a rule and the rest goes on. No rule quotes what it refuses: a refusal is
kept in logs, and must not carry a reading. Memory and time stay within a small multiple of what is sent.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from murmurate.errors import ReadingError
from murmurate.quantities import BoolArray, IntArray
from murmurate.service.doors.register import (
    LONGEST_LINE,
    MOST_SECONDS,
    MOST_WH,
    NANO,
    NO_JSON,
    NO_TEXT,
    moment_ns,
    parse_json,
)
from murmurate.service.doors.slip import Refusals, Slip

LONGEST_NAME = 128  # characters of a meter's name
MOST_REFUSED = 100_000  # lines: more are not a slip with faults but something else
_MOST_BYTES = 2**28  # of a Parquet file once it is decompressed
_MOST_CHUNKS = 100_000  # row groups times columns
_ROWS_AT_ONCE = 131_072
_MEMBERS = ("meter", "interval_start", "interval_end", "energy_wh", "signature")
_WHOLE = re.compile(r"-?[0-9]{1,4000}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}){1,256}")
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6}
_TOO_LONG = ("line", "too long", f"must have at most {LONGEST_LINE} bytes")
_NO_CSV = ("line", "no CSV", "must have its quotes closed on the line")
_UNREADABLE = frozenset(str(ReadingError(*rule)) for rule in (_TOO_LONG, NO_TEXT, NO_JSON))
_CORRUPT = (pa.ArrowException, OSError, ValueError, LookupError, ArithmeticError, MemoryError, TypeError)


def interval_start_s(start_ns: int, interval_s: int) -> int:
    """The begin of an interval [s of UTC], if it is one."""
    if start_ns % (interval_s * NANO):
        raise ReadingError("interval_start", "within an interval", "must begin on an interval boundary")
    return start_ns // NANO


def whole_wh(value: object) -> int:
    """Energy [Wh]. True is no number here, nor is 1.0: a sender that means whole Wh can write them."""
    if type(value) is not int:
        raise ReadingError("energy_wh", "no whole number", "must be a whole number of Wh")
    if value < 0:
        raise ReadingError("energy_wh", "negative", "must be 0 or more")
    if value >= MOST_WH:
        raise ReadingError("energy_wh", "too large", "must be below 2**53")
    return value


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


def _reading(row: Mapping[str, object], interval_s: int) -> tuple[str, int, int, str | None]:
    meter = meter_name(row.get("meter"))
    start_ns = moment_ns("interval_start", row.get("interval_start"))
    start_s = interval_start_s(start_ns, interval_s)
    if (end := row.get("interval_end")) is not None and moment_ns("interval_end", end) != start_ns + interval_s * NANO:
        raise ReadingError("reading", "of another length", f"covers another stretch than an interval of {interval_s} s")
    signature = row.get("signature")
    if signature is not None and not (isinstance(signature, str) and _HEX.fullmatch(signature)):
        raise ReadingError("signature", "no signature", "must be hex, of at most 256 bytes")
    return meter, start_s, whole_wh(row.get("energy_wh")), signature


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
    """Rows below a header (line 1). Each line is read on its own: an open quote spoils one, not all that follow."""
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
    return _slip(lines, lambda line: _typed(names, _fields(line, delimiter)), interval_s)


def _fields(line: bytes, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line.decode()], delimiter=delimiter, strict=True))
    except UnicodeDecodeError:
        rule = NO_TEXT
    except csv.Error:
        rule = _NO_CSV
    raise ReadingError(*rule)


def _typed(names: list[str], fields: list[str]) -> Mapping[str, object]:
    if len(fields) != len(names):
        raise ReadingError("line", "of another length", "must have as many fields as the header")
    texts = {name: field.strip() or None for name, field in zip(names, fields, strict=True)}
    numbers = {n: int(t) for n, t in texts.items() if n not in {"meter", "signature"} and t and _WHOLE.fullmatch(t)}
    return texts | numbers


def parquet_rows(body: bytes, *, interval_s: int, most_rows: int = 2_000_000) -> tuple[Slip, Refusals]:
    """Columns meter (numbers) or meter_id (text), interval_start, energy_wh, and interval_end where it is there.

    Names are read as a dictionary: one name of a megabyte that a thousand rows share would else be a gigabyte.
    """
    source = pa.BufferReader(body)
    try:
        metadata = pq.read_metadata(source)
        _check_size(metadata, most_rows)
        paths = {metadata.schema.column(i).path for i in range(metadata.num_columns)}
        parquet = pq.ParquetFile(
            source,
            metadata=metadata,
            pre_buffer=False,
            coerce_int96_timestamp_unit="us",
            read_dictionary=sorted({"meter_id"} & paths),
        )
        return _decode(parquet, _kinds(parquet), interval_s, most_rows)
    except _CORRUPT:
        raise ReadingError("body", "unreadable", "must be a Parquet file") from None


def _check_size(metadata: pq.FileMetaData, most_rows: int) -> None:
    """Look at what the file says of itself before any of it is decoded.

    Row groups are asked, never their columns: from `row_group(g).column(c)` of a spoiled footer Arrow ends the process.
    """
    groups, columns = metadata.num_row_groups, metadata.num_columns
    if not 0 <= metadata.num_rows <= most_rows:
        raise ReadingError("body", "too long", f"must have at most {most_rows} rows")
    if groups * columns > _MOST_CHUNKS:
        raise ReadingError("body", "in too many pieces", f"must have at most {_MOST_CHUNKS} column chunks")
    sizes = [metadata.row_group(group).total_byte_size for group in range(groups)]
    if sum(map(abs, sizes)) > _MOST_BYTES:
        raise ReadingError("body", "too large", f"must be at most {_MOST_BYTES} bytes when decompressed")


def _kinds(parquet: pq.ParquetFile) -> dict[str, int]:
    """The columns to read and, of those that are times, how many of their units make a second."""
    names = parquet.schema_arrow.names
    meter = "meter_id" if "meter_id" in names else "meter"
    wanted = [meter, "interval_start", "energy_wh", *(["interval_end"] if "interval_end" in names else [])]
    if any(names.count(name) != 1 for name in wanted) or {"meter", "meter_id"} <= set(names):
        raise ReadingError(
            "columns", "not of readings", "must be meter or meter_id, interval_start, energy_wh, each once"
        )
    for name in {"meter", "energy_wh"} & set(wanted):
        kind = parquet.schema_arrow.field(name).type
        if not pa.types.is_integer(kind) or kind == pa.uint64():
            raise ReadingError(name, "of another type", "must be whole numbers that fit in 64 bits")
    if meter == "meter_id" and not _is_text(parquet.schema_arrow.field(meter).type):
        raise ReadingError(meter, "of another type", "must be text")
    return {name: _per_second(parquet, name) if name.startswith("interval") else 1 for name in wanted}


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_dictionary(kind) and kind.value_type in {pa.string(), pa.large_string()}


def _per_second(parquet: pq.ParquetFile, name: str) -> int:
    leaves = [parquet.schema.column(i) for i in range(len(parquet.schema))]
    if any(leaf.path == name and leaf.physical_type == "INT96" for leaf in leaves):
        return _PER_SECOND["us"]  # how Spark writes UTC unless it is told otherwise; read as µs
    kind = parquet.schema_arrow.field(name).type
    if not pa.types.is_timestamp(kind) or kind.tz != "UTC" or kind.unit not in _PER_SECOND:
        raise ReadingError(name, "of another type", "must be a timestamp in UTC, in s, ms or us")
    return _PER_SECOND[kind.unit]


def _decode(parquet: pq.ParquetFile, kinds: dict[str, int], interval_s: int, most_rows: int) -> tuple[Slip, Refusals]:
    named = "meter_id" in kinds
    columns: list[tuple[IntArray, ...]] = [(np.empty(0, np.int64),) * 3]
    meters: list[IntArray] = [np.empty(0, object if named else np.int64)]
    refused: Refusals = {}
    row = 0
    for batch in parquet.iter_batches(_ROWS_AT_ONCE, columns=list(kinds), use_threads=False):
        start_s, energy_wh, faults = _faults(batch, kinds, interval_s)
        good = np.flatnonzero(faults < 0)
        for index in np.flatnonzero(faults >= 0).tolist():
            refuse(refused, row + index + 1, _rules(interval_s)[faults[index]])
        chosen = batch.column(0).take(pa.array(good)).cast(pa.string() if named else pa.int64())
        meters.append(chosen.to_numpy(zero_copy_only=False))
        columns.append((start_s[good], energy_wh[good], row + good + 1))
        row += len(faults)
        if row > most_rows:  # whatever the file says of itself
            raise ReadingError("body", "too long", f"must have at most {most_rows} rows")
    start_s, energy_wh, line = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    meter = np.concatenate(meters)
    return Slip(meter=meter.tolist() if named else meter, start_s=start_s, energy_wh=energy_wh, line=line), refused


def _rules(interval_s: int) -> tuple[str, ...]:
    """Why a row is refused, in the order in which `_faults` looks."""
    return (
        "row is not whole: must have no nulls",
        f"meter is no name: must be 1 to {LONGEST_NAME} printable characters, no space around them",
        "interval_start is no time: must lie between 1970 and 9999",
        "interval_start is within an interval: must begin on an interval boundary",
        f"reading is of another length: covers another stretch than an interval of {interval_s} s",
        "energy_wh is negative: must be 0 or more",
        "energy_wh is too large: must be below 2**53",
    )


def _faults(batch: pa.RecordBatch, kinds: dict[str, int], interval_s: int) -> tuple[IntArray, IntArray, IntArray]:
    """Begin [s of UTC] and energy [Wh] of each row, and the first of the rules that it breaks; -1 if none."""
    whole = np.logical_and.reduce([column.is_valid().to_numpy(zero_copy_only=False) for column in batch.columns])
    start, energy_wh = (_numbers(batch.column(name)) for name in ("interval_start", "energy_wh"))
    per_second = kinds["interval_start"]
    start_s = start // per_second
    other_end = np.zeros(len(start), np.bool_)
    if "interval_end" in kinds:
        end, end_per_second = _numbers(batch.column("interval_end")), kinds["interval_end"]
        other_end = (end % end_per_second != 0) | (end // end_per_second != start_s + interval_s)
    broken = [
        ~whole,
        ~_named(batch.column(0)) if "meter_id" in kinds else ~whole,
        (start_s < 0) | (start_s >= MOST_SECONDS),
        start % (interval_s * per_second) != 0,
        other_end,
        energy_wh < 0,
        energy_wh >= MOST_WH,
    ]
    return start_s, energy_wh, np.select(broken, range(len(broken)), default=-1)


def _numbers(column: pa.Array) -> IntArray:
    whole = column.view(pa.int64()) if pa.types.is_timestamp(column.type) else column.cast(pa.int64())
    return np.asarray(whole.fill_null(0).to_numpy(), np.int64)


def _named(column: pa.DictionaryArray) -> BoolArray:
    """Whether each row has a name that `meter_name` would take, asked once for each name."""
    names = column.dictionary
    names.validate(full=True)  # UTF-8 that is none would come out as an error far from here
    length = pc.utf8_length(names)
    fits = pc.and_(pc.and_(pc.greater(length, 0), pc.less_equal(length, LONGEST_NAME)), pc.utf8_is_printable(names))
    fits = pc.and_(fits, pc.equal(pc.utf8_trim_whitespace(names), names)).to_numpy(zero_copy_only=False)
    index = column.indices.fill_null(len(names)).to_numpy()
    named: BoolArray = np.append(fits, np.False_)[index]
    return named
