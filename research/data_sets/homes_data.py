"""Readings of the households of a data set, in one form for all data sets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

import numpy as np

from murmurate.errors import ReadingError
from murmurate.prediction.calendar import CalendarSlots, locate_intervals
from murmurate.time_zones import utc_offset_min
from murmurate.units import SECONDS_PER_DAY, BoolArray, FloatArray, IntArray

_SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HomesData:
    """Whole Wh of some households, all over the same intervals."""

    name: str
    licence: str
    measured: bool  # False: from a model of a building
    households: tuple[str, ...]
    start_s: int  # of the first interval [s of UTC since 1970]
    interval_s: int
    time_zone: str  # whose clocks the households live by
    energy_wh: IntArray  # [interval, household] 0 where missing
    missing: BoolArray  # [interval, household] the data set has no reading
    occupied: BoolArray | None = None  # [interval, household] True: a person was at home
    occupancy_known: BoolArray | None = None  # [interval, household]
    temperature_c: FloatArray | None = None  # [interval] outdoors

    def __post_init__(self) -> None:
        shape = (len(self.energy_wh), len(self.households))
        given = [self.energy_wh, self.missing, self.occupied, self.occupancy_known]
        if any(each is not None and each.shape != shape for each in given) or 0 in shape:
            raise ReadingError(self.name, f"shaped {self.energy_wh.shape}", "must have readings [interval, household]")
        if (self.occupied is None) != (self.occupancy_known is None):
            raise ReadingError(self.name, "with half of an occupancy", "must have occupied and occupancy_known")
        if self.temperature_c is not None and self.temperature_c.shape != shape[:1]:
            raise ReadingError(self.name, f"with {len(self.temperature_c)} temperatures", "must have one an interval")
        if self.interval_s < 1 or SECONDS_PER_DAY % self.interval_s or self.start_s % self.interval_s:
            raise ReadingError("interval", f"{self.interval_s} s", "must divide a day, and begin on a multiple of it")
        if (self.energy_wh < 0).any():
            raise ReadingError(self.name, "negative in places", "must have readings of 0 Wh or more")

    @property
    def slots_per_day(self) -> int:
        return SECONDS_PER_DAY // self.interval_s

    @property
    def days(self) -> int:
        """The number of whole days."""
        return len(self.energy_wh) // self.slots_per_day

    def calendar(self) -> CalendarSlots:
        """Return where the intervals fall in the local calendar, clock changes included."""
        first = self.start_s // self.interval_s
        interval = np.arange(first, first + len(self.energy_wh))
        hour = interval * self.interval_s // _SECONDS_PER_HOUR
        hours = np.arange(hour[0], hour[-1] + 1)
        offsets = np.array([utc_offset_min(self.time_zone, int(at) * _SECONDS_PER_HOUR) for at in hours], np.int64)
        return locate_intervals(interval, self.slots_per_day, offsets[hour - hour[0]])

    def complete_households(self) -> HomesData:
        """Return the households without a missing reading. Raises ReadingError if there are none."""
        complete = np.flatnonzero(~self.missing.any(axis=0))
        if not len(complete):
            raise ReadingError(self.name, "without a complete household", "must have one, or be cut to a shorter time")
        return self.choose_households(complete)

    def choose_households(self, chosen: IntArray) -> HomesData:
        """Return some of the households, by number."""
        return replace(
            self,
            households=tuple(self.households[number] for number in chosen),
            energy_wh=self.energy_wh[:, chosen],
            missing=self.missing[:, chosen],
            occupied=None if self.occupied is None else self.occupied[:, chosen],
            occupancy_known=None if self.occupancy_known is None else self.occupancy_known[:, chosen],
        )

    def whole_days(self) -> HomesData:
        """Return the intervals from the first local midnight on, as whole days of 24 h. Raises ReadingError if none."""
        at_midnight = np.flatnonzero(self.calendar().slot == 0)
        begin = int(at_midnight[0]) if len(at_midnight) else len(self.energy_wh)
        end = begin + (len(self.energy_wh) - begin) // self.slots_per_day * self.slots_per_day
        if end == begin:
            raise ReadingError(self.name, f"{len(self.energy_wh)} intervals long", "must have a whole day")
        return self._cut(slice(begin, end))

    def cut_days(self, first_day: date, days: int) -> HomesData:
        """Return some days from a local midnight on. Raises ReadingError where the data do not have them all."""
        naive_s = int(datetime(first_day.year, first_day.month, first_day.day, tzinfo=UTC).timestamp())
        begin = (naive_s - 60 * utc_offset_min(self.time_zone, naive_s) - self.start_s) // self.interval_s
        end = begin + days * self.slots_per_day
        if begin < 0 or end > len(self.energy_wh):
            has = f"{datetime.fromtimestamp(self.start_s, UTC):%Y-%m-%d} and {self.days} days"
            raise ReadingError("days", f"{days} from {first_day}", f"must be within the data: {has}")
        return self._cut(slice(begin, end))

    def _cut(self, kept: slice) -> HomesData:
        return replace(
            self,
            start_s=self.start_s + kept.start * self.interval_s,
            energy_wh=self.energy_wh[kept],
            missing=self.missing[kept],
            occupied=None if self.occupied is None else self.occupied[kept],
            occupancy_known=None if self.occupancy_known is None else self.occupancy_known[kept],
            temperature_c=None if self.temperature_c is None else self.temperature_c[kept],
        )
