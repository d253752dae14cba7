"""`murmurate readings ingest`: readings from files, with the same checks as over HTTP and MQTT."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from rich.progress import track

from murmurate.commands.console import MAX_BLOCKED_SHOWN, stderr, stdout
from murmurate.commands.json_output import print_json
from murmurate.errors import MurmurateError, ReadingError
from murmurate.files import check_utf_8
from murmurate.readings.green_button import parse_green_button
from murmurate.readings.parquet import parse_parquet
from murmurate.readings.text_lines import parse_csv, parse_json_lines
from murmurate.service.ingest.ingestor import ReadingIngestor, Receipt
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
_LATE_REMEDY = (
    "  Readings are late if their interval ended longer ago than --grace. For old files: murmurate readings import"
)


def ingest_files(
    files: Sequence[Path],
    folder: Path,
    meters: Path,
    zones: Collection[str] | None,
    *,
    grace_s: int,
    as_json: bool = False,
) -> int:
    """Ingest each file and print what was refused. Returns 1 if anything was, or came too late to count."""
    landing = Landing.open(folder)
    ingestor = ReadingIngestor(
        landing=landing, registry=MeterRegistry.from_meter_table(meters), now=time.time, grace_s=grace_s
    )
    if ingestor.registry.key_by_row:
        signed = f"{len(ingestor.registry.key_by_row):,} meters must sign"
        raise MurmurateError(
            "meters", signed, "their readings must be sent to murmurate serve, which detects repeated ones"
        )
    not_taken = 0
    receipts: list[dict[str, object]] = []
    for path in track(files, "reading", console=stderr, transient=True, disable=not stderr.is_terminal):
        receipt = _ingest_file(path, ingestor, zones)
        not_taken += receipt.refused_count + receipt.late
        if as_json:
            receipts.append(_receipt_members(path, receipt))
        else:
            _print_receipt(path, receipt)
    if as_json:
        print_json({"files": receipts})
    return 1 if not_taken else 0


def _ingest_file(path: Path, ingestor: ReadingIngestor, zones: Collection[str] | None) -> Receipt:
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


def _receipt_members(path: Path, receipt: Receipt) -> dict[str, object]:
    refusals = [{"line": line, "reason": reason} for line, reason in sorted(receipt.refused.items())]
    counts = {"accepted": receipt.accepted, "late": receipt.late, "refused": receipt.refused_count}
    return {"file": str(path), **counts, "refusals": refusals}


def _print_receipt(path: Path, receipt: Receipt) -> None:
    late = f", {receipt.late:,} late" if receipt.late else ""
    stdout.print(f"{path}: {receipt.accepted:,} readings accepted{late}, {receipt.refused_count:,} refused.")
    if receipt.late:
        stderr.print(_LATE_REMEDY)
    for line, reason in sorted(receipt.refused.items())[:MAX_BLOCKED_SHOWN]:
        stderr.print(f"  line {line}: {reason}")
    if receipt.refused_count > MAX_BLOCKED_SHOWN:
        stderr.print(f"  and {receipt.refused_count - MAX_BLOCKED_SHOWN:,} more.")
    if receipt.refused_count:
        stderr.print("  Correct these lines or the meter table, and run it again: a reading counts once.")
