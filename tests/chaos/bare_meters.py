"""Registers that publish bare numbers at QoS 1: a message is as old as its arrival, if it did not wait anywhere.

A broker keeps messages while a service is away, and a service that stood still reads what waited. Such a point must
not count: it would carry energy from one interval into another. These registers rise by nothing or by far more than
their bound, of import and of export never both, and move in the middle of an interval, far from any point. So a reading
is exactly right or wrong, however long a point took on its way, up to a quarter of an interval. A meter keeps nothing
that it could not send.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from tests.chaos.meters import BARE, BARE_TIMES, STEP_S, TrueEnergy, bare_messages
from tests.support.broker import Broker, stop_client
from tests.support.running_service import ServiceOperator

MAX_DELAY_SHARE = 0.04  # of an interval, until a point is sent; a later one is left out


class BareMeters:
    """A thread that publishes the bare registers until it is stopped."""

    def __init__(self, operator: ServiceOperator, broker: Broker, truth: TrueEnergy) -> None:
        self._operator, self._broker, self._truth = operator, broker, truth
        self._client: Client | None = None
        self._stopped = threading.Event()
        self.sent = 0
        self._thread = threading.Thread(target=self._run, name="bare", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        clock = self._operator.clock
        interval = self._truth.first
        while not self._stopped.is_set():
            for share in BARE_TIMES:
                due_s = (interval + share) * STEP_S
                if self._stopped.wait(max(0.0, clock.wall_at(due_s) - time.time())):
                    return
                if clock.now() - due_s <= MAX_DELAY_SHARE * STEP_S:
                    self._publish(clock.now())
            interval = max(interval + 1, int(clock.now() // STEP_S))

    def _publish(self, at_s: float) -> None:
        client = self._connected()
        if client is not None:
            for meter in BARE:
                for topic, payload in bare_messages(self._truth, meter, at_s):
                    client.publish(topic, payload, qos=1)
                    self.sent += 1

    def _connected(self) -> Client | None:
        """A client that has nothing to repeat; None while the broker is away."""
        if self._client is not None and self._client.is_connected():
            return self._client
        self._close()
        client = Client(CallbackAPIVersion.VERSION2, client_id="bare", clean_session=True)
        client.on_disconnect = lambda client, *_: client.loop_stop() if not self._stopped.is_set() else None
        with suppress(OSError):
            client.connect("127.0.0.1", self._broker.port)
            client.loop_start()
            self._client = client
        return None  # connected by the next point

    def _close(self) -> None:
        if self._client is not None:
            stop_client(self._client)
            self._client = None

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(60)
        self._close()
