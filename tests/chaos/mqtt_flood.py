"""A client that publishes junk as fast as it can: python -m tests.chaos.mqtt_flood PORT SECONDS."""

from __future__ import annotations

import os
import sys
import time
from itertools import count

from tests.chaos.mqtt_meters import BATCH_TOPIC
from tests.support.broker import start_client, stop_client

_AT_ONCE = 200
_QOS_1_EVERY = 100  # most of it is QoS 0, which a full queue may drop
_JUNK = (
    (BATCH_TOPIC, os.urandom(4096)),
    (BATCH_TOPIC, b'{"meter": "unknown", "interval_start": 0, "energy_wh": 1}\n' * 60),
    ("smartmeter/unknown/ACTIVE_ENERGY_P", b"12345"),
    ("smartmeter/m001/ACTIVE_ENERGY_P", b"[" * 2000),
)


def main() -> None:
    port, seconds = int(sys.argv[1]), float(sys.argv[2])
    client = start_client(port, client_id="flood", clean_session=True)
    end = time.monotonic() + seconds
    for number in count():
        topic, payload = _JUNK[number % len(_JUNK)]
        client.publish(topic, payload, qos=int(number % _QOS_1_EVERY == 0))
        if number % _AT_ONCE == 0:
            time.sleep(0.01)
            if time.monotonic() > end:
                break
    stop_client(client)


if __name__ == "__main__":
    main()
