"""The two databases of an operator as a command sees them: named, reachable, prepared; never with their password."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg
from psycopg.conninfo import conninfo_to_dict

from murmurate.errors import MurmurateError
from murmurate.public_log.record import Entry, parse_entry
from murmurate.service.storage.migrate import StoreName
from murmurate.service.storage.public_log_store import PostgresLogStore

_MARKER_TABLES = {"state": "curator.head", "log": "public_log.head"}
_MAX_SEQ = 2**62  # a number that no record has: asks the log for its heads alone


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
    def host_and_port(self) -> tuple[str, str]:
        """Host and port, as far as the connection string names them."""
        try:
            parts = conninfo_to_dict(self.dsn)
        except psycopg.ProgrammingError:
            return "", ""
        return str(parts.get("hostaddr") or parts.get("host") or "this machine"), str(parts.get("port") or "5432")

    def check_reachable(self, *, prepared: bool = True) -> None:
        """Raise MurmurateError unless it answers and (if so wished) has our tables.

        Nothing of the connection string is shown: one that is written wrongly may have its password anywhere.
        """
        try:
            with psycopg.connect(self.dsn, connect_timeout=5) as connection:
                row = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (_MARKER_TABLES[self.store],)).fetchone()
        except psycopg.Error as error:
            allowed = f"{type(error).__name__}; is it running, and is {self.env_variable} right?"
            raise MurmurateError(f"the {self.store} database", "out of reach", allowed) from None
        if prepared and row != (True,):
            allowed = "has none of our tables yet; murmurate open plan.json prepares it"
            raise MurmurateError(f"the {self.store} database", "empty", allowed)


@contextmanager
def mask_database_errors() -> Iterator[None]:
    """A database that fails in the middle of a command: its name, never its words, which might quote a row."""
    try:
        yield
    except psycopg.Error as error:
        allowed = "nothing is half done: see the server's own log, then run the command again"
        raise MurmurateError("a database", f"failing ({type(error).__name__})", allowed) from None


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

    @property
    def share_server(self) -> bool:
        """Whether one failure takes both."""
        return self.state.host_and_port == self.log.host_and_port


def read_heads(log: PostgresLogStore, zones: list[str]) -> dict[str, Entry]:
    """The last entry of each of these zones that has a chain."""
    last = {zone: tail.last_seq for zone, tail in log.read(dict.fromkeys(zones, _MAX_SEQ)).items()}
    tails = log.read({zone: seq - 1 for zone, seq in last.items() if seq >= 0})
    return {zone: parse_entry(tail.lines[0]) for zone, tail in tails.items() if tail.lines}


def read_first_entries(log: PostgresLogStore, zones: list[str]) -> dict[str, Entry]:
    """The entry that opened each of these zones."""
    tails = log.read(dict.fromkeys(zones, -1))
    return {zone: parse_entry(tail.lines[0]) for zone, tail in tails.items() if tail.lines}
