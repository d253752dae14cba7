"""The receipt for the sender of a batch of readings."""

from __future__ import annotations

from dataclasses import dataclass, field

from murmurate.readings.batch import Refusals
from murmurate.units import IntArray

MAX_CLOCK_SKEW_S = 30  # how far the clock of a sender may be ahead
MAX_LISTED_REFUSALS = 100
MAX_KEPT_REFUSALS = 10_000  # lines of a receipt; what is refused beyond them is only counted


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
