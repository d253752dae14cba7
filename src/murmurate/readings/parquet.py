"""Parse a Parquet body into a batch, without trusting its metadata."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from murmurate.errors import ReadingError
from murmurate.readings.batch import ReadingBatch, Refusals, add_refusal
from murmurate.readings.field_values import MAX_METER_NAME_LENGTH, MAX_UNIX_TIME_S, MAX_WH
from murmurate.units import BoolArray, IntArray

_MAX_DECOMPRESSED_BYTES = 2**28  # of a Parquet file once it is decompressed
_MAX_COLUMN_CHUNKS = 100_000  # row groups times columns
_MAX_NAME_BYTES = 4 * MAX_METER_NAME_LENGTH  # a character of UTF-8 has at most 4
_ROWS_PER_BATCH = 131_072  # that are decoded at a time
_UNITS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6}
_CORRUPT_FILE_ERRORS = (pa.ArrowException, OSError, ValueError, LookupError, ArithmeticError, MemoryError, TypeError)


def parse_parquet(body: bytes, *, interval_s: int, max_rows: int = 2_000_000) -> tuple[ReadingBatch, Refusals]:
    """Parse the columns meter (numbers) or meter_id (text), interval_start, energy_wh and, optionally, interval_end.

    Energy is any number: integers of any width, floats, decimals. It is rounded down; NaN is no number, like null.
    Names are read as a dictionary: one name of a megabyte that a thousand rows share would else be a gigabyte. The
    footer is checked before any of the file is decoded.
    """
    source = pa.BufferReader(body)
    try:
        metadata = pq.read_metadata(source)
        groups, columns = metadata.num_row_groups, metadata.num_columns
        if not 0 <= metadata.num_rows <= max_rows:
            raise ReadingError("body", "too long", f"must have at most {max_rows} rows")
        if groups * columns > _MAX_COLUMN_CHUNKS:
            raise ReadingError("body", "in too many pieces", f"must have at most {_MAX_COLUMN_CHUNKS} column chunks")
        # Row groups are asked, never their columns: from `row_group(g).column(c)` of a spoiled footer Arrow ends the
        # process.
        sizes = [metadata.row_group(group).total_byte_size for group in range(groups)]
        if sum(map(abs, sizes)) > _MAX_DECOMPRESSED_BYTES:
            most = f"must be at most {_MAX_DECOMPRESSED_BYTES} bytes when decompressed"
            raise ReadingError("body", "too large", most)
        paths = {metadata.schema.column(i).path for i in range(columns)}
        parquet = pq.ParquetFile(
            source,
            metadata=metadata,
            pre_buffer=False,
            coerce_int96_timestamp_unit="us",
            read_dictionary=sorted({"meter_id"} & paths),
        )
        return _decode_batches(parquet, interval_s, max_rows)
    except _CORRUPT_FILE_ERRORS:
        raise ReadingError("body", "unreadable", "must be a Parquet file") from None


def _column_units(parquet: pq.ParquetFile) -> dict[str, int]:
    """Return the columns to read and, of those that are times, how many of their units make a second."""
    schema, names, types = parquet.schema_arrow, parquet.schema_arrow.names, pa.types
    meter = "meter_id" if "meter_id" in names else "meter"
    columns = [meter, "interval_start", "energy_wh", *(["interval_end"] if "interval_end" in names else [])]
    if any(names.count(name) != 1 for name in columns) or {"meter", "meter_id"} <= set(names):
        raise ReadingError(
            "columns", "not of readings", "must be meter or meter_id, interval_start, energy_wh, each once"
        )
    kind = schema.field(meter).type
    if meter == "meter" and not (types.is_integer(kind) and kind != pa.uint64()):
        raise ReadingError(meter, "of another type", "must be whole numbers that fit in 64 bits")
    if meter == "meter_id" and not (types.is_dictionary(kind) and kind.value_type in {pa.string(), pa.large_string()}):
        raise ReadingError(meter, "of another type", "must be text")
    energy = schema.field("energy_wh").type
    is_decimal = types.is_decimal(energy) and energy.bit_width <= 128
    if not (types.is_integer(energy) or types.is_floating(energy) or is_decimal):
        raise ReadingError("energy_wh", "of another type", "must be numbers: integers, floats or decimals of 38 digits")
    units = dict.fromkeys(columns, 1)
    leaves = [parquet.schema.column(i) for i in range(len(parquet.schema))]
    int96 = {leaf.path for leaf in leaves if leaf.physical_type == "INT96"}  # how Spark writes UTC; read as µs
    for name in (name for name in columns if name.startswith("interval")):
        time = schema.field(name).type
        is_utc = types.is_timestamp(time) and time.tz == "UTC" and time.unit in _UNITS_PER_SECOND
        if not is_utc and name not in int96:
            raise ReadingError(name, "of another type", "must be a timestamp in UTC, in s, ms or us")
        units[name] = _UNITS_PER_SECOND["us" if name in int96 else time.unit]
    return units


def _decode_batches(parquet: pq.ParquetFile, interval_s: int, max_rows: int) -> tuple[ReadingBatch, Refusals]:
    column_units = _column_units(parquet)
    named, reasons = "meter_id" in column_units, fault_texts(interval_s)
    columns: list[tuple[IntArray, ...]] = [(np.empty(0, np.int64),) * 3]
    meters: list[IntArray] = [np.empty(0, object if named else np.int64)]
    refused: Refusals = {}
    row = 0
    for batch in parquet.iter_batches(_ROWS_PER_BATCH, columns=list(column_units), use_threads=False):
        start_s, energy_wh, faults = _find_faults(batch, column_units, interval_s)
        good = np.flatnonzero(faults < 0)
        for index in np.flatnonzero(faults >= 0).tolist():
            add_refusal(refused, row + index + 1, reasons[faults[index]])
        chosen = batch.column(0).take(pa.array(good)).cast(pa.string() if named else pa.int64())
        meters.append(chosen.to_numpy(zero_copy_only=False))
        columns.append((start_s[good], energy_wh[good], row + good + 1))
        row += len(faults)
        if row > max_rows:  # the footer may state fewer
            raise ReadingError("body", "too long", f"must have at most {max_rows} rows")
    start_s, energy_wh, line = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    meter = np.concatenate(meters)
    return ReadingBatch(
        meter=meter.tolist() if named else meter, start_s=start_s, energy_wh=energy_wh, line=line
    ), refused


def fault_texts(interval_s: int) -> tuple[str, ...]:
    """Return why a row is refused, in the order in which rows are checked."""
    return (
        "row is not whole: must have no nulls",
        f"meter is no name: must be 1 to {MAX_METER_NAME_LENGTH} printable characters, no space around them",
        "interval_start is no time: must lie between 1970 and 9999",
        "interval_start is within an interval: must begin on an interval boundary",
        f"reading is of another length: covers another stretch than an interval of {interval_s} s",
    )


def _find_faults(
    batch: pa.RecordBatch, column_units: dict[str, int], interval_s: int
) -> tuple[IntArray, IntArray, IntArray]:
    """Return begin [s of UTC] and energy [Wh] of each row, and the first of the rules that it breaks; -1 if none."""
    whole = np.ones(len(batch), np.bool_)
    for column in batch.columns:  # NaN is no value
        missing = pc.is_null(column, nan_is_null=pa.types.is_floating(column.type))
        whole &= ~np.asarray(missing.to_numpy(zero_copy_only=False), np.bool_)
    start, energy_wh = _numbers(batch.column("interval_start")), _energy_wh(batch.column("energy_wh"))
    per_second = column_units["interval_start"]
    start_s = start // per_second
    other_end = np.zeros(len(start), np.bool_)
    if "interval_end" in column_units:
        end, end_per_second = _numbers(batch.column("interval_end")), column_units["interval_end"]
        other_end = (end % end_per_second != 0) | (end // end_per_second != start_s + interval_s)
    broken = [
        ~whole,
        ~_has_valid_name(batch.column(0)) if "meter_id" in column_units else ~whole,
        (start_s < 0) | (start_s >= MAX_UNIX_TIME_S),
        start % (interval_s * per_second) != 0,
        other_end,
    ]
    return start_s, energy_wh, np.select(broken, range(len(broken)), default=-1)


def _energy_wh(column: pa.Array) -> IntArray:
    """Return numbers of any type, rounded down to whole Wh and clipped to ±`MAX_WH`; 0 where there is none."""
    if pa.types.is_floating(column.type):
        whole = np.floor(np.nan_to_num(column.to_numpy(zero_copy_only=False).astype(np.float64), nan=0.0))
        return np.asarray(whole.clip(-MAX_WH, MAX_WH), np.int64)
    if pa.types.is_decimal(column.type):
        wide = pc.floor(column.cast(pa.decimal256(76, column.type.scale)))  # rounding down may take one digit more
        low, high = (pa.scalar(Decimal(bound), wide.type) for bound in (-MAX_WH, MAX_WH))
        column = pc.max_element_wise(pc.min_element_wise(wide, high, skip_nulls=False), low, skip_nulls=False)
    elif column.type == pa.uint64():
        return np.asarray(np.minimum(column.fill_null(0).to_numpy(), np.uint64(MAX_WH)), np.int64)
    return _numbers(column)


def _numbers(column: pa.Array) -> IntArray:
    whole = column.view(pa.int64()) if pa.types.is_timestamp(column.type) else column.cast(pa.int64())
    return np.asarray(whole.fill_null(0).to_numpy(), np.int64)


def _has_valid_name(column: pa.DictionaryArray) -> BoolArray:
    """Return whether `parse_meter_name` would accept the name of each row. Each distinct name is checked once."""
    names = column.dictionary
    names.validate(full=True)  # UTF-8 that is none would come out as an error far from here
    is_short = pc.less_equal(pc.binary_length(names), _MAX_NAME_BYTES)
    names = pc.if_else(is_short, names, pa.scalar("", names.type))  # to look at each character takes seconds
    length = pc.utf8_length(names)
    fits = pc.and_(
        pc.and_(pc.greater(length, 0), pc.less_equal(length, MAX_METER_NAME_LENGTH)), pc.utf8_is_printable(names)
    )
    fits = pc.and_(fits, pc.equal(pc.utf8_trim_whitespace(names), names)).to_numpy(zero_copy_only=False)
    index = column.indices.fill_null(len(names)).to_numpy()
    named: BoolArray = np.append(fits, np.False_)[index]
    return named
