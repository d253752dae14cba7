"""A server that logs every statement with its parameters, and no demand in its log."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from tests.support.postgres_cluster import clusters
from tests.support.sample_shards import FIRST, make_demand

from murmurate.errors import MurmurateError
from murmurate.service.storage.databases import Database
from murmurate.service.storage.migrate import migrate_database
from murmurate.service.storage.session import SessionPool
from murmurate.service.storage.state_store import PostgresStateStore

pytestmark = pytest.mark.postgres_programs

LOGS_EVERYTHING = {
    "log_min_duration_statement": "0",
    "log_statement": "all",
    "log_min_error_statement": "debug5",
    "log_parameter_max_length": "-1",
    "log_parameter_max_length_on_error": "-1",
    "debug_print_plan": "on",
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_verbose": "on",
}
DEMAND_WH = 271_828_182


@pytest.fixture(scope="module")
def cluster():
    with clusters() as room:
        made = room.new("chatty")
        made.settings = LOGS_EVERYTHING
        made.start()
        made.execute("CREATE ROLE owner LOGIN")
        made.execute("ALTER DATABASE postgres OWNER TO owner")
        yield made


def use_state(dsn):
    """What the worker and the private process do with numbers that must stay secret, successfully and not."""
    migrate_database(dsn, "state")
    Database("state", dsn).check_reachable()
    store = PostgresStateStore(dsn)
    store.store_demand(FIRST, make_demand(north=DEMAND_WH))
    store.store_demand(FIRST, make_demand(north=DEMAND_WH + 1))
    assert len(store.load_demand({"shard": (FIRST, ("north",))}).zones) == 1
    store.close()
    pool = SessionPool(dsn)
    try:
        with pool.transaction() as connection:
            connection.execute("INSERT INTO confidential.register VALUES (1, 1, %s)", (DEMAND_WH,))
        with pytest.raises(psycopg.errors.DivisionByZero), pool.transaction() as connection:
            connection.execute("SELECT %s::bigint / 0", (DEMAND_WH,))
    finally:
        pool.close()


def assert_no_demand_in_the_log(cluster):
    text = cluster.log.read_text(errors="replace")
    assert "confidential.demand" in text
    assert "27182818" not in text


def test_a_superuser_hides_the_parameters_of_its_own_sessions(cluster):
    try:
        use_state(cluster.dsn)
        assert_no_demand_in_the_log(cluster)
    finally:
        cluster.execute("DROP SCHEMA curator, confidential, access, murmurate CASCADE")


def test_another_role_is_refused_until_the_server_is_set_to_hide_them(cluster):
    dsn = make_conninfo(cluster.dsn, user="owner")
    needed = ("log_parameter_max_length = 0", "auto_explain.log_min_duration = -1")
    for setting in needed:
        for attempt in (Database("state", dsn).check_reachable, lambda: migrate_database(dsn, "state")):
            with pytest.raises(MurmurateError, match=f"as a superuser: ALTER DATABASE .. SET {setting}"):
                attempt()
        cluster.execute(f"ALTER DATABASE postgres SET {setting}")
    use_state(dsn)
    assert_no_demand_in_the_log(cluster)


def test_what_the_server_of_the_public_log_writes_down_is_its_own_matter(cluster):
    cluster.execute("ALTER DATABASE postgres RESET ALL")
    Database("log", make_conninfo(cluster.dsn, user="owner")).check_reachable(prepared=False)
