"""Convert the local hours of a zone file to intervals of the UTC day."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from murmurate.errors import ModelError
from murmurate.time_zones import LocalClock
from murmurate.units import BoolArray


@dataclass(frozen=True, slots=True)
class LocalHours:
    """The local time of a zone file: its interval length and its time zone."""

    intervals_per_day: int  # intervals
    clock: LocalClock
    has_time_zone: bool  # whether the file names its time zone

    def parse_slot(self, field: str, text: str) -> int:
        """Return the interval of the local day that begins at "HH:MM". Raises ModelError if none does."""
        match = re.fullmatch(r"(\d\d):(\d\d)", text)
        minutes = int(match[1]) * 60 + int(match[2]) if match else -1
        if not 0 <= minutes <= 1440 or minutes * self.intervals_per_day % 1440:
            raise ModelError(field, repr(text), 'must be the start of an interval, such as "07:00"')
        return minutes * self.intervals_per_day // 1440

    def to_standard_time(self, local: Any) -> Any:
        """Shift an array over the local day [interval] to the UTC day, with clocks on standard time."""
        return np.roll(local, -self.clock.slot_shifts(self.intervals_per_day)[0])

    def holds_at_all_offsets(self, local: BoolArray) -> tuple[bool, ...]:
        """Return, for each interval of the UTC day, whether `local` is true there at every offset of the clock."""
        return tuple(
            all(local[slot] for slot in self.clock.local_slots(t, self.intervals_per_day))
            for t in range(self.intervals_per_day)
        )
