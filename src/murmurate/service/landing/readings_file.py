"""A file of readings: how it is named and written, what it must be, and how it is read again.

A file that this package writes is in order of the meters, and its row groups end between shards. Its name ends with
its size and the SHA-256 of its footer, and the footer says of each row group where it begins, how many readings of
which meters it has, and its SHA-256. So a closing lists the file and does not read it, and a task checks what it reads,
which is the row groups of its meters.

A writer that appends many small files numbers them, so that one file can merge them:

    <run>-00000000-<size>-<sha256>.parquet, <run>-00000001-.. the parts of a run, in order of the appends
    <run>-merged-00000002-<size>-<sha256>.parquet             the readings of its first two parts, and of no other

A merged file replaces the parts that it holds: where both are in a folder, the merged file counts and the parts do not.
So a merged file may appear at any time, without a lock, and no part is deleted before its interval is closed.

Any other Parquet file of readings is read and hashed as a whole when its interval is closed.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from murmurate.errors import ReadingError
from murmurate.service.storage.object_store import ObjectStore, StoredObject
from murmurate.types import Readings
from murmurate.units import MICROSECONDS_PER_SECOND, IntArray

ROWS_PER_BATCH = 131_072
READINGS_SCHEMA = pa.schema(
    [("meter", pa.int64()), ("interval_start", pa.timestamp("us", "UTC")), ("energy_wh", pa.int64())]
)
MIN_ROW_GROUP_READINGS = 16_384  # on average, so that opening a row group costs little next to its readings
_RUN_FILE = re.compile(r"([0-9a-f]{24})-(merged-)?([0-9]{8})(?:-([0-9]+)-([0-9a-f]{64}))?\.parquet")
# earlier versions wrote neither size nor SHA-256
_START_S, _ROW_GROUPS = b"murmurate.interval_start_s", b"murmurate.row_groups"
# What Parquet says of a row group is not asked for: pyarrow ends the process where it is forged.
_TAIL_BYTES = 131_072  # read at once from the end of a file: a footer of 200 row groups, or a file of 40,000 readings
_HASH_CHUNK_BYTES = 2**20
_MICROSECONDS_PER_UNIT = {"s": 10**6, "ms": 10**3, "us": 1}
_PARQUET_MAGIC = b"PAR1"
_MIN_PARQUET_BYTES = 12  # bytes of a Parquet file: the magic twice, and the length of its footer


class _RowGroup(NamedTuple):
    """What a footer says of a row group."""

    begin: int  # byte in the file
    readings: int
    least: int  # meter
    greatest: int
    sha256: str

    @classmethod
    def decode(cls, text: str) -> _RowGroup:
        *numbers, sha256 = text.split()
        begin, readings, least, greatest = np.array([int(number) for number in numbers], np.int64).tolist()
        return cls(begin, readings, least, greatest, sha256)


@dataclass(frozen=True, slots=True)
class LandedFile:
    """A file of readings as it was when its interval was closed."""

    path: str  # from the landing's root
    bytes: int
    sha256: str  # of its footer if its name ends with it, otherwise of the file

    @property
    def has_digest_in_name(self) -> bool:
        return (match := _RUN_FILE.fullmatch(self.path.rpartition("/")[2])) is not None and match[5] is not None

    @property
    def shard(self) -> int | None:
        """The shard whose folder it lies in; None for a file that may hold any meters."""
        folder = self.path.rpartition("/")[0].rpartition("/")[2]
        if not folder.startswith("shard="):
            return None
        try:
            return int(folder.removeprefix("shard="))
        except ValueError:
            raise ReadingError(self.path, "in no shard", "must lie in a folder such as shard=0") from None


def encode_readings(start_s: int, readings: Readings, shard_meters: int) -> tuple[bytes, str]:
    """Readings of one interval, in order of their meters, as Parquet, and how the name of its file ends.

    Row groups end where a shard ends, with as many shards in each as hold `MIN_ROW_GROUP_READINGS`.
    """
    shard = readings.meter // shard_meters
    while (ends := np.flatnonzero(np.diff(shard)) + 1).size and len(shard) < MIN_ROW_GROUP_READINGS * (ends.size + 1):
        shard = shard >> 1  # neighbours together: groups of 2, 4, 8 .. shards, so that those of any two files agree
    start = np.full(len(shard), start_s * MICROSECONDS_PER_SECOND)
    kind = READINGS_SCHEMA.field("interval_start").type
    columns = [pa.array(readings.meter), pa.array(start, kind), pa.array(readings.energy_wh)]
    table, sink, groups = pa.table(columns, schema=READINGS_SCHEMA), io.BytesIO(), []
    packed = {"meter": "DELTA_BINARY_PACKED", "energy_wh": "DELTA_BINARY_PACKED"}
    with pq.ParquetWriter(
        sink, READINGS_SCHEMA, use_dictionary=["interval_start"], column_encoding=packed, store_schema=False
    ) as writer:
        for begin, end in pairwise((0, *ends.tolist(), len(shard))):
            offset = sink.tell()
            writer.write_table(table.slice(begin, end - begin), row_group_size=max(1, end - begin))
            with sink.getbuffer() as content:
                digest = hashlib.sha256(content[offset:]).hexdigest()
            least, greatest = readings.meter[[begin, end - 1]].tolist() if end > begin else (0, 0)
            groups.append(_RowGroup(offset, end - begin, least, greatest, digest))
        salt = os.urandom(16).hex()  # or readings could be guessed, and confirmed by a name in some log
        lines = "\n".join(" ".join(map(str, group)) for group in groups)
        writer.add_key_value_metadata({_START_S: str(start_s), _ROW_GROUPS: lines, "murmurate.salt": salt})
        footer = sink.tell()
    data = sink.getvalue()
    return data, f"{len(data)}-{hashlib.sha256(memoryview(data)[footer:]).hexdigest()}.parquet"


def fingerprint_file(store: ObjectStore, found: StoredObject) -> LandedFile | None:
    """A file as it is now; None if it is not whole, or gone. Raises ReadingError if it is whole and not of readings.

    A file whose name ends with its size and a SHA-256 is not read.
    """
    name, match = found.name, _RUN_FILE.fullmatch(found.name.rpartition("/")[2])
    if match is not None and match[5] is not None:
        return LandedFile(name, found.size, match[5]) if found.size == int(match[4]) else None
    try:
        file = store.open(name)
    except FileNotFoundError:
        return None
    with file:
        size = file.size()
        if size < _MIN_PARQUET_BYTES:
            return None
        file.seek(size - 8)
        footer, end = int.from_bytes(file.read(4), "little"), file.read(4)
        file.seek(0)
        if end != _PARQUET_MAGIC or file.read(4) != _PARQUET_MAGIC or footer > size - _MIN_PARQUET_BYTES:
            return None
        landed = LandedFile(name, size, _sha256(file))
        _check_columns(_open_parquet(file, name), name)
    return landed


def read_readings(store: ObjectStore, landed: LandedFile, meters: range | None = None) -> Iterator[Readings]:
    """The readings of a file, batch by batch, if it still is the file that the closing saw.

    With `meters` those of these meters. Of a file with row groups in order of the meters, others are not read.
    """
    if landed.has_digest_in_name:
        yield from _read_own(store, landed, meters)
        return
    try:
        file = store.open(landed.path)
    except FileNotFoundError:
        raise _gone(landed) from None
    with file:  # what is hashed is what is read
        if _sha256(file) != landed.sha256:
            raise _changed(landed)
        parquet = _open_parquet(file, landed.path)
        unit_us = _check_columns(parquet, landed.path)
        for batch in _read_batches(parquet, range(parquet.num_row_groups), READINGS_SCHEMA.names, landed):
            start = batch.column("interval_start").view(pa.int64()).to_numpy()
            start_us = start if unit_us == 1 else start * np.int64(unit_us)
            meter, energy_wh = (batch.column(name).cast(pa.int64()).to_numpy() for name in ("meter", "energy_wh"))
            yield _select(meter, energy_wh, start_us, meters)


def _read_own(store: ObjectStore, landed: LandedFile, meters: range | None) -> Iterator[Readings]:
    """The readings of a file that this package has written. Row groups of other meters are not read."""
    content, tail_begin, footer_begin = _read_footer(store, landed)
    parquet = _open_parquet(pa.BufferReader(content), landed.path)
    if not parquet.schema_arrow.equals(READINGS_SCHEMA):
        raise _changed(landed)
    start_us, groups = _decode_row_groups(parquet, landed, footer_begin)
    wanted = []
    ends = (*(group.begin for group in groups[1:]), footer_begin)
    for number, (group, end) in enumerate(zip(groups, ends, strict=True)):
        if meters is not None and (group.greatest < meters.start or group.least >= meters.stop):
            continue
        if group.begin < tail_begin:
            content[group.begin : end] = np.frombuffer(_read_range(store, landed, group.begin, end), np.uint8)
        if hashlib.sha256(content[group.begin : end].data).hexdigest() != group.sha256:
            raise _changed(landed)
        wanted.append(number)
    missing, least, greatest = np.array([groups[number][1:4] for number in wanted], np.int64).reshape(-1, 3).T.copy()
    left = int(missing.sum())
    if meters is not None and ((least >= meters.start) & (greatest < meters.stop)).all():
        meters = None  # they hold no others
    # A row group that holds another meter than its footer says would count here, and not where a task passes over it.
    for batch in _read_batches(parquet, wanted, ["meter", "energy_wh"], landed):
        meter, energy_wh = (column.to_numpy() for column in batch.columns)
        if (meter[1:] < meter[:-1]).any():
            raise _changed(landed)
        missing -= np.searchsorted(meter, greatest, "right") - np.searchsorted(meter, least)
        left -= len(meter)
        yield _select(meter, energy_wh, np.ndarray(len(meter), np.int64, start_us, strides=(0,)), meters)
    if missing.any() or left:
        raise _changed(landed)


def _read_footer(store: ObjectStore, landed: LandedFile) -> tuple[NDArray[np.uint8], int, int]:
    """Check the footer. Returns the file (zeros where nothing was read), where what was read begins, and the footer."""
    if (size := landed.bytes) < _MIN_PARQUET_BYTES:
        raise _changed(landed)
    tail_begin = max(0, size - _TAIL_BYTES)
    tail = _read_range(store, landed, tail_begin, size)
    footer_begin = size - 8 - int.from_bytes(tail[-8:-4], "little")
    if footer_begin < tail_begin:
        tail_begin = max(0, footer_begin)
        tail = _read_range(store, landed, tail_begin, size)
    footer = tail[footer_begin - tail_begin :]
    if footer_begin < len(_PARQUET_MAGIC) or hashlib.sha256(footer).hexdigest() != landed.sha256:
        raise _changed(landed)
    content = np.frombuffer(tail, np.uint8)
    return (
        np.concatenate([np.zeros(tail_begin, np.uint8), content]) if tail_begin else content,
        tail_begin,
        footer_begin,
    )


def _decode_row_groups(
    parquet: pq.ParquetFile, landed: LandedFile, footer_begin: int
) -> tuple[np.int64, list[_RowGroup]]:
    """The interval of a file [µs], and what its footer says of its row groups."""
    written = parquet.metadata.metadata or {}
    try:
        start_us = np.int64(int(written[_START_S]) * MICROSECONDS_PER_SECOND)
        groups = [_RowGroup.decode(line) for line in written[_ROW_GROUPS].decode().splitlines()]
    except (KeyError, ValueError, OverflowError):
        raise _changed(landed) from None  # by a writer that imitates this one
    places = [len(_PARQUET_MAGIC), *(group.begin for group in groups), footer_begin]
    if not groups or len(groups) != parquet.num_row_groups or places != sorted(places):
        raise _changed(landed)
    if any(group.least > group.greatest for group in groups):
        raise _changed(landed)
    if any(after.least <= before.greatest for before, after in pairwise(groups)):
        raise _changed(landed)
    return start_us, groups


def _read_batches(
    parquet: pq.ParquetFile, row_groups: Iterable[int], columns: list[str], landed: LandedFile
) -> Iterator[pa.RecordBatch]:
    """Batches of these row groups, without rows in which one of the columns is null."""
    try:
        for batch in parquet.iter_batches(ROWS_PER_BATCH, row_groups=row_groups, columns=columns, use_threads=False):
            yield batch.drop_null() if any(column.null_count for column in batch.columns) else batch
    except (pa.ArrowException, OSError):
        raise ReadingError(landed.path, "unreadable", "was so when it was closed; there is no demand") from None


def _select(meter: IntArray, energy_wh: IntArray, start_us: IntArray, meters: range | None) -> Readings:
    """The readings that are of these meters."""
    if meters is not None and not (here := (meter >= meters.start) & (meter < meters.stop)).all():
        meter, energy_wh, start_us = meter[here], energy_wh[here], start_us[here]
    return Readings(meter=meter, energy_wh=energy_wh, start_us=start_us)


def _read_range(store: ObjectStore, landed: LandedFile, begin: int, end: int) -> bytes:
    try:
        content = store.read(landed.path, begin, end)
    except FileNotFoundError:
        raise _gone(landed) from None
    if len(content) != end - begin:
        raise _changed(landed)
    return content


def _gone(landed: LandedFile) -> ReadingError:
    return ReadingError(landed.path, "gone", "must stay as it was when its interval was closed")


def _changed(landed: LandedFile) -> ReadingError:
    return ReadingError(landed.path, "changed", "must stay as it was when its interval was closed")


def _sha256(file: pa.NativeFile) -> str:
    file.seek(0)
    digest = hashlib.sha256()
    while (chunk := file.read_buffer(_HASH_CHUNK_BYTES)).size:
        digest.update(chunk)
    return digest.hexdigest()


def _open_parquet(file: pa.NativeFile, name: str) -> pq.ParquetFile:
    file.seek(0)
    try:
        return pq.ParquetFile(file, pre_buffer=False, coerce_int96_timestamp_unit="us")
    except (pa.ArrowException, OSError, UnicodeDecodeError):  # a column may have a name that is not UTF-8
        raise ReadingError(name, "unreadable", "must be a Parquet file") from None


def _check_columns(parquet: pq.ParquetFile, name: str) -> int:
    """Refuse columns that are not what a landing holds. Returns the unit of their time [µs]."""
    try:
        schema = parquet.schema_arrow
        names, leaves = schema.names, parquet.schema.names
        for column in READINGS_SCHEMA.names:
            if names.count(column) != 1:
                how = f"with {column} twice" if column in names else f"without {column}"
                raise ReadingError(name, how, f"must have {', '.join(READINGS_SCHEMA.names)}")
        for column in ("meter", "energy_wh"):
            kind = schema.field(column).type
            if not pa.types.is_integer(kind) or kind == pa.uint64():
                raise ReadingError(f"{column} in {name}", str(kind), "must be whole numbers that fit in 64 bits")
        if parquet.schema.column(leaves.index("interval_start")).physical_type == "INT96":
            return 1  # how Spark writes UTC unless it is told otherwise; read as µs
        kind = schema.field("interval_start").type
        if not pa.types.is_timestamp(kind) or kind.tz != "UTC" or kind.unit not in _MICROSECONDS_PER_UNIT:
            raise ReadingError(f"interval_start in {name}", str(kind), "must be a timestamp in UTC, in s, ms or us")
        return _MICROSECONDS_PER_UNIT[kind.unit]
    except UnicodeDecodeError:  # of a column, or of a time zone
        raise ReadingError(name, "with a name that is not UTF-8", "must have columns with names in UTF-8") from None


def new_run_name() -> str:
    return os.urandom(12).hex()


def part_name(run: str, number: int) -> str:
    """How the name of a part of a run begins. Parts are numbered from 0.

    >>> part_name("00112233445566778899aabb", 7)
    '00112233445566778899aabb-00000007'
    """
    return f"{run}-{number:08d}"


def merged_name(run: str, parts: int) -> str:
    """How the name of the file begins that holds the readings of the first `parts` parts of a run."""
    return f"{run}-merged-{parts:08d}"


def list_merged(names: Iterable[str]) -> list[tuple[str, int, str]]:
    """The merged files of a folder as (run, parts that each one replaces, name): those with the most parts first."""
    matches = (_RUN_FILE.fullmatch(name) for name in names if "-merged-" in name)
    return sorted(((match[1], int(match[3]), match[0]) for match in matches if match), key=lambda file: -file[1])


def is_replaced(name: str, merged_parts: Mapping[str, int]) -> bool:
    """Whether a merged file replaces this one. `merged_parts` says how many parts were merged, by run.

    A merged file of fewer parts is replaced by one of more parts.
    """
    if name[:24] not in merged_parts or (match := _RUN_FILE.fullmatch(name)) is None:
        return False
    return int(match[3]) < merged_parts[match[1]]
