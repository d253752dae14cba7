"""Databases of a real PostgreSQL server, made for a test and dropped after it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from secrets import token_hex

import psycopg
import pytest
from psycopg import errors

from murmurate.service.storage import migrate
from murmurate.service.storage.server_checks import StoreName
from tests.support.postgres_stores import Stores

SERVER = os.environ.get("MURMURATE_TEST_SERVER", "postgresql://postgres@127.0.0.1:5432")


def execute_on_server(statement: str) -> None:
    with psycopg.connect(f"{SERVER}/postgres", autocommit=True) as connection:
        connection.execute(statement.encode())


@contextmanager
def database(store: str, options: str = "") -> Iterator[str]:
    name = f"murmurate_{store}_{token_hex(6)}"
    execute_on_server(f"CREATE DATABASE {name} {options}")
    try:
        yield f"{SERVER}/{name}"
    finally:
        execute_on_server(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@cache
def _migrated_template(store: StoreName) -> str:
    """The name of a database with all migrations, which others are copied from: it takes half the time.

    It is made once a server for the same files, and left there.
    """
    scripts = sha256(repr(migrate._read_scripts(store)).encode()).hexdigest()
    name = f"murmurate_{store}_template_{scripts[:12]}"
    with psycopg.connect(f"{SERVER}/postgres", autocommit=True) as connection:
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone() is None:
            with suppress(errors.DuplicateDatabase), database(f"{store}_new") as dsn:  # another process may be faster
                migrate.migrate_database(dsn, store)
                connection.execute(f"ALTER DATABASE {dsn.rpartition('/')[2]} RENAME TO {name}".encode())
    return name


@contextmanager
def migrated_database(store: StoreName) -> Iterator[str]:
    with database(store, f"TEMPLATE {_migrated_template(store)}") as dsn:
        # rights on a database itself are not copied
        execute_on_server(f"REVOKE TEMPORARY ON DATABASE {dsn.rpartition('/')[2]} FROM PUBLIC")
        yield dsn


@contextmanager
def migrated_databases() -> Iterator[tuple[str, str]]:
    """A state and a log."""
    with migrated_database("state") as state, migrated_database("log") as log:
        yield state, log


@pytest.fixture
def state_dsn() -> Iterator[str]:
    with migrated_database("state") as dsn:
        yield dsn


@pytest.fixture
def log_dsn() -> Iterator[str]:
    with migrated_database("log") as dsn:
        yield dsn


@pytest.fixture
def stores(state_dsn: str, log_dsn: str) -> Iterator[Stores]:
    made = Stores(state_dsn, log_dsn)
    yield made
    made.close()
