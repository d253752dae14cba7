"""Migrations: no other role can keep them from running, and a lock that is not given up is named."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from tests.support.databases import database

from murmurate.errors import MurmurateError
from murmurate.service.storage import migrate
from murmurate.service.storage.migrate import migrate_database, pending_migrations

EARLIER_LOCK = 0x6D75726D
NEXT = "9999_of_the_next_version.sql"
BOTH = pytest.mark.parametrize("store", ["state", "log"])


def scripts_of_next_version(store, scripts=migrate._read_scripts):
    return scripts(store) | {NEXT: "CREATE TABLE murmurate.of_the_next_version ()"}


@BOTH
def test_a_lock_that_any_role_can_hold_keeps_no_migration_from_running(store, stranger):
    with database(store) as dsn, psycopg.connect(dsn, user=stranger) as holder:
        holder.execute("SELECT pg_advisory_lock(%s)", (EARLIER_LOCK,))
        with psycopg.connect(dsn) as watcher, ThreadPoolExecutor(1) as threads:
            done = threads.submit(migrate_database, dsn, store)
            try:
                assert done.result(60)
            finally:
                holder.execute("SELECT pg_advisory_unlock_all()")
            assert watcher.execute("SELECT count(*) FROM murmurate.migration").fetchone() == (len(done.result()),)


@BOTH
def test_an_open_transaction_of_a_reader_keeps_no_migration_from_running(store, stranger, monkeypatch):
    with database(store) as dsn:
        migrate_database(dsn, store)
        monkeypatch.setattr(migrate, "_read_scripts", scripts_of_next_version)
        with psycopg.connect(dsn, user=stranger) as reader:
            reader.execute("SELECT * FROM murmurate.migration")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                reader.execute("LOCK TABLE murmurate.migration IN EXCLUSIVE MODE")
            reader.rollback()
            reader.execute("SELECT * FROM murmurate.migration")
            assert migrate_database(dsn, store) == [NEXT]


def test_a_lock_that_is_not_given_up_ends_the_wait_with_what_to_do(monkeypatch):
    monkeypatch.setattr(migrate, "LOCK_TIMEOUT_S", 1)
    with database("state") as dsn:
        migrate_database(dsn, "state")
        monkeypatch.setattr(migrate, "_read_scripts", scripts_of_next_version)
        with psycopg.connect(dsn) as owner:
            owner.execute("LOCK TABLE murmurate.migration IN EXCLUSIVE MODE")
            with pytest.raises(MurmurateError, match=r"locked: another session has kept a lock .* for 1 s: end it"):
                migrate_database(dsn, "state")
        assert migrate_database(dsn, "state") == [NEXT]


def test_a_role_that_may_not_migrate_is_told_who_should(stranger, monkeypatch):
    with database("state") as dsn:
        migrate_database(dsn, "state")
        mine = f"{dsn}?user={stranger}"
        assert migrate_database(mine, "state") == []
        monkeypatch.setattr(migrate, "_read_scripts", scripts_of_next_version)
        with pytest.raises(MurmurateError, match=r"of an earlier version: .* as its owner, or as a superuser"):
            migrate_database(mine, "state")


@BOTH
def test_what_is_pending_is_named_and_not_applied(store, stranger, monkeypatch):
    with database(store) as dsn:
        mine = f"{dsn}?user={stranger}"
        assert pending_migrations(mine, store) == sorted(migrate._read_scripts(store))
        migrate_database(dsn, store)
        assert pending_migrations(mine, store) == []
        monkeypatch.setattr(migrate, "_read_scripts", scripts_of_next_version)
        assert pending_migrations(mine, store) == pending_migrations(mine, store) == [NEXT]
    assert pending_migrations("postgresql://127.0.0.1:1/nowhere", store) == []


@BOTH
def test_several_at_once_apply_each_migration_once(store):
    with database(store) as dsn, ThreadPoolExecutor(8) as threads:
        applied = [name for names in threads.map(migrate_database, [dsn] * 8, [store] * 8) for name in names]
    assert len(applied) == len(set(applied)) > 0
