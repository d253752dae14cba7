"""Mistakes with servers: PostgreSQL, ports and brokers. Each message names cause and remedy, and no password."""

import json
import socket
import time
from contextlib import contextmanager
from secrets import token_hex

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from murmurate.errors import MurmurateError
from murmurate.service.mqtt_client import connect_mqtt
from murmurate.service.settings import MqttBroker, load_settings
from murmurate.service.storage import server_checks
from murmurate.service.supervisor import run_all_processes
from tests.support.databases import SERVER, database
from tests.support.mistaken_files import write_mistaken_files
from tests.support.mistakes import Mistake, check_message, run_as_program, run_in_process
from tests.support.ports import free_port
from tests.support.postgres_cluster import clusters
from tests.support.recorded_log import recorded_log

CREATE_SQL = "CREATE ROLE murmurate LOGIN PASSWORD 'choose one'; CREATE DATABASE murmurate_state OWNER murmurate;"
OPEN = "murmurate zone open plan.json"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("newcomer")
    write_mistaken_files(made)
    return made


@pytest.fixture
def make_mistake(folder, monkeypatch):
    """Run a command with these databases, and check its message."""
    monkeypatch.chdir(folder)

    def make(line, cause, remedy, *, state, log, status=2):
        done = run_in_process(line, monkeypatch, MURMURATE_STATE=state, MURMURATE_LOG=log)
        check_message(Mistake(line, cause, remedy, status), done)
        assert "hunter2" not in done.stdout + done.stderr

    return make


@contextmanager
def role(options="LOGIN"):
    """A role of the test server without any right."""
    name = f"test_role_{token_hex(6)}"
    with psycopg.connect(f"{SERVER}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} {options}")
        try:
            yield name
        finally:
            connection.execute(f"DROP ROLE {name}")


def test_a_role_that_is_not_there_comes_with_the_statements_that_create_it(make_mistake):
    away = make_conninfo(f"{SERVER}/postgres", user="no_such_role", password="hunter2")  # noqa: S106
    make_mistake(OPEN, "no such role as --state", CREATE_SQL, state=away, log=away)


def test_a_database_that_is_not_there_comes_with_the_statements_that_create_it(make_mistake):
    away = f"{SERVER}/no_such_database"
    make_mistake(OPEN, "no such database as --state", CREATE_SQL, state=away, log=away)


def test_a_server_without_tls_and_a_port_that_is_none(make_mistake):
    plain = make_conninfo(f"{SERVER}/postgres", sslmode="require")
    with psycopg.connect(f"{SERVER}/postgres") as connection:
        has_tls = connection.execute("SHOW ssl").fetchone() == ("on",)
    if not has_tls:
        make_mistake(OPEN, "speaks no TLS", "correct sslmode", state=plain, log=plain)
    port = make_conninfo(f"{SERVER}/postgres", port=99999)
    make_mistake(OPEN, "no number from 1 to 65535", "usually it is 5432", state=port, log=port)


@pytest.mark.parametrize("line", [OPEN, "murmurate init --roles", "murmurate log repair"])
def test_one_database_for_state_and_log_is_refused_however_it_is_named(line, make_mistake, state_dsn):
    other = make_conninfo(state_dsn, application_name="other")
    make_mistake(
        line, "the log database is the state database as well", "must be another one", state=state_dsn, log=other
    )


def test_an_empty_database_is_named_with_the_command_that_prepares_it(make_mistake):
    with database("state") as state, database("log") as log:
        make_mistake(
            "murmurate step release",
            "the state database is empty",
            "murmurate zone open plan.json",
            state=state,
            log=log,
        )


def test_a_role_without_rights_is_told_who_may(make_mistake, log_dsn):
    with database("state") as state, role() as name:
        weak = make_conninfo(state, user=name)
        make_mistake(
            OPEN,
            "the state database is empty",
            "as its owner, or as a superuser: ALTER DATABASE .. OWNER TO ..",
            state=weak,
            log=log_dsn,
        )


def test_a_database_that_takes_no_changes_is_a_standby_perhaps(make_mistake, state_dsn, log_dsn):
    with psycopg.connect(f"{SERVER}/postgres", autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {state_dsn.rpartition('/')[2]} SET default_transaction_read_only = on")
    make_mistake(
        "murmurate init --roles", "it takes no changes", "name the primary server", state=state_dsn, log=log_dsn
    )


def test_a_server_that_is_too_old_is_named_with_its_version(make_mistake, state_dsn, log_dsn, monkeypatch):
    monkeypatch.setattr(server_checks, "MIN_SERVER_VERSION", 99_00_00)
    make_mistake(
        OPEN, "the state database is on PostgreSQL 1", "needs PostgreSQL 99 or newer", state=state_dsn, log=log_dsn
    )


def test_a_client_that_is_not_there_is_not_removed(make_mistake, state_dsn, log_dsn):
    line = "murmurate client remove ghost"
    make_mistake(line, "client is 'ghost'", "murmurate client list shows all", state=state_dsn, log=log_dsn)


@pytest.mark.postgres_programs
def test_passwords_and_machines_that_are_refused(make_mistake):
    with clusters() as private:
        cluster = private.new("passwords")
        rules = cluster.data / "pg_hba.conf"
        guards = "host all guarded 127.0.0.1/32 scram-sha-256\nhost all outsider 127.0.0.1/32 reject\n"
        rules.write_text(guards + rules.read_text())
        cluster.start()
        cluster.execute("CREATE ROLE guarded LOGIN PASSWORD 'right'")
        cluster.execute("CREATE ROLE outsider LOGIN")
        wrong = make_conninfo(cluster.dsn, user="guarded", password="hunter2")  # noqa: S106
        make_mistake(OPEN, "refuses the password in --state", "ALTER ROLE .. PASSWORD '..'", state=wrong, log=wrong)
        none = make_conninfo(cluster.dsn, user="guarded")
        make_mistake(OPEN, "the server wants a password", "postgresql://role:password@host", state=none, log=none)
        outside = make_conninfo(cluster.dsn, user="outsider")
        make_mistake(OPEN, "does not let this machine", "add a line to its pg_hba.conf", state=outside, log=outside)


SETTINGS = [
    ("public = 8080", "'8080'|public in", "must be a text in quotes"),
    ('publik = "127.0.0.1:8080"', "publik in", "did you mean public?"),
    ("grace_s = 1,5", "'grace_s = 1,5' is not TOML", "write a decimal point"),
    ('public = "8080"', "public is 8080", "must be an address such as 127.0.0.1:8080"),
    ('private = "127.0.0.1:8080"', "private is 127.0.0.1:8080", "must be another address than public"),
    ('url = "prices.example"', "url is prices.example", "must begin with http:// or https://"),
    ('timezone = "Zurich"', "timezone is Zurich", "must be a name such as Europe/Zurich"),
    ('meters = "gone.csv"', "gone.csv, which is not there", "columns meter, zone, bound_wh"),
    ('keys = "folder"', "the folder of keys is", "must hold a signing key; murmurate init makes one"),
    ('landing = "folder"', "is not a folder for readings", "murmurate init creates one"),
    ('public = "192.0.2.1:8080"', "not of this machine", "127.0.0.1, or 0.0.0.0 for all"),
    ('public = "no-such-host.invalid:8080"', "unknown", "correct it in the settings"),
]


@pytest.mark.parametrize(("line", "cause", "remedy"), SETTINGS, ids=[line for line, _, _ in SETTINGS])
def test_settings_that_cannot_be_are_refused_at_the_start(line, cause, remedy, folder):
    path = folder / f"service-{token_hex(4)}.toml"
    path.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(MurmurateError) as refused:
        run_all_processes(path, load_settings(path), "", "")
    assert any(words in str(refused.value) for words in cause.split("|")), str(refused.value)
    assert remedy in str(refused.value)


def test_a_port_that_is_taken_is_named_in_the_log_and_ends_the_service(folder):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        text = f'public = "{taken}"\nprivate = "127.0.0.1:{free_port()}"\n'
        (folder / "taken.toml").write_text(text, encoding="utf-8")
        done = run_as_program("murmurate serve taken.toml", folder)
    check_message(Mistake("", f"public address {taken} is taken", "name another port in the settings"), done)
    (line,) = map(json.loads, done.stderr.splitlines())
    assert (line["event"], line["level"]) == ("ended by an error", "error")


def test_a_broker_that_is_not_there_is_in_the_log_with_its_remedy():
    logged = []
    broker = MqttBroker(port=free_port())
    with recorded_log(logged):
        client = connect_mqtt(broker, f"mistakes-{token_hex(4)}")
        end = time.monotonic() + 120
        while not logged and time.monotonic() < end:
            time.sleep(0.05)
        client.loop_stop()
    event, facts = logged[0]
    assert event == "broker unreachable"
    assert facts["address"] == f"127.0.0.1:{broker.port}"
    assert "start the broker" in facts["remedy"]
