"""Bring a database to the present: plain SQL files, numbered, applied in order, once, never backwards."""

from __future__ import annotations

from hashlib import sha256
from importlib.resources import files
from typing import Literal

import psycopg

from murmurate.errors import MurmurateError

StoreName = Literal["state", "log"]

_MIGRATION_LOCK = 0x6D75726D  # any number that every murmurate agrees on
_MIGRATION_TABLE = """
CREATE TABLE IF NOT EXISTS murmurate_migration (
    store text, name text, sha256 text NOT NULL, PRIMARY KEY (store, name)
)"""


def migrate_database(dsn: str, store: StoreName) -> list[str]:
    """Apply what is missing and return the names; two at once wait for each other.

    Raises MurmurateError where an applied file was changed since, or where the database is ahead of this version.
    """
    folder = files("murmurate.service.storage") / "sql" / store
    scripts = sorted((path.name, path.read_text(encoding="utf-8")) for path in folder.iterdir())
    with psycopg.connect(dsn) as connection:
        if connection.info.parameter_status("server_encoding") != "UTF8":
            raise MurmurateError(f"the {store} database", "not in UTF-8", "must be made with ENCODING 'UTF8'")
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
        connection.execute(_MIGRATION_TABLE)
        query = "SELECT name, sha256 FROM murmurate_migration WHERE store = %s"
        applied: dict[str, str] = dict(connection.execute(query, (store,)).fetchall())
        if ahead := applied.keys() - {name for name, _ in scripts}:
            raise MurmurateError(f"the {store} database", f"at {max(ahead)}", "needs a newer murmurate than this one")
        fresh = []
        for name, script in scripts:
            digest = sha256(script.encode()).hexdigest()
            if applied.get(name, digest) != digest:
                raise MurmurateError(f"migration {name}", "changed", "must stay as applied; write a new one instead")
            if name not in applied:
                connection.execute(script.encode())
                connection.execute("INSERT INTO murmurate_migration VALUES (%s, %s, %s)", (store, name, digest))
                fresh.append(name)
    return fresh
