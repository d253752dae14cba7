"""The clock of a database, set for a test: what its own functions and its clients read as the time of the server."""

from __future__ import annotations

import psycopg


def set_database_clock(dsn: str, ahead_s: float) -> None:
    """Have `clock_timestamp()` of one database differ from the server's clock. Others on the server keep theirs."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        if connection.execute("SELECT to_regproc('pg_catalog.true_clock_timestamp')").fetchone() == (None,):
            connection.execute("ALTER FUNCTION pg_catalog.clock_timestamp() RENAME TO true_clock_timestamp")
        connection.execute(
            f"""CREATE OR REPLACE FUNCTION pg_catalog.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
            AS 'SELECT pg_catalog.true_clock_timestamp() + make_interval(secs => {float(ahead_s)})'"""
        )
