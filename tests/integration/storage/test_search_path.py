"""A role that may create objects in schema public cannot have them called with the rights of the publisher."""

from __future__ import annotations

import psycopg
import pytest
from tests.support.databases import database
from tests.support.sample_shards import FIRST

from murmurate.service.storage.databases import Database
from murmurate.service.storage.migrate import migrate_database
from murmurate.service.storage.session import Session, SessionPool

TRAP = """
CREATE FUNCTION public.trap(a bigint, b numeric) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE 'GRANT INSERT, UPDATE ON ALL TABLES IN SCHEMA public_log TO {stranger}';
    RETURN a::numeric OPERATOR(pg_catalog.<=) b;
END $$;
CREATE OPERATOR public.<= (LEFTARG = bigint, RIGHTARG = numeric, FUNCTION = public.trap)"""


def run(dsn, statement, **options):
    with psycopg.connect(dsn, autocommit=True, **options) as connection:
        connection.execute(statement)


def test_an_operator_that_a_stranger_created_is_not_called_by_a_release(stores, stranger):
    run(stores.log_dsn, "GRANT CREATE ON SCHEMA public TO PUBLIC")  # as on a server that was made before PostgreSQL 15
    run(stores.log_dsn, TRAP.format(stranger=stranger), user=stranger)
    stores.publish(FIRST)
    assert stores.intervals("shard 0") == [FIRST]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        run(stores.log_dsn, "UPDATE public_log.head SET seq = 0", user=stranger)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        run(stores.log_dsn, "INSERT INTO public_log.document VALUES ('x', 'y')", user=stranger)
    run(stores.log_dsn, f"DROP OWNED BY {stranger}")


@pytest.mark.parametrize("store", ["state", "log"])
def test_preparing_a_database_takes_the_right_to_create_from_everyone(store, stranger):
    with database(store) as dsn:
        run(dsn, "GRANT CREATE ON SCHEMA public TO PUBLIC")
        migrate_database(dsn, store)
        for statement in ("CREATE TABLE public.t ()", "CREATE TEMPORARY TABLE t ()"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                run(dsn, statement, user=stranger)


@pytest.mark.parametrize("store", ["state", "log"])
def test_a_table_of_a_stranger_is_not_taken_for_the_list_of_migrations(store, stranger):
    with database(store) as dsn:
        run(dsn, "GRANT CREATE ON SCHEMA public TO PUBLIC")
        run(dsn, "CREATE TABLE public.murmurate_migration (store text, name text, sha256 text)", user=stranger)
        assert migrate_database(dsn, store)
        with psycopg.connect(dsn) as connection:
            assert connection.execute("SELECT count(*) FROM public.murmurate_migration").fetchone() == (0,)
        run(dsn, f"DROP OWNED BY {stranger}")


@pytest.mark.parametrize("store", ["state", "log"])
def test_every_function_of_ours_has_its_own_search_path(store):
    query = """
        SELECT p.oid::regprocedure::text FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
        WHERE nspname !~ '^(pg_|information_schema)'
            AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (proconfig), false)"""
    with database(store) as dsn:
        migrate_database(dsn, store)
        with psycopg.connect(dsn) as connection:
            assert connection.execute(query).fetchall() == []


@pytest.mark.parametrize("source", [Session, SessionPool])
def test_every_session_looks_up_names_in_the_catalog_alone(state_dsn, source):
    session = source(state_dsn)
    with session.transaction() as connection:
        assert connection.execute("SHOW search_path").fetchone() == ("pg_catalog,pg_temp",)
    session.close()


def test_a_server_that_is_too_old_is_refused_with_the_version_it_needs(log_dsn, monkeypatch):
    monkeypatch.setattr("murmurate.service.storage.server_checks.MIN_SERVER_VERSION", 9_900_00)
    for attempt in (lambda: migrate_database(log_dsn, "log"), Database("log", log_dsn).check_reachable):
        with pytest.raises(Exception, match=r"PostgreSQL 15\.\d+.*needs PostgreSQL 99 or newer"):
            attempt()
