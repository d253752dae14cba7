"""`murmurate client`: manage the clients that may send readings."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from murmurate.errors import MurmurateError
from murmurate.operations.console import print_json, stdout
from murmurate.operations.options import AsJson, State, complete_words, complete_zone, optional_imports

with optional_imports():
    from murmurate.service.auth import ApiClient, AuthStore, scope_for_zones
    from murmurate.service.storage.databases import Database, mask_database_errors
    from murmurate.service.storage.migrate import migrate_database
    from murmurate.service.storage.state_store import PostgresStateStore


def manage_clients(
    action: Annotated[
        str, typer.Argument(help="add, remove or list.", autocompletion=complete_words("add", "remove", "list"))
    ],
    name: Annotated[str, typer.Argument(help="Name of the client.")] = "",
    zones: Annotated[
        list[str] | None,
        typer.Option("--zone", help="A zone whose readings it may send.", autocompletion=complete_zone),
    ] = None,
    state: State = "",
    *,
    is_operator: Annotated[bool, typer.Option("--operator", help="It may see the operator's page.")] = False,
    as_json: AsJson = False,
) -> None:
    """Add, remove or list clients."""
    if action not in {"add", "remove", "list"}:
        raise MurmurateError("action", action, "must be add, remove or list")
    if action != "list" and not name:
        raise MurmurateError("the name of the client", "missing", f"write murmurate client {action} head-end")
    database = Database("state", state)
    database.check_reachable()
    with mask_database_errors():
        migrate_database(database.dsn, "state")
        with closing(AuthStore(database.dsn)) as access:
            if action == "add":
                client = ApiClient(id=name, zones=frozenset(zones or ()), is_operator=is_operator)
                with closing(PostgresStateStore(database.dsn)) as store:
                    _add_client(access, client, store, as_json=as_json)
            elif action == "remove":
                if not access.remove_client(name):
                    raise MurmurateError("client", repr(name), "is not there; murmurate client list shows all")
                if as_json:
                    print_json({"client_id": name, "removed": True})
                else:
                    stdout.print(f"{name}: removed.")
            elif as_json:
                print_json({"clients": [_client_members(client) for client in access.list_clients()]})
            else:
                for client in access.list_clients():
                    operator = "operator" if client.is_operator else ""
                    stdout.print(f"{client.id}: {' '.join(filter(None, (scope_for_zones(client.zones), operator)))}")


def _add_client(access: AuthStore, client: ApiClient, state: PostgresStateStore, *, as_json: bool) -> None:
    if not client.zones and not client.is_operator:
        raise MurmurateError("--zone", "missing", "name the zones whose readings it may send, or --operator")
    if unknown := client.zones - state.zones().keys():
        raise MurmurateError("--zone", min(unknown), "is not open; murmurate zone open plan.json opens it")
    secret = access.add_client(client)
    if as_json:
        print_json(_client_members(client) | {"client_secret": secret})
        return
    stdout.print(f"client_id:     {client.id}")
    stdout.print(f"client_secret: {secret}")
    stdout.print("The secret is shown this once. An earlier secret of this client is no longer valid.")


def _client_members(client: ApiClient) -> dict[str, object]:
    return {"client_id": client.id, "zones": sorted(client.zones), "operator": client.is_operator}
