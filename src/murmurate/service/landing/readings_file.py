"""A file of readings: how it is named and written, what it must be, and how it is read again.

A writer that appends many small files to a shard numbers them, so that one file can merge them:

    <run>-00000000.parquet, <run>-00000001.parquet, ..   the parts of a run, in the order in which they were appended
    <run>-merged-00000002.parquet                        the readings of its first two parts, and of no other

A merged file replaces the parts that it holds: where both are in a folder, the merged file counts and the parts do not.
So a merged file may appear at any time, without a lock, and no part is deleted before its interval is closed.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from murmurate.errors import ReadingError
from murmurate.types import Readings
from murmurate.units import MICROSECONDS_PER_SECOND, IntArray

ROWS_PER_BATCH = 131_072
READINGS_SCHEMA = pa.schema(
    [("meter", pa.int64()), ("interval_start", pa.timestamp("us", "UTC")), ("energy_wh", pa.int64())]
)
_RUN_FILE = re.compile(r"([0-9a-f]{24})-(merged-)?([0-9]{8})\.parquet")
_HASH_CHUNK_BYTES = 2**20
_MICROSECONDS_PER_UNIT = {"s": 10**6, "ms": 10**3, "us": 1}
_PARQUET_MAGIC = b"PAR1"
_MIN_PARQUET_BYTES = 12  # bytes of a Parquet file: the magic twice, and the length of its footer


@dataclass(frozen=True, slots=True)
class LandedFile:
    """A file of readings as it was when its interval was closed."""

    path: str  # from the landing's root
    bytes: int
    sha256: str

    @property
    def shard(self) -> int | None:
        """The shard whose folder it lies in."""
        folder = Path(self.path).parent.name
        if not folder.startswith("shard="):
            return None
        try:
            return int(folder.removeprefix("shard="))
        except ValueError:
            raise ReadingError(self.path, "in no shard", "must lie in a folder such as shard=0") from None


def encode_readings(start_s: int, meter: IntArray, energy_wh: IntArray) -> pa.Buffer:
    """Readings of one interval as Parquet: 1.3 bytes each where meters are in order, 4 where not."""
    start = pa.array(
        np.full(len(meter), start_s * MICROSECONDS_PER_SECOND), READINGS_SCHEMA.field("interval_start").type
    )
    columns = [pa.array(meter, pa.int64()), start, pa.array(energy_wh, pa.int64())]
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table(columns, schema=READINGS_SCHEMA),
        sink,
        use_dictionary=["interval_start"],
        column_encoding={"meter": "DELTA_BINARY_PACKED", "energy_wh": "DELTA_BINARY_PACKED"},
    )
    return sink.getvalue()


def fingerprint_file(root: Path, path: Path) -> LandedFile | None:
    """A file as it is now; None if it is not whole, or gone. Raises ReadingError if it is whole and not of readings."""
    name = path.relative_to(root).as_posix()
    try:
        file = pa.OSFile(str(path))
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


def read_readings(root: Path, landed: LandedFile) -> Iterator[Readings]:
    """The readings of a file, batch by batch, if it still is the file that the closing saw."""
    try:
        file = pa.OSFile(f"{root}/{landed.path}")
    except FileNotFoundError:
        raise ReadingError(landed.path, "gone", "must stay as it was when its interval was closed") from None
    with file:  # opened once: what is hashed is what is read, even if another file takes its place
        if _sha256(file) != landed.sha256:
            raise ReadingError(landed.path, "changed", "must stay as it was when its interval was closed")
        parquet = _open_parquet(file, landed.path)
        unit_us = _check_columns(parquet, landed.path)
        try:
            for batch in parquet.iter_batches(ROWS_PER_BATCH, columns=READINGS_SCHEMA.names, use_threads=False):
                whole = batch.drop_null() if any(column.null_count for column in batch.columns) else batch
                meter, energy_wh = (whole.column(name).cast(pa.int64()).to_numpy() for name in ("meter", "energy_wh"))
                start = whole.column("interval_start").view(pa.int64()).to_numpy()
                start_us = start if unit_us == 1 else start * np.int64(unit_us)
                yield Readings(meter=meter, energy_wh=energy_wh, start_us=start_us)
        except (pa.ArrowException, OSError):
            raise ReadingError(landed.path, "unreadable", "was so when it was closed; there is no demand") from None


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
    """The name of a part of a run, numbered from 0.

    >>> part_name("00112233445566778899aabb", 7)
    '00112233445566778899aabb-00000007.parquet'
    """
    return f"{run}-{number:08d}.parquet"


def merged_name(run: str, parts: int) -> str:
    """The name of the file that holds the readings of the first `parts` parts of a run."""
    return f"{run}-merged-{parts:08d}.parquet"


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
