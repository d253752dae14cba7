"""Databases of a real PostgreSQL server, made for a test and dropped after it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex
from typing import Literal

import psycopg
import pytest

from murmurate.service.storage.migrate import migrate_database
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
        execute_on_server(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def migrated_database(store: Literal["state", "log"]) -> Iterator[str]:
    with database(store) as dsn:
        migrate_database(dsn, store)
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
