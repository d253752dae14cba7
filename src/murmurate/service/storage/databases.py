"""The two databases of an operator as a command sees them: named, reachable, prepared; never with their password."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from murmurate.errors import MurmurateError
from murmurate.service.storage.migrate import check_origin, migrate_database
from murmurate.service.storage.object_store import ObjectStore
from murmurate.service.storage.open_store import open_log_store
from murmurate.service.storage.server_checks import StoreName, check_server
from murmurate.service.storage.session import NO_ANSWER, connect

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
_PATIENT_S = 20  # for which a command, or the start of a service, waits for a busy server
_NOT_LET_IN = (
    "the server does not let this machine, role and database in; add a line to its pg_hba.conf, "
    "such as host all murmurate 192.0.2.7/32 scram-sha-256, then SELECT pg_reload_conf()"
)
_TOO_LATE = "the server of {source} did not answer in time; check the host, the network and its firewall"
# What libpq, the server or our own limit says in its first line, and what it means. A server in another language gets
# the last one.
_CONNECTION_REASONS = (
    ("failed to resolve host", f"the host name in {{source}} is not known; correct it, and {_ESCAPES}"),
    ("could not translate host", f"the host name in {{source}} is not known; correct it, and {_ESCAPES}"),
    ("Connection refused", _NO_SERVER),
    ("No such file or directory", _NO_SERVER),
    ("timeout expired", _TOO_LATE),
    (NO_ANSWER, _TOO_LATE),
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
    "42P01": "it has other tables than this version needs; murmurate zone open plan.json brings it up to date",
    "42703": "it has other tables than this version needs; murmurate zone open plan.json brings it up to date",
    "57014": "a statement took too long; run the command again when the server is less busy",
}
_FAILING_OTHERWISE = "nothing is half done: see the server's own log, then run the command again"


# Servers that were copied from one image have the same identifier; they were not started in the same microsecond.
_DATABASE_IDENTITY = "SELECT system_identifier, pg_postmaster_start_time(), current_database() FROM pg_control_system()"
_MARKER_TABLES = {"state": "curator.shard", "log": "public_log.head"}
_TWO_DATABASES = (
    "must be another one, at best on another server: a backup that sets both back would publish twice. "
    f"Name another one with --log or MURMURATE_LOG.\n{CREATE_DATABASES_SQL}"
)


class DatabaseUnreachableError(MurmurateError):
    """A database does not answer. It may do so later: a service waits for it."""


@dataclass(frozen=True, slots=True)
class Database:
    """A connection string and what it leads to. It prints no password."""

    store: StoreName
    dsn: str = field(repr=False)

    def __post_init__(self) -> None:
        if not self.dsn:
            allowed = f"give --{self.store} or set {self.env_variable}, for example postgresql://user@host:5432/name"
            raise MurmurateError(f"the {self.store} database", "not named", allowed)

    @property
    def env_variable(self) -> str:
        return f"MURMURATE_{self.store.upper()}"

    @property
    def source(self) -> str:
        """Where the connection string comes from, for messages."""
        return f"--{self.store} or {self.env_variable}"

    @property
    def host_and_port(self) -> tuple[str, str]:
        """Host and port, as far as the connection string names them."""
        try:
            parts = conninfo_to_dict(self.dsn)
        except psycopg.ProgrammingError:
            return "", ""
        return str(parts.get("hostaddr") or parts.get("host") or "this machine"), str(parts.get("port") or "5432")

    def check_reachable(self, *, prepared: bool = True) -> None:
        """Raise MurmurateError unless it answers, is of no earlier version and (if so wished) has our tables.

        Nothing of the connection string is shown: one that is written wrongly may have its password anywhere.
        """
        self.check_syntax()
        try:
            with connect(self.dsn, connect_timeout=_PATIENT_S) as connection:
                check_server(connection, self.store)
                check_origin(connection, self.store)
                row = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (_MARKER_TABLES[self.store],)).fetchone()
        except psycopg.Error as error:
            text = str(error)
            reason = next(reason for marker, reason in _CONNECTION_REASONS if marker in text)
            what = "role" if 'role "' in text else "database"
            allowed = reason.format(source=self.source, what=what, sql=CREATE_DATABASES_SQL)
            raise DatabaseUnreachableError(f"the {self.store} database", "out of reach", allowed) from None
        if prepared and row != (True,):
            allowed = "has none of our tables yet; murmurate zone open plan.json prepares it"
            raise MurmurateError(f"the {self.store} database", "empty", allowed)

    def check_syntax(self) -> None:
        """Raise MurmurateError if the connection string is none: waiting does not help."""
        try:
            conninfo_to_dict(self.dsn)
        except psycopg.ProgrammingError:
            allowed = f"write {self.source} as postgresql://role:password@host:5432/name; {_ESCAPES}"
            raise MurmurateError(f"the {self.store} database", "named by no connection string", allowed) from None

    def identity(self) -> tuple[object, ...]:
        """What two connection strings of one database have in common, also those of its standby servers."""
        with connect(self.dsn) as connection:
            return connection.execute(_DATABASE_IDENTITY).fetchone() or ()

    def prepare(self) -> None:
        """Bring the tables to this version."""
        migrate_database(self.dsn, self.store)

    def can_everyone_create(self) -> bool:
        """Return whether every role may create objects in its schema public. Its owner may not be able to change it."""
        query = "SELECT has_schema_privilege('public', 'public', 'CREATE') WHERE to_regnamespace('public') IS NOT NULL"
        with connect(self.dsn) as connection:
            return connection.execute(query).fetchone() == (True,)


_OBJECT_LOG = re.compile(r"(s3|gs|az)://.*|\.{0,2}/.*", re.DOTALL)  # no connection string begins so


@dataclass(frozen=True, slots=True)
class ObjectLog:
    """A log in an object store. Its address is where the connection string of a log in PostgreSQL would be."""

    address: str
    store: StoreName = "log"

    @property
    def dsn(self) -> str:
        """Raise MurmurateError: there is none, and what asks for one needs a log in PostgreSQL."""
        allowed = (
            "must be in PostgreSQL for this. In an object store it is published to, served, shown and verified, not "
            "exported, archived, repaired or written to static_files"
        )
        raise MurmurateError("the log", f"in an object store, {self.address}", allowed)

    @property
    def host_and_port(self) -> tuple[str, str]:
        return self.address, ""

    def check_reachable(self, *, prepared: bool = True) -> None:  # noqa: ARG002  nothing is prepared in it
        """Raise MurmurateError unless it answers."""
        if "://" not in self.address and not Path(self.address).is_dir():
            raise MurmurateError("the log", f"{self.address}, which is not there", "must be a folder: create it")
        try:
            self.open().exists("documents/none.json")
        except OSError as error:
            allowed = f"check its address, the network, and endpoint and key in the environment: {error.strerror}"
            raise DatabaseUnreachableError("the store of the log", "out of reach", allowed) from None

    def identity(self) -> tuple[object, ...]:
        return (self.address,)

    def prepare(self) -> None:
        """Try a bucket by races. Raises MurmurateError where it lets two writers win a name, OSError without an answer.

        A folder is asked nothing.
        """
        open_log_store(self.address, probe=True)

    def open(self) -> ObjectStore:
        """The store that it is in."""
        return open_log_store(self.address)

    def can_everyone_create(self) -> bool:
        """Who may write to a bucket is not in the hands of this service."""
        return False


def name_log(name: str) -> Database | ObjectLog:
    """Return the log that a connection string, an address or a path names.

    >>> name_log("s3://prices/log"), name_log("./log").address
    (ObjectLog(address='s3://prices/log', store='log'), './log')
    """
    return ObjectLog(name) if _OBJECT_LOG.fullmatch(name) else Database("log", name)


@contextmanager
def mask_database_errors() -> Iterator[None]:
    """A database that fails in the middle of a command: what to do, never its words, which might quote a row."""
    try:
        yield
    except psycopg.Error as error:
        remedy = _FAILURES.get(error.sqlstate or "", f"it reports error {error.sqlstate}; {_FAILING_OTHERWISE}")
        if error.sqlstate is None:
            remedy = f"the connection broke; {_FAILING_OTHERWISE}"
        raise MurmurateError("a database", "failing", remedy) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Databases:
    """Both of them."""

    state: Database
    log: Database | ObjectLog

    @classmethod
    def from_dsns(cls, *, state: str, log: str) -> Databases:
        return cls(state=Database("state", state), log=name_log(log))

    def check_reachable(self, *, prepared: bool = True) -> None:
        self.state.check_reachable(prepared=prepared)
        self.log.check_reachable(prepared=prepared)
        with mask_database_errors():
            is_one = self.state.identity() == self.log.identity()
        if is_one:
            raise MurmurateError("the log database", "the state database as well", _TWO_DATABASES)

    @property
    def share_server(self) -> bool:
        """Whether one failure takes both."""
        return self.state.host_and_port == self.log.host_and_port
