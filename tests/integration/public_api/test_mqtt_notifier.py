"""The client of the notifier against a real broker."""

import time

from murmurate.service.mqtt_client import connect_mqtt
from murmurate.service.public_api.notifications import MAX_QUEUED_MESSAGES, MqttNotifier
from murmurate.service.settings import MqttBroker


def test_a_notifier_is_made_from_a_client_that_is_connected_and_has_a_bounded_queue():
    client = connect_mqtt(MqttBroker(), "test-notifier", max_queued_messages=MAX_QUEUED_MESSAGES)
    try:
        end = time.monotonic() + 60
        while not client.is_connected():
            assert time.monotonic() < end
            time.sleep(0.01)
        MqttNotifier(client).close()
        assert client.max_queued_messages == MAX_QUEUED_MESSAGES
    finally:
        client.disconnect()
        client.loop_stop()
