"""Bring a database to the present: plain SQL files, numbered, applied in order, once, never backwards.

A file may begin with `-- compatible with: 0005`: a version whose last file is 0005 or later runs alongside it. Such a
file only adds; what it replaces is removed one release later. The number is stored with the file's digest, so a version
that does not have the file knows whether it may start. A file without that line runs with no version before it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from importlib.resources import files
from typing import Any

from psycopg import Connection, Error, errors, sql

from murmurate.errors import MurmurateError
from murmurate.service.storage.server_checks import StoreName, check_server
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

    Raises MurmurateError where the role of this connection may not do so, or where the database is of a newer version,
    whose roles have rights that this version does not know.
    """
    names = list(role_scripts(store))
    try:
        with connect(dsn, options=UNLIMITED_OPTIONS) as connection:
            if _has_list(connection) and _applied_scripts(connection, store).keys() - _read_scripts(store).keys():
                raise MurmurateError(f"the {store} database", "of a newer murmurate", "create its roles with that one")
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


LOCK_TIMEOUT_S = 10  # for which a migration waits for the tables; their readers wait behind it
_MAX_ATTEMPTS = 20  # at the list of migrations, where others create it at the same time
_RETRY_PAUSE_S = 0.1
_FIRST_SCRIPT = "0001_begin.sql"
_COMPATIBLE_WITH = re.compile(r"-- compatible with: (\d{4})\n")  # the first line of a file
_WORKER_SILENT_S = 60
_REMEDY = "keep that version for it, or end it and open its zones under new names in new databases"

# In its own schema: any role may be allowed to create tables in schema public, and this one must be ours.
_CREATE_LIST = """
CREATE SCHEMA IF NOT EXISTS murmurate;
CREATE TABLE IF NOT EXISTS murmurate.migration (
    store text, name text, sha256 text NOT NULL, compatible_with text, PRIMARY KEY (store, name)
);
GRANT USAGE ON SCHEMA murmurate TO PUBLIC;
GRANT SELECT ON murmurate.migration TO PUBLIC"""
# The list of an earlier version has no such column. A lock that waits for all readers is taken for it alone.
_COMPLETE_LIST = """
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_attribute
        WHERE attrelid = 'murmurate.migration'::regclass AND attname = 'compatible_with') THEN
        ALTER TABLE murmurate.migration ADD COLUMN compatible_with text;
    END IF;
END $$"""
# Tables that only versions before tiles had. Where they kept their list any role may have made one of that name.
_IS_BEFORE_TILES = """
SELECT EXISTS (
    SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE (n.nspname, c.relname) IN (('curator', 'release'), ('public_log', 'entry')))"""


def migrate_database(dsn: str, store: StoreName) -> list[str]:
    """Apply what is missing and return the names; two at once wait for each other.

    A role that may not change the database may call it too: where nothing is missing, nothing is written or locked.

    Where the database is ahead of this version, and what was added runs alongside it, nothing is changed.

    Raises MurmurateError, and changes nothing, where another line of versions made the database, where an applied file
    was changed since, where a newer version has applied what does not run alongside this one, where the worker of an
    older version runs and what is missing does not run alongside it, where this role may not migrate the database, or
    where another session keeps its tables locked.
    """
    scripts = _read_scripts(store)
    with connect(dsn, autocommit=True, options=UNLIMITED_OPTIONS) as connection, _explain_refusal(store):
        check_server(connection, store)
        if connection.info.parameter_status("server_encoding") != "UTF8":
            raise MurmurateError(f"the {store} database", "not in UTF-8", "must be made with ENCODING 'UTF8'")
        check_origin(connection, store)
        if _has_list(connection) and not _missing_scripts(connection, store, scripts):
            return []
        connection.execute(f"SET lock_timeout = '{LOCK_TIMEOUT_S}s'")
        _create_list(connection)
        with connection.transaction():
            # No advisory lock: every role that may connect can hold one. Only an owner can lock this table.
            connection.execute("LOCK TABLE murmurate.migration IN EXCLUSIVE MODE")
            missing = _missing_scripts(connection, store, scripts)
            if not missing:  # another process was faster, perhaps of a newer version, whose rights stay as they are
                return []
            _check_no_worker(connection, store, {name: scripts[name] for name in missing})
            connection.execute(_COMPLETE_LIST)
            for name in missing:
                connection.execute(scripts[name].encode())
                query = "INSERT INTO murmurate.migration VALUES (%s, %s, %s, %s)"
                connection.execute(query, (store, name, _digest(scripts[name]), _compatible_with(scripts[name])))
            grant_rights(connection, store)
    return missing


def _check_no_worker(connection: Connection[Any], store: StoreName, missing: Mapping[str, str]) -> None:
    """Raise MurmurateError where the worker of an earlier version runs and a file does not run alongside it."""
    last = max(_applied_scripts(connection, store), default="")[:4]
    breaking = [name for name, script in missing.items() if not _runs_alongside(_compatible_with(script), last)]
    if store == "state" and last and breaking:
        query = "SELECT count(*) FROM curator.heartbeat WHERE at > clock_timestamp() - make_interval(secs => %s)"
        if connection.execute(query, (_WORKER_SILENT_S,)).fetchone() != (0,):
            allowed = (
                f"{breaking[0]} does not run alongside that version: stop every service of this database, wait "
                f"{_WORKER_SILENT_S} s, then start them with this version"
            )
            raise MurmurateError("the state database", "in use by a worker of an older version", allowed)


def check_origin(connection: Connection[Any], store: StoreName) -> None:
    """Raise MurmurateError for a database whose tables no migration of this version leads on from.

    An applied file is never edited, so a newer version has this version's first file, and an earlier one may not. What
    a newer version has added is no reason: it can be read.
    """
    database = f"the {store} database"
    if connection.execute(_IS_BEFORE_TILES).fetchone() == (True,):
        raise MurmurateError(database, "made by murmurate before tiles", _REMEDY)
    if not _has_list(connection):
        return
    applied = _applied_scripts(connection, store)
    if applied and applied.get(_FIRST_SCRIPT, ("",))[0] != _digest(_read_scripts(store)[_FIRST_SCRIPT]):
        raise MurmurateError(database, f"made by another murmurate, with another {_FIRST_SCRIPT}", _REMEDY)


def pending_migrations(dsn: str, store: StoreName) -> list[str]:
    """Return what is not applied yet, without applying it; nothing where the database cannot be asked."""
    scripts = _read_scripts(store)
    try:
        with connect(dsn, autocommit=True) as connection:
            return _missing_scripts(connection, store, scripts) if _has_list(connection) else list(scripts)
    except Error:
        return []


def _read_scripts(store: StoreName) -> dict[str, str]:
    folder = files("murmurate.service.storage") / "sql" / store
    return dict(sorted((path.name, path.read_text(encoding="utf-8")) for path in folder.iterdir()))


def _has_list(connection: Connection[Any]) -> bool:
    return connection.execute("SELECT to_regclass('murmurate.migration') IS NOT NULL").fetchone() == (True,)


def _create_list(connection: Connection[Any]) -> None:
    """Create the list of applied files."""
    for attempt in range(_MAX_ATTEMPTS):
        if _has_list(connection):  # with its rights: both are made in one transaction
            return
        try:
            with connection.transaction():
                connection.execute(_CREATE_LIST)
        except (errors.UniqueViolation, errors.DuplicateSchema, errors.InternalError_):
            if attempt == _MAX_ATTEMPTS - 1:
                raise
            time.sleep(_RETRY_PAUSE_S)  # another process is just creating it


def _applied_scripts(connection: Connection[Any], store: StoreName) -> dict[str, tuple[str, str | None]]:
    """SHA-256 of each applied file by its name, and the oldest version that runs alongside it."""
    query = "SELECT name, sha256, to_jsonb(m) ->> 'compatible_with' FROM murmurate.migration AS m WHERE store = %s"
    return {name: (digest, oldest) for name, digest, oldest in connection.execute(query, (store,)).fetchall()}


def _missing_scripts(connection: Connection[Any], store: StoreName, scripts: Mapping[str, str]) -> list[str]:
    """Return the names of what is not applied yet. Raises MurmurateError where something else was applied."""
    applied, last = _applied_scripts(connection, store), max(scripts)[:4]
    missing = [name for name in scripts if name not in applied]
    ahead = {name: oldest for name, (_, oldest) in applied.items() if name not in scripts}
    if ahead and (missing or not all(_runs_alongside(oldest, last) for oldest in ahead.values())):
        allowed = "needs a newer murmurate than this one: install that again; docs/how-to/upgrade.md has the way back"
        raise MurmurateError(f"the {store} database", f"at {max(ahead)}", allowed)
    for name, (digest, _) in applied.items():
        if name in scripts and digest != _digest(scripts[name]):
            raise MurmurateError(f"migration {name}", "changed", "must stay as applied; write a new one instead")
    return missing


def _compatible_with(script: str) -> str | None:
    """Return the number of the last file of the oldest version that runs alongside a file. None: only its own does."""
    line = _COMPATIBLE_WITH.match(script)
    return line[1] if line else None


def _runs_alongside(oldest: str | None, last: str) -> bool:
    """Whether a version whose last file has this number runs alongside a file that names the oldest that does."""
    return oldest is not None and oldest <= last


def _digest(script: str) -> str:
    return sha256(script.encode()).hexdigest()


@contextmanager
def _explain_refusal(store: StoreName) -> Iterator[None]:
    """Say what to do where a lock or a right is missing."""
    try:
        yield
    except errors.LockNotAvailable:
        allowed = f"another session has kept a lock on its tables for {LOCK_TIMEOUT_S} s: end it, then try again"
        raise MurmurateError(f"the {store} database", "locked", allowed) from None
    except errors.InsufficientPrivilege:
        allowed = "this version needs changes to it: run murmurate zone open, or murmurate log repair, as its owner"
        found = "empty or of an earlier version"
        remedy = f"{allowed}, or as a superuser: ALTER DATABASE .. OWNER TO .."
        raise MurmurateError(f"the {store} database", found, remedy) from None
