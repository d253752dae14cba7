"""A file of readings: how it is named and written, what it must be, and how it is read again.

A file that this package writes is in order of the meters, and its row groups end between shards. Its name ends with
its size and the SHA-256 of its footer, and the footer holds the SHA-256 of each row group. So a closing lists the file
and does not read it, and a task checks what it reads, which is the row groups of its meters.

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
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from murmurate.errors import ReadingError
from murmurate.service.storage.object_store import ObjectStore, StoredObject
from murmurate.types import Readings
from murmurate.units import MICROSECONDS_PER_SECOND

ROWS_PER_BATCH = 131_072
READINGS_SCHEMA = pa.schema(
    [("meter", pa.int64()), ("interval_start", pa.timestamp("us", "UTC")), ("energy_wh", pa.int64())]
)
MIN_ROW_GROUP_READINGS = 16_384  # on average, so that opening a row group costs little next to its readings
_RUN_FILE = re.compile(r"([0-9a-f]{24})-(merged-)?([0-9]{8})(?:-([0-9]+)-([0-9a-f]{64}))?\.parquet")
# earlier versions wrote neither size nor SHA-256
_ROW_GROUP_DIGESTS = "murmurate.row_group_sha256"
_TAIL_BYTES = 65_536  # read at once from the end of a file: a footer of 100 row groups
_HASH_CHUNK_BYTES = 2**20
_MICROSECONDS_PER_UNIT = {"s": 10**6, "ms": 10**3, "us": 1}
_PARQUET_MAGIC = b"PAR1"
_MIN_PARQUET_BYTES = 12  # bytes of a Parquet file: the magic twice, and the length of its footer


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
    table, sink, digests = pa.table(columns, schema=READINGS_SCHEMA), io.BytesIO(), []
    packed = {"meter": "DELTA_BINARY_PACKED", "energy_wh": "DELTA_BINARY_PACKED"}
    with pq.ParquetWriter(
        sink, READINGS_SCHEMA, use_dictionary=["interval_start"], column_encoding=packed, store_schema=False
    ) as writer:
        for begin, end in pairwise((0, *ends.tolist(), len(shard))):
            offset = sink.tell()
            writer.write_table(table.slice(begin, end - begin), row_group_size=max(1, end - begin))
            with sink.getbuffer() as content:
                digests.append(hashlib.sha256(content[offset:]).hexdigest())
        salt = os.urandom(16).hex()  # or readings could be guessed, and confirmed by a name in some log
        writer.add_key_value_metadata({_ROW_GROUP_DIGESTS: " ".join(digests), "murmurate.salt": salt})
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
    with ExitStack() as stack:
        try:
            if landed.has_digest_in_name:
                parquet, row_groups = _read_row_groups(store, landed, meters)
            else:
                file = stack.enter_context(store.open(landed.path))  # what is hashed is what is read
                if _sha256(file) != landed.sha256:
                    raise _changed(landed)
                parquet = _open_parquet(file, landed.path)
                row_groups = list(range(parquet.num_row_groups))
        except FileNotFoundError:
            raise ReadingError(landed.path, "gone", "must stay as it was when its interval was closed") from None
        unit_us = _check_columns(parquet, landed.path)
        try:
            for batch in parquet.iter_batches(
                ROWS_PER_BATCH, row_groups=row_groups, columns=READINGS_SCHEMA.names, use_threads=False
            ):
                whole = batch.drop_null() if any(column.null_count for column in batch.columns) else batch
                meter, energy_wh = (whole.column(name).cast(pa.int64()).to_numpy() for name in ("meter", "energy_wh"))
                start = whole.column("interval_start").view(pa.int64()).to_numpy()
                start_us = start if unit_us == 1 else start * np.int64(unit_us)
                if meters is not None and not (here := (meter >= meters.start) & (meter < meters.stop)).all():
                    meter, energy_wh, start_us = meter[here], energy_wh[here], start_us[here]
                yield Readings(meter=meter, energy_wh=energy_wh, start_us=start_us)
        except (pa.ArrowException, OSError):
            raise ReadingError(landed.path, "unreadable", "was so when it was closed; there is no demand") from None


def _read_row_groups(store: ObjectStore, landed: LandedFile, meters: range | None) -> tuple[pq.ParquetFile, list[int]]:
    """Read and check the footer, and the row groups that hold these meters. Returns their numbers.

    The Parquet file that is returned has zeros where nothing was read.
    """
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
    described = _open_parquet(pa.BufferReader(footer), landed.path)
    _check_columns(described, landed.path)
    metadata = described.metadata
    digests = (metadata.metadata or {}).get(_ROW_GROUP_DIGESTS.encode(), b"").split()
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    begins = [_column_begin(group, 0) for group in groups]
    places = [len(_PARQUET_MAGIC), *begins, footer_begin]
    if len(digests) != len(groups) or places != sorted(places):
        raise _changed(landed)  # by a writer that imitates this one
    column = metadata.schema.names.index("meter")
    content = np.zeros(size, np.uint8)
    content[tail_begin:] = np.frombuffer(tail, np.uint8)
    wanted = []
    for number, (begin, end) in enumerate(pairwise((*begins, footer_begin))):
        statistics = groups[number].column(column).statistics
        if meters is None or statistics is None or not statistics.has_min_max:
            is_wanted = True
        else:
            is_wanted = statistics.max >= meters.start and statistics.min < meters.stop
        if is_wanted:
            if begin < tail_begin:
                content[begin:end] = np.frombuffer(_read_range(store, landed, begin, end), np.uint8)
            if hashlib.sha256(content[begin:end].data).hexdigest().encode() != digests[number]:
                raise _changed(landed)
            wanted.append(number)
    return pq.ParquetFile(pa.BufferReader(content), metadata=metadata, pre_buffer=False), wanted


def _column_begin(group: pq.RowGroupMetaData, number: int) -> int:
    column = group.column(number)
    return int(column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset)


def _read_range(store: ObjectStore, landed: LandedFile, begin: int, end: int) -> bytes:
    if len(content := store.read(landed.path, begin, end)) != end - begin:
        raise _changed(landed)
    return content


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
