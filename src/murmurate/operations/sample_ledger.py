"""The ledger of a consented sample: a line for each run that drew noise from it, in a file next to the sample.

A line is on the disk before the noise is drawn. So a run that fails later, or whose file is deleted, is counted too.
The ledger knows the runs on this file alone: each copy of the sample has another ledger.
"""

from __future__ import annotations

import hashlib
import json
import os
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from murmurate.errors import PrivacyError
from murmurate.units import parse_fraction

_ALLOWED = "must be lines that murmurate wrote: restore the ledger. A last line that is cut off drew nothing: delete it"


class SampleSpending(NamedTuple):
    """What each household of a sample has spent at most, in all runs so far."""

    epsilon: Fraction
    runs: int
    delta: Fraction = Fraction(0)

    def print(self, epsilon: Fraction, console: Console, effect: str = "", *, delta: Fraction = Fraction(0)) -> None:
        """Print what this run has spent and, if it is known, what its noise does; then what all runs have spent."""
        spent, pure = (f"epsilon {epsilon}, delta {float(delta):g}", "") if delta else (f"epsilon {epsilon}", "pure, ")
        console.print(
            f"Spent {spent} of each of these households ({pure}for any data of the others). "
            f"{effect}A second run on the same sample draws new noise and spends as much again: keep the file."
        )
        runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
        total = f"epsilon {self.epsilon}" + (f", delta {float(self.delta):g}" if self.delta else "")
        console.print(f"This sample has spent {total} in {runs}, this one included.")


def ledger_path(sample: Path) -> Path:
    """Return the file in which the runs on a sample are counted. A link to a sample has the ledger of the sample."""
    whole = sample.resolve()
    return whole.with_name(f"{whole.name}.spent.jsonl")


def record_spending(
    sample: Path, *, command: str, epsilon: Fraction, out: Path, delta: Fraction = Fraction(0), kind: str = ""
) -> SampleSpending:
    """Write what a run spends of each household, and return what all runs have spent. Call it before the draw.

    Runs on one kind of household count for all of them. Raises PrivacyError, before anything is written, if the ledger
    cannot be read.
    """
    ledger = ledger_path(sample)
    _read_ledger(ledger)
    line = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
        "kind": kind,
        "epsilon": str(epsilon),
        "delta": str(delta),
        "out": out.name,
        "sample_sha256": hashlib.sha256(sample.read_bytes()).hexdigest(),
    }
    with ledger.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
    folder = os.open(ledger.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return _read_ledger(ledger)


def _read_ledger(ledger: Path) -> SampleSpending:
    lines = ledger.read_text(encoding="utf-8").splitlines(keepends=True) if ledger.exists() else []
    total = total_delta = Fraction(0)
    for number, line in enumerate(lines, 1):
        try:
            found = json.loads(line)
            spent = parse_fraction(found["epsilon"], "epsilon", PrivacyError)
            delta = parse_fraction(found.get("delta", 0), "delta", PrivacyError)  # earlier lines have none: it was 0
        except (ValueError, KeyError, TypeError, AttributeError, PrivacyError):
            spent = delta = Fraction(0)
        if spent <= 0 or delta < 0 or not line.endswith("\n"):
            raise PrivacyError(ledger.name, f"unreadable in line {number}", f"{_ALLOWED}; nothing was spent")
        total, total_delta = total + spent, total_delta + delta
    return SampleSpending(total, len(lines), total_delta)
