"""What a PostgreSQL server must be, and must not do: its version, and what it writes to its log."""

from __future__ import annotations

from typing import Any, Literal

from psycopg import Connection

from murmurate.errors import MurmurateError

StoreName = Literal["state", "log"]

MIN_SERVER_VERSION = 15_00_00  # the oldest that is tested, and that still gets security updates
_SECRET_PARAMETERS = {  # what keeps parameters of statements, and so demand, out of the server's log
    "log_parameter_max_length": "0",
    "auto_explain.log_min_duration": "-1",
    "pgaudit.log_parameter": "off",
}
_SET_WHERE_ALLOWED = """
    SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS wanted (name, value)
    WHERE current_setting(name, true) IS NOT NULL AND has_parameter_privilege(name, 'SET')"""
_LOGGED_PARAMETERS = """
    SELECT array_remove(ARRAY[
        CASE WHEN current_setting('log_parameter_max_length') <> '0' AND (
            current_setting('log_statement') IN ('mod', 'all')
            OR current_setting('log_min_duration_statement') <> '-1'
            OR current_setting('log_min_duration_sample') <> '-1'
            OR current_setting('log_transaction_sample_rate')::float8 > 0
        ) THEN 'log_parameter_max_length = 0' END,
        CASE WHEN coalesce(current_setting('auto_explain.log_min_duration', true), '-1') <> '-1'
            THEN 'auto_explain.log_min_duration = -1' END,
        CASE WHEN coalesce(current_setting('pgaudit.log_parameter', true), 'off') <> 'off'
            THEN 'pgaudit.log_parameter = off' END
    ], NULL)"""


def check_server(connection: Connection[Any], store: StoreName) -> None:
    """Raise MurmurateError where the server is too old, or where the state's server would log parameters."""
    if connection.info.server_version < MIN_SERVER_VERSION:
        version = connection.info.server_version
        found = f"on PostgreSQL {version // 10_000}.{version % 10_000}"
        allowed = f"needs PostgreSQL {MIN_SERVER_VERSION // 10_000} or newer"
        raise MurmurateError(f"the {store} database", found, allowed)
    if store == "state":
        (settings,) = connection.execute(_LOGGED_PARAMETERS).fetchone() or ([],)
        if settings:
            allowed = f"its server would write demand to its log; as a superuser: ALTER DATABASE .. SET {settings[0]}"
            raise MurmurateError("the state database", "logging the parameters of statements", allowed)


def hide_parameters(connection: Connection[Any]) -> None:
    """Keep the parameters of this session out of the server's log, as far as its role may."""
    connection.execute(_SET_WHERE_ALLOWED, (list(_SECRET_PARAMETERS), list(_SECRET_PARAMETERS.values())))
    connection.commit()


def read_database_bytes(connection: Connection[Any]) -> int:
    """Return what the database takes on the disk of its server."""
    row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    return int(row[0]) if row else 0
