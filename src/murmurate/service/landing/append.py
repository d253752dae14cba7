"""Leave readings in the landing: small appends by any number of writers, durable when the call returns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from murmurate.service.landing.interval_manifest import is_closing
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.readings_file import encode_readings
from murmurate.service.storage import durable
from murmurate.types import Readings

ShardWriter = Callable[[int, int, Readings], None]  # interval [s of UTC], shard, its readings in order of the meters


def append_readings(landing: Landing, start_s: int, readings: Readings, write_shard: ShardWriter | None = None) -> bool:
    """Add readings of one interval. Returns whether they are sure to count: False once the interval is being closed.

    One file for each shard, each whole or not there. If the call fails, some shards may have theirs: append again, a
    reading that is there twice counts once. `write_shard` writes the file of a shard; it must be durable on return.
    """
    if is_closing(landing, start_s):
        return False

    def write_new_file(start_s: int, shard: int, readings: Readings) -> None:
        write_readings_file(landing.shard_folder(start_s, shard) / f"{os.urandom(12).hex()}.parquet", start_s, readings)

    for shard, part in _split_by_shard(landing, readings):
        (write_shard or write_new_file)(start_s, shard, part)
    # A closing lists the files after it has begun: what is in place before that is on its list.
    return not is_closing(landing, start_s)


def write_readings_file(path: Path, start_s: int, readings: Readings) -> None:
    """Put a file of readings of one interval in place, durably."""
    durable.make_directory(path.parent)
    durable.write_file(path, memoryview(encode_readings(start_s, readings.meter, readings.energy_wh)))


def _split_by_shard(landing: Landing, readings: Readings) -> Iterator[tuple[int, Readings]]:
    """The readings of each shard, in order of the meters: so a reading takes a third of the room."""
    order = np.argsort(readings.meter, kind="stable")
    meter, energy_wh = readings.meter[order], readings.energy_wh[order]
    shards, first = np.unique(meter // landing.shard_meters, return_index=True)
    for shard, begin, end in zip(shards.tolist(), first, [*first[1:], len(meter)], strict=True):
        yield shard, Readings(meter=meter[begin:end], energy_wh=energy_wh[begin:end])
