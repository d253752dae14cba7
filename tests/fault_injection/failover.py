"""Scenarios: failover, split brain and restore of the state. Each time the demand is corrected as well.

The standby follows through a proxy that hangs for a time before the fault, like a slow network. What the primary
commits in that time is lost. Only the log, in its own failure domain, still has it. One publisher sends late each time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fault_injection.checks import check_append_only, finish
from tests.fault_injection.crashes import keep_ahead
from tests.fault_injection.sample_zones import seeded_random
from tests.fault_injection.store_pair import MURMURATE, PublisherPool, RunContext, StorePair, Violation, publisher_pool
from tests.support.postgres_cluster import Cluster
from tests.support.postgres_proxy import NetworkFault, Proxy, proxy
from tests.support.waiting import wait_until

_LATE_S = 2.0  # between draw and append


@contextmanager
def _replica(stores: StorePair) -> Iterator[tuple[Proxy, Cluster]]:
    """Start a standby of the state, wait until it has caught up, and yield it with its link."""
    with proxy(stores.state.port, word=b"never") as link:
        standby = stores.context.clusters.standby(stores.state, link.port)
        stores.state.wait_for_standby(is_synchronous=False)
        yield link, standby


class _LatePublisher:
    """A publisher that draws before a fault and sends after it, while others do not know its draw."""

    def __init__(self, stores: StorePair) -> None:
        self._timeout_s = 3 * _LATE_S if stores.protocol == MURMURATE else 0  # a broken publisher sends at once
        self._child = stores.start_publisher(slot_s=_LATE_S)
        self._output = Path(self._child.job["output"])
        self._await("holding")

    def _await(self, word: str) -> None:
        wait_until(lambda: self._output.exists() and word in self._output.read_text(), self._timeout_s, 0.01)

    def send(self) -> None:
        """Wait until its draw was sent, and kill it."""
        self._await("offer")
        time.sleep(0.05)
        self._child.kill()
        self._child.join(120)


def _run_until_published(stores: StorePair, pool: PublisherPool, seconds: float) -> None:
    """Run a pool for a time, and on a busy machine until it has published something."""
    is_ours = stores.protocol == MURMURATE
    query = "SELECT count(*) FROM public_log.tile" if is_ours else "SELECT count(*) FROM naive.entry"
    before = stores.log.execute(query)
    pool.run_for(seconds)

    def has_published() -> bool:
        pool.run_for(0.05)
        return stores.log.execute(query) != before

    wait_until(has_published, pause_s=0.0)


def _publish_unseen(stores: StorePair, pool: PublisherPool, discarded: Cluster) -> None:
    """Have the state that will be discarded publish what the other one does not have, however busy the machine is."""
    if stores.protocol == MURMURATE:
        stores.extend_demand(4)

        def has_unseen() -> int:
            pool.restart_ended(state=discarded.dsn)
            return stores.count_lost_tiles()

        wait_until(has_unseen)


def _finish(stores: StorePair, fault: str, times: int, lost_tiles: int) -> dict[str, int]:
    """Finish all work, check the log, and check that the faults had an effect."""
    if stores.protocol != MURMURATE:
        return finish(stores, {fault: times})
    if not lost_tiles:
        raise Violation(f"{stores.name}: no tile was lost, so nothing was tested")
    return finish(stores, {fault: times, "lost tiles": lost_tiles})


def failovers(context: RunContext, times: int, seed: int, protocol: str = MURMURATE) -> dict[str, int]:
    """Kill the primary of the state, with commits that its standby did not get, and promote the standby."""
    stores = context.store_pair(f"failovers of {protocol}", protocol)
    rng = seeded_random(seed)
    lost_tiles = 0
    for _ in range(times):
        keep_ahead(stores)
        with _replica(stores) as (link, standby), publisher_pool(stores, 2) as pool:
            pool.run_for(rng.uniform(0.1, 0.3))
            link.fault = NetworkFault.HANG
            _run_until_published(stores, pool, rng.uniform(0.2, 0.4))
            late = _LatePublisher(stores)
            stores.state.kill()
            link.fault = NetworkFault.REFUSE
            standby.promote()
            pool.kill_all()
            stores.state = standby
            lost_tiles += stores.count_lost_tiles()
            stores.correct_demand(standby)
            pool.run_for(rng.uniform(0.2, 0.4))
            late.send()
        check_append_only(stores)
    return _finish(stores, "failovers", times, lost_tiles)


def split_brains(context: RunContext, times: int, seed: int, protocol: str = MURMURATE) -> dict[str, int]:
    """Promote the standby while the primary runs. Both publish, from different demand. Then discard one of them."""
    stores = context.store_pair(f"split brains of {protocol}", protocol)
    rng = seeded_random(seed)
    lost_tiles = 0
    for _ in range(times):
        keep_ahead(stores)
        with _replica(stores) as (link, standby), publisher_pool(stores, 2) as old, publisher_pool(stores, 2) as new:
            old.run_for(rng.uniform(0.1, 0.2))
            link.fault = NetworkFault.HANG
            old.run_for(rng.uniform(0.1, 0.2))
            standby.promote()
            stores.correct_demand(standby)
            end = time.monotonic() + rng.uniform(0.4, 0.7)
            while time.monotonic() < end:
                old.restart_ended()
                new.restart_ended(state=standby.dsn)
                time.sleep(0.02)
            if rng.random() < 0.5:
                discarded, unseen, stores.state = stores.state, old, standby
                new.kill_all()
            else:
                discarded, unseen = standby, new
                old.kill_all()
            _publish_unseen(stores, unseen, discarded)
            unseen.kill_all()
            discarded.kill()
            lost_tiles += stores.count_lost_tiles()
        check_append_only(stores)
    return _finish(stores, "split brains", times, lost_tiles)


def restores(context: RunContext, times: int, seed: int, protocol: str = MURMURATE) -> dict[str, int]:
    """Restore the state from a backup that is older than the last published lines."""
    stores = context.store_pair(f"restores of {protocol}", protocol)
    rng = seeded_random(seed)
    lost_tiles = 0
    for number in range(times):
        keep_ahead(stores)
        with publisher_pool(stores, 2) as pool:
            pool.run_for(rng.uniform(0.1, 0.2))
            backup = stores.state.backup(stores.state.root / f"backup-{number}")
            _run_until_published(stores, pool, rng.uniform(0.3, 0.5))
            late = _LatePublisher(stores)
            stores.state.restore(backup)
            pool.kill_all()
            lost_tiles += stores.count_lost_tiles()
            stores.correct_demand(stores.state)
            pool.run_for(rng.uniform(0.2, 0.4))
            late.send()
        check_append_only(stores)
    return _finish(stores, "restores", times, lost_tiles)
