"""What an import did not take, and why: a count for each reason, and the places of the first ones.

A reason never holds what the cell said: readings are confidential, and an import is often logged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

MISSING = "no value: the cell is empty, or says that it is missing"
NOT_A_READING = "not a reading: must be a number of 0 or more with one decimal mark, such as 0.25"
NOT_A_TIME = "not a time: must be such as 2026-01-31 18:30, 31.01.2026 18:30 or seconds since 1970"
NOT_A_METER = "no meter: must be named by 1 to 128 printable characters"
NO_SUCH_TIME = "a local time that does not exist: the clocks went forward over it"
OCCURS_TWICE = (
    "a local time that occurs twice, because the clocks went back, and is there once or more than twice: "
    "give times with an offset, or in UTC"
)
DAY_LENGTH = (
    "on a day of another length, after the clocks changed, with as many columns as on other days: "
    "export times with an offset, or 46 and 50 columns"
)
OFF_GRID = "not at the beginning of an interval"
WRONG_LENGTH = "of another length than the intervals of the file"
TWO_VALUES = "two different readings of one interval: delete the wrong one"
INCOMPLETE = "part of an interval whose other parts are missing"
WRONG_WIDTH = "a row with another number of columns than the header"


class RefusedCells:
    """Counts of refused cells by reason, and where the first of each stand."""

    def __init__(self, max_places: int = 5) -> None:
        self.counts: Counter[str] = Counter()
        self.places: dict[str, list[str]] = {}
        self._max_places = max_places

    def refuse(self, reason: str, place: str) -> None:
        """Note one cell."""
        self.refuse_many(reason, 1, (place,))

    def refuse_many(self, reason: str, count: int, places: Iterable[str]) -> None:
        """Note several cells, of which the first places are kept."""
        self.counts[reason] += count
        kept = self.places.setdefault(reason, [])
        for place in places:
            if len(kept) >= self._max_places:
                return
            kept.append(place)

    def needs_place(self, reason: str) -> bool:
        """Return whether a place of this reason would still be kept: it is costly to write one for each cell."""
        return len(self.places.get(reason, ())) < self._max_places

    @property
    def total(self) -> int:
        return self.counts.total()

    def to_document(self) -> list[dict[str, object]]:
        """Return counts and places, the most frequent reason first."""
        return [
            {"reason": reason, "count": count, "first": self.places[reason]}
            for reason, count in sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))
        ]
