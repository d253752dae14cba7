"""`murmurate client`: manage the clients that may send readings."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from murmurate.commands.console import stdout
from murmurate.commands.json_output import print_json
from murmurate.errors import MurmurateError
from murmurate.service.auth import ApiClient, AuthStore, scope_for_zones
from murmurate.service.storage.databases import Database, mask_database_errors
from murmurate.service.storage.migrate import migrate_database
from murmurate.service.storage.state_store import PostgresStateStore

_ACTIONS = ("add", "remove", "list")


def manage_clients(
    action: str, name: str, zones: Sequence[str], state: str, *, operator: bool, as_json: bool = False
) -> None:
    """`murmurate client`: add, remove or list."""
    if action not in _ACTIONS:
        raise MurmurateError("action", action, f"must be {', '.join(_ACTIONS[:-1])} or {_ACTIONS[-1]}")
    if action != "list" and not name:
        raise MurmurateError("the name of the client", "missing", f"write murmurate client {action} head-end")
    database = Database("state", state)
    database.check_reachable()
    with mask_database_errors():
        migrate_database(database.dsn, "state")
        with closing(AuthStore(database.dsn)) as access:
            if action == "list":
                _list_clients(access, as_json=as_json)
            elif action == "add":
                client = ApiClient(id=name, zones=frozenset(zones), is_operator=operator)
                _add_client(access, client, PostgresStateStore(database.dsn), as_json=as_json)
            else:
                _remove_client(access, name, as_json=as_json)


def _add_client(auth_store: AuthStore, client: ApiClient, state: PostgresStateStore, *, as_json: bool) -> None:
    if not client.zones and not client.is_operator:
        raise MurmurateError("--zone", "missing", "name the zones whose readings it may send, or --operator")
    if unknown := client.zones - state.zones().keys():
        raise MurmurateError("--zone", min(unknown), "is not open; murmurate zone open plan.json opens it")
    secret = auth_store.add_client(client)
    if as_json:
        print_json(_client_members(client) | {"client_secret": secret})
        return
    stdout.print(f"client_id:     {client.id}")
    stdout.print(f"client_secret: {secret}")
    stdout.print("The secret is shown this once. An earlier secret of this client is no longer valid.")


def _remove_client(auth_store: AuthStore, name: str, *, as_json: bool) -> None:
    if not auth_store.remove_client(name):
        raise MurmurateError("client", repr(name), "is not there; murmurate client list shows all")
    if as_json:
        print_json({"client_id": name, "removed": True})
    else:
        stdout.print(f"{name}: removed.")


def _client_members(client: ApiClient) -> dict[str, object]:
    return {"client_id": client.id, "zones": sorted(client.zones), "operator": client.is_operator}


def _list_clients(auth_store: AuthStore, *, as_json: bool) -> None:
    if as_json:
        print_json({"clients": [_client_members(client) for client in auth_store.list_clients()]})
        return
    for client in auth_store.list_clients():
        scopes = " ".join(filter(None, (scope_for_zones(client.zones), "operator" if client.is_operator else "")))
        stdout.print(f"{client.id}: {scopes}")
