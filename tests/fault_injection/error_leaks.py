"""Forced errors about rows of demand, and a cluster with a verbose log, in which the search must find the demand."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg

from tests.fault_injection.leak_search import search_files
from tests.fault_injection.sample_zones import FIRST
from tests.fault_injection.store_pair import RunContext, StorePair, Violation
from tests.support.postgres_cluster import Cluster
from tests.support.waiting import wait_until

_INSERT_INTO = "INSERT INTO confidential.demand (zone, interval, energy_wh, reported, imputed) VALUES"
_INSERT = f"{_INSERT_INTO} (%s, %s, %s, %s, %s)"
_UPDATE = "UPDATE confidential.demand SET energy_wh = %s WHERE zone = %s AND interval = %s"
_INTERVAL = FIRST + 1


def forced_errors(context: RunContext, *_: int) -> dict[str, int]:
    """Make statements about demand fail in each possible way, and keep the errors for the search."""
    stores = context.store_pair("forced errors")
    stores.extend_demand(20)
    faults: tuple[Callable[[StorePair], object], ...] = (
        _duplicate_key,
        _serialization_failure,
        _cancelled_store_demand,
        _cancelled_load_demand,
        _terminated_store_demand,
        _read_only,
    )
    for fault in faults:
        try:
            fault(stores)
        except psycopg.Error as error:
            context.keep_error(error)
        else:
            raise Violation(f"{fault.__name__}: there was no error")
    stores.stop()
    return {"errors about demand": len(faults)}


def _row(stores: StorePair) -> tuple[object, ...]:
    return (stores.context.sample.zones[0], _INTERVAL, stores.context.sample.canary(), 800, 0)


def _duplicate_key(stores: StorePair) -> None:
    stores.state.execute(_INSERT, _row(stores))


def _read_only(stores: StorePair) -> None:
    with psycopg.connect(stores.state.dsn, options="-c default_transaction_read_only=on") as connection:
        connection.execute(_INSERT, _row(stores))


def _serialization_failure(stores: StorePair) -> None:
    zone, interval, canary, *_ = _row(stores)
    with psycopg.connect(stores.state.dsn) as connection:
        connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        connection.execute("SELECT sum(energy_wh) FROM confidential.demand")
        stores.state.execute(_UPDATE, (canary, zone, interval))
        connection.execute(_UPDATE, (stores.context.sample.canary(), zone, interval))


def _cancelled_store_demand(stores: StorePair) -> None:
    _interrupt_waiting(stores, "pg_cancel_backend", lambda: _store_demand(stores))


def _terminated_store_demand(stores: StorePair) -> None:
    _interrupt_waiting(stores, "pg_terminate_backend", lambda: _store_demand(stores))


def _cancelled_load_demand(stores: StorePair) -> None:
    with stores.open_state(stores.state) as state:
        _interrupt_waiting(
            stores,
            "pg_cancel_backend",
            lambda: state.load_demand({"shard": (_INTERVAL, stores.context.sample.zones[:1])}),
        )


def _store_demand(stores: StorePair) -> None:
    with stores.open_state(stores.state) as state:
        stores.context.sample.store_demand(state, [_INTERVAL])


def _interrupt_waiting(stores: StorePair, how: str, act: Callable[[], object]) -> None:
    """Run `act` while another connection holds the table, and let the server interrupt it."""
    query = f"SELECT {how}(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"  # noqa: S608 two functions
    with psycopg.connect(stores.state.dsn) as holder:
        holder.execute("LOCK confidential.demand")
        interrupter = threading.Thread(target=wait_until, args=(lambda: stores.state.execute(query),))
        interrupter.start()
        try:
            act()
        finally:
            interrupter.join()


def cluster_with_verbose_log(context: RunContext) -> Cluster:
    """Return a cluster that logged failed statements with literal demand."""
    stores = context.store_pair("verbose")
    zone, interval, canary, *_ = _row(stores)
    for value in ("0", "NULL"):
        try:
            with psycopg.connect(stores.state.dsn, options="-c log_min_error_statement=error") as connection:
                for _ in range(2):
                    connection.execute(f"{_INSERT_INTO} ('{zone}', {interval}, {canary}, 800, {value})")
        except psycopg.Error:
            continue
    stores.state.stop()
    stores.log.stop()
    return stores.state


def search_evidence(context: RunContext, *_: int) -> dict[str, int]:
    """Search all evidence for demand. A hit is a violation, but for those of the two controls, which must not be 0."""
    verbose = cluster_with_verbose_log(context)
    canaries = context.sample.canaries
    logs = [path for path in context.clusters.logs() if path != verbose.log]
    files = [*sorted(context.evidence.iterdir()), *logs]
    hits = search_files(files, canaries)
    if hits:
        raise Violation(f"{hits[0][0]} contains a demand as {hits[0][1]}; {len(hits) - 1} more hits")
    return {
        "files": len(files),
        "bytes": sum(path.stat().st_size for path in files),
        "hits": 0,
        "in the demand itself": len(search_files(sorted(context.confidential.iterdir()), canaries)),
        "in a verbose log": len(search_files([verbose.log], canaries)),
    }
