"""The rights that the how-to gives the service at its broker: enough for it, and not for others."""

import re
import subprocess
from pathlib import Path

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion
from tests.support.broker import Broker

from murmurate.service.settings import MqttBroker

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "serve.md"
PASSWORD = "not secret"  # noqa: S105


@pytest.fixture
def broker(tmp_path):
    """A broker with the rights of the page, for the service and for one meter."""
    rights = re.search(r"```text\n(user murmurate\n.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "acl").write_text(rights[1])
    (tmp_path / "acl").chmod(0o700)
    for number, user in enumerate(("murmurate", "m1")):
        words = ["mosquitto_passwd", *(["-c"] if number == 0 else []), "-b", str(tmp_path / "users"), user, PASSWORD]
        subprocess.run(words, check=True, capture_output=True)
    lines = [f"acl_file {tmp_path}/acl", f"password_file {tmp_path}/users", "allow_anonymous false"]
    made = Broker(tmp_path / "broker", more_settings=lines)
    made.start()
    yield made
    made.kill()


def publish(broker, topic, payload):
    """Publish as the meter m1. The broker acknowledges also what it refuses."""
    client = Client(CallbackAPIVersion.VERSION2)
    client.username_pw_set("m1", PASSWORD)
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    client.publish(topic, payload, qos=1).wait_for_publish(120)
    client.disconnect()
    client.loop_stop()


def test_with_the_rights_of_the_page_fences_return_and_only_the_own_register_counts(
    zone, start_consumer, broker, monkeypatch
):
    monkeypatch.setenv("MURMURATE_MQTT_PASSWORD", PASSWORD)
    zone.broker = MqttBroker(port=broker.port, user="murmurate")
    consumer = start_consumer()
    zone.let_fences_return(consumer)
    for topic in (consumer.fence_topic, "murmurate/readings", "smartmeter/m2/ACTIVE_ENERGY_P"):
        publish(broker, topic, b"not let through")
    publish(broker, "smartmeter/m1/ACTIVE_ENERGY_P", b"5")  # of a meter that is not in the table
    zone.until(lambda: zone.ingestor.counts["register_unknown_meter"] == 1)
    assert zone.ingestor.counts["refused"] == 1


def test_without_the_right_to_fences_values_without_a_time_are_refused_and_the_log_says_why(
    zone, broker, monkeypatch, tmp_path
):
    kept = [line for line in (tmp_path / "acl").read_text().splitlines() if "fence" not in line]
    (tmp_path / "acl").write_text("\n".join(kept) + "\n")
    broker.kill()
    broker.start()
    monkeypatch.setenv("MURMURATE_MQTT_PASSWORD", PASSWORD)
    zone.broker = MqttBroker(port=broker.port, user="murmurate")
    consumer = zone.new_consumer()
    thread = consumer.start()
    zone.until(lambda: any(event in {"broker listens", "broker refuses"} for event, _ in zone.logged))

    def is_said():
        zone.now_s += consumer.fence.tolerance_s
        return any(event == "messages delayed" for event, _ in zone.logged)

    zone.until(is_said)
    publish(broker, "smartmeter/m1/ACTIVE_ENERGY_P", b"5")
    zone.until(lambda: zone.ingestor.counts["register_queued"] == 1)
    consumer.stop()
    thread.join(120)
    consumer.store.close()
