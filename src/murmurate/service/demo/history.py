"""The hours before a demo begins: the real worker closes, sums and releases each interval, as fast as it can."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from murmurate.service.clock import ServiceClock
from murmurate.service.demo.simulated_town import SimulatedTown
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.landing.append import append_readings
from murmurate.service.landing.layout import Landing
from murmurate.service.storage.databases import Databases
from murmurate.service.worker.interval_worker import IntervalWorker
from murmurate.service.worker.publisher_context import PublisherContext
from murmurate.types import Readings

_RELEASE_SLOT_S = 0.01  # who could measure the time of a release is not there yet


def publish_history(
    root: Path, databases: Databases, town: SimulatedTown, *, first_s: int, intervals: int, grace_s: int
) -> Iterator[int]:
    """Let the town live through its first intervals, each released at its deadline by a clock that stands there.

    `root` has the landing, the keys and the meter table. Yields the end of each interval [s of UTC].
    """
    landing = Landing.open(root / "landing")
    context = PublisherContext.from_databases(databases, root / "keys", _RELEASE_SLOT_S)
    ingest_store = IngestStore(databases.state.dsn)
    try:
        for start_s in range(first_s, first_s + intervals * landing.interval_s, landing.interval_s):
            drew = town.simulate_interval()
            append_readings(landing, start_s, Readings(meter=np.arange(len(drew)), energy_wh=drew))
            end_s = start_s + landing.interval_s
            worker = IntervalWorker(
                landing=landing,
                meters=root / "meters.csv",
                context=context,
                ingest_store=ingest_store,
                clock=ServiceClock(simulated_s=end_s + grace_s + 1, wall_s=time.time()),
                grace_s=grace_s,
            )
            worker.run_once()
            yield end_s
    finally:
        context.close()
        ingest_store.close()
