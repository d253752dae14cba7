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
LAST_WITHOUT_A_LINE = {"state": "0005_public_inputs.sql", "log": "0004_archive.sql"}  # before the first release


def scripts_of_next_version(store, scripts=migrate._read_scripts):
    return scripts(store) | {NEXT: "CREATE TABLE murmurate.of_the_next_version ()"}


def migrate_with_next_version(dsn, store, first_line):
    """Migrate as a version does that has one file more, with this first line."""
    with pytest.MonkeyPatch.context() as patched:
        scripts = scripts_of_next_version(store)
        scripts[NEXT] = f"{first_line}\n{scripts[NEXT]}"
        patched.setattr(migrate, "_read_scripts", lambda _: scripts)
        return migrate_database(dsn, store)


def compatible_with(store, more=0):
    """The line that names the version of this tree, or one that is `more` files newer."""
    return f"-- compatible with: {int(max(migrate._read_scripts(store))[:4]) + more:04}"


def test_every_file_names_the_oldest_version_that_runs_alongside_it():
    for store, last in LAST_WITHOUT_A_LINE.items():
        for name, script in migrate._read_scripts(store).items():
            if name > last:
                assert (migrate._compatible_with(script) or "9999") <= name[:4], name


@BOTH
def test_an_older_version_starts_alongside_what_names_it_and_changes_nothing(store, stranger):
    with database(store) as dsn:
        migrate_database(dsn, store)
        assert migrate_with_next_version(dsn, store, compatible_with(store)) == [NEXT]
        with psycopg.connect(dsn) as connection:
            query = "SELECT xmin::text, * FROM murmurate.migration ORDER BY name"
            before = connection.execute(query).fetchall()
            assert before[-1][-1] == compatible_with(store)[-4:]
            connection.commit()
            for its in (dsn, f"{dsn}?user={stranger}"):
                assert migrate_database(its, store) == pending_migrations(its, store) == []
            assert connection.execute(query).fetchall() == before


@BOTH
@pytest.mark.parametrize("declared", ["later", "none", "not in the first line"])
def test_an_older_version_is_refused_where_it_is_not_named(store, declared):
    line = {"later": compatible_with(store, 1), "none": "", "not in the first line": "\n" + compatible_with(store)}
    with database(store) as dsn:
        migrate_database(dsn, store)
        assert migrate_with_next_version(dsn, store, line[declared]) == [NEXT]
        for refused in (migrate_database, pending_migrations):
            with pytest.raises(MurmurateError, match=r"at 9999_.*: needs a newer .*upgrade\.md has the way back"):
                refused(dsn, store)


def test_a_file_of_another_line_of_versions_is_not_run_alongside():
    """Both have a file after the same one: the names differ, and this version's own is not applied."""
    with database("state") as dsn:
        assert migrate_with_next_version(dsn, "state", compatible_with("state"))
        with psycopg.connect(dsn) as connection:
            connection.execute("DELETE FROM murmurate.migration WHERE name = '0005_public_inputs.sql'")
        with pytest.raises(MurmurateError, match="needs a newer murmurate"):
            migrate_database(dsn, "state")


@BOTH
def test_a_list_without_the_column_is_read_and_gets_it_with_the_next_migration(store):
    with database(store) as dsn:
        migrate_database(dsn, store)
        with psycopg.connect(dsn) as connection:
            connection.execute("ALTER TABLE murmurate.migration DROP COLUMN compatible_with")
        assert migrate_database(dsn, store) == pending_migrations(dsn, store) == []
        assert migrate_with_next_version(dsn, store, compatible_with(store)) == [NEXT]
        assert migrate_database(dsn, store) == []


def test_what_breaks_the_version_before_waits_until_its_worker_has_ended():
    beat = "INSERT INTO curator.heartbeat VALUES ('worker beat', now(), '{}')"
    with database("state") as dsn:
        migrate_database(dsn, "state")
        with psycopg.connect(dsn) as connection:
            connection.execute(beat)
        with pytest.raises(
            MurmurateError, match=r"does not run alongside that version: stop every service .* wait 60 s"
        ):
            migrate_with_next_version(dsn, "state", "")
        assert pending_migrations(dsn, "state") == []
        with psycopg.connect(dsn) as connection:
            connection.execute("UPDATE curator.heartbeat SET at = at - interval '61 s'")
        assert migrate_with_next_version(dsn, "state", "") == [NEXT]
    with database("state") as dsn:
        migrate_database(dsn, "state")
        with psycopg.connect(dsn) as connection:
            connection.execute(beat)
        assert migrate_with_next_version(dsn, "state", compatible_with("state")) == [NEXT]


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
