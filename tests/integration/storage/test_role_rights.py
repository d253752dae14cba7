"""The rights of each database role, tried on every schema, table, sequence and function of both databases.

What exists is read from the catalog. A table or a function without a row here fails the test: say who may do what.
"""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

import numpy as np
import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from tests.support.postgres_cluster import clusters
from tests.support.postgres_stores import SHARDS, ZONES, Stores, desired
from tests.support.sample_shards import FIRST, make_demand

from murmurate.commands.init import prepare_databases
from murmurate.errors import MurmurateError
from murmurate.service.auth import ApiClient, AuthStore
from murmurate.service.ingest.cumulative_register import RegisterReading, RegisterState
from murmurate.service.ingest.ingest_status import IngestReadiness
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.log_reader.follower import Follower
from murmurate.service.storage.databases import Databases
from murmurate.service.storage.heartbeats import read_heartbeats
from murmurate.service.storage.migrate import create_roles, migrate_database
from murmurate.service.storage.object_store import FolderStore
from murmurate.service.storage.public_log_store import PostgresLogStore
from murmurate.service.storage.session import Session
from murmurate.service.storage.state_store import PostgresStateStore

pytestmark = pytest.mark.postgres_programs

PUBLISHER, READER, WORKER, PRIVATE = (f"murmurate_{name}" for name in ("publisher", "reader", "worker", "private"))
STRANGER = "stranger"  # has a login and no other right
ROLES = {"log": (PUBLISHER, READER, STRANGER), "state": (WORKER, PRIVATE, STRANGER)}
EVERYONE_READS = dict.fromkeys(ROLES["log"], "SELECT")

TABLES = {
    "log": {
        "public_log.document": EVERYONE_READS | {PUBLISHER: "SELECT INSERT"},
        "public_log.claim": EVERYONE_READS,
        "public_log.tile": EVERYONE_READS,
        "public_log.head": EVERYONE_READS,
        "public_log.evidence": EVERYONE_READS,
        "public_log.archived": EVERYONE_READS,
        "murmurate.migration": EVERYONE_READS,
    },
    "state": {
        "confidential.demand": {WORKER: "SELECT INSERT UPDATE DELETE"},
        "confidential.seen": {WORKER: "SELECT DELETE", PRIVATE: "SELECT INSERT"},
        "confidential.register": {WORKER: "SELECT(at_s) DELETE", PRIVATE: "SELECT INSERT UPDATE"},
        "confidential.register_energy": {WORKER: "SELECT(start_s) DELETE", PRIVATE: "SELECT INSERT"},
        "curator.document": {WORKER: "SELECT INSERT"},
        "curator.shard": {WORKER: "SELECT UPDATE(seq)"},
        "curator.zone": {WORKER: "SELECT"},
        "curator.tile": {WORKER: "SELECT INSERT UPDATE DELETE"},
        "curator.heartbeat": {WORKER: "SELECT INSERT UPDATE", PRIVATE: "SELECT"},
        "curator.aggregation_attempt": {WORKER: "SELECT INSERT UPDATE DELETE"},
        "curator.public_input": {WORKER: "SELECT DELETE", PRIVATE: "SELECT INSERT UPDATE"},
        "access.client": {PRIVATE: "SELECT"},
        "access.token": {PRIVATE: "SELECT INSERT DELETE"},
        "murmurate.migration": {WORKER: "SELECT", PRIVATE: "SELECT"},
    },
}
FUNCTIONS = {
    "log": {
        "public_log.append(bytea[])": {PUBLISHER},
        "public_log.claim_zones(jsonb)": {PUBLISHER},
        "public_log.parse_headers(bytea[])": set(),
        "public_log.zones_may_enter(text,text)": set(),
        "public_log.refuse_change()": set(),
        "public_log.refuse_kept()": set(),
        "public_log.drop_archived(text,bigint,text)": set(),
    },
    "state": {},
}
SEQUENCES = {"log": {}, "state": {}}

REFUSED_FOR_ITS_CONTENT = (
    psycopg.errors.NotNullViolation,
    psycopg.errors.RaiseException,  # append-only
    psycopg.errors.FeatureNotSupported,  # a trigger is called by itself
)
_OURS = "n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'"
_RELATIONS = f"""
    SELECT c.oid::regclass::text, array(
        SELECT a.attname FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE {_OURS} AND c.relkind = ANY (%s) ORDER BY 1"""  # noqa: S608
_FUNCTIONS = f"""
    SELECT p.oid::regprocedure::text, p.pronargs FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
    WHERE {_OURS} ORDER BY 1"""  # noqa: S608
_SCHEMAS = f"SELECT nspname FROM pg_namespace AS n WHERE {_OURS}"  # noqa: S608


@dataclass(frozen=True)
class Server:
    """One of the two databases, each on a server of its own."""

    dsn: str

    def as_role(self, role):
        """A login that is a member of the role."""
        return psycopg.connect(self.dsn, user=f"login_of_{role}")

    def query(self, text, *parameters):
        with psycopg.connect(self.dsn) as connection:
            return connection.execute(text, parameters).fetchall()


@pytest.fixture(scope="module")
def servers():
    with clusters() as room:
        found = {store: Server(room.new(store).start().dsn) for store in ("state", "log")}
        prepare_databases(Databases.from_dsns(state=found["state"].dsn, log=found["log"].dsn), with_roles=True)
        for store, server in found.items():
            with psycopg.connect(server.dsn) as connection:
                for role in ROLES[store]:
                    member = "" if role == STRANGER else f"IN ROLE {role}"
                    connection.execute(f"CREATE ROLE login_of_{role} LOGIN {member}")
        yield found


def is_allowed(connection, statement):
    """Try a statement and roll it back. A statement that fails for what it says, not for who says it, was allowed."""
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(statement)
    except psycopg.errors.InsufficientPrivilege:
        return False
    except REFUSED_FOR_ITS_CONTENT:
        pass
    return True


def table_rights(connection, table, columns):
    """What a role may do with a table, as a text."""

    def right_by_column(right, statement):
        allowed = [column for column in columns if is_allowed(connection, statement % column)]
        return right if len(allowed) == len(columns) else f"{right}({','.join(allowed)})" if allowed else ""

    select = right_by_column("SELECT", f'SELECT "%s" FROM {table} LIMIT 0')  # noqa: S608
    update = right_by_column("UPDATE", f'UPDATE {table} SET "%s" = NULL WHERE false')  # noqa: S608
    tried = {
        select: bool(select),
        "INSERT": is_allowed(connection, f"INSERT INTO {table} DEFAULT VALUES"),
        update: bool(update),
        "DELETE": is_allowed(connection, f"DELETE FROM {table} WHERE false"),  # noqa: S608
        "TRUNCATE": is_allowed(connection, f"TRUNCATE {table}"),
        "ALTER": is_allowed(connection, f"ALTER TABLE {table} ADD COLUMN added text"),
    }
    return " ".join(right for right, allowed in tried.items() if allowed)


@contextmanager
def connected_or_none(server, role):
    try:
        connection = server.as_role(role)
    except psycopg.OperationalError as error:
        if "CONNECT" not in str(error):
            raise
        yield None
    else:
        with connection:
            yield connection


@pytest.mark.parametrize("store", ["state", "log"])
def test_each_role_has_the_rights_to_each_table_that_are_listed_and_no_others(servers, store):
    server = servers[store]
    tables = dict(server.query(_RELATIONS, ["r", "p", "v", "m", "f"]))
    assert tables.keys() == TABLES[store].keys(), "a table without a row in TABLES: say who may do what with it"
    for role in ROLES[store]:
        with connected_or_none(server, role) as connection:
            for table, columns in tables.items():
                found = "" if connection is None else table_rights(connection, table, columns)
                assert (role, table, found) == (role, table, TABLES[store][table].get(role, ""))


@pytest.mark.parametrize("store", ["state", "log"])
def test_each_role_calls_the_functions_that_are_listed_and_no_others(servers, store):
    server = servers[store]
    functions = dict(server.query(_FUNCTIONS))
    assert functions.keys() == FUNCTIONS[store].keys(), "a function without a row in FUNCTIONS: say who may call it"
    for role in ROLES[store]:
        with connected_or_none(server, role) as connection:
            for signature, count in functions.items():
                call = f"SELECT {signature.partition('(')[0]}({', '.join(['NULL'] * count)})"
                found = connection is not None and is_allowed(connection, call)
                assert (role, signature, found) == (role, signature, role in FUNCTIONS[store][signature])


@pytest.mark.parametrize("store", ["state", "log"])
def test_each_sequence_is_listed(servers, store):
    assert dict(servers[store].query(_RELATIONS, ["S"])).keys() == SEQUENCES[store].keys()


@pytest.mark.parametrize("store", ["state", "log"])
def test_no_role_creates_anything_anywhere(servers, store):
    server = servers[store]
    schemas = [name for (name,) in server.query(_SCHEMAS)]
    statements = [f"CREATE TABLE {schema}.made ()" for schema in schemas]
    statements += [f"CREATE FUNCTION {schema}.made() RETURNS int LANGUAGE sql AS 'SELECT 1'" for schema in schemas]
    statements += ["CREATE TEMPORARY TABLE made ()", "CREATE SCHEMA made", "CREATE ROLE made"]
    for role in ROLES[store]:
        with connected_or_none(server, role) as connection:
            for statement in statements if connection is not None else ():
                assert (role, statement, is_allowed(connection, statement)) == (role, statement, False)


def test_a_stranger_connects_to_the_log_and_not_to_the_state(servers):
    for store, connects in (("log", True), ("state", False)):
        with connected_or_none(servers[store], STRANGER) as connection:
            assert (connection is not None) == connects


def test_making_the_roles_again_takes_back_what_was_granted_by_mistake(servers):
    server = servers["state"]
    with psycopg.connect(server.dsn) as connection:
        connection.execute(f"GRANT ALL ON confidential.demand TO {PRIVATE}")
    prepare_databases(Databases.from_dsns(state=server.dsn, log=servers["log"].dsn), with_roles=True)
    with server.as_role(PRIVATE) as connection:
        assert not is_allowed(connection, "SELECT * FROM confidential.demand")


def test_an_update_gives_the_worker_the_right_to_delete_registers(servers):
    """As in a database whose roles were made before that right."""
    server = servers["state"]
    with psycopg.connect(server.dsn) as connection:
        connection.execute(f"REVOKE ALL ON confidential.register FROM {WORKER}")
        connection.execute("DELETE FROM murmurate.migration WHERE name = '0002_purge_registers.sql'")
    with pytest.raises(MurmurateError, match="murmurate zone open"):
        migrate_database(dsn_of_role(server, WORKER), "state")
    assert migrate_database(server.dsn, "state") == ["0002_purge_registers.sql"]
    with server.as_role(WORKER) as connection:
        assert table_rights(connection, "confidential.register", ["at_s", "wh"]) == "SELECT(at_s) DELETE"


def test_an_older_version_leaves_the_rights_of_a_newer_one(servers):
    server, worker = servers["state"], f"GRANT SELECT ON curator.of_a_newer_version TO {WORKER}"
    with psycopg.connect(server.dsn) as connection:
        connection.execute(f"CREATE TABLE curator.of_a_newer_version (); {worker}")
        connection.execute("INSERT INTO murmurate.migration VALUES ('state', '9999_newer.sql', 'x', '0005')")
    try:
        assert migrate_database(server.dsn, "state") == []
        with pytest.raises(MurmurateError, match="of a newer murmurate: create its roles with that one"):
            create_roles(server.dsn, "state")
        with server.as_role(WORKER) as connection:
            assert is_allowed(connection, "SELECT * FROM curator.of_a_newer_version")
    finally:
        with psycopg.connect(server.dsn) as connection:
            connection.execute("DROP TABLE curator.of_a_newer_version")
            connection.execute("DELETE FROM murmurate.migration WHERE name = '9999_newer.sql'")


def dsn_of_role(server, role):
    return make_conninfo(server.dsn, user=f"login_of_{role}")


@pytest.fixture
def opened():
    """Remember what a test opens, and close it."""
    with ExitStack() as stack:
        yield lambda made: stack.enter_context(closing(made))


def test_the_worker_releases_with_the_rights_of_its_roles(servers, opened):
    state, log = servers["state"], servers["log"]
    owner = opened(Stores(state.dsn, log.dsn))
    work = opened(PostgresStateStore(dsn_of_role(state, WORKER)))
    chain = opened(PostgresLogStore(dsn_of_role(log, PUBLISHER)))
    assert migrate_database(dsn_of_role(state, WORKER), "state") == []
    work.store_demand(FIRST, make_demand(**dict.fromkeys(ZONES, 500_000)))
    outcome = owner.publisher(state=work, log=chain).publish(desired(FIRST), timeout_s=60)
    assert set(outcome.up_to_date) == set(SHARDS)
    work.record_heartbeat("worker", {})
    work.purge_demand(900, FIRST + 1)
    store, point = opened(IngestStore(dsn_of_role(state, WORKER))), RegisterReading(FIRST * 900, 17)
    opened(IngestStore(state.dsn)).store_registers({7: RegisterState(point, point)}, now_s=point.at_s)
    store.purge_claims(FIRST)
    opened(IngestStore(state.dsn)).pair_energies([(7, point.at_s, 17)])
    store.purge_registers(point.at_s + 1)
    assert opened(IngestStore(state.dsn)).load_registers([7]) == {}
    assert opened(IngestStore(state.dsn)).pair_energies([(~7, point.at_s, 5)]) == []
    follower = opened(Follower(dsn_of_role(log, READER)))
    assert {change.view.name for change in follower.refresh()} == set(SHARDS)


def test_the_private_process_takes_readings_with_the_rights_of_its_role(servers, opened, tmp_path):
    state = servers["state"]
    mine = dsn_of_role(state, PRIVATE)
    assert migrate_database(mine, "state") == []
    secret = opened(AuthStore(state.dsn)).add_client(ApiClient(id="head-end", zones=frozenset({"harbour"})))
    access = opened(AuthStore(mine))
    token = access.issue_token(access.authenticate("head-end", secret))
    assert access.find_token(token.value)[0] == {"harbour"}
    assert [client.id for client in access.list_clients()] == ["head-end"]
    read_heartbeats(opened(Session(mine)))
    assert IngestReadiness(opened(Session(mine)), FolderStore(tmp_path)).faults() == {}
    store = opened(IngestStore(mine))
    with store.claim(np.array([1]), np.array([FIRST * 900])) as is_new:
        assert is_new.tolist() == [True]
    point = RegisterReading(FIRST * 900, 17)
    store.store_registers({1: RegisterState(point, point)}, now_s=FIRST * 900)
    assert store.load_registers([1]) == {1: RegisterState(point, point)}
    assert store.pair_energies([(1, FIRST * 900, 17), (~1, FIRST * 900, 20)]) == [(1, FIRST * 900, -3)]
