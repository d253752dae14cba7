"""Files of an operator: zone files, settings, meter tables, and what lies in a landing."""

from __future__ import annotations

import io
import re
import shutil

import pyarrow as pa
import pyarrow.parquet as pq

from murmurate.errors import MurmurateError
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.service.ingest.meter_registry import MeterRegistry
from murmurate.service.landing.interval_manifest import IntervalManifest
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.meter_table import pin_table
from murmurate.service.landing.readings_file import encode_readings, fingerprint_file, read_readings
from murmurate.service.settings import EXAMPLE_SETTINGS, load_settings
from tests.fuzzing.fuzz_target import FuzzTarget
from tests.fuzzing.ingest_parts import FuzzFolder

_TOML_WORDS = (
    *sorted({word.encode() for word in re.findall(r"\w+", EXAMPLE_ZONE_FILE + EXAMPLE_SETTINGS)}),
    *(b"[", b"[[", b"]", b"{", b"}", b"=", b'"', b"'''", b"nan", b"inf", b"-inf", b"1979-05-27", b"07:32:00", b"true"),
    *(b'"any moment: 1"', b'"any 24 h: rho 1e-3"', b"noise = 'gaussian'", b"\\u0000"),
)
_TABLE_WORDS = (
    *(b"meter", b"zone", b"bound_wh", b"imputed_wh", b"id", b"key", b"household", b"kind", b"protected", b",", b"\n"),
    *(b'"', b"true", b"false", b"\r\n", b"", b"\0", b"\xef\xbb\xbf"),
)
_MANIFEST = (
    b'{"murmurate_manifest": 1, "interval": "20261114T1215Z", "meters": "ab", "files": [{"path": "x/shard=0/y", '
    b'"bytes": 3, "sha256": "cd"}], "unfinished": [], "purged": false}'
)


def _parse_zone(data: bytes) -> object:
    return parse_zone(data.decode(errors="replace"))


def _settings_parser(folder: FuzzFolder):
    def parse(data: bytes) -> object:
        path = folder.path / "service.toml"
        path.write_bytes(data)
        return load_settings(path)

    return parse


def _table_parser(folder: FuzzFolder, suffix: str):
    """The registry that ingest makes from a table, and the table that is pinned when an interval is closed."""

    def parse(data: bytes) -> None:
        path = folder.path / f"meters{suffix}"
        path.write_bytes(data)
        MeterRegistry.from_meter_table(path)
        shutil.rmtree(folder.path / "landing", ignore_errors=True)
        pin_table(Landing.create(folder.path / "landing"), path)

    return parse


def _manifest_parser(folder: FuzzFolder):
    def parse(data: bytes) -> object:
        path = folder.path / "manifest.json"
        path.write_bytes(data)
        return IntervalManifest.from_file(path)

    return parse


def _landed_parser(folder: FuzzFolder):
    def parse(data: bytes) -> None:
        path = folder.path / "readings.parquet"
        path.write_bytes(data)
        landed = fingerprint_file(folder.path, path)
        if landed is not None:
            for _ in read_readings(folder.path, landed):
                pass

    return parse


def _parquet_table(**columns) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def file_targets() -> list[FuzzTarget]:
    folder = FuzzFolder()
    errors = (MurmurateError,)
    example = EXAMPLE_ZONE_FILE.encode()
    tables = [
        b"meter,zone,bound_wh,imputed_wh\n0,harbour,1000,200\n1,quay,500,0\n",
        b"meter,id,zone,bound_wh,key,household,kind,protected\n0,a,harbour,1000,,h1,flat,true\n1,b,harbour,9,,h1,,true\n",
    ]
    parquet = [
        _parquet_table(meter=[0, 1], zone=["harbour", "quay"], bound_wh=[1000, 500], imputed_wh=[200, 0]),
        _parquet_table(meter=[0], zone=pa.array(["a"]).dictionary_encode(), bound_wh=[10], kind=["flat"]),
    ]
    landed = [bytes(encode_readings(1_767_225_600, pa.array([0, 1]).to_numpy(), pa.array([5, 7]).to_numpy()))]
    settings = EXAMPLE_SETTINGS.replace("# [", "[").replace("# host", "host").encode()
    return [
        FuzzTarget(name="zone file", parse=_parse_zone, seeds=[example], errors=errors, words=_TOML_WORDS),
        FuzzTarget(name="settings", parse=_settings_parser(folder), seeds=[settings], errors=errors, words=_TOML_WORDS),
        FuzzTarget(
            name="meter table csv", parse=_table_parser(folder, ".csv"), seeds=tables, errors=errors, words=_TABLE_WORDS
        ),
        FuzzTarget(
            name="meter table parquet",
            parse=_table_parser(folder, ".parquet"),
            seeds=parquet,
            errors=errors,
            max_mb=1024,
        ),
        FuzzTarget(
            name="manifest",
            parse=_manifest_parser(folder),
            seeds=[_MANIFEST],
            errors=errors,
            words=(b"null", b"[]", b"{}", b'"files":', b'"path":', b"true"),
        ),
        FuzzTarget(name="landed file", parse=_landed_parser(folder), seeds=landed, errors=errors, max_mb=1024),
    ]
