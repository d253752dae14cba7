"""Errors that involve rows of demand, forced one by one; and a careless cluster in which the search must find them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import psycopg

from tests.live.canary import Search, search
from tests.live.cluster import Cluster
from tests.live.pair import Pair, Room, Violation
from tests.live.world import FIRST

_INSERT = "INSERT INTO confidential.demand VALUES (%s, %s, %s, %s, %s)"
_UPDATE = "UPDATE confidential.demand SET energy_wh = %s WHERE zone = %s AND interval = %s"
_INTERVAL = FIRST + 1


def forced_errors(room: Room) -> dict[str, int]:
    """Each way in which a statement about demand may fail; what it says is kept for the search."""
    pair = room.pair("forced errors")
    pair.extend(20)
    faults: tuple[Callable[[Pair], object], ...] = (
        _duplicate_key,
        _serialization_failure,
        _cancelled_remember,
        _cancelled_recall,
        _terminated_remember,
        _read_only,
    )
    for fault in faults:
        try:
            fault(pair)
        except psycopg.Error as error:
            room.keep_error(error)
        else:
            raise Violation(f"{fault.__name__}: there was no error")
    pair.end()
    return {"errors about demand": len(faults)}


def _row(pair: Pair) -> tuple[object, ...]:
    return (pair.room.world.zones[0], _INTERVAL, pair.room.world.canary(), 800, 0)


def _duplicate_key(pair: Pair) -> None:
    pair.state.execute(_INSERT, _row(pair))


def _read_only(pair: Pair) -> None:
    with psycopg.connect(pair.state.dsn, options="-c default_transaction_read_only=on") as connection:
        connection.execute(_INSERT, _row(pair))


def _serialization_failure(pair: Pair) -> None:
    zone, interval, canary, *_ = _row(pair)
    with psycopg.connect(pair.state.dsn) as connection:
        connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        connection.execute("SELECT sum(energy_wh) FROM confidential.demand")
        pair.state.execute(_UPDATE, (canary, zone, interval))
        connection.execute(_UPDATE, (pair.room.world.canary(), zone, interval))


def _cancelled_remember(pair: Pair) -> None:
    _interrupted(pair, "pg_cancel_backend", lambda: _remember(pair))


def _terminated_remember(pair: Pair) -> None:
    _interrupted(pair, "pg_terminate_backend", lambda: _remember(pair))


def _cancelled_recall(pair: Pair) -> None:
    with pair.curator(pair.state) as state:
        _interrupted(pair, "pg_cancel_backend", lambda: state.recall({pair.room.world.zones[0]: _INTERVAL}))


def _remember(pair: Pair) -> None:
    with pair.curator(pair.state) as state:
        pair.room.world.remember(state, [_INTERVAL])


def _interrupted(pair: Pair, how: str, act: Callable[[], object]) -> None:
    """Somebody else holds the table; whoever waits for it is interrupted by the server."""
    query = f"SELECT {how}(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"  # noqa: S608 two functions

    def interrupt() -> None:
        end = time.monotonic() + 10
        while not pair.state.execute(query) and time.monotonic() < end:
            time.sleep(0.02)

    with psycopg.connect(pair.state.dsn) as holder:
        holder.execute("LOCK confidential.demand")
        other = threading.Thread(target=interrupt)
        other.start()
        try:
            act()
        finally:
            other.join()


def careless_cluster(room: Room) -> Cluster:
    """What a server logs whose operator writes literals and lets failed statements be logged."""
    pair = room.pair("careless")
    zone, interval, canary, *_ = _row(pair)
    for value in ("0", "NULL"):
        try:
            with psycopg.connect(pair.state.dsn, options="-c log_min_error_statement=error") as connection:
                for _ in range(2):
                    connection.execute(
                        f"INSERT INTO confidential.demand VALUES ('{zone}', {interval}, {canary}, 800, {value})"  # noqa: S608
                    )
        except psycopg.Error:
            continue
    pair.state.stop()
    pair.log.stop()
    return pair.state


def look(room: Room) -> tuple[Search, dict[str, int]]:
    """The search over everything, and the counts of its two controls, which must find something."""
    careless = careless_cluster(room)
    canaries = room.world.canaries
    logs = [path for path in room.clusters.logs() if path != careless.log]
    found = search([*sorted(room.evidence.iterdir()), *logs], canaries)
    controls = {
        "in the demand itself": len(search(sorted(room.confidential.iterdir()), canaries).hits),
        "in a careless log": len(search([careless.log], canaries).hits),
    }
    return found, controls
