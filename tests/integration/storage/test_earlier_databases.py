"""Databases that another version made are recognised by what they hold, refused with one sentence, and not changed."""

from contextlib import contextmanager

import psycopg
import pytest
from tests.support.databases import database
from tests.support.mistaken_files import write_mistaken_files
from tests.support.mistakes import Mistake, check_message, run_as_program, run_in_process

from murmurate.errors import MurmurateError
from murmurate.service.storage.databases import Database
from murmurate.service.storage.migrate import migrate_database

# As the versions before tiles made them: a list outside of a schema of its own, entries and releases by zone.
LIST = "CREATE TABLE {} (store text, name text, sha256 text NOT NULL, PRIMARY KEY (store, name));"
APPLIED = {
    "state": ("0001_begin.sql", "0002_largest_bound.sql", "0003_clients.sql", "0004_registers.sql", "0005_bounds.sql"),
    "log": ("0001_begin.sql", "0002_public.sql", "0003_huber.sql"),
}
BEFORE_TILES = {
    "state": """
        CREATE SCHEMA confidential;
        CREATE SCHEMA curator;
        CREATE TABLE confidential.demand (zone text, interval bigint, energy_wh bigint, PRIMARY KEY (zone, interval));
        CREATE TABLE curator.head (zone text PRIMARY KEY, seq bigint NOT NULL DEFAULT -1, opening jsonb);
        CREATE TABLE curator.release (zone text, seq bigint, line text NOT NULL, PRIMARY KEY (zone, seq));
        INSERT INTO curator.release SELECT 'harbour', seq, '{}' FROM generate_series(0, 60) AS seq""",
    "log": """
        CREATE SCHEMA public_log;
        CREATE TABLE public_log.entry (zone text, seq bigint, line text NOT NULL, PRIMARY KEY (zone, seq));
        CREATE TABLE public_log.head (zone text PRIMARY KEY, seq bigint NOT NULL, hash text NOT NULL);
        INSERT INTO public_log.entry SELECT 'harbour', seq, '{}' FROM generate_series(0, 60) AS seq""",
}
# As the first versions with tiles made them: a list with names that this version does not have.
FIRST_TILES = {
    "state": """
        CREATE SCHEMA curator;
        CREATE TABLE curator.shard (shard text PRIMARY KEY, seq bigint NOT NULL DEFAULT -1, opening jsonb NOT NULL);
        INSERT INTO curator.shard VALUES ('00000000-0000', 61, '{}')""",
    "log": """
        CREATE SCHEMA public_log;
        CREATE TABLE public_log.head (shard text PRIMARY KEY, seq bigint NOT NULL);
        INSERT INTO public_log.head VALUES ('00000000-0000', 61)""",
}
FIRST_TILES_APPLIED = {
    "state": ("0001_begin.sql", "0002_revoke.sql", "0003_ingest_tokens.sql"),
    "log": ("0001_begin.sql", "0002_search_path.sql"),
}
COMMANDS = (
    "murmurate step release",
    "murmurate keys rotate",
    "murmurate zone change plan.json",
    "murmurate client add head-end --zone harbour",
    "murmurate zone open plan.json",
    "murmurate log repair",
    "murmurate init --roles",
)
REMEDY = "keep that version for it, or end it and open its zones under new names in new databases"
_CATALOG = """
    SELECT n.nspname, n.nspowner::text, n.nspacl::text, c.relname, c.oid::text, c.relacl::text, c.relfilenode::text
    FROM pg_namespace AS n LEFT JOIN pg_class AS c ON c.relnamespace = n.oid
    WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
    UNION ALL
    SELECT 'database', datdba::text, datacl::text, '', '', '', '' FROM pg_database WHERE datname = current_database()
    ORDER BY 1, 4"""


@contextmanager
def earlier_database(store, made_by):
    """A database as it was made before tiles, as a later version left that one, or as the first one with tiles was."""
    begin, applied = (FIRST_TILES, FIRST_TILES_APPLIED) if made_by == "first tiles" else (BEFORE_TILES, APPLIED)
    of_list = "public.murmurate_migration" if made_by == "before tiles" else "murmurate.migration"
    with database(store) as dsn:
        with psycopg.connect(dsn) as connection:
            if made_by != "before tiles":
                connection.execute("CREATE SCHEMA murmurate")
            connection.execute(LIST.format(of_list) + begin[store])
            for name in applied[store]:
                connection.execute(f"INSERT INTO {of_list} VALUES (%s, %s, %s)", (store, name, "0" * 64))  # noqa: S608
        yield dsn


def content(dsn):
    """Schemas, tables and rights of a database, and all of its rows with the transaction that wrote them."""
    with psycopg.connect(dsn) as connection:
        catalog = connection.execute(_CATALOG).fetchall()
        query = (
            "SELECT schemaname, tablename FROM pg_tables WHERE schemaname !~ '^(pg_|information_schema)' ORDER BY 1, 2"
        )
        tables = [f"{schema}.{table}" for schema, table in connection.execute(query).fetchall()]
        return catalog, [connection.execute(f"SELECT xmin::text, * FROM {table}").fetchall() for table in tables]  # noqa: S608


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("earlier")
    write_mistaken_files(made)
    (made / "service.toml").write_text('public = "127.0.0.1:0"\nprivate = "127.0.0.1:1"\n', encoding="utf-8")
    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("made_by", "found"),
    [
        ("before tiles", "made by murmurate before tiles"),
        ("before tiles, list moved", "made by murmurate before tiles"),
        ("first tiles", "made by another murmurate, with another 0001_begin.sql"),
    ],
)
def test_every_command_refuses_it_with_the_same_sentence_and_changes_nothing(made_by, found, folder, monkeypatch):
    monkeypatch.chdir(folder)
    with earlier_database("state", made_by) as state, earlier_database("log", made_by) as log:
        before = content(state), content(log)
        dsns = {"MURMURATE_STATE": state, "MURMURATE_LOG": log}
        cause = f"the state database is {found}"
        for line in COMMANDS:
            check_message(Mistake(line, cause, REMEDY), run_in_process(line, monkeypatch, **dsns))
        check_message(Mistake("", cause, REMEDY), run_as_program("murmurate serve service.toml", folder, **dsns))
        for part, store in (("private", "state"), ("worker", "state"), ("public", "log")):
            done = run_as_program(f"murmurate serve service.toml --only {part}", folder, **dsns)
            check_message(Mistake("", f"the {store} database is {found}", REMEDY), done)
        assert (content(state), content(log)) == before


@pytest.mark.parametrize("made_by", ["before tiles", "before tiles, list moved", "first tiles"])
@pytest.mark.parametrize("store", ["state", "log"])
def test_neither_a_migration_nor_a_swapped_connection_string_changes_it(store, made_by):
    with earlier_database(store, made_by) as dsn:
        before = content(dsn)
        with pytest.raises(MurmurateError, match=REMEDY):
            migrate_database(dsn, store)
        if made_by != "first tiles":
            with pytest.raises(MurmurateError, match=REMEDY):
                Database("log" if store == "state" else "state", dsn).check_reachable(prepared=False)
        assert content(dsn) == before


@pytest.mark.parametrize("store", ["state", "log"])
def test_a_database_of_a_newer_version_is_called_newer_and_is_still_read(store):
    with database(store) as dsn:
        migrate_database(dsn, store)
        with psycopg.connect(dsn) as connection:
            connection.execute("INSERT INTO murmurate.migration VALUES (%s, '9999_later.sql', %s)", (store, "0" * 64))
        before = content(dsn)
        with pytest.raises(MurmurateError, match=r"is at 9999_later\.sql: needs a newer murmurate than this one"):
            migrate_database(dsn, store)
        Database(store, dsn).check_reachable()  # as while two services are updated one after the other
        assert content(dsn) == before


@pytest.mark.slow
def test_a_process_that_does_not_run_alongside_a_newer_database_says_what_to_do(folder):
    (folder / "landing").mkdir(exist_ok=True)
    with database("state") as state, database("log") as log:
        for store, dsn in (("state", state), ("log", log)):
            migrate_database(dsn, store)
        with psycopg.connect(state) as connection:
            connection.execute("INSERT INTO murmurate.migration VALUES ('state', '9999_later.sql', 'x', '9999')")
        found = "the state database is at 9999_later.sql: needs a newer murmurate than this one"
        remedy = "install that again; docs/how-to/upgrade.md has the way back"
        dsns = {"MURMURATE_STATE": state, "MURMURATE_LOG": log}
        for line in ("serve service.toml --only private", "init --roles"):
            check_message(Mistake("", found, remedy), run_as_program(f"murmurate {line}", folder, **dsns))


def test_tables_of_others_and_a_list_in_schema_public_do_not_make_a_database_ours():
    """Any role may be allowed to create tables in schema public."""
    with database("state") as dsn:
        with psycopg.connect(dsn) as connection:
            connection.execute(LIST.format("public.murmurate_migration") + "CREATE TABLE public.release ()")
        with pytest.raises(MurmurateError, match="the state database is empty"):
            Database("state", dsn).check_reachable()
        assert migrate_database(dsn, "state")
        Database("state", dsn).check_reachable()
