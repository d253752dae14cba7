"""The meter table, pinned: every version that an interval was closed under is kept, shard by shard, and never changes.

The version is the digest of the operator's own file. One bound that is halved between two runs would change the demand
of an interval that is aggregated again; so a closed interval keeps the table it was closed under.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
import pyarrow.parquet as pq

from murmurate.aggregation import Shard
from murmurate.errors import MeterError
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.meter_households import (
    MeterAttributes,
    check_unchanged,
    household_bounds_by_zone,
    merge_attributes,
    read_attributes,
)
from murmurate.service.storage import durable
from murmurate.types import Meters

_REQUIRED_COLUMNS = ("meter", "zone", "bound_wh")
_COLUMN_CHECKS = {"meter": pa.types.is_integer, "zone": pa.types.is_string, "bound_wh": pa.types.is_integer}
_COLUMN_CHECKS |= {"imputed_wh": pa.types.is_integer, "protected": pa.types.is_boolean}
_COLUMN_CHECKS |= dict.fromkeys(("id", "key", "kind"), pa.types.is_string)
_COLUMN_CHECKS["household"] = lambda kind: pa.types.is_string(kind) or pa.types.is_integer(kind)
_TEXT_COLUMNS = ("zone", "id", "key", "kind", "household")
_NULLABLE_COLUMNS = ("key", "kind")
_COLUMN_ENCODING = dict.fromkeys(("meter", "zone", "bound_wh", "imputed_wh"), "DELTA_BINARY_PACKED")
_HOUSEHOLDS_FILE = "households.parquet"
_TYPE_TEXTS = dict.fromkeys(_TEXT_COLUMNS, "text") | {
    "protected": "true or false",
    "household": "text or whole numbers",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterTable:
    """A version of the meter table in a landing."""

    folder: Path
    zones: tuple[str, ...]
    shards: tuple[int, ...]
    digests: tuple[str, ...]  # SHA-256 of the file of each shard
    shard_meters: int  # meter m is in shard m // shard_meters
    meters: int
    bounds: tuple[Mapping[str, int], ...] | None = field(default=None, hash=False)  # [zone] see `curator.bounds`

    @property
    def version(self) -> str:
        return self.folder.name

    @property
    def sharded(self) -> bool:
        return self.shards != (0,)


def pin_table(landing: Landing, source: Path) -> MeterTable:
    """Keep this version of the meter table in the landing; one that is there already is not read again.

    Raises MeterError where the table cannot be used, or says of a meter's household another thing than the one before.
    """
    folder = landing.root / "_meters" / _version(source)
    if not _is_complete(folder):
        table = read_table(source)
        meters, attributes = _meters(table), read_attributes(table)
        bounds = household_bounds_by_zone(table, meters, attributes)
        if (before := _previous_attributes(folder)) is not None:
            check_unchanged(before, attributes)
            attributes = merge_attributes(before, attributes)
        if folder.exists() and not _is_complete(folder):
            shutil.rmtree(folder)
        _write_table(folder, meters, attributes, bounds, landing)
        load_table.cache_clear()
    return load_table(folder)


def _is_complete(folder: Path) -> bool:
    """Whether every file is there. A table that an earlier version has pinned lacks one, and is written again."""
    if not folder.exists():
        return False
    names = [f"shard={shard}.parquet" for shard in load_table(folder).shards]
    return all((folder / name).exists() for name in (*names, _HOUSEHOLDS_FILE))


def _previous_attributes(folder: Path) -> MeterAttributes | None:
    """What the table that was pinned last says of every meter so far; None where this one is the first."""
    others = (path for path in folder.parent.glob(f"*/{_HOUSEHOLDS_FILE}") if path.parent != folder)
    pinned_at = {path: path.stat().st_mtime_ns for path in others if not path.parent.name.startswith(".")}
    if not pinned_at:
        return None
    newest = max(pinned_at, key=lambda path: (pinned_at[path], path))
    return read_attributes(pq.read_table(newest, partitioning=None))


def pinned_table(landing: Landing, version: str) -> MeterTable:
    """A version that was pinned before."""
    folder = landing.root / "_meters" / version
    if not folder.is_dir():
        raise MeterError("meters", version[:12], "is not in this landing; give the meter table with --meters")
    return load_table(folder)


@cache
def load_table(folder: Path) -> MeterTable:
    """What a pinned table says of itself; it never changes."""
    contents = json.loads((folder / "table.json").read_bytes())
    contents |= {name: tuple(listed) for name, listed in contents.items() if isinstance(listed, list)}
    return MeterTable(folder=folder, **contents)


@lru_cache(maxsize=1)
def load_shard(folder: Path, shard: int) -> Shard:
    """One shard of a pinned table, ready to tally. Raises MeterError where it is not what was pinned."""
    path, table = folder / f"shard={shard}.parquet", load_table(folder)
    if _sha256(path) != table.digests[table.shards.index(shard)]:
        raise MeterError(f"pinned meter table {folder.name[:12]}", "changed", "must stay as it was when it was pinned")
    with pq.ParquetFile(path, pre_buffer=False) as parquet:
        rows = parquet.read(use_threads=False)
    column = {name: rows[name].to_numpy() for name in rows.column_names}
    meters = Meters(
        zones=table.zones,
        zone=column["zone"],
        bound_wh=column["bound_wh"],
        imputed_wh=column["imputed_wh"],
        number=column["meter"],
    )
    return Shard.from_meters(meters, shard)


def _table_files(source: Path) -> list[Path]:
    """The files of a table; in a folder those that lie in it, not what lies deeper."""
    if not source.is_dir():
        return [source]
    files = sorted(path for path in source.glob("*.parquet") if path.is_file() and not path.name.startswith((".", "_")))
    if not files:
        raise MeterError("meters", source, "must be a CSV or Parquet file, or a folder with *.parquet")
    return files


def _version(source: Path) -> str:
    digests = [_sha256(path) for path in _table_files(source)]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_table(source: Path) -> pa.Table:
    """The operator's table, checked, in the order of the meters' numbers. Only `key` and `kind` may be empty."""
    text = pv.ConvertOptions(column_types=dict.fromkeys(_TEXT_COLUMNS, pa.string()))
    try:
        if source.suffix == ".csv":
            table = pv.read_csv(source, convert_options=text)
        else:
            table = pa.concat_tables([pq.read_table(path, partitioning=None) for path in _table_files(source)])
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.strerror:
            raise
        raise MeterError(str(source), "unreadable", str(error).splitlines()[0]) from None
    if not len(table):
        raise MeterError(str(source), "empty", "must have a row for each meter")
    names = [name for name in _COLUMN_CHECKS if name in table.column_names or name in _REQUIRED_COLUMNS]
    for name in names:
        if table.column_names.count(name) != 1:
            how = f"with {name} twice" if name in table.column_names else f"without {name}"
            raise MeterError(str(source), how, f"must have the columns {', '.join(_REQUIRED_COLUMNS)}")
    table = table.select(names).combine_chunks()
    for name in set(_TEXT_COLUMNS).intersection(names):
        table = table.set_column(names.index(name), name, _plain_text(table[name]))
    for name, kind in ((name, table.schema.field(name).type) for name in names):
        fits = _COLUMN_CHECKS[name](kind)
        gaps = table[name].null_count or (
            fits and pa.types.is_string(kind) and pc.any(pc.equal(table[name], "")).as_py()
        )
        if not fits or (gaps and name not in _NULLABLE_COLUMNS):
            what = "empty here and there" if gaps else kind
            raise MeterError(f"{source}: {name}", what, f"must be {_TYPE_TEXTS.get(name, 'whole numbers')} throughout")
    return table.sort_by("meter")


def _plain_text(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Text is text, however it is packed."""
    packed = pa.types.is_dictionary(text.type) or pa.types.is_large_string(text.type)
    empty = pa.types.is_null(text.type)  # a column that CSV or Parquet has nothing in
    return text.cast(pa.string()) if packed or empty or pa.types.is_string_view(text.type) else text


def _meters(table: pa.Table) -> Meters:
    named = pc.dictionary_encode(table["zone"].combine_chunks())
    names = np.array(named.dictionary.to_pylist(), dtype=object)
    order = np.argsort(names)
    position = np.empty(len(names), np.int64)
    position[order] = np.arange(len(names))
    column = {name: table[name].to_numpy() for name in table.column_names if name not in _TEXT_COLUMNS}
    return Meters(
        zones=tuple(names[order]),
        zone=position[named.indices.to_numpy()],
        bound_wh=column["bound_wh"],
        imputed_wh=column.get("imputed_wh", np.zeros(len(table), np.int64)),
        number=column["meter"],
    )


def _write_table(
    folder: Path, meters: Meters, attributes: MeterAttributes, bounds: tuple[Mapping[str, int], ...], landing: Landing
) -> None:
    """One file a shard, in a folder that appears when it is complete."""
    columns = {"meter": meters.number, "zone": meters.zone, "bound_wh": meters.bound_wh}
    whole = pa.table(columns | {"imputed_wh": meters.imputed_wh})
    number = whole["meter"].to_numpy()
    shards, first = np.unique(number // landing.shard_meters, return_index=True)
    if len(shards) > 4 * (len(meters) // landing.shard_meters + 16):
        allowed = f"must be numbered from 0 up with few gaps: {len(meters):,} meters lie in {len(shards):,} shards"
        raise MeterError("meter", int(number[-1]), allowed)
    part = folder.with_name(f".{folder.name}.{os.urandom(4).hex()}")
    durable.make_directory(part)
    digests = []
    for shard, begin, end in zip(shards, first, [*first[1:], len(meters)], strict=True):
        sink = pa.BufferOutputStream()
        pq.write_table(whole.slice(begin, end - begin), sink, use_dictionary=False, column_encoding=_COLUMN_ENCODING)
        data = memoryview(sink.getvalue())
        digests.append(hashlib.sha256(data).hexdigest())
        durable.write_file(part / f"shard={shard}.parquet", data)
    size = {"shard_meters": landing.shard_meters, "meters": len(meters)}
    contents = {"zones": list(meters.zones), "shards": shards.tolist(), "digests": digests, "bounds": bounds} | size
    sink = pa.BufferOutputStream()
    packed = {"meter": "DELTA_BINARY_PACKED"}
    pq.write_table(attributes.to_table(), sink, use_dictionary=["kind"], column_encoding=packed)
    durable.write_file(part / _HOUSEHOLDS_FILE, memoryview(sink.getvalue()))
    durable.write_file(part / "table.json", json.dumps(contents).encode())
    try:
        part.rename(folder)
    except OSError:  # another run has pinned it meanwhile
        shutil.rmtree(part)
        if not folder.is_dir():
            raise
    durable.fsync_directory(folder.parent)
