"""The two databases of an operator as a command sees them: named, reachable, prepared; never with their password."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg
from psycopg.conninfo import conninfo_to_dict

from murmurate.errors import MurmurateError
from murmurate.publication.record import Entry, read
from murmurate.service.migrate import Store
from murmurate.service.publiclog import PostgresLog

_HOLDS = {"state": "curator.head", "log": "public_log.head"}
_FAR = 2**62  # a number that no record has: asks the log for its heads alone


@dataclass(frozen=True, slots=True)
class Database:
    """A connection string and what it leads to. It prints no password."""

    store: Store
    dsn: str = field(repr=False)

    def __post_init__(self) -> None:
        if not self.dsn:
            allowed = f"give --{self.store} or set {self.variable}, for example postgresql://user@host:5432/name"
            raise MurmurateError(f"the {self.store} database", "not named", allowed)

    @property
    def variable(self) -> str:
        return f"MURMURATE_{self.store.upper()}"

    @property
    def place(self) -> tuple[str, str]:
        """Host and port, as far as the connection string names them."""
        try:
            parts = conninfo_to_dict(self.dsn)
        except psycopg.ProgrammingError:
            return "", ""
        return str(parts.get("hostaddr") or parts.get("host") or "this machine"), str(parts.get("port") or "5432")

    def check(self, *, prepared: bool = True) -> None:
        """Raise MurmurateError unless it answers and (if so wished) has our tables.

        Nothing of the connection string is shown: one that is written wrongly may have its password anywhere.
        """
        try:
            with psycopg.connect(self.dsn, connect_timeout=5) as connection:
                row = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (_HOLDS[self.store],)).fetchone()
        except psycopg.Error as error:
            allowed = f"{type(error).__name__}; is it running, and is {self.variable} right?"
            raise MurmurateError(f"the {self.store} database", "out of reach", allowed) from None
        if prepared and row != (True,):
            allowed = "has none of our tables yet; murmurate open plan.json prepares it"
            raise MurmurateError(f"the {self.store} database", "empty", allowed)


@contextmanager
def failures_in_one_line() -> Iterator[None]:
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
    def of(cls, *, state: str, log: str) -> Databases:
        return cls(state=Database("state", state), log=Database("log", log))

    def check(self, *, prepared: bool = True) -> None:
        self.state.check(prepared=prepared)
        self.log.check(prepared=prepared)

    @property
    def together(self) -> bool:
        """Whether one failure takes both."""
        return self.state.place == self.log.place


def heads(log: PostgresLog, zones: list[str]) -> dict[str, Entry]:
    """The last entry of each of these zones that has a chain."""
    last = {zone: beyond.last_seq for zone, beyond in log.read(dict.fromkeys(zones, _FAR)).items()}
    found = log.read({zone: seq - 1 for zone, seq in last.items() if seq >= 0})
    return {zone: read(beyond.lines[0]) for zone, beyond in found.items() if beyond.lines}


def first_entries(log: PostgresLog, zones: list[str]) -> dict[str, Entry]:
    """The entry that opened each of these zones."""
    found = log.read(dict.fromkeys(zones, -1))
    return {zone: read(beyond.lines[0]) for zone, beyond in found.items() if beyond.lines}
