"""`murmurate client`: manage the clients that may send readings."""

from __future__ import annotations

from collections.abc import Sequence

from murmurate.commands.console import stdout
from murmurate.errors import MurmurateError
from murmurate.service.auth import ApiClient, AuthStore, scope_for_zones
from murmurate.service.storage.databases import Database, mask_database_errors
from murmurate.service.storage.migrate import migrate_database
from murmurate.service.storage.state_store import PostgresStateStore


def manage_clients(action: str, name: str, zones: Sequence[str], state: str, *, operator: bool) -> None:
    """`murmurate client`: add, remove or list."""
    database = Database("state", state)
    database.check_reachable()
    with mask_database_errors():
        migrate_database(database.dsn, "state")
        access = AuthStore(database.dsn)
        if action == "list":
            _list_clients(access)
        elif action == "add":
            _add_client(
                access,
                ApiClient(id=name, zones=frozenset(zones), is_operator=operator),
                PostgresStateStore(database.dsn),
            )
        elif action == "remove":
            stdout.print(f"{name}: {'removed' if access.remove_client(name) else 'there is no client of that name'}.")
        else:
            raise MurmurateError("action", action, "must be add, remove or list")


def _add_client(auth_store: AuthStore, client: ApiClient, state: PostgresStateStore) -> None:
    if not client.zones and not client.is_operator:
        raise MurmurateError("--zone", "missing", "name the zones whose readings it may send, or --operator")
    if unknown := client.zones - state.openings().keys():
        raise MurmurateError("--zone", min(unknown), "is not open; murmurate open plan.json opens it")
    secret = auth_store.add_client(client)
    stdout.print(f"client_id:     {client.id}")
    stdout.print(f"client_secret: {secret}")
    stdout.print("The secret is shown this once. An earlier secret of this client is no longer valid.")


def _list_clients(auth_store: AuthStore) -> None:
    for client in auth_store.list_clients():
        scopes = " ".join(filter(None, (scope_for_zones(client.zones), "operator" if client.is_operator else "")))
        stdout.print(f"{client.id}: {scopes}")
