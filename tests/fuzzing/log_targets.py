"""Parsers of the public log, which `murmurate log verify` reads from files of anyone."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable

from murmurate.errors import ChainError, MurmurateError
from murmurate.operations.log_source import _FileSource
from murmurate.planning.plan import load_plan
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.public_log.tile import parse_tile
from murmurate.public_log.zone_table import ZoneTable
from murmurate.verification.verifier import check_log
from tests.fuzzing.fuzz_target import FuzzTarget
from tests.support.sample_logs import PLAN, ShardLog, follow_line, log

_WORDS = (
    *(b'"count":', b'"extensions":{}', b'"interval":', b'"kind":"release"', b'"kind":"open"', b'"kind":"zones"'),
    *(b'"murmurate":1', b'"next_key":null', b'"proof":[]', b'"row":null', b'"index":0', b'"index":null', b"null"),
    *(b'"since":', b'"murmurate_zones":1', b'"zones":[]', b'"measured"', b'"withheld"', b"[", b"{"),
    *(b"0" * 64, b"f" * 64, b'"tick":"1/0"', b'"lead":1000000', b"\\ud800", b"[" * 500),
)


def _parse_lines(data: bytes) -> None:
    """Lines of one zone, one after the other, as a reader without any other zone checks them."""
    head = None
    for text in data.decode(errors="replace").splitlines():
        head = follow_line(head, text)


def _of_text(parse: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: parse(data.decode(errors="replace"))


def _verify(data: bytes) -> None:
    """A whole log in a file: lines, a tar archive, one tile, any of them packed. A fault is a finding, not an error."""
    report = check_log({"fuzzing": _FileSource("fuzzing", io.BytesIO(data))}, plans=(PLAN,))
    str(report)


def _archive(items: list[bytes]) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as tar:
        for number, item in enumerate(items):
            entry = tarfile.TarInfo(f"tiles/east/{number:012}.tile")
            entry.size = len(item)
            tar.addfile(entry, io.BytesIO(item))
    return sink.getvalue()


def log_targets() -> list[FuzzTarget]:
    short = ShardLog(zones=("harbour",)).release(times=2)
    items = [item.encode() if isinstance(item, str) else item for item in short.items()]
    lines = [line.encode() for line in log(zones=("harbour",)).lines("harbour")]
    tables = [table.text.encode() for table in log().tables.values()]
    tiles = [tile.to_bytes() for tile in log(zones=("harbour",)).tiles]
    small_plan = json.dumps({name: value for name, value in json.loads(PLAN).items() if name != "zone_file"})
    logs = [b"\n".join(lines[:4]), _archive(items), tiles[0], gzip.compress(lines[0]), *items]
    chain, plan = (ChainError,), small_plan.encode()
    return [
        FuzzTarget("tile", parse_tile, tiles[:4], chain, _WORDS),
        FuzzTarget("zone table", _of_text(lambda text: ZoneTable.from_json(text).digest), tables, chain, _WORDS),
        FuzzTarget("zone lines", _parse_lines, [*lines[:3], b"\n".join(lines[:4])], chain, _WORDS),
        FuzzTarget("plan terms", _of_text(ReleaseTerms.from_json), [PLAN.encode(), plan], (MurmurateError,), _WORDS),
        FuzzTarget("plan file", _of_text(load_plan), [plan], (MurmurateError,), _WORDS),
        FuzzTarget("whole log", _verify, logs, (MurmurateError,), _WORDS),
    ]
