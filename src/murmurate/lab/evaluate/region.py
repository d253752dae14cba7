"""A region whose zones are priced: what happens in them, and what the public knows before."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from murmurate.lab.evaluate.clipped_sums import BOUNDS_WH
from murmurate.lab.evaluate.public_knowledge import PublicKnowledge
from murmurate.units import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class ZoneGroup:
    """Zones of one size in one season."""

    homes: int  # of each zone
    level_wh: FloatArray  # [zone] mean use of a home in an interval, as the public knows it
    demand_wh: FloatArray  # [interval, zone, bound] sum of readings, each at most its bound; the last bound clips none

    def sums_wh(self, bound_wh: int) -> FloatArray:
        """The sums of readings, each at most a bound [interval, zone]."""
        return np.asarray(self.demand_wh[:, :, BOUNDS_WH.index(bound_wh)])


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """What is priced. It begins at midnight."""

    known: PublicKnowledge
    expected_wh: FloatArray  # [interval, bound] of the clipped reading of a mean home, forecast
    cold_k: FloatArray  # [interval] K below the heating base, forecast
    counted: slice  # the intervals after the filter has learned
    whole: ZoneGroup  # the region as one zone
    zones: dict[int, ZoneGroup]  # by size

    def expected_sums_wh(self, group: ZoneGroup, bound_wh: int) -> FloatArray:
        """The forecast of each zone's clipped sum, at the level that is known of it [interval, zone]."""
        one = self.expected_wh[:, BOUNDS_WH.index(bound_wh)]
        return np.asarray(one[:, None] * (group.homes * group.level_wh / self.expected_wh[:, -1].mean()))

    def with_size(self, homes: int) -> Region:
        """The region with the zones of one size: all that an evaluation of them needs."""
        zones = {homes: self.zones[homes]}
        return Region(self.known, self.expected_wh, self.cold_k, self.counted, self.whole, zones)
