"""A batch of readings in columns, as a body or file gives them, before a registry has checked their meters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from murmurate.errors import ReadingError
from murmurate.units import IntArray

MAX_REFUSALS = 100_000  # lines of a batch
Refusals = dict[int, str]  # line of the batch, and why it was refused
BatchRow = tuple[str, int, int, int, str | None]  # meter, start_s, energy_wh, line, signature


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ReadingBatch:
    """Readings in columns. `line` is the line or row of each in what was sent, from 1.

    Meters go by number or by name, never both.
    """

    meter: IntArray | Sequence[str]
    start_s: IntArray  # begin of its interval [s of UTC]
    energy_wh: IntArray  # rounded down to whole Wh, not yet clipped: this is what a meter signs
    line: IntArray
    signature: Sequence[str | None] | None = None  # hex, one for each reading, where meters sign

    def __len__(self) -> int:
        return len(self.start_s)

    @classmethod
    def from_rows(cls, rows: Sequence[BatchRow]) -> ReadingBatch:
        """Return a batch of meters that go by name."""
        meters, starts, energy, lines, signatures = zip(*rows, strict=True) if rows else ((),) * 5
        return cls(
            meter=list(meters),
            start_s=np.array(starts, np.int64),
            energy_wh=np.array(energy, np.int64),
            line=np.array(lines, np.int64),
            signature=list(signatures) if any(signatures) else None,
        )

    @classmethod
    def from_numbered_rows(cls, rows: Sequence[tuple[int, int, int]]) -> ReadingBatch:
        """Return a batch from (number of the meter, start_s, energy_wh)."""
        columns = np.array(rows, np.int64).reshape(-1, 3).T
        return cls(meter=columns[0], start_s=columns[1], energy_wh=columns[2], line=np.arange(1, len(rows) + 1))


def add_refusal(refused: Refusals, line: int, reason: str) -> None:
    """Note a refusal. Raises ReadingError for a body with too many of them: its receipt would fill the memory."""
    if len(refused) >= MAX_REFUSALS:
        raise ReadingError("body", "full of faults", f"must have at most {MAX_REFUSALS} lines that are refused")
    refused[line] = reason
