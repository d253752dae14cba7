"""A batch of readings as received, before it is checked, and the receipt for the sender."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from murmurate.units import IntArray

MAX_CLOCK_SKEW_S = 30  # how far the clock of a sender may be ahead
MAX_LISTED_REFUSALS = 100
MAX_KEPT_REFUSALS = 10_000  # lines of a receipt; what is refused beyond them is only counted
Refusals = dict[int, str]  # line of the batch, and why it was refused


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ReadingBatch:
    """Readings in columns. `line` is where each stood in what was sent, from 1.

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
    def from_rows(cls, rows: Sequence[tuple[str, int, int, int, str | None]]) -> ReadingBatch:
        """From (meter, start_s, energy_wh, line, signature)."""
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
        """From (number of the meter, start_s, energy_wh)."""
        columns = np.array(rows, np.int64).reshape(-1, 3).T
        return cls(meter=columns[0], start_s=columns[1], energy_wh=columns[2], line=np.arange(1, len(rows) + 1))


@dataclass(slots=True)
class Receipt:
    """Result of a batch: how many readings were accepted, late or refused. What is accepted is on disk."""

    accepted: int = 0
    late: int = 0  # their interval is closed: kept out, counted
    refused: Refusals = field(default_factory=dict)
    unlisted: int = 0  # refused beyond `MAX_KEPT_REFUSALS`

    @property
    def refused_count(self) -> int:
        return len(self.refused) + self.unlisted

    def refuse(self, lines: IntArray, reason: str) -> None:
        """Note that these lines are refused. A body of millions of unknown meters must not become a large receipt."""
        kept = lines[: max(0, MAX_KEPT_REFUSALS - len(self.refused))]
        self.refused |= dict.fromkeys(kept.tolist(), reason)
        self.unlisted += len(lines) - len(kept)

    def to_document(self) -> dict[str, object]:
        """The receipt as JSON: counts, lines and reasons, never a value."""
        listed = [
            {"line": line, "reason": reason} for line, reason in sorted(self.refused.items())[:MAX_LISTED_REFUSALS]
        ]
        return {"accepted": self.accepted, "late": self.late, "refused": self.refused_count, "refusals": listed}
