"""The meter table, pinned: every version that an interval was closed under is kept, shard by shard, and never changes.

The version is the digest of the operator's own file. One bound that is halved between two runs would change the demand
of an interval that is aggregated again; so a closed interval keeps the table it was closed under.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from murmurate.aggregation import Shard
from murmurate.errors import MeterError
from murmurate.planning.household_bounds import UNKNOWN_KIND, Households, count_households, household_bounds
from murmurate.readings.meter_file import (
    TEXT_COLUMNS,
    arrow_errors_as_meter_errors,
    read_table,
    table_version,
)
from murmurate.service.landing.layout import Landing
from murmurate.service.storage.object_store import FolderStore, ObjectStore
from murmurate.types import Meters
from murmurate.units import BoolArray, IntArray

_ENCODING = "DELTA_BINARY_PACKED"
METERS_FOLDER = "_meters"
CONTENTS_FILE = "table.json"  # created last: a table without it is not pinned
_TABLE_FILE = re.compile(r"(?:households|shard=[0-9]+)(?:-([0-9]+)-([0-9a-f]{64}))?\.parquet")  # size and SHA-256
# earlier versions wrote neither size nor SHA-256
SHARE, CONSTANT, ZERO = "a public share", "their constants", "zero"  # what silent meters count
_VERSION_NAME = re.compile("[0-9a-f]{64}")
_PARQUET_MAGIC = b"PAR1"
_KEEP_HINT = "must stay: a plan proves its promises for households that keep their kind and their protection"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterTable:
    """A version of the meter table in a landing."""

    store: ObjectStore
    version: str
    zones: tuple[str, ...]
    shards: tuple[int, ...]
    digests: tuple[str, ...]  # SHA-256 of the file of each shard
    shard_meters: int  # meter m is in shard m // shard_meters
    meters: int
    bounds: tuple[Mapping[str, int], ...] | None = field(default=None, hash=False)  # [zone] see `household_bounds`
    households: tuple[int, ...] | None = None  # [zone] how many
    silent_meters: str = ""  # what they count: SHARE, CONSTANT or ZERO; empty: an earlier version has pinned it
    files: tuple[str, ...] = ()  # of each shard, and of the households; empty: an earlier version has pinned it

    @property
    def names(self) -> tuple[str, ...]:
        """The names in the store of the file of each shard, and of that of the households."""
        usual = (*(f"shard={shard}.parquet" for shard in self.shards), "households.parquet")
        return tuple(f"{table_folder(self.version)}/{name}" for name in self.files or usual)


NO_METERS = MeterTable(store=FolderStore(Path()), version="", zones=(), shards=(), digests=(), shard_meters=1, meters=0)


class MeterAttributes(NamedTuple):
    """Protection and kind of each meter. A meter keeps both in every later table."""

    number: IntArray  # ascending
    protected: BoolArray  # [meter]
    kind: IntArray  # [meter] position in `kinds`
    kinds: tuple[str, ...]  # the first is "": not said


def read_attributes(table: pa.Table) -> MeterAttributes:
    """From a table in the order of the meters' numbers: the operator's, or one that was kept."""
    everyone = np.ones(len(table), np.bool_)
    protected = table["protected"].to_numpy() if "protected" in table.column_names else everyone
    if "kind" not in table.column_names:
        return MeterAttributes(table["meter"].to_numpy(), protected, np.full(len(table), UNKNOWN_KIND), ("",))
    named = pc.dictionary_encode(pc.fill_null(table["kind"].cast(pa.large_string()), "")).combine_chunks()
    names = named.dictionary.to_pylist()
    kinds = ("", *sorted(set(names) - {""}))
    position = {name: at for at, name in enumerate(kinds)}
    code = np.array([position[name] for name in names], np.int64)[named.indices.to_numpy()]
    return MeterAttributes(table["meter"].to_numpy(), protected, code, kinds)


class ZoneHouseholds(NamedTuple):
    """The households of a zone."""

    number: int  # how many
    bounds: Mapping[str, int]  # the largest range of a household by kind [Wh]: see `household_bounds`


def read_zone_households(table: pa.Table, meters: Meters, attributes: MeterAttributes) -> tuple[ZoneHouseholds, ...]:
    """The households of each zone. Raises MeterError where the meters of one differ in zone, kind or protection."""
    named = None
    if "household" in table.column_names:
        named = pc.dictionary_encode(table["household"]).combine_chunks()
    households = Households(
        zone=meters.zone,
        range_wh=meters.bound_wh + meters.export_bound_wh,
        protected=attributes.protected,
        kind=attributes.kind,
        kinds=attributes.kinds,
        household=None if named is None else named.indices.to_numpy().astype(np.int64),
    )

    def name(household: int) -> str:
        return str(household if named is None else named.dictionary[household].as_py())

    bounds = household_bounds(households, len(meters.zones), name)
    counts = count_households(households, len(meters.zones)).tolist()
    return tuple(ZoneHouseholds(*each) for each in zip(counts, bounds, strict=True))


def pin_table(landing: Landing, source: Path, *, rewrite: bool = False) -> MeterTable:
    """Keep this version of the meter table in the landing; one that is there already is not read again.

    One that is damaged there is written again from the source, and with `rewrite` any. Raises MeterError where the
    table cannot be used, or says of a meter's household another thing than the one before.
    """
    store, version = landing.store, table_version(source)
    if rewrite or not is_complete(store, version) or not load_table(store, version).silent_meters:
        with arrow_errors_as_meter_errors(source):
            table = read_table(source)
            meters, attributes = _meters(table), read_attributes(table)
            households = read_zone_households(table, meters, attributes)
            if (before := _previous_attributes(store, version)) is not None:
                check_unchanged(before, attributes)
                attributes = merge_attributes(before, attributes)
            contents = _write_files(version, meters, attributes, households, landing)
        name = f"{table_folder(version)}/{CONTENTS_FILE}"
        if not store.create(name, contents) and store.read(name) != contents:  # damaged, or of an earlier version
            store.delete(name)
            store.create(name, contents)
        load_table.cache_clear()
        load_shards.cache_clear()
    return load_table(store, version)


def read_households_by_zone(source: Path) -> dict[str, ZoneHouseholds]:
    """The households of each zone of the operator's table. Raises MeterError where it cannot be used."""
    with arrow_errors_as_meter_errors(source):
        table = read_table(source)
        meters = _meters(table)
        return dict(zip(meters.zones, read_zone_households(table, meters, read_attributes(table)), strict=True))


def table_folder(version: str) -> str:
    return f"{METERS_FOLDER}/{version}"


def is_complete(store: ObjectStore, version: str) -> bool:
    """Whether every file is there and whole. A table that an earlier version has pinned lacks something."""
    try:
        table = _read_contents(store, version)
    except MeterError:
        return False
    return table.households is not None and not _damaged_files(table, _list_files(store, version))


def _list_files(store: ObjectStore, version: str) -> dict[str, int]:
    """The size of each file in the folder of a table."""
    return {found.name: found.size for found in store.list_objects(table_folder(version))}


def _damaged_files(table: MeterTable, sizes: Mapping[str, int]) -> list[str]:
    """The files of a table that are gone or have another size. What is in them is checked when they are read."""
    damaged = []
    for name in table.names:
        match = _TABLE_FILE.fullmatch(name.rpartition("/")[2])
        if not (size := sizes.get(name)) or (match is not None and match[1] and size != int(match[1])):
            damaged.append(name)
    return damaged


def is_version(name: str) -> bool:
    """Whether a folder's name is the version of a meter table."""
    return _VERSION_NAME.fullmatch(name) is not None


def find_table_damage(store: ObjectStore, version: str) -> Iterator[tuple[str, str]]:
    """The damaged, missing and stray files of a pinned table, each with what to do."""
    restore = "is damaged; restore it, or put this version of the meter table back for one interval"
    contents_name = f"{table_folder(version)}/{CONTENTS_FILE}"
    try:
        table = _read_contents(store, version)
    except MeterError:
        yield contents_name, restore
        return
    sizes = _list_files(store, version)
    for name in _damaged_files(table, sizes):
        yield name, restore
    for name in sizes.keys() - {*table.names, contents_name}:
        if not _TABLE_FILE.fullmatch(name.rpartition("/")[2]):  # another process may have pinned it at the same time
            yield name, "is not a file of this table; move it away"


def _previous_attributes(store: ObjectStore, version: str) -> MeterAttributes | None:
    """What the table that was pinned last says of every meter so far; None where this one is the first."""
    pinned, households = set(), []
    for found in store.list_objects(METERS_FOLDER):
        folder, _, name = found.name.rpartition("/")
        if folder != table_folder(version) and is_version(folder.removeprefix(f"{METERS_FOLDER}/")):
            pinned |= {folder} if name == CONTENTS_FILE else set()
            households += [(found.changed_s, found.name)] if name.startswith("households") else []
    known = [each for each in households if each[1].rpartition("/")[0] in pinned]
    if not known:
        return None
    _, newest = max(known)
    match = _TABLE_FILE.fullmatch(newest.rpartition("/")[2])
    data = store.read(newest)
    with suppress(pa.ArrowException, KeyError):
        if match is not None and match[2] in {None, hashlib.sha256(data).hexdigest()}:
            return read_attributes(pq.read_table(pa.BufferReader(data)))
    allowed = "must be restored, or the meter table before this one be put back for one interval: it says what each "
    name = f"{store.address}/{newest}"
    raise MeterError(name, "unreadable", f"{allowed}household is, and a household keeps that")


def pinned_table(landing: Landing, version: str) -> MeterTable:
    """A version that was pinned before."""
    if not is_version(version) or not landing.store.exists(f"{table_folder(version)}/{CONTENTS_FILE}"):
        raise MeterError("meters", version[:12], "is not in this landing; give the meter table with --meters")
    return load_table(landing.store, version)


@cache
def load_table(store: ObjectStore, version: str) -> MeterTable:
    """What a pinned table says of itself; it never changes. Raises MeterError where it is damaged."""
    return _read_contents(store, version)


def _read_contents(store: ObjectStore, version: str) -> MeterTable:
    damaged = MeterError(f"pinned meter table {version[:12]}", "unreadable", "its table.json is damaged")
    try:
        contents = json.loads(store.read(f"{table_folder(version)}/{CONTENTS_FILE}"))
        contents |= {name: tuple(listed) for name, listed in contents.items() if isinstance(listed, list)}
        table = MeterTable(store=store, version=version, **contents)
        is_consistent = len(table.digests) == len(table.shards) and all(isinstance(at, int) for at in table.shards)
        is_consistent &= len(table.names) == len(table.shards) + 1
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        raise damaged from None
    if not is_consistent:
        raise damaged
    return table


def count_zone_meters(table: MeterTable) -> dict[str, int]:
    """How many meters each zone of a pinned table has. Raises MeterError where a file of it is damaged."""
    counts = np.zeros(len(table.zones), np.int64)
    for rows in _read_shards(table, table.shards, ["zone"]):
        counts += np.bincount(rows["zone"].to_numpy(), minlength=len(counts))
    return dict(zip(table.zones, counts.tolist(), strict=True))


def _read_shards(table: MeterTable, shards: Sequence[int], columns: list[str] | None = None) -> Iterator[pa.Table]:
    """The rows of shards of a pinned table. Raises MeterError where a file is not what was pinned."""
    damaged = f"pinned meter table {table.version[:12]}"
    for shard in shards:
        at = table.shards.index(shard)
        try:
            data = table.store.read(table.names[at])
        except FileNotFoundError:
            raise MeterError(damaged, f"without {table.names[at]}", "must stay as it was when it was pinned") from None
        if hashlib.sha256(data).hexdigest() != table.digests[at]:
            raise MeterError(damaged, "changed", "must stay as it was when it was pinned")
        with pq.ParquetFile(pa.BufferReader(data), pre_buffer=False) as parquet:
            yield parquet.read(columns=columns, use_threads=False)


@lru_cache(maxsize=1)
def load_shards(store: ObjectStore, version: str, shards: tuple[int, ...]) -> Shard:
    """Neighbouring shards of a pinned table, ready to tally. Raises MeterError where one is not what was pinned."""
    table = load_table(store, version)
    parts = list(_read_shards(table, shards))
    rows = parts[0] if len(parts) == 1 else pa.concat_tables(parts)
    column = {name: rows[name].to_numpy() for name in rows.column_names}
    meters = Meters(
        zones=table.zones,
        zone=column["zone"],
        bound_wh=column["bound_wh"],
        imputed_wh=column.get("imputed_wh"),
        export_bound_wh=column.get("export_bound_wh", 0),
        number=column["meter"],
    )
    return Shard.from_meters(meters, *shards)


def _meters(table: pa.Table) -> Meters:
    named = pc.dictionary_encode(table["zone"]).combine_chunks()
    names = np.array(named.dictionary.to_pylist(), dtype=object)
    order = np.argsort(names)
    position = np.empty(len(names), np.int64)
    position[order] = np.arange(len(names))
    column = {name: table[name].to_numpy() for name in table.column_names if name not in TEXT_COLUMNS}
    return Meters(
        zones=tuple(names[order]),
        zone=position[named.indices.to_numpy()],
        bound_wh=column["bound_wh"],
        imputed_wh=column.get("imputed_wh"),
        export_bound_wh=column.get("export_bound_wh", 0),
        number=column["meter"],
    )


def _write_files(
    version: str,
    meters: Meters,
    attributes: MeterAttributes,
    households: tuple[ZoneHouseholds, ...],
    landing: Landing,
) -> bytes:
    """Write one file a shard, and that of the households. Returns the contents of the table, which name them."""
    columns = {"meter": meters.number, "zone": meters.zone, "bound_wh": meters.bound_wh}
    silent_meters = SHARE
    if meters.imputed_wh is not None:
        columns["imputed_wh"] = meters.imputed_wh
        silent_meters = CONSTANT if meters.imputed_wh.any() else ZERO
    if meters.export_bound_wh.any():
        columns["export_bound_wh"] = meters.export_bound_wh
    whole = pa.table(columns)
    number = whole["meter"].to_numpy()
    shards, first = np.unique(number // landing.shard_meters, return_index=True)
    if len(shards) > 4 * (len(meters) // landing.shard_meters + 16):
        allowed = f"must be numbered from 0 up with few gaps: {len(meters):,} meters lie in {len(shards):,} shards"
        raise MeterError("meter", int(number[-1]), allowed)
    files, digests = [], []

    def write_file(name: str, data: bytes) -> None:
        """Its name says what is in it, so any number of processes may write it, and one that is damaged is replaced."""
        digests.append(hashlib.sha256(data).hexdigest())
        files.append(f"{name}-{len(data)}-{digests[-1]}.parquet")
        path = f"{table_folder(version)}/{files[-1]}"
        if not landing.store.create(path, data) and landing.store.read(path) != data:
            landing.store.delete(path)
            landing.store.create(path, data)

    for shard, begin, end in zip(shards, first, [*first[1:], len(meters)], strict=True):
        sink = io.BytesIO()
        rows, encoding = whole.slice(begin, end - begin), dict.fromkeys(whole.column_names, _ENCODING)
        pq.write_table(rows, sink, use_dictionary=False, column_encoding=encoding)
        write_file(f"shard={shard}", sink.getvalue())
    sink = io.BytesIO()
    packed = {"meter": _ENCODING}
    names = pa.array(attributes.kinds, pa.string())
    kind = pa.DictionaryArray.from_arrays(pa.array(attributes.kind, pa.int32()), names)
    kept = pa.table({"meter": attributes.number, "protected": attributes.protected, "kind": kind})
    pq.write_table(kept, sink, use_dictionary=["kind"], column_encoding=packed)
    write_file("households", sink.getvalue())
    size = {"shard_meters": landing.shard_meters, "meters": len(meters), "silent_meters": silent_meters}
    contents = {"zones": list(meters.zones), "shards": shards.tolist(), "digests": digests[:-1], "files": files} | size
    contents |= {"bounds": [each.bounds for each in households], "households": [each.number for each in households]}
    return json.dumps(contents).encode()


def check_unchanged(before: MeterAttributes, after: MeterAttributes) -> None:
    """Raise MeterError naming a meter that had a kind and has another now, or whose protection has changed."""
    _, was, now = np.intersect1d(before.number, after.number, assume_unique=True, return_indices=True)
    position = {name: at for at, name in enumerate(after.kinds)}
    renamed = np.array([position.get(name, -1) for name in before.kinds], np.int64)
    kind = before.kind[was]
    kind_changed = (kind != UNKNOWN_KIND) & (renamed[kind] != after.kind[now])
    if kind_changed.any():
        at = int(kind_changed.argmax())
        old, new = before.kinds[int(kind[at])], after.kinds[int(after.kind[now[at]])]
        raise MeterError(f"kind of meter {after.number[now[at]]}", f"{new!r}, was {old!r}", _KEEP_HINT)
    protection_changed = before.protected[was] != after.protected[now]
    if protection_changed.any():
        at = int(protection_changed.argmax())
        protected = bool(after.protected[now[at]])
        value = f"{protected}, was {not protected}".lower()
        raise MeterError(f"protected of meter {after.number[now[at]]}", value, _KEEP_HINT)


def merge_attributes(before: MeterAttributes, after: MeterAttributes) -> MeterAttributes:
    """What both say, where `after` is not refused: of a meter in both what `after` says."""
    kinds = ("", *sorted({*before.kinds, *after.kinds} - {""}))
    position = {name: at for at, name in enumerate(kinds)}
    gone = ~np.isin(before.number, after.number, assume_unique=True)
    codes = [
        np.array([position[name] for name in attributes.kinds], np.int64)[attributes.kind]
        for attributes in (before, after)
    ]
    number = np.concatenate([before.number[gone], after.number])
    order = np.argsort(number)
    protected = np.concatenate([before.protected[gone], after.protected])[order]
    return MeterAttributes(number[order], protected, np.concatenate([codes[0][gone], codes[1]])[order], kinds)
