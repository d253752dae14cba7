"""Scenarios: publishers and databases are killed while they work."""

from __future__ import annotations

import signal
import time
from collections import Counter
from itertools import cycle

from tests.fault_injection.checks import check_append_only, finish
from tests.fault_injection.kill_points import POINTS
from tests.fault_injection.sample_zones import FIRST, seeded_random
from tests.fault_injection.store_pair import MURMURATE, PublisherPool, RunContext, StorePair, publisher_pool

_AHEAD = 40  # intervals with demand after the last published one


def keep_ahead(stores: StorePair) -> None:
    """Store more demand before the publishers run out of work."""
    if stores.count_intervals() > stores.until - FIRST - _AHEAD / 2:
        stores.extend_demand(_AHEAD)


class KillSchedule:
    """Kills half of the publishers at a named kill point and the others at a random time."""

    def __init__(self, pool: PublisherPool, seed: int, points: tuple[str, ...]) -> None:
        self.pool = pool
        self.rng = seeded_random(seed)
        self.kill_points = cycle([(point, visit) for visit in (1, 2, 3) for point in points])
        self.deadline: dict[int, float] = {}
        self.killed: Counter[str] = Counter()

    def restart_ended(self) -> None:
        """Count the killed publishers and start new ones."""
        for child in self.pool.collect_ended():
            self.deadline.pop(child.pid, None)
            if child.exitcode == -signal.SIGKILL:
                self.killed[child.job["point"] or "at random"] += 1
        while len(self.pool.children) < self.pool.size:
            if self.rng.random() < 0.5:
                child = self.pool.stores.start_publisher()
                self.deadline[child.pid] = time.monotonic() + self.rng.uniform(0.02, 0.15)
            else:
                point, visit = next(self.kill_points)
                child = self.pool.stores.start_publisher(point=point, visit=visit)
            self.pool.children.append(child)

    def kill_due(self) -> None:
        """Kill the publishers whose deadline has passed."""
        now = time.monotonic()
        for child in self.pool.children:
            if self.deadline.get(child.pid, now + 1) <= now:
                child.kill()


def sigkills(context: RunContext, kills: int, seed: int, protocol: str = MURMURATE) -> dict[str, int]:
    """Kill publishers (SIGKILL) at random times and at every named point. Three run at any time."""
    stores = context.store_pair(f"sigkills of {protocol}", protocol)
    stores.extend_demand(_AHEAD)
    points = POINTS if protocol == MURMURATE else ("before append", "after append", "before save", "after save")
    with publisher_pool(stores, 3) as pool:
        kill_schedule = KillSchedule(pool, seed, points)
        checks = 0
        while kill_schedule.killed.total() < kills:
            kill_schedule.restart_ended()
            kill_schedule.kill_due()
            time.sleep(0.003)
            checks += 1
            if checks % 50 == 0:
                keep_ahead(stores)
                check_append_only(stores)
    killed = kill_schedule.killed
    return finish(stores, {"SIGKILLs": killed.total(), "named points": len(killed.keys() - {"at random"})})


def database_kills(context: RunContext, kills: int, seed: int) -> dict[str, int]:
    """Kill the whole state cluster and the whole log cluster in turn (SIGKILL) while three publishers run."""
    stores = context.store_pair("database kills")
    rng = seeded_random(seed)
    with publisher_pool(stores, 3) as pool:
        for number in range(kills):
            keep_ahead(stores)
            pool.run_for(rng.uniform(0.15, 0.4))
            cluster = (stores.state, stores.log)[number % 2]
            cluster.kill()
            pool.run_for(rng.uniform(0.0, 0.15))
            cluster.start()
            check_append_only(stores)
    return finish(stores, {"database kills": kills})
