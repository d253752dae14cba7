"""Databases of a real PostgreSQL server, made for a test and dropped after it."""

import os
from contextlib import contextmanager
from secrets import token_hex

import psycopg
import pytest

from murmurate.service.storage.migrate import migrate_database
from tests.support.postgres_stores import Stores

SERVER = os.environ.get("MURMURATE_TEST_SERVER", "postgresql://postgres@127.0.0.1:5432")


@contextmanager
def database(store, options=""):
    name = f"murmurate_{store}_{token_hex(6)}"
    with psycopg.connect(f"{SERVER}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} {options}")
        try:
            yield f"{SERVER}/{name}"
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def state_dsn():
    with database("state") as dsn:
        migrate_database(dsn, "state")
        yield dsn


@pytest.fixture
def log_dsn():
    with database("log") as dsn:
        migrate_database(dsn, "log")
        yield dsn


@pytest.fixture
def stores(state_dsn, log_dsn):
    made = Stores(state_dsn, log_dsn)
    yield made
    made.close()
