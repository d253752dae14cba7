"""Database roles with the least rights that each process of a service needs, as SQL in `sql/roles`."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from psycopg import Connection, errors, sql

from murmurate.errors import MurmurateError
from murmurate.service.storage.server_checks import StoreName
from murmurate.service.storage.session import UNLIMITED_OPTIONS, connect

_OWN_SCHEMAS = {"state": ("curator", "confidential", "access"), "log": ("public_log",)}


def role_scripts(store: StoreName) -> dict[str, str]:
    """Return the rights of each role at a database, as SQL."""
    folder = files("murmurate.service.storage") / "sql" / "roles" / store
    scripts = {path.name.removesuffix(".sql"): path.read_text(encoding="utf-8") for path in folder.iterdir()}
    return dict(sorted(scripts.items()))


def create_roles(dsn: str, store: StoreName) -> list[str]:
    """Create the roles of a database where they are missing, and give each its rights and no other.

    The roles have no login: make those that have one their members. Returns the names of the roles.

    Raises MurmurateError where the role of this connection may not do so.
    """
    names = list(role_scripts(store))
    try:
        with connect(dsn, options=UNLIMITED_OPTIONS) as connection:
            for name in names:
                if not _exists(connection, name):
                    connection.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(name)))
            if store == "state":
                connection.execute(_on_database(connection, "REVOKE CONNECT ON DATABASE {} FROM PUBLIC"))
            grant_rights(connection, store)
    except errors.InsufficientPrivilege:
        allowed = "needs a superuser, or its owner with CREATEROLE"
        raise MurmurateError(f"the {store} database", "not open to this role", allowed) from None
    return names


def grant_rights(connection: Connection[Any], store: StoreName) -> None:
    """Give each role that exists its rights: after a migration there may be new tables."""
    for name, script in role_scripts(store).items():
        if _exists(connection, name):
            role = sql.Identifier(name)
            for schema in map(sql.Identifier, _OWN_SCHEMAS[store]):
                for kind in ("TABLES", "SEQUENCES", "FUNCTIONS"):
                    query = sql.SQL("REVOKE ALL ON ALL " + kind + " IN SCHEMA {} FROM {}")
                    connection.execute(query.format(schema, role))
                connection.execute(sql.SQL("REVOKE ALL ON SCHEMA {} FROM {}").format(schema, role))
            connection.execute(_on_database(connection, "GRANT CONNECT ON DATABASE {} TO {}", role))
            connection.execute(script.encode())


def _exists(connection: Connection[Any], role: str) -> bool:
    return connection.execute("SELECT to_regrole(%s) IS NOT NULL", (role,)).fetchone() == (True,)


def _on_database(connection: Connection[Any], statement: str, *more: sql.Composable) -> sql.Composed:
    return sql.SQL(statement).format(sql.Identifier(connection.info.dbname), *more)
