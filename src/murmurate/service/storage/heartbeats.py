"""When each process of a service was last alive, and what it reported."""

from __future__ import annotations

import json
from collections.abc import Mapping

from murmurate.service.storage.session import TransactionSource

WORKER_HEARTBEAT = "worker"  # the last release of the worker
WORKER_BEAT = "worker beat"  # that the worker is alive, and its figures

StoredHeartbeat = tuple[float, dict[str, object]]  # its time [s of UTC], and the report of the process


def record_heartbeat(database: TransactionSource, process: str, report: Mapping[str, object]) -> float:
    """Store that a process is alive, and its report. Returns the time by the database's clock [s of UTC]."""
    query = """
        INSERT INTO curator.heartbeat VALUES (%s, clock_timestamp(), %s)
        ON CONFLICT (process) DO UPDATE SET at = excluded.at, report = excluded.report
        RETURNING extract(epoch FROM at)::float8"""
    with database.transaction() as connection:
        row = connection.execute(query, (process, json.dumps(report))).fetchone()
    return float(row[0]) if row else 0.0


def read_heartbeats(database: TransactionSource) -> dict[str, StoredHeartbeat]:
    """Return the last heartbeat of each process."""
    query = "SELECT process, extract(epoch FROM at)::float8, report FROM curator.heartbeat"
    with database.transaction() as connection:
        return {process: (at_s, report) for process, at_s, report in connection.execute(query).fetchall()}


def read_heartbeat_ages(database: TransactionSource) -> dict[str, StoredHeartbeat]:
    """Return the age of each process's last heartbeat by the database's clock [s], and its report."""
    query = "SELECT process, extract(epoch FROM clock_timestamp() - at)::float8, report FROM curator.heartbeat"
    with database.transaction() as connection:
        rows = connection.execute(query).fetchall()
    return {process: (max(0.0, age_s), report) for process, age_s, report in rows}
