"""What the notices of one interval cost: CPU time and bytes, prices alone and with OpenADR's events.

    python -m benchmarks.mqtt_notices                    5,000 zones, without a broker
    python -m benchmarks.mqtt_notices --broker           through the broker on 127.0.0.1:1883 as well

Views are built in memory, as the follower builds them from tiles.
"""

from __future__ import annotations

import argparse
import time
from types import SimpleNamespace
from typing import Any

from paho.mqtt.enums import MQTTErrorCode

from benchmarks.read_side import FIRST, PRICES, make_state
from murmurate.service.log_reader.follower import ChangedShard
from murmurate.service.mqtt_client import connect_mqtt
from murmurate.service.public_api.mqtt_notifier import MAX_QUEUED_MESSAGES, MqttNotifier
from murmurate.service.settings import MqttBroker


class CountingClient:
    """Stands for a client of a broker: counts what it is given."""

    def __init__(self) -> None:
        self.messages = self.bytes = 0

    def is_connected(self) -> bool:
        return True

    def publish(self, _: str, message: str, qos: int) -> Any:
        assert qos == 1
        self.messages += 1
        self.bytes += len(message)
        return SimpleNamespace(rc=MQTTErrorCode.MQTT_ERR_SUCCESS)


def measure_notices(client: Any, zones: int, *, openadr: bool) -> tuple[float, float]:
    """CPU time and time of the notices of one interval [s]."""
    state, shards, _ = make_state(zones)
    notifier = MqttNotifier(client, openadr=openadr)
    changes = [ChangedShard(shard, range(FIRST + PRICES - 1, FIRST + PRICES)) for shard in shards]
    begin, wall = time.process_time(), time.perf_counter()
    for change in changes:
        notifier.publish_shard(change, state.views.make_view, state.plan_terms)
    cpu_s, wall_s = time.process_time() - begin, time.perf_counter() - wall
    state.close()
    return cpu_s, wall_s


def main() -> None:
    """Print a line for each kind of notice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zones", type=int, default=5000)
    parser.add_argument("--broker", action="store_true")
    options = parser.parse_args()
    for openadr in (False, True):
        counter = CountingClient()
        cpu_s, _ = measure_notices(counter, options.zones, openadr=openadr)
        name = "prices and OpenADR events" if openadr else "prices alone"
        facts = f"{counter.messages:,} messages, {counter.bytes / 1e6:.1f} MB, {cpu_s:.2f} s CPU"
        print(f"{options.zones:,} zones, {name}: {facts}, {1e6 * cpu_s / options.zones:.0f} us a zone")
        if options.broker:
            client = connect_mqtt(MqttBroker(), "murmurate-benchmark", max_queued_messages=MAX_QUEUED_MESSAGES)
            cpu_s, wall_s = measure_notices(client, options.zones, openadr=openadr)
            print(f"  through a broker: {cpu_s:.2f} s CPU, {wall_s:.1f} s")
            client.disconnect()
            client.loop_stop()


if __name__ == "__main__":
    main()
