"""Scenarios: the network between publisher and databases loses acknowledgements, refuses and hangs."""

from __future__ import annotations

import time

from murmurate.public_log.tile import parse_tile
from tests.fault_injection.checks import check_append_only, finish
from tests.fault_injection.crashes import keep_ahead
from tests.fault_injection.store_pair import RunContext, StorePair, Violation, publisher_pool
from tests.support.postgres_proxy import NetworkFault, Proxy, proxy
from tests.support.waiting import wait_until

_SAVE, _APPEND = b"curator.", b"public_log.append"  # text in the relevant transactions


def lost_acknowledgements(context: RunContext, losses: int, seed: int) -> dict[str, int]:
    """Perform about every third COMMIT of the state and of the log without a response to the client."""
    stores = context.store_pair("lost acknowledgements")
    with (
        proxy(stores.state.port, loss=0.35, seed=seed, word=_SAVE) as state,
        proxy(stores.log.port, loss=0.35, seed=seed + 1, word=_APPEND) as log,
    ):
        with publisher_pool(stores, 3) as pool:
            state.fault = log.fault = NetworkFault.LOSE
            while min(state.lost, log.lost) * 2 < losses:
                keep_ahead(stores)
                pool.run_for(0.3, state=state.dsn, log=log.dsn)
                check_append_only(stores)
        lost = {"lost acknowledgements": state.lost + log.lost, "of the state": state.lost, "of the log": log.lost}
    return finish(stores, lost)


def unreachable_log(context: RunContext, outages: int, _: int) -> dict[str, int]:
    """Make the log refuse or hang. Nothing may be published. Later the pending draws must be published unchanged."""
    stores = context.store_pair("unreachable log")
    resent = 0
    with proxy(stores.log.port, word=_APPEND) as log, publisher_pool(stores, 2) as pool:
        for number in range(outages):
            keep_ahead(stores)
            pool.run_for(0.3, log=log.dsn)
            resent += _outage(stores, log, (NetworkFault.REFUSE, NetworkFault.HANG)[number % 2])
            pool.run_for(0.3, log=log.dsn)
            check_append_only(stores)
    counts = finish(stores, {"outages": outages, "draws kept and sent later": resent})
    if counts["competing tiles"]:
        raise Violation(f"unreachable log: {counts['competing tiles']} second draws")
    return counts


def _settled(stores: StorePair) -> tuple[int, dict[str, bytes]]:
    """Return public lines and pending draws once earlier requests have arrived: when both stay the same for a time."""
    seen: list[tuple[int, dict[str, bytes]]] = []

    def stays_the_same() -> bool:
        seen.append((check_append_only(stores), _pending(stores)))
        return seen[-2:-1] == seen[-1:]

    if not wait_until(stays_the_same, 60, pause_s=0.2):
        raise Violation("tiles are published during the outage")
    return seen[-1]


def _pending(stores: StorePair) -> dict[str, bytes]:
    rows = stores.state.execute("SELECT shard, body FROM curator.tile WHERE NOT seen")
    return {shard: bytes(body) for shard, body in rows}


def _outage(stores: StorePair, log: Proxy, fault: NetworkFault) -> int:
    """Make the log unreachable for a time. Return the number of pending draws, which must be the next lines."""
    log.fault = fault
    before, pending = _settled(stores)
    time.sleep(0.6)
    if check_append_only(stores) != before:
        raise Violation("an entry was published during the outage")
    if _pending(stores) != pending:
        raise Violation("a draw was made during the outage")
    log.fault = NetworkFault.REFUSE  # closes the connections that still hang
    time.sleep(0.1)
    log.fault = NetworkFault.FORWARD
    heads = {shard: len(tiles) for shard, tiles in stores.earlier_tiles.items()}
    open_draws = {shard: body for shard, body in pending.items() if parse_tile(body).header.seq == heads.get(shard, 0)}

    def are_published() -> bool:
        check_append_only(stores)
        return all(len(stores.earlier_tiles.get(shard, [])) > heads.get(shard, 0) for shard in open_draws)

    if not wait_until(are_published):
        raise Violation("a pending draw was not published")
    if any(stores.earlier_tiles[shard][heads.get(shard, 0)] != body for shard, body in open_draws.items()):
        raise Violation("another draw was published instead of the pending one")
    return len(open_draws)
