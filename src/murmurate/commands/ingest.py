"""`murmurate ingest`: readings from files, with the same checks as over HTTP and MQTT."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from pathlib import Path

from rich.progress import track

from murmurate.commands.console import MAX_BLOCKED_SHOWN, stderr, stdout
from murmurate.errors import MurmurateError, ReadingError
from murmurate.service.ingest.batch import Receipt
from murmurate.service.ingest.formats.green_button import parse_green_button
from murmurate.service.ingest.formats.parquet import parse_parquet
from murmurate.service.ingest.formats.text_lines import parse_csv, parse_json_lines
from murmurate.service.ingest.ingestor import ReadingIngestor
from murmurate.service.ingest.meter_registry import MeterRegistry
from murmurate.service.landing.layout import Landing

MAX_FILE_BYTES = 2**31
PARSERS_BY_SUFFIX = {
    ".csv": parse_csv,
    ".parquet": parse_parquet,
    ".jsonl": parse_json_lines,
    ".ndjson": parse_json_lines,
    ".xml": parse_green_button,
}


def ingest_files(
    files: Sequence[Path], folder: Path, meters: Path, zones: Collection[str] | None, *, grace_s: int
) -> int:
    """Ingest each file and print what was refused. Returns 1 if anything was."""
    landing = Landing.open(folder)
    ingestor = ReadingIngestor(
        landing=landing, registry=MeterRegistry.from_meter_table(meters), now=time.time, grace_s=grace_s
    )
    if ingestor.registry.key_by_row:
        signed = f"{len(ingestor.registry.key_by_row):,} meters must sign"
        raise MurmurateError(
            "meters", signed, "their readings must be sent to murmurate serve, which detects repeated ones"
        )
    refused = 0
    for path in track(files, "reading", console=stderr, transient=True, disable=not stderr.is_terminal):
        receipt = _ingest_file(path, ingestor, zones)
        refused += len(receipt.refused)
        _print_receipt(path, receipt)
    return 1 if refused else 0


def _ingest_file(path: Path, ingestor: ReadingIngestor, zones: Collection[str] | None) -> Receipt:
    parse = PARSERS_BY_SUFFIX.get(path.suffix.lower())
    if parse is None:
        raise ReadingError(
            str(path), path.suffix or "without an ending", f"must end in one of {', '.join(PARSERS_BY_SUFFIX)}"
        )
    if path.stat().st_size > MAX_FILE_BYTES:
        raise ReadingError(str(path), "too large", f"must have at most {MAX_FILE_BYTES:,} bytes; cut it")
    try:
        batch, refused = parse(path.read_bytes(), interval_s=ingestor.landing.interval_s)
    except ReadingError as error:
        raise ReadingError(f"{path}: {error.field}", error.value, error.allowed) from None
    return ingestor.ingest_batch(batch, zones, Receipt(refused=refused))


def _print_receipt(path: Path, receipt: Receipt) -> None:
    late = f", {receipt.late:,} late" if receipt.late else ""
    stdout.print(f"{path}: {receipt.accepted:,} readings accepted{late}, {len(receipt.refused):,} refused.")
    for line, reason in sorted(receipt.refused.items())[:MAX_BLOCKED_SHOWN]:
        stderr.print(f"  line {line}: {reason}")
    if len(receipt.refused) > MAX_BLOCKED_SHOWN:
        stderr.print(f"  and {len(receipt.refused) - MAX_BLOCKED_SHOWN:,} more.")
