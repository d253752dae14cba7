"""`murmurate readings ingest`: readings from files, with the same checks as over HTTP and MQTT."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import track

from murmurate.errors import MurmurateError, ReadingError
from murmurate.files import check_utf_8
from murmurate.operations.console import print_first, print_json, stderr, stdout
from murmurate.operations.options import AsJson, Grace, LandingAddress, optional_imports

with optional_imports():
    from murmurate.readings.green_button import parse_green_button
    from murmurate.readings.parquet import parse_parquet
    from murmurate.readings.text_lines import parse_csv, parse_json_lines
    from murmurate.service.ingest.ingestor import ReadingIngestor, Receipt
    from murmurate.service.ingest.meter_registry import MeterRegistry
    from murmurate.service.landing.layout import Landing

    PARSERS_BY_SUFFIX = {
        ".csv": parse_csv,
        ".parquet": parse_parquet,
        ".jsonl": parse_json_lines,
        ".ndjson": parse_json_lines,
        ".xml": parse_green_button,
    }
MAX_FILE_BYTES = 2**31
_LATE_REMEDY = (
    "  Readings are late if their interval ended longer ago than --grace. For old files: murmurate readings import"
)


def ingest_files(
    files: Annotated[list[Path], typer.Argument(help="CSV, Parquet, JSON lines (.jsonl) or Green Button (.xml).")],
    folder: LandingAddress,
    meters: Annotated[Path, typer.Option(help="Meter table, CSV or Parquet.")],
    grace: Grace = 60,
    zones: Annotated[list[str] | None, typer.Option("--zone", help="Accept only meters of this zone.")] = None,
    *,
    as_json: AsJson = False,
) -> int:
    """Ingest each file and print what was refused. Returns 1 if anything was, or came too late to count."""
    landing, registry = Landing.open(folder), MeterRegistry.from_meter_table(meters)
    ingestor = ReadingIngestor(landing=landing, registry=registry, now=time.time, grace_s=grace)
    if registry.key_by_row:
        signed = f"{len(registry.key_by_row):,} meters must sign"
        raise MurmurateError(
            "meters", signed, "their readings must be sent to murmurate serve, which detects repeated ones"
        )
    not_taken = 0
    receipts: list[dict[str, object]] = []
    for path in track(files, "reading", console=stderr, transient=True, disable=not stderr.is_terminal):
        receipt = _ingest_file(path, ingestor, zones or None)
        refused, refusals = receipt.refused_count, sorted(receipt.refused.items())
        not_taken += refused + receipt.late
        receipts.append(
            {
                "file": str(path),
                "accepted": receipt.accepted,
                "late": receipt.late,
                "refused": refused,
                "refusals": [{"line": line, "reason": reason} for line, reason in refusals],
            }
        )
        if as_json:
            continue
        late = f", {receipt.late:,} late" if receipt.late else ""
        stdout.print(f"{path}: {receipt.accepted:,} readings accepted{late}, {refused:,} refused.")
        if receipt.late:
            stderr.print(_LATE_REMEDY)
        print_first((f"line {line}: {reason}" for line, reason in refusals), indent="  ", unlisted=receipt.unlisted)
        if refused:
            stderr.print("  Correct these lines or the meter table, and run it again: a reading counts once.")
    if as_json:
        print_json({"files": receipts})
    return 1 if not_taken else 0


def _ingest_file(path: Path, ingestor: ReadingIngestor, zones: list[str] | None) -> Receipt:
    size = path.stat().st_size
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    parse = PARSERS_BY_SUFFIX.get(path.suffix.lower())
    if parse is None:
        raise ReadingError(
            str(path), path.suffix or "without an ending", f"must end in one of {', '.join(PARSERS_BY_SUFFIX)}"
        )
    if size > MAX_FILE_BYTES:
        raise ReadingError(str(path), "too large", f"must have at most {MAX_FILE_BYTES:,} bytes; cut it")
    body = path.read_bytes()
    check_utf_8(path, body)
    try:
        batch, refused = parse(body, interval_s=ingestor.landing.interval_s)
    except ReadingError as error:
        raise ReadingError(f"{path}: {error.field}", error.value, error.allowed) from None
    return ingestor.ingest_batch(batch, zones, Receipt(refused=refused))
