"""The clock of one process is wrong by ten intervals: no reading is lost, and no price of hours ago called current."""

import json
from contextlib import ExitStack, closing, contextmanager

import httpx
import pytest

from murmurate.service.aggregation.job import aggregate_landing
from murmurate.service.auth import ApiClient, AuthStore
from murmurate.service.landing.interval_manifest import close_interval
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.meter_table import pin_table
from murmurate.service.storage.session import Session
from tests.support.api_servers import plan_of
from tests.support.broker import Broker, start_client, stop_client
from tests.support.postgres_stores import ShardWriter
from tests.support.running_service import HeadEnd, ServiceOperator

pytestmark = pytest.mark.slow

STEP_S = 900
TEN_INTERVALS_S = 10 * STEP_S
START_S = 1_794_614_400  # the interval that readings are sent for
FIRST, PRICED = 1_900_000, 12  # of the log that the public process reads
WAIT_S = 180
DIFFERENCE = "murmurate_clock_difference_seconds"


class Part:
    """One process of a service, with its own clock."""

    def __init__(self, service, **login):
        self.web = httpx.Client(base_url=service.url("", service.parts[0]), timeout=120, trust_env=False)
        self.service, self.clock, self.wait_for = service, service.clock, service.wait_for
        self.login = login

    def status(self, path):
        return self.web.get(path).status_code

    def metric(self, *sample):
        """A figure by its name and the values of its labels; None if there is none."""
        return self.service.metrics(self.service.parts[0], **self.login).get(sample)


@contextmanager
def running_part(root, part, *, now_s, mqtt="", **dsns):
    """Run one process of `murmurate serve`. Its service's time is `now_s` at the begin."""
    operator = ServiceOperator(root, {"state": "", **dsns}, first_s=now_s)
    operator.mqtt = mqtt
    try:
        yield operator, operator.start_service(f"grace_s = {4 * STEP_S}", (part,))
    finally:
        operator.stop_services()


class Meters(Part):
    """Ten meters that send readings to a private process, by HTTP and over MQTT."""

    def __init__(self, operator, service, broker):
        super().__init__(service, auth=("boss", operator.secrets["boss"]))
        self.head_end, self.mqtt = HeadEnd(operator), start_client(broker.port)
        self.head_end.sign_in(service)

    def post(self, meter, energy_wh):
        return self.head_end.post(self.service, _reading(meter, energy_wh), "application/x-ndjson")

    def publish(self, topic, payload):
        self.mqtt.publish(topic, payload, qos=1).wait_for_publish(WAIT_S)

    def close(self):
        stop_client(self.mqtt)
        self.head_end.close()
        self.web.close()


def _reading(meter, energy_wh):
    return json.dumps({"meter": meter, "interval_start": START_S, "energy_wh": energy_wh}).encode()


@pytest.fixture
def part(tmp_path, state_dsn, log_dsn):
    rows = [f"{meter},harbour,1000,0" for meter in range(10)]
    (tmp_path / "meters.csv").write_text("\n".join(["meter,zone,bound_wh,imputed_wh", *rows]) + "\n")
    Landing.create(tmp_path / "landing", interval_s=STEP_S)
    clients = (
        ApiClient(id="head-end", zones=frozenset({"harbour"})),
        ApiClient(id="boss", zones=frozenset(), is_operator=True),
    )
    with closing(Session(state_dsn)) as session:
        secrets = {client.id: AuthStore(session).add_client(client) for client in clients}
    broker = Broker(tmp_path / "broker")
    broker.start()
    try:
        more = {"mqtt": f"[mqtt]\nport = {broker.port}", "state": state_dsn, "log": log_dsn}
        with running_part(tmp_path, "private", now_s=START_S + STEP_S + 60, **more) as (operator, service):
            operator.secrets = secrets
            with closing(Meters(operator, service, broker)) as made:
                made.wait_for(lambda: "MQTT broker" not in made.web.get("/readyz").text)
                yield made
    finally:
        broker.kill()


def measured_demand(root):
    landing = Landing.open(root / "landing")
    table = pin_table(landing, root / "meters.csv")
    demand = aggregate_landing(landing, table, [close_interval(landing, START_S, table.version)])[START_S]
    return int(demand.energy_wh[0]), int(demand.reported[0])


def test_a_private_process_whose_clock_is_ahead_refuses_readings_until_it_is_right_and_loses_none(part, tmp_path):
    assert part.post(0, 100).status_code == 200
    part.clock.shift(TEN_INTERVALS_S)
    answer = part.post(1, 200)
    assert answer.status_code == 503, answer.text
    assert "9,000 s ahead of the state database's" in answer.json()["detail"]
    assert int(answer.headers["retry-after"]) > 0
    ready = part.web.get("/readyz")
    assert (ready.status_code, "9,000 s ahead of the state database's" in ready.text) == (503, True)
    assert abs(part.metric(DIFFERENCE, "private", "state") - TEN_INTERVALS_S) < 60
    part.publish("murmurate/readings", _reading(2, 300))
    part.wait_for(lambda: '"ClockDifferenceError"' in part.service.log.read_text())  # MQTT waits after its first try
    part.clock.shift(0)
    answer = part.post(1, 200)
    assert (answer.status_code, answer.json()["accepted"], answer.json()["late"]) == (200, 1, 0)
    part.wait_for(lambda: part.metric("murmurate_readings_total", "accepted") == 3)
    assert part.metric("murmurate_readings_total", "late") == 0
    assert part.status("/readyz") == 200
    assert measured_demand(tmp_path) == (600, 3)


def test_a_private_process_whose_clock_is_behind_refuses_nothing_for_good(part, tmp_path):
    part.clock.shift(-TEN_INTERVALS_S)
    answer = part.post(1, 200)
    assert (answer.status_code, "behind the state database's" in answer.json()["detail"]) == (503, True)
    begin = {"timestamp": START_S, "value": 5_000}  # a point with a time: it waits
    part.publish("smartmeter/2/ACTIVE_ENERGY_P", json.dumps(begin))
    first_bytes = part.wait_for(lambda: part.metric("murmurate_mqtt_queue_bytes"))
    part.publish("smartmeter/3/ACTIVE_ENERGY_P", b"7000")  # without: when it came is not known
    part.wait_for(lambda: part.metric("murmurate_mqtt_queue_bytes") > first_bytes)  # both came at the wrong time
    part.wait_for(lambda: '"ClockDifferenceError"' in part.service.log.read_text())
    part.clock.shift(0)
    assert part.post(1, 200).status_code == 200
    end = {"timestamp": START_S + STEP_S, "value": 5_300}
    part.publish("smartmeter/2/ACTIVE_ENERGY_P", json.dumps(end))
    part.wait_for(lambda: part.metric("murmurate_readings_total", "accepted") == 2)
    assert part.metric("murmurate_register_points_refused_total", "future") == 0
    assert part.metric("murmurate_register_points_refused_total", "clock") == 1
    assert measured_demand(tmp_path) == (500, 2)


def test_a_public_process_whose_clock_is_wrong_calls_no_price_current_and_is_not_ready(tmp_path, log_dsn):
    writer = ShardWriter(log_dsn, {"harbour": plan_of("harbour")}, first=FIRST)
    writer.write(PRICED + 1, 400_000)
    writer.close()
    current = "/zones/harbour/now"
    running = running_part(tmp_path, "public", now_s=(FIRST + PRICED) * STEP_S, log=log_dsn)
    with running as (_, service), ExitStack() as stack:
        part = Part(service)
        stack.callback(part.web.close)
        right = part.web.get(current).raise_for_status().json()
        assert part.status("/readyz?zone=harbour") == 200
        for shift_s, word in ((-TEN_INTERVALS_S, "behind"), (STEP_S, "ahead of")):
            part.clock.shift(shift_s)
            part.wait_for(lambda: part.status(current) == 503)
            for path in (current, "/readyz", "/readyz?zone=harbour", "/zones/harbour/evcc", "/zones/harbour"):
                answer = part.web.get(path)
                assert answer.status_code == 503, path
                assert f"{word} the log's" in answer.json()["detail"]
            assert part.status("/zones/harbour/history.csv") == part.status("/healthz") == 200
            assert abs(part.metric(DIFFERENCE, "public", "log") - shift_s) < 60
            part.clock.shift(0)
            part.wait_for(lambda: part.status("/readyz") == 200)
            assert part.web.get(current).raise_for_status().json() == right
