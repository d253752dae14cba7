"""`murmurate ingest`: readings from files, through the same counter as from everywhere else."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from pathlib import Path

from rich.progress import track

from murmurate.errors import MurmurateError, ReadingError
from murmurate.service.doors.espi import espi_readings
from murmurate.service.doors.formats import csv_rows, json_lines
from murmurate.service.doors.intake import Intake
from murmurate.service.doors.parquet_body import parquet_rows
from murmurate.service.doors.roster import Roster
from murmurate.service.doors.slip import Receipt
from murmurate.service.gathering.layout import Landing
from murmurate.service.office import MOST_SHOWN, aside, out

MOST_BYTES = 2**31
FORMATS = {
    ".csv": csv_rows,
    ".parquet": parquet_rows,
    ".jsonl": json_lines,
    ".ndjson": json_lines,
    ".xml": espi_readings,
}


def ingest(files: Sequence[Path], root: Path, meters: Path, zones: Collection[str] | None, *, grace_s: int) -> int:
    """Take each file; say what was refused. 1: something was."""
    landing = Landing.open(root)
    intake = Intake(landing=landing, roster=Roster.of(meters), now=time.time, grace_s=grace_s)
    if intake.roster.keys:
        signed = f"{len(intake.roster.keys):,} meters must sign"
        raise MurmurateError("meters", signed, "their readings are taken by murmurate serve, which knows repeated ones")
    refused = 0
    for path in track(files, "reading", console=aside, transient=True, disable=not aside.is_terminal):
        receipt = _take(path, intake, zones)
        refused += len(receipt.refused)
        _say(path, receipt)
    return 1 if refused else 0


def _take(path: Path, intake: Intake, zones: Collection[str] | None) -> Receipt:
    read = FORMATS.get(path.suffix.lower())
    if read is None:
        raise ReadingError(str(path), path.suffix or "without an ending", f"must end in one of {', '.join(FORMATS)}")
    if path.stat().st_size > MOST_BYTES:
        raise ReadingError(str(path), "too large", f"must have at most {MOST_BYTES:,} bytes; cut it")
    try:
        slip, refused = read(path.read_bytes(), interval_s=intake.landing.interval_s)
    except ReadingError as error:
        raise ReadingError(f"{path}: {error.field}", error.value, error.allowed) from None
    return intake.take(slip, zones, Receipt(refused=refused))


def _say(path: Path, receipt: Receipt) -> None:
    late = f", {receipt.late:,} late" if receipt.late else ""
    out.print(f"{path}: {receipt.accepted:,} readings taken{late}, {len(receipt.refused):,} refused.")
    for line, why in sorted(receipt.refused.items())[:MOST_SHOWN]:
        aside.print(f"  line {line}: {why}")
    if len(receipt.refused) > MOST_SHOWN:
        aside.print(f"  and {len(receipt.refused) - MOST_SHOWN:,} more.")
