"""Files of an operator: zone files, settings, meter tables, and what lies in a landing."""

from __future__ import annotations

import hashlib
import io
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from murmurate.errors import MurmurateError
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.service.ingest.meter_registry import MeterRegistry
from murmurate.service.landing.interval_manifest import IntervalManifest
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.meter_table import pin_table
from murmurate.service.landing.readings_file import (
    encode_readings,
    fingerprint_file,
    new_run_name,
    part_name,
    read_readings,
)
from murmurate.service.operator_api.public_inputs import parse_series
from murmurate.service.settings import EXAMPLE_SETTINGS, load_settings
from murmurate.service.storage.object_store import FolderStore, StoredObject
from murmurate.types import Readings
from tests.fuzzing.fuzz_target import FuzzTarget
from tests.fuzzing.ingest_parts import FuzzFolder

_TOML_WORDS = (
    *sorted({word.encode() for word in re.findall(r"\w+", EXAMPLE_ZONE_FILE + EXAMPLE_SETTINGS)}),
    *b"[ [[ ] { } = \" ''' nan inf -inf 1979-05-27 07:32:00 true \\u0000".split(),
    *(b'"any moment: 1"', b'"any 24 h: rho 1e-3"', b"noise = 'gaussian'"),
)
_TABLE_WORDS = (
    *b'meter zone bound_wh imputed_wh export_bound_wh id key household kind protected , " true false'.split(),
    *(b"\n", b"\r\n", b"", b"\0", b"\xef\xbb\xbf"),
)
_SERIES = b"start,value\n2026-11-18T12:00:00Z,-4.25\n2026-11-18T13:15:00+01:00,1e3\n"
_MANIFEST = (
    b'{"murmurate_manifest": 1, "interval": "20261114T1215Z", "meters": "ab", "files": [{"path": "x/shard=0/y", '
    b'"bytes": 3, "sha256": "cd"}], "unfinished": [], "purged": false}'
)


def _parse_zone(data: bytes) -> object:
    return parse_zone(data.decode(errors="replace"))


def _file_parser(name: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    """Return a parser that gets its bytes in a file of this name."""
    folder = FuzzFolder()

    def parse(data: bytes) -> object:
        (folder.path / name).write_bytes(data)
        return read(folder.path / name)

    return parse


def _read_meter_table(path: Path) -> None:
    """The registry that ingest makes from a table, and the table that is pinned when an interval is closed."""
    MeterRegistry.from_meter_table(path)
    shutil.rmtree(path.parent / "landing", ignore_errors=True)
    pin_table(Landing.create(path.parent / "landing"), path)


def _read_landed(path: Path) -> None:
    """Read it under the name that it has, and under one that says that this package has written it."""
    data = path.read_bytes()
    footer = max(0, len(data) - 8 - int.from_bytes(data[-8:-4], "little"))
    ending = f"{len(data)}-{hashlib.sha256(data[footer:]).hexdigest()}.parquet"
    imitated = path.with_name(f"{part_name(new_run_name(), 0)}-{ending}")
    imitated.write_bytes(data)
    try:
        for each in (path, imitated):
            store = FolderStore(each.parent)
            if (landed := fingerprint_file(store, StoredObject(each.name, len(data), 0.0))) is not None:
                for _ in read_readings(store, landed, range(1, 2) if each is imitated else None):
                    pass
    finally:
        imitated.unlink()


def _parquet_table(**columns) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def file_targets() -> list[FuzzTarget]:
    errors = (MurmurateError,)
    example = EXAMPLE_ZONE_FILE.encode()
    tables = [
        b"meter,zone,bound_wh,imputed_wh\n0,harbour,1000,200\n1,quay,500,0\n",
        b"meter,zone,bound_wh,export_bound_wh,imputed_wh\n0,harbour,1000,700,-200\n1,quay,500,0,0\n",
        b"meter,id,zone,bound_wh,key,household,kind,protected\n0,a,harbour,1000,,h1,flat,true\n1,b,harbour,9,,h1,,true\n",
    ]
    parquet = [
        _parquet_table(meter=[0, 1], zone=["harbour", "quay"], bound_wh=[1000, 500], imputed_wh=[200, 0]),
        _parquet_table(meter=[0], zone=pa.array(["a"]).dictionary_encode(), bound_wh=[10], kind=["flat"]),
    ]
    landed = [encode_readings(1_767_225_600, Readings.from_columns(meter=[0, 1], energy_wh=[5, 7]), 1)[0]]
    settings = EXAMPLE_SETTINGS.replace("# [", "[").replace("# host", "host").encode()
    csv, parquet_file = (_file_parser(f"meters.{suffix}", _read_meter_table) for suffix in ("csv", "parquet"))
    manifest_words = b'null [] {} "files": "path": true'.split()
    manifest = _file_parser("manifest.json", lambda path: IntervalManifest.read(FolderStore(path.parent), path.name))
    return [
        FuzzTarget("zone file", _parse_zone, [example], errors, _TOML_WORDS),
        FuzzTarget("settings", _file_parser("service.toml", load_settings), [settings], errors, _TOML_WORDS),
        FuzzTarget("meter table csv", csv, tables, errors, _TABLE_WORDS),
        FuzzTarget("meter table parquet", parquet_file, parquet, errors, max_mb=1024),
        FuzzTarget("public series", partial(parse_series, interval_s=900), [_SERIES], errors, _TABLE_WORDS),
        FuzzTarget("manifest", manifest, [_MANIFEST], errors, manifest_words),
        FuzzTarget("landed file", _file_parser("readings.parquet", _read_landed), landed, errors, max_mb=1024),
    ]
