"""The two databases of an operator as a command sees them: named, reachable, prepared; never with their password."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg
from psycopg.conninfo import conninfo_to_dict

from murmurate.errors import MurmurateError
from murmurate.service.storage.connection_errors import (
    CREATE_DATABASES_SQL,
    connection_remedy,
    failure_remedy,
    syntax_remedy,
)
from murmurate.service.storage.migrate import check_origin
from murmurate.service.storage.server_checks import StoreName, can_everyone_create, check_server
from murmurate.service.storage.session import connect

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
            with connect(self.dsn) as connection:
                check_server(connection, self.store)
                check_origin(connection, self.store)
                row = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (_MARKER_TABLES[self.store],)).fetchone()
        except psycopg.Error as error:
            allowed = connection_remedy(error, self.source)
            raise DatabaseUnreachableError(f"the {self.store} database", "out of reach", allowed) from None
        if prepared and row != (True,):
            allowed = "has none of our tables yet; murmurate open plan.json prepares it"
            raise MurmurateError(f"the {self.store} database", "empty", allowed)

    def check_syntax(self) -> None:
        """Raise MurmurateError if the connection string is none: waiting does not help."""
        try:
            conninfo_to_dict(self.dsn)
        except psycopg.ProgrammingError:
            allowed = syntax_remedy(self.source)
            raise MurmurateError(f"the {self.store} database", "named by no connection string", allowed) from None

    def identity(self) -> tuple[object, ...]:
        """What two connection strings of one database have in common, also those of its standby servers."""
        with connect(self.dsn) as connection:
            return connection.execute(_DATABASE_IDENTITY).fetchone() or ()

    def can_everyone_create(self) -> bool:
        """Return whether every role may create objects in its schema public. Its owner may not be able to change it."""
        with connect(self.dsn) as connection:
            return can_everyone_create(connection)


@contextmanager
def mask_database_errors() -> Iterator[None]:
    """A database that fails in the middle of a command: its name, never its words, which might quote a row."""
    try:
        yield
    except psycopg.Error as error:
        raise MurmurateError("a database", "failing", failure_remedy(error)) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Databases:
    """Both of them."""

    state: Database
    log: Database

    @classmethod
    def from_dsns(cls, *, state: str, log: str) -> Databases:
        return cls(state=Database("state", state), log=Database("log", log))

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
