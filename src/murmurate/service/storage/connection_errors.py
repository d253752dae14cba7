"""Why PostgreSQL cannot be used, and the remedy. Nothing of a connection string is quoted: it may hold a password."""

from __future__ import annotations

import psycopg

CREATE_DATABASES_SQL = """\
As a superuser, for example with sudo -u postgres psql:
  CREATE ROLE murmurate LOGIN PASSWORD 'choose one';
  CREATE DATABASE murmurate_state OWNER murmurate;
  CREATE DATABASE murmurate_log OWNER murmurate;"""

_ESCAPES = "in a password write %40 for @, %2F for /, %3A for : and %25 for %"
_NO_SERVER = (
    "no PostgreSQL server answers at the host and port of {source}; "
    "start it (pg_isready shows whether it runs), or correct host and port"
)
_NOT_LET_IN = (
    "the server does not let this machine, role and database in; add a line to its pg_hba.conf, "
    "such as host all murmurate 192.0.2.7/32 scram-sha-256, then SELECT pg_reload_conf()"
)
# What libpq or the server says in its first line, and what it means. A server in another language gets the last one.
_CONNECTION_REASONS = (
    ("failed to resolve host", f"the host name in {{source}} is not known; correct it, and {_ESCAPES}"),
    ("could not translate host", f"the host name in {{source}} is not known; correct it, and {_ESCAPES}"),
    ("Connection refused", _NO_SERVER),
    ("No such file or directory", _NO_SERVER),
    ("timeout expired", "the server of {source} did not answer in time; check the host, the network and its firewall"),
    ("invalid port number", "the port in {source} is no number from 1 to 65535; correct it, usually it is 5432"),
    (
        "no password supplied",
        "the server wants a password; write {source} as postgresql://role:password@host:5432/name",
    ),
    (
        "password authentication failed",
        "the server refuses the password in {source}; correct it, or as a superuser: ALTER ROLE .. PASSWORD '..'",
    ),
    ('" does not exist', "the server has no such {what} as {source} names; correct it, or create it.\n{sql}"),
    ("pg_hba.conf", _NOT_LET_IN),
    ("does not support SSL", "the server speaks no TLS; correct sslmode in {source}, or turn TLS on at the server"),
    ("permission denied", "the role may not connect; as a superuser: GRANT CONNECT ON DATABASE .. TO .."),
    ("too many", "the server has too many connections; wait, or raise its max_connections"),
    ("the database system is", "the server is starting or stopping; run the command again in a moment"),
    ("", "the server does not accept the connection; try psql with the same {source}, which shows the server's reason"),
)
_FAILURES = {
    "42501": "its role may not do that; run the command as the owner of the database, "
    "or as a superuser: ALTER DATABASE .. OWNER TO ..",
    "25006": "it takes no changes: it is a standby, or set to read-only; name the primary server",
    "53100": "the disk of its server is full; make room, then run the command again",
    "53300": "its server has too many connections; wait, or raise its max_connections",
    "42P01": "it has other tables than this version needs; murmurate open plan.json brings it up to date",
    "42703": "it has other tables than this version needs; murmurate open plan.json brings it up to date",
    "57014": "a statement took too long; run the command again when the server is less busy",
}
_FAILING_OTHERWISE = "nothing is half done: see the server's own log, then run the command again"


def connection_remedy(error: psycopg.Error, source: str) -> str:
    """Return why there is no connection, and what to do. `source` names where the connection string comes from."""
    text = str(error)
    what = "role" if 'role "' in text else "database"
    reason = next(reason for marker, reason in _CONNECTION_REASONS if marker in text)
    return reason.format(source=source, what=what, sql=CREATE_DATABASES_SQL)


def syntax_remedy(source: str) -> str:
    """Return how a connection string is written."""
    return f"write {source} as postgresql://role:password@host:5432/name; {_ESCAPES}"


def failure_remedy(error: psycopg.Error) -> str:
    """Return what to do about a statement that failed. The server's words are left out: they might quote a row."""
    if error.sqlstate is None:
        return f"the connection broke; {_FAILING_OTHERWISE}"
    return _FAILURES.get(error.sqlstate, f"it reports error {error.sqlstate}; {_FAILING_OTHERWISE}")
