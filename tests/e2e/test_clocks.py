"""The clock of one process is wrong by ten intervals: no reading is lost, and no price of hours ago called current."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import httpx
import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion
from prometheus_client.parser import text_string_to_metric_families

from murmurate.service.aggregation.job import aggregate_landing
from murmurate.service.auth import ApiClient, AuthStore
from murmurate.service.landing.interval_manifest import close_interval
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.meter_table import pin_table
from murmurate.service.storage.session import Session
from tests.chaos.broker import Broker
from tests.chaos.chaos_service import SHIFTED_TIME, ShiftedClock
from tests.support.api_servers import plan_of
from tests.support.ports import free_port
from tests.support.postgres_stores import ShardWriter

pytestmark = pytest.mark.slow

STEP_S = 900
TEN_INTERVALS_S = 10 * STEP_S
START_S = 1_794_614_400  # the interval that readings are sent for
FIRST, PRICED = 1_900_000, 12  # of the log that the public process reads
WAIT_S = 180


class Part:
    """One process of a service, with a clock of its own."""

    def __init__(self, root, url, shifted, process):
        self.web = httpx.Client(base_url=url, timeout=120, trust_env=False)
        self.clock, self.process, self.log = shifted, process, root / "serve.log"

    def wait_for(self, holds):
        end = time.monotonic() + WAIT_S
        while not holds():
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < end, self.log.read_text()[-3000:]
            time.sleep(0.05)

    def status(self, path):
        try:
            return self.web.get(path).status_code
        except httpx.TransportError:
            return None

    def clock_difference_s(self, process, store, **request):
        """As the process shows it in its metrics."""
        text = self.web.get("/metrics", **request).raise_for_status().text
        return next(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "murmurate_clock_difference_seconds"
            and sample.labels == {"process": process, "store": store}
        )


@contextmanager
def running_part(root, part, *, now_s, broker_port=None, **dsns):
    """Run one process of `murmurate serve`. Its service's time is `now_s` at the begin."""
    port = free_port()
    (root / "service.toml").write_text(f"""
        grace_s = {4 * STEP_S}
        {part} = "127.0.0.1:{port}"
        [clock]
        simulated_s = {now_s}
        wall_s = {time.time()}
        {f"[mqtt]{os.linesep}port = {broker_port}" if broker_port else ""}
    """)
    shifted = ShiftedClock(root / "clock")
    path = os.pathsep.join(filter(None, (str(SHIFTED_TIME), os.environ.get("PYTHONPATH", ""))))
    environment = os.environ | {"PYTHONPATH": path, "MURMURATE_TEST_CLOCK": str(shifted.path), **dsns}
    command = [sys.executable, "-m", "murmurate", "serve", str(root / "service.toml"), "--only", part]
    with (root / "serve.log").open("ab") as log:
        process = subprocess.Popen(command, env=environment, cwd=root, stdout=log, stderr=log)
    made = Part(root, f"http://127.0.0.1:{port}", shifted, process)
    try:
        made.wait_for(lambda: made.status("/readyz") == 200)
        yield made
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(WAIT_S)
        made.web.close()


class HeadEnd:
    """Sends readings of ten meters to a private process, by HTTP and over MQTT."""

    def __init__(self, part, secrets, broker_port):
        self.part, self._secrets = part, secrets
        form = {"grant_type": "client_credentials", "client_id": "head-end", "client_secret": secrets["head-end"]}
        self._token = part.web.post("/auth/token", data=form).raise_for_status().json()["access_token"]
        self._mqtt = Client(CallbackAPIVersion.VERSION2)
        self._mqtt.connect("127.0.0.1", broker_port)
        self._mqtt.loop_start()

    def post(self, meter, energy_wh):
        headers = {"authorization": f"Bearer {self._token}", "content-type": "application/x-ndjson"}
        return self.part.web.post("/readings", content=_reading(meter, energy_wh), headers=headers)

    def publish(self, topic, payload):
        self._mqtt.publish(topic, payload, qos=1).wait_for_publish(WAIT_S)

    def publish_reading(self, meter, energy_wh):
        self.publish("murmurate/readings", _reading(meter, energy_wh))

    @property
    def login(self):
        return {"auth": ("boss", self._secrets["boss"])}

    def count(self, name, label):
        text = self.part.web.get("/metrics", **self.login).raise_for_status().text
        return next(
            (
                sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
                if sample.name == name and label in sample.labels.values()
            ),
            None,
        )

    def close(self):
        self._mqtt.disconnect()
        self._mqtt.loop_stop()


def _reading(meter, energy_wh):
    return json.dumps({"meter": meter, "interval_start": START_S, "energy_wh": energy_wh}).encode()


@pytest.fixture
def head_end(tmp_path, state_dsn, log_dsn):
    rows = [f"{meter},harbour,1000,0" for meter in range(10)]
    (tmp_path / "meters.csv").write_text("\n".join(["meter,zone,bound_wh,imputed_wh", *rows]) + "\n")
    Landing.create(tmp_path / "landing", interval_s=STEP_S)
    session = Session(state_dsn)
    access = AuthStore(session)
    clients = (
        ApiClient(id="head-end", zones=frozenset({"harbour"})),
        ApiClient(id="boss", zones=frozenset(), is_operator=True),
    )
    secrets = {client.id: access.add_client(client) for client in clients}
    session.close()
    broker = Broker(tmp_path / "broker")
    broker.start()
    try:
        now_s, dsns = START_S + STEP_S + 60, {"MURMURATE_STATE": state_dsn, "MURMURATE_LOG": log_dsn}
        with running_part(tmp_path, "private", now_s=now_s, broker_port=broker.port, **dsns) as part:
            part.wait_for(lambda: "MQTT broker" not in part.web.get("/readyz").text)
            made = HeadEnd(part, secrets, broker.port)
            yield made
            made.close()
    finally:
        broker.kill()


def measured_demand(root):
    landing = Landing.open(root / "landing")
    table = pin_table(landing, root / "meters.csv")
    demand = aggregate_landing(landing, table, [close_interval(landing, START_S, table.version)])[START_S]
    return int(demand.energy_wh[0]), int(demand.reported[0])


def test_a_private_process_whose_clock_is_ahead_refuses_readings_until_it_is_right_and_loses_none(head_end, tmp_path):
    part = head_end.part
    assert head_end.post(0, 100).status_code == 200
    part.clock.shift(TEN_INTERVALS_S)
    answer = head_end.post(1, 200)
    assert answer.status_code == 503, answer.text
    assert "9,000 s ahead of the state database's" in answer.json()["detail"]
    assert int(answer.headers["retry-after"]) > 0
    ready = part.web.get("/readyz")
    assert (ready.status_code, "9,000 s ahead of the state database's" in ready.text) == (503, True)
    assert abs(part.clock_difference_s("private", "state", **head_end.login) - TEN_INTERVALS_S) < 60
    head_end.publish_reading(2, 300)
    part.wait_for(lambda: '"ClockDifferenceError"' in part.log.read_text())  # MQTT has tried to store it, and waits
    part.clock.shift(0)
    answer = head_end.post(1, 200)
    assert (answer.status_code, answer.json()["accepted"], answer.json()["late"]) == (200, 1, 0)
    part.wait_for(lambda: head_end.count("murmurate_readings_total", "accepted") == 3)
    assert head_end.count("murmurate_readings_total", "late") == 0
    assert part.status("/readyz") == 200
    assert measured_demand(tmp_path) == (600, 3)


def test_a_private_process_whose_clock_is_behind_refuses_nothing_for_good(head_end, tmp_path):
    part = head_end.part
    part.clock.shift(-TEN_INTERVALS_S)
    answer = head_end.post(1, 200)
    assert (answer.status_code, "behind the state database's" in answer.json()["detail"]) == (503, True)
    begin = {"timestamp": START_S, "value": 5_000}  # a point with a time: it waits
    head_end.publish("smartmeter/2/ACTIVE_ENERGY_P", json.dumps(begin))
    head_end.publish("smartmeter/3/ACTIVE_ENERGY_P", b"7000")  # without: when it came is not known
    part.wait_for(lambda: '"ClockDifferenceError"' in part.log.read_text())
    part.clock.shift(0)
    assert head_end.post(1, 200).status_code == 200
    end = {"timestamp": START_S + STEP_S, "value": 5_300}
    head_end.publish("smartmeter/2/ACTIVE_ENERGY_P", json.dumps(end))
    part.wait_for(lambda: head_end.count("murmurate_readings_total", "accepted") == 2)
    assert head_end.count("murmurate_register_points_refused_total", "future") == 0
    assert head_end.count("murmurate_register_points_refused_total", "clock") == 1
    assert measured_demand(tmp_path) == (500, 2)


def test_a_public_process_whose_clock_is_wrong_calls_no_price_current_and_is_not_ready(tmp_path, log_dsn):
    writer = ShardWriter(log_dsn, {"harbour": plan_of("harbour")}, first=FIRST)
    writer.write(PRICED + 1, 400_000)
    writer.close()
    current = "/zones/harbour/now"
    with running_part(tmp_path, "public", now_s=(FIRST + PRICED) * STEP_S, MURMURATE_LOG=log_dsn) as part:
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
            assert abs(part.clock_difference_s("public", "log") - shift_s) < 60
            part.clock.shift(0)
            part.wait_for(lambda: part.status("/readyz") == 200)
            assert part.web.get(current).raise_for_status().json() == right
