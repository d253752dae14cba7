"""The private process says that it is ready exactly when readings can be taken, and shows why not."""

import errno
import json
import re
import time
from types import SimpleNamespace

import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support import web_server
from tests.support.ports import free_port
from tests.support.waiting import wait_until

from murmurate.readings.batch import ReadingBatch
from murmurate.service.auth import ApiClient, AuthStore
from murmurate.service.clock import ServiceClock
from murmurate.service.ingest import ingest_status
from murmurate.service.ingest.http_api import private_app
from murmurate.service.ingest.ingest_status import IngestReadiness, IngestStatus, WriteCheck
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.ingest.ingestor import ReloadingIngestor
from murmurate.service.ingest.mqtt_consumer import MqttConsumer
from murmurate.service.landing.layout import Landing
from murmurate.service.operator_api.routes import OperatorApi, ingest_metrics
from murmurate.service.settings import MqttBroker, ServiceSettings
from murmurate.service.storage.databases import Databases
from murmurate.service.storage.heartbeats import WORKER_HEARTBEAT, record_heartbeat
from murmurate.service.storage.session import SessionPool
from murmurate.service.web.text import format_metrics
from murmurate.service.worker.zone_warnings import warn_of_household_counts

OPEN_S = 1_794_657_600


@pytest.fixture
def private(tmp_path, state_dsn, monkeypatch):
    """A private process whose log is out of reach."""
    monkeypatch.setattr(ingest_status, "MIN_CHECK_PERIOD_S", 0.0)
    (tmp_path / "meters.csv").write_text("meter,zone,bound_wh\n0,harbour,1000\n1,quay,1000\n")
    landing, state = Landing.create(tmp_path / "landing"), SessionPool(state_dsn)
    clock = ServiceClock(simulated_s=OPEN_S + 910, wall_s=time.time(), speed=1e-9)
    settings = ServiceSettings(landing=landing.root, meters=tmp_path / "meters.csv", clock=clock)
    store = IngestStore(state)
    ingestor = ReloadingIngestor(landing, settings.meters, clock, 60, store)
    consumer = MqttConsumer(
        broker=MqttBroker(), client_id="never-connected", landing=landing, current_ingestor=ingestor, store=store,
        now=clock.now,
    )  # fmt: skip
    ready = IngestReadiness(state, landing.store)
    status = IngestStatus(ingestor=ingestor, state=state, readiness=ready, consumer=consumer)
    databases = Databases.from_dsns(state=state_dsn, log=f"postgresql://postgres@127.0.0.1:{free_port()}/gone")
    operator = OperatorApi(databases=databases, settings=settings, state=state, counts=ingestor.counts, ingest=status)
    secret = AuthStore(state).add_client(ApiClient(id="boss", zones=frozenset(), is_operator=True))
    yield SimpleNamespace(
        app=private_app(operator.routes()),
        root=tmp_path,
        dsn=state_dsn,
        status=status,
        secret=secret,
        consumer=consumer,
    )
    operator.close()
    state.close()


def fetch(private, path, *, with_login=True):
    return web_server.fetch(private.app, path, auth=("boss", private.secret) if with_login else None)


def metric(private, name, **labels):
    for family in text_string_to_metric_families(fetch(private, "/metrics").text):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return sample.value
    return None


def test_it_is_ready_while_the_log_is_out_of_reach(private):
    assert (fetch(private, "/readyz").status_code, fetch(private, "/healthz").status_code) == (200, 200)
    assert metric(private, "murmurate_state_writable") == metric(private, "murmurate_landing_writable") == 1


def test_it_is_not_ready_while_the_landing_is_full(private, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("murmurate.service.storage.durable._create_file", full)
        answer = fetch(private, "/readyz")
        assert (answer.status_code, metric(private, "murmurate_landing_writable")) == (503, 0)
        assert answer.json()["detail"] == "the landing cannot be written: No space left on device"
        assert metric(private, "murmurate_state_writable") == 1
        assert fetch(private, "/healthz").status_code == 200
    assert fetch(private, "/readyz").status_code == 200
    assert not list((private.root / "landing").glob(".writable*"))


def test_it_is_not_ready_while_the_landing_is_gone(private):
    landing, away = private.root / "landing", private.root / "away"
    landing.rename(away)
    assert fetch(private, "/readyz").status_code == 503
    away.rename(landing)
    assert fetch(private, "/readyz").status_code == 200


def test_it_is_not_ready_while_the_state_is_read_only(private):
    name = private.dsn.rpartition("/")[2]
    assert fetch(private, "/readyz").status_code == 200
    for setting, expected in (("on", 503), ("off", 200)):
        with psycopg.connect(private.dsn, autocommit=True) as connection:
            connection.execute("SET default_transaction_read_only = off")
            connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = {setting}")
            query = (
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()"
            )
            connection.execute(query, (name,))
        assert wait_until(lambda status=expected: fetch(private, "/readyz").status_code == status)
        assert metric(private, "murmurate_state_writable") == (expected == 200)


def test_what_lasts_and_needs_an_operator_is_in_readiness_and_on_the_page(private, monkeypatch):
    monkeypatch.setattr("murmurate.service.ingest.ingestor.RELOAD_CHECK_S", -1.0)
    with psycopg.connect(f"{private.dsn}") as connection:
        report = {"zone_warnings": {"harbour": "has 2 meters"}, "warnings": {"harbour": "has 2 meters"}}
        connection.execute(
            "INSERT INTO curator.heartbeat VALUES (%s, clock_timestamp(), %s)", (WORKER_HEARTBEAT, json.dumps(report))
        )
    broker = "MQTT broker is not connected: no readings come over MQTT; start the broker"
    assert_warned(private, broker)
    assert "harbour : has 2 meters" in page_text(private)
    assert "meter table" not in fetch(private, "/readyz").text
    (private.root / "meters.csv").unlink()
    assert_warned(private, broker, "meter table is not there: put it back")
    assert str(private.root) not in fetch(private, "/readyz").text
    (private.root / "meters.csv").write_text("meter,zone\n0,harbour\n")
    assert_warned(private, broker, "meter table cannot be read: put it back, or correct it")
    (private.root / "meters.csv").write_text("meter,zone,bound_wh\n0,harbour,1000\n1,quay,1000\n")
    assert "meter table" not in fetch(private, "/readyz").text


def page_text(private):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", fetch(private, "/operator").text))


def assert_warned(private, *warnings):
    """Readings can be taken, and both places show what needs an operator."""
    answer, page = fetch(private, "/readyz"), page_text(private)
    assert answer.status_code == 200
    for warning in warnings:
        assert f"warning: {warning}" in answer.text
        about = next(name for name in ("meter table", "MQTT broker") if warning.startswith(name))
        assert f"{about} :{warning.removeprefix(about)}" in page


def test_no_answer_without_a_login_depends_on_how_many_meters_a_zone_has(private):
    """Whoever reaches the private port could else see a household join or leave."""
    paths, seen = ("/readyz", "/healthz", "/operator", "/metrics", "/openapi.json"), set()
    for meters in (2, 400):
        warnings = warn_of_household_counts({"harbour": 801}, {"harbour": meters})
        assert f"has {meters} households" in warnings["harbour"]
        record_heartbeat(private.status.state, WORKER_HEARTBEAT, {"zone_warnings": warnings, "warnings": warnings})
        answers = [fetch(private, path, with_login=False) for path in paths]
        assert "warning: " in answers[0].text
        assert not any("households in the meter table" in answer.text for answer in answers)
        seen.add(tuple((answer.status_code, answer.text) for answer in answers))
    assert len(seen) == 1


def test_a_check_that_never_ends_delays_no_answer_for_long_and_is_not_ready(monkeypatch):
    monkeypatch.setattr(ingest_status, "CHECK_TIMEOUT_S", 0.05)
    check = WriteCheck(lambda: time.sleep(20))
    assert [check.fault(), check.fault()] == ["does not answer"] * 2


def test_the_metrics_of_the_ways_in(private):
    status = private.status
    status.ingestor().ingest_batch(ReadingBatch.from_numbered_rows([(0, OPEN_S, 5)]), None)
    status.ingestor.counts.update(register_future=3, register_queued=1, mqtt_quarantined=2)
    private.consumer.dropped = 7
    registry_text = format_metrics(ingest_metrics(status, ["harbour", "quay", "unknown"]))
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(registry_text)
        for sample in family.samples
    }
    assert samples["murmurate_register_points_refused_total", "future"] == 3
    assert samples["murmurate_register_points_refused_total", "retained"] == 0
    assert samples["murmurate_register_points_refused_total", "queued"] == 1
    assert samples["murmurate_mqtt_set_aside_total",] == 2
    assert samples["murmurate_mqtt_dropped_total",] == 7
    assert (samples["murmurate_mqtt_connected",], samples["murmurate_mqtt_queue_bytes",]) == (0, 0)
    assert samples["murmurate_session_pool_in_use",] == 0
    ages = [samples["murmurate_zone_newest_reading_age_seconds", zone] for zone in ("harbour", "quay")]
    assert 0 <= ages[0] <= ages[1]
    assert samples["murmurate_meter_table_age_seconds",] >= 0
    assert ("murmurate_zone_newest_reading_age_seconds", "unknown") not in samples


def test_the_age_of_the_meter_table_grows_while_its_file_cannot_be_read(private, monkeypatch):
    monkeypatch.setattr("murmurate.service.ingest.ingestor.RELOAD_CHECK_S", 0.0)
    status = private.status
    table = (private.root / "meters.csv").read_text()
    (private.root / "meters.csv").write_text("not a table\n")
    before = status.meter_table_age_s
    time.sleep(0.2)
    assert status.meter_table_age_s >= before + 0.2
    (private.root / "meters.csv").write_text(table)
    grown = status.ingestor.table_age_s
    assert status.meter_table_age_s < grown
