"""Leave readings in the landing: small appends by any number of writers, durable when the call returns."""

from __future__ import annotations

import os

import numpy as np

from murmurate.quantities import Readings
from murmurate.service.gathering import durable
from murmurate.service.gathering.closing import begun
from murmurate.service.gathering.layout import Landing
from murmurate.service.gathering.readingsfile import encode


def append(landing: Landing, start_s: int, readings: Readings) -> bool:
    """Add readings of one interval. Returns whether they are sure to count: False once the interval is being closed.

    One file for each shard, each whole or not there. If the call fails, some shards may have theirs: append again, a
    reading that is there twice counts once.
    """
    if begun(landing, start_s):
        return False
    order = np.argsort(readings.meter)  # in order a reading takes a third of the room
    meter, energy_wh = readings.meter[order], readings.energy_wh[order]
    shards, first = np.unique(meter // landing.shard_meters, return_index=True)
    for shard, begin, end in zip(shards.tolist(), first, [*first[1:], len(meter)], strict=True):
        folder = landing.shard(start_s, shard)
        durable.folder(folder)
        data = encode(start_s, meter[begin:end], energy_wh[begin:end])
        durable.write(folder / f"{os.urandom(12).hex()}.parquet", memoryview(data))
    # A closing lists the files after it has begun: what is in place before that is on its list.
    return not begun(landing, start_s)
