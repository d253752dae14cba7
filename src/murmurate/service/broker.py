"""A connection to an MQTT broker that comes back when it is lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

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
    watch = _Watch(broker, topics, say)
    client.on_connect = watch.connected
    client.on_subscribe = watch.subscribed
    client.on_disconnect = watch.lost
    if heard is not None:
        client.on_message = lambda _client, _data, message: heard(message)
    client.reconnect_delay_set(1, 30)
    client.connect_async(broker.host, broker.port, keepalive=30)
    client.loop_start()
    return client


@dataclass(frozen=True, slots=True)
class _Watch:
    """Says what becomes of a connection, and subscribes whenever there is one."""

    broker: Broker
    topics: tuple[str, ...]
    say: Say

    def connected(
        self, client: Client, _data: object, _flags: ConnectFlags, code: ReasonCode, _: Properties | None
    ) -> None:
        if code.is_failure:
            self.say("broker refuses", why=str(code))
            return
        self.say("broker connected", host=self.broker.host)
        if self.topics:
            client.subscribe([(topic, 1) for topic in self.topics])

    def subscribed(
        self, _client: Client, _data: object, _id: int, codes: list[ReasonCode], _: Properties | None
    ) -> None:
        refused = [str(code) for code in codes if code.is_failure]
        if refused:
            self.say("broker refuses", why=refused[0])
        else:
            self.say("broker listens", topics=len(codes))

    def lost(
        self, _client: Client, _data: object, _flags: DisconnectFlags, code: ReasonCode, _: Properties | None
    ) -> None:
        if code.is_failure:
            self.say("broker lost", why=str(code))
