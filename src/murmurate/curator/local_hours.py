"""How the hours of a zone file, which are local, become intervals of the UTC day."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from murmurate.errors import ModelError
from murmurate.quantities import BoolArray
from murmurate.time_zones import LocalClock


@dataclass(frozen=True, slots=True)
class LocalHours:
    """The hours of a zone file on the clocks of its time zone."""

    day: int  # intervals
    clock: LocalClock
    named: bool  # whether the file names its time zone

    def slot(self, field: str, words: str) -> int:
        """The local interval of the day that begins at "HH:MM"."""
        found = re.fullmatch(r"(\d\d):(\d\d)", words)
        minutes = int(found[1]) * 60 + int(found[2]) if found else -1
        if not 0 <= minutes <= 1440 or minutes * self.day % 1440:
            raise ModelError(field, repr(words), 'must be the start of an interval, such as "07:00"')
        return minutes * self.day // 1440

    def standard(self, local: Any) -> Any:
        """A local day [interval] as a day of UTC while the clocks show standard time."""
        return np.roll(local, -self.clock.slot_shifts(self.day)[0])

    def at_all_offsets(self, local: BoolArray) -> tuple[bool, ...]:
        """[interval of the UTC day] whether something holds in all of an interval, whatever the clocks show."""
        return tuple(all(local[slot] for slot in self.clock.local_slots(t, self.day)) for t in range(self.day))
