"""A connection to an MQTT broker that comes back when it is lost."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from murmurate.service.settings import MqttBroker

logger = logging.getLogger(__name__)


def connect_mqtt(
    broker: MqttBroker,
    client_id: str,
    *,
    topics: tuple[str, ...] = (),
    on_message: Callable[[MQTTMessage], None] | None = None,
) -> Client:
    """A client in a thread of its own. The broker keeps what comes for `topics` while it is away (QoS 1).

    A message counts as received when `Client.ack` is called for it, and is sent again otherwise.
    """
    client = Client(CallbackAPIVersion.VERSION2, client_id=client_id, clean_session=not topics, manual_ack=True)
    if broker.user:
        client.username_pw_set(broker.user, os.environ.get("MURMURATE_MQTT_PASSWORD"))
    if broker.tls:
        client.tls_set()
    watch = _MqttCallbacks(broker, topics)
    client.on_connect = watch.on_connect
    client.on_subscribe = watch.on_subscribe
    client.on_disconnect = watch.on_disconnect
    if on_message is not None:
        client.on_message = lambda _client, _data, message: on_message(message)
    client.reconnect_delay_set(1, 30)
    client.connect_async(broker.host, broker.port, keepalive=30)
    client.loop_start()
    return client


@dataclass(frozen=True, slots=True)
class _MqttCallbacks:
    """Says what becomes of a connection, and subscribes whenever there is one."""

    broker: MqttBroker
    topics: tuple[str, ...]

    def on_connect(
        self, client: Client, _data: object, _flags: ConnectFlags, code: ReasonCode, _: Properties | None
    ) -> None:
        if code.is_failure:
            logger.warning("broker refuses", extra={"reason": str(code)})
            return
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
