"""Notices over MQTT in OpenADR's envelope: each event that has a new price, as soon as the log has it."""

from __future__ import annotations

import json
from collections.abc import Iterable

from paho.mqtt.client import Client

from murmurate.service.board.openadr_event import changes, notification
from murmurate.service.board.openadr_program import notifier_topics
from murmurate.service.board.view import Price, ZoneView


class Notices:
    """Tells a broker. Lost notices are no loss: the events can be read."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def tell(self, moved: Iterable[tuple[ZoneView, list[Price]]]) -> None:
        """Of each zone that has moved, the events that its new prices have changed."""
        for view, prices in moved:
            self._tell(view, {price.interval for price in prices})

    def _tell(self, view: ZoneView, new: set[int]) -> None:
        for operation, event in changes(view, new):
            topic = notifier_topics(str(event["programID"]))["topics"][operation]
            message = json.dumps(notification(operation, event), separators=(",", ":"))
            self._client.publish(topic, message, qos=1)
