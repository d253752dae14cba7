"""Logs of zones with predicted prices whose demand is known: a calendar, and an answer to the price that was paid."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import numpy as np

from murmurate.prediction.calendar import locate_intervals
from murmurate.privacy.noise import NoiseDistribution
from murmurate.public_log.tile import RowKind
from murmurate.units import FloatArray, IntArray
from tests.support.predicted_zones import DAY_WH, SLOTS, PredictedShard


class NoNoise:
    """What a publisher takes for real noise."""

    test_only = False

    def draw(self, distribution: NoiseDistribution, scale_wh: FloatArray, core_wh: IntArray | None = None) -> IntArray:  # noqa: ARG002 - as every sampler
        return np.zeros(np.shape(scale_wh), np.int64)


def true_demand_wh(interval: int | IntArray) -> FloatArray:
    """Demand of one household at the reference price, in Lisbon's winter: other than the forecast of the plans says."""
    when = locate_intervals(np.atleast_1d(interval), SLOTS)
    day = 1.2 * DAY_WH[when.slot] + 60 * np.sin(when.slot * np.pi / 6)
    return day * np.array([1.0, 0.9, 0.8])[when.day_type]


def price_paid(shard: PredictedShard, zone: int = 0) -> int | None:
    """The price that is paid in the interval that comes next: that of the release `lead` intervals before; or None."""
    lead, released = shard.tiles[0].header.lead, [tile for tile in shard.tiles if len(tile.rows)]
    if lead == 0 or len(released) < lead or released[-lead].rows["kind"][zone] == RowKind.WITHHELD:
        return None
    return int(released[-lead].rows["price_ticks"][zone])


def play_log(
    plans: Mapping[str, str],
    hours: int,
    *,
    households: int,
    response: Any = None,
    missing: Container[int] = (),
    late: Container[int] = (),
    shard: PredictedShard | None = None,
    **options: Any,
) -> PredictedShard:
    """Release hours of the first zone, with the demand that answers to its price."""
    shard = shard or PredictedShard(plans, **options)
    zone = min(plans)
    for n in range(hours):
        demand = households * float(true_demand_wh(shard.next_interval())[0])
        paid = price_paid(shard)
        if response is not None and paid is not None:
            demand *= float(response.factor(np.array([float(paid)]))[0])
        shard.release({} if n in missing else {zone: round(demand)}, late=n in late)
    return shard
