"""Leave readings in the landing: small appends by any number of writers, durable when the call returns."""

from __future__ import annotations

import os

import numpy as np

from murmurate.service.landing.interval_manifest import is_closing
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.readings_file import encode_readings
from murmurate.service.storage import durable
from murmurate.types import Readings


def append_readings(landing: Landing, start_s: int, readings: Readings) -> bool:
    """Add readings of one interval. Returns whether they are sure to count: False once the interval is being closed.

    One file for each shard, each whole or not there. If the call fails, some shards may have theirs: append again, a
    reading that is there twice counts once.
    """
    if is_closing(landing, start_s):
        return False
    order = np.argsort(readings.meter)  # in order a reading takes a third of the room
    meter, energy_wh = readings.meter[order], readings.energy_wh[order]
    shards, first = np.unique(meter // landing.shard_meters, return_index=True)
    for shard, begin, end in zip(shards.tolist(), first, [*first[1:], len(meter)], strict=True):
        folder = landing.shard_folder(start_s, shard)
        durable.make_directory(folder)
        data = encode_readings(start_s, meter[begin:end], energy_wh[begin:end])
        durable.write_file(folder / f"{os.urandom(12).hex()}.parquet", memoryview(data))
    # A closing lists the files after it has begun: what is in place before that is on its list.
    return not is_closing(landing, start_s)
