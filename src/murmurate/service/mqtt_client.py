"""A connection to an MQTT broker that comes back when it is lost."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable
from math import inf
from typing import Any

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from murmurate.files import read_secret
from murmurate.service.settings import MQTT_5, MqttBroker

logger = logging.getLogger(__name__)

MAX_UNACKNOWLEDGED = 1000  # messages that the broker sends ahead, which can be stored together
MAX_PACKET_HEAD_BYTES = 2**17  # topic and properties of a message, each at most 64 KiB
SESSION_EXPIRY_S = 7 * 86_400  # the broker keeps messages for a client that is away for this long [s]
REPEAT_FAILURE_S = 60.0  # between two log lines about a broker that stays away [s]
BROKER_REMEDY = "start the broker, or correct host, port and tls under [mqtt] in the settings"


def connect_mqtt(
    broker: MqttBroker,
    client_id: str,
    *,
    topics: tuple[str, ...] = (),
    on_message: Callable[[MQTTMessage], None] | None = None,
    max_queued_messages: int = 0,
    max_message_bytes: int = 0,
    session_expiry_s: int = SESSION_EXPIRY_S,
) -> Client:
    """Return a client that runs in a thread. The broker keeps what comes for `topics` while it is away (QoS 1), with
    MQTT 5 for `session_expiry_s`.

    A message counts as received when `Client.ack` is called for it, and is sent again otherwise. `max_queued_messages`
    bounds what is sent and not acknowledged yet; 0: no bound. It cannot be set later. With MQTT 5 the broker sends no
    message that is larger than `max_message_bytes`, and no more than `MAX_UNACKNOWLEDGED` without an acknowledgement.
    """
    speaks_5 = broker.protocol == MQTT_5
    client = Client(
        CallbackAPIVersion.VERSION2,
        client_id=client_id,
        clean_session=None if speaks_5 else not topics,
        protocol=MQTTProtocolVersion.MQTTv5 if speaks_5 else MQTTProtocolVersion.MQTTv311,
        manual_ack=True,
    )
    if broker.user:
        client.username_pw_set(broker.user, read_secret("MURMURATE_MQTT_PASSWORD", os.environ))
    if broker.tls:
        client.tls_set()
    watch = _MqttCallbacks(broker, topics)
    client.on_connect = watch.on_connect
    client.on_connect_fail = watch.on_connect_fail
    client.on_subscribe = watch.on_subscribe
    client.on_disconnect = watch.on_disconnect
    client.on_socket_open = send_at_once
    if on_message is not None:
        client.on_message = lambda _client, _data, message: on_message(message)
    client.max_queued_messages_set(max_queued_messages)
    client.reconnect_delay_set(1, 30)
    if speaks_5:
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        if topics:
            properties.SessionExpiryInterval = session_expiry_s
            properties.ReceiveMaximum = MAX_UNACKNOWLEDGED
        if max_message_bytes:
            properties.MaximumPacketSize = max_message_bytes + MAX_PACKET_HEAD_BYTES
        client.connect_async(broker.host, broker.port, keepalive=30, clean_start=not topics, properties=properties)
    else:
        client.connect_async(broker.host, broker.port, keepalive=30)
    client.loop_start()
    return client


def send_at_once(_client: Client, _data: object, line: Any) -> None:
    """Have a socket send small packets without waiting for the broker's answer to the last one."""
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class _MqttCallbacks:
    """Logs what becomes of a connection, and subscribes whenever there is one."""

    def __init__(self, broker: MqttBroker, topics: tuple[str, ...]) -> None:
        self.broker, self.topics = broker, topics
        self._said_s = -inf  # monotonic, when it was last logged that there is no broker

    def on_connect_fail(self, _client: Client, _data: object) -> None:
        if time.monotonic() - self._said_s >= REPEAT_FAILURE_S:
            self._said_s = time.monotonic()
            address = f"{self.broker.host}:{self.broker.port}"
            logger.warning("broker unreachable", extra={"address": address, "remedy": BROKER_REMEDY})

    def on_connect(
        self, client: Client, _data: object, _flags: ConnectFlags, code: ReasonCode, _: Properties | None
    ) -> None:
        if code.is_failure:
            logger.warning("broker refuses", extra={"reason": str(code)})
            return
        self._said_s = -inf
        logger.info("broker connected", extra={"host": self.broker.host})
        if self.topics:
            client.subscribe([(topic, 1) for topic in self.topics])

    def on_subscribe(
        self, _client: Client, _data: object, _id: int, codes: list[ReasonCode], _: Properties | None
    ) -> None:
        refused = [str(code) for code in codes if code.is_failure]
        if refused:
            logger.warning("broker refuses", extra={"reason": refused[0]})
        else:
            logger.info("broker listens", extra={"topics": len(codes)})

    def on_disconnect(
        self, _client: Client, _data: object, _flags: DisconnectFlags, code: ReasonCode, _: Properties | None
    ) -> None:
        if code.is_failure:
            logger.warning("broker lost", extra={"reason": str(code)})
