"""`murmurate client`: who may send readings."""

from __future__ import annotations

from collections.abc import Sequence

from murmurate.errors import MurmurateError
from murmurate.service.access import Access, Client, scope_of
from murmurate.service.databases import Database, failures_in_one_line
from murmurate.service.migrate import migrate
from murmurate.service.office import out
from murmurate.service.state import PostgresState


def client(what: str, name: str, zones: Sequence[str], state: str, *, operator: bool) -> None:
    """Add, remove or list."""
    database = Database("state", state)
    database.check()
    with failures_in_one_line():
        migrate(database.dsn, "state")
        access = Access(database.dsn)
        if what == "list":
            _list(access)
        elif what == "add":
            _add(access, Client(id=name, zones=frozenset(zones), operator=operator), PostgresState(database.dsn))
        elif what == "remove":
            out.print(f"{name}: {'shut out' if access.remove(name) else 'there is none of that name'}.")
        else:
            raise MurmurateError("client", what, "must be add, remove or list")


def _add(access: Access, client: Client, state: PostgresState) -> None:
    if not client.zones and not client.operator:
        raise MurmurateError("--zone", "missing", "name the zones whose meters it may speak for, or --operator")
    if unknown := client.zones - state.openings().keys():
        raise MurmurateError("--zone", min(unknown), "is not open; murmurate open plan.json opens it")
    secret = access.add(client)
    out.print(f"client_id:     {client.id}")
    out.print(f"client_secret: {secret}")
    out.print("The secret is shown this once. What it had before is no longer valid.")


def _list(access: Access) -> None:
    for one in access.clients():
        what = " ".join(filter(None, (scope_of(one.zones), "operator" if one.operator else "")))
        out.print(f"{one.id}: {what}")
