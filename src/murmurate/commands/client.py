"""`murmurate client`: manage the clients that may send readings."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from murmurate.errors import MurmurateError
from murmurate.operations.console import print_json, stdout
from murmurate.operations.options import AsJson, State, complete_words, complete_zone, optional_imports

with optional_imports():
    from murmurate.service.auth import TOKEN_CACHE_S, ApiClient, AuthStore, scope_for_zones
    from murmurate.service.storage.databases import Database, mask_database_errors
    from murmurate.service.storage.migrate import migrate_database
    from murmurate.service.storage.state_store import PostgresStateStore


_ACTIONS = ("add", "grant", "revoke", "remove", "list")


def manage_clients(
    action: Annotated[
        str, typer.Argument(help="add, grant, revoke, remove or list.", autocompletion=complete_words(*_ACTIONS))
    ],
    name: Annotated[str, typer.Argument(help="Name of the client.")] = "",
    zones: Annotated[
        list[str] | None,
        typer.Option("--zone", help="A zone whose readings it may send.", autocompletion=complete_zone),
    ] = None,
    state: State = "",
    *,
    is_operator: Annotated[bool, typer.Option("--operator", help="With add: it may see the operator's page.")] = False,
    as_json: AsJson = False,
) -> None:
    """Add, change, remove or list clients."""
    if action not in _ACTIONS:
        raise MurmurateError("action", action, "must be add, grant, revoke, remove or list")
    if action != "list" and not name:
        raise MurmurateError("the name of the client", "missing", f"write murmurate client {action} head-end")
    named = frozenset(zones or ())
    if not named and (action in {"grant", "revoke"} or (action == "add" and not is_operator)):
        or_operator = ", or --operator" if action == "add" else ""
        raise MurmurateError("--zone", "missing", f"name the zones whose readings it may send{or_operator}")
    database = Database("state", state)
    database.check_reachable()
    with mask_database_errors():
        migrate_database(database.dsn, "state")
        if action in {"add", "grant"}:
            with closing(PostgresStateStore(database.dsn)) as store:
                if unknown := named - store.zones().keys():
                    raise MurmurateError("--zone", min(unknown), "is not open; murmurate zone open plan.json opens it")
        with closing(AuthStore(database.dsn)) as access:
            client = ApiClient(id=name, zones=named, is_operator=is_operator)
            document, lines = _run_action(access, action, client)
    if as_json:
        print_json(document)
    else:
        stdout.print("\n".join(lines))


def _run_action(access: AuthStore, action: str, client: ApiClient) -> tuple[dict[str, object], list[str]]:
    """Return what was done, for a script and for a person."""
    if action == "list":
        clients, lines = access.list_clients(), []
        for each in clients:
            operator = "operator" if each.is_operator else ""
            lines.append(f"{each.id}: {' '.join(filter(None, (scope_for_zones(each.zones), operator)))}")
        return {"clients": [_client_members(each) for each in clients]}, lines or ["No client was added yet."]
    if action == "add":
        secret = access.add_client(client)
        lines = [f"client_id:     {client.id}", f"client_secret: {secret}"]
        lines += ["The secret is shown this once. An earlier secret of this client is no longer valid."]
        return _client_members(client) | {"client_secret": secret}, lines
    if action == "remove" and access.remove_client(client.id):
        return {"client_id": client.id, "removed": True}, [f"{client.id}: removed."]
    changed = None
    if action != "remove":
        changed = access.change_zones(client.id, **{"granted" if action == "grant" else "revoked": client.zones})
    if changed is None:
        raise MurmurateError("client", repr(client.id), "is not there; murmurate client list shows all")
    words = "Its tokens stay valid for the zones that they were issued for; the next token is for all."
    if action == "revoke":
        words = f"Its tokens lose what was revoked within {TOKEN_CACHE_S:.0f} seconds."
    zones = ", ".join(sorted(changed.zones)) or "none"
    return _client_members(changed), [f"{client.id}: its zones are now: {zones}. Its secret stays. {words}"]


def _client_members(client: ApiClient) -> dict[str, object]:
    return {"client_id": client.id, "zones": sorted(client.zones), "operator": client.is_operator}
