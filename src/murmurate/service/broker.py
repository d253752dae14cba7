"""A connection to an MQTT broker that comes back when it is lost."""

from __future__ import annotations

import os
from collections.abc import Callable

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from murmurate.service.saying import Say
from murmurate.service.settings import Broker


def connect(
    broker: Broker,
    name: str,
    say: Say,
    *,
    topics: tuple[str, ...] = (),
    heard: Callable[[MQTTMessage], None] | None = None,
) -> Client:
    """A client in a thread of its own. The broker keeps what comes for `topics` while it is away (QoS 1).

    A message counts as received when `Client.ack` is called for it, and is sent again otherwise.
    """
    client = Client(CallbackAPIVersion.VERSION2, client_id=name, clean_session=not topics, manual_ack=True)
    if broker.user:
        client.username_pw_set(broker.user, os.environ.get("MURMURATE_MQTT_PASSWORD"))
    if broker.tls:
        client.tls_set()

    def connected(client: Client, _data: object, _flags: ConnectFlags, code: ReasonCode, _: Properties | None) -> None:
        if code.is_failure:
            say("broker refuses", why=str(code))
            return
        say("broker connected", host=broker.host)
        if topics:
            client.subscribe([(topic, 1) for topic in topics])

    def lost(_c: Client, _data: object, _flags: DisconnectFlags, code: ReasonCode, _: Properties | None) -> None:
        if code.is_failure:
            say("broker lost", why=str(code))

    client.on_connect = connected
    client.on_disconnect = lost
    if heard is not None:
        client.on_message = lambda _client, _data, message: heard(message)
    client.reconnect_delay_set(1, 30)
    client.connect_async(broker.host, broker.port, keepalive=30)
    client.loop_start()
    return client
