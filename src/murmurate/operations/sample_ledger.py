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

    def print(self, epsilon: Fraction, console: Console, effect: str = "") -> None:
        """Print what this run has spent and, if it is known, what its noise does; then what all runs have spent."""
        console.print(
            f"Spent epsilon {epsilon} of each of these households (pure, for any data of the others). "
            f"{effect}A second run on the same sample draws new noise and spends as much again: keep the file."
        )
        runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
        console.print(f"This sample has spent epsilon {self.epsilon} in {runs}, this one included.")


def ledger_path(sample: Path) -> Path:
    """Return the file in which the runs on a sample are counted. A link to a sample has the ledger of the sample."""
    whole = sample.resolve()
    return whole.with_name(f"{whole.name}.spent.jsonl")


def record_spending(sample: Path, *, command: str, epsilon: Fraction, out: Path, kind: str = "") -> SampleSpending:
    """Write that a run spends epsilon of each household, and return what all runs have spent. Call it before the draw.

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
    total = Fraction(0)
    for number, line in enumerate(lines, 1):
        try:
            spent = parse_fraction(json.loads(line)["epsilon"], "epsilon", PrivacyError)
        except (ValueError, KeyError, TypeError, PrivacyError):
            spent = Fraction(0)
        if spent <= 0 or not line.endswith("\n"):
            raise PrivacyError(ledger.name, f"unreadable in line {number}", f"{_ALLOWED}; nothing was spent")
        total += spent
    return SampleSpending(total, len(lines))
