"""The recent prices of a shard as columns: 9 bytes for each zone and interval instead of an object.

The columns are a ring over intervals. A view keeps the first and the last interval that it may read. One thread writes;
readers in other threads hold views whose intervals are not overwritten until `SLACK` newer ones have come.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from murmurate.public_log.tile import RowKind, Rows
from murmurate.public_log.zone_table import ZoneTable
from murmurate.units import IntArray

SLACK = 16  # intervals that may be written while a view is in use
_MAX_INT32 = 2**31 - 1


class PriceColumns:
    """Prices of the zones of one table, open and closed (`zones_ever`), by the interval that was measured.

    Scales are rounded to single precision: pages show three digits of them.
    """

    def __init__(self, table: ZoneTable, intervals: int) -> None:
        self.width = intervals + SLACK
        shape = (self.width, len(table.zones_ever))
        self._ticks: NDArray[np.signedinteger] = np.zeros(shape, np.int32)
        self._kind = np.zeros(shape, np.uint8)  # 0: not known
        self._scale_wh = np.zeros(shape, np.float32)
        self._core_wh: IntArray | None = None  # where there is Huber noise
        self._logged_s = np.zeros(self.width)
        self._tables: list[ZoneTable] = [table] * self.width

    def write(self, interval: int, rows: Rows, table: ZoneTable, logged_s: float, positions: IntArray | None) -> None:
        """Store the rows of a release. `positions` are the columns of its zones, where they are not all, in order."""
        slot, at = interval % self.width, slice(None) if positions is None else positions
        if self._ticks.dtype == np.int32 and np.abs(rows["price_ticks"]).max(initial=0) > _MAX_INT32:
            self._ticks = self._ticks.astype(np.int64)
        if self._core_wh is None and rows["core_wh"].any():
            self._core_wh = np.zeros(self._kind.shape, np.int64)
        if positions is not None:
            self._kind[slot] = 0
        self._ticks[slot, at], self._kind[slot, at] = rows["price_ticks"], rows["kind"]
        self._scale_wh[slot, at] = rows["scale_wh"]
        if self._core_wh is not None:
            self._core_wh[slot, at] = rows["core_wh"]
        self._logged_s[slot] = logged_s
        self._tables[slot] = table

    def read(self, interval: int, zone: int) -> tuple[RowKind, int, float, int, float]:
        """Return kind, price [ticks], scale and core of the noise [Wh], and when the log took it [s of UTC]."""
        slot = interval % self.width
        core_wh = 0 if self._core_wh is None else int(self._core_wh[slot, zone])
        kind, ticks = RowKind(int(self._kind[slot, zone])), int(self._ticks[slot, zone])
        return kind, ticks, float(self._scale_wh[slot, zone]), core_wh, float(self._logged_s[slot])

    def read_span(self, intervals: range, zone: int) -> tuple[list[int], list[int], list[float], list[ZoneTable]]:
        """Return kind, price [ticks], when the log took it [s of UTC] and the zone table of each interval."""
        slots = np.arange(intervals.start, intervals.stop) % self.width
        tables = [self._tables[interval % self.width] for interval in intervals]
        return (
            self._kind[slots, zone].tolist(),
            self._ticks[slots, zone].tolist(),
            self._logged_s[slots].tolist(),
            tables,
        )

    def count_kinds(self, intervals: range) -> IntArray:
        """How many rows of each kind each zone has in a stretch of intervals: [kind, zone]."""
        kinds = self._kind[np.arange(intervals.start, intervals.stop) % self.width]
        return np.stack([(kinds == kind).sum(axis=0) for kind in range(max(RowKind) + 1)])

    def table_of(self, interval: int) -> ZoneTable:
        """The zone table that was in force in an interval."""
        return self._tables[interval % self.width]

    def reordered(self, before: ZoneTable, after: ZoneTable) -> PriceColumns:
        """Return columns for a later table of the same shard. Zones of the earlier one keep their prices."""
        fresh = PriceColumns(after, self.width - SLACK)
        positions = np.array([before.column.get(zone, -1) for zone in after.zones_ever])
        stays = positions >= 0
        fresh._ticks = fresh._ticks.astype(self._ticks.dtype)
        if self._core_wh is not None:
            fresh._core_wh = np.zeros(fresh._kind.shape, np.int64)
            fresh._core_wh[:, stays] = self._core_wh[:, positions[stays]]
        fresh._ticks[:, stays] = self._ticks[:, positions[stays]]
        fresh._kind[:, stays] = self._kind[:, positions[stays]]
        fresh._scale_wh[:, stays] = self._scale_wh[:, positions[stays]]
        fresh._logged_s, fresh._tables = self._logged_s.copy(), list(self._tables)
        return fresh
