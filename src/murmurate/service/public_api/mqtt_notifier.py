"""Notifications over MQTT in OpenADR's envelope: each event that has a new price, as soon as the log has it."""

from __future__ import annotations

import json
from collections.abc import Iterable

from paho.mqtt.client import Client

from murmurate.service.log_reader.zone_view import Price, ZoneView
from murmurate.service.public_api.formats.openadr_event import changed_events, notification_document
from murmurate.service.public_api.formats.openadr_program import notifier_topics


class MqttNotifier:
    """Publishes notifications. One that is lost does no harm: the events can be read."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def notify_changes(self, changed_zones: Iterable[tuple[ZoneView, list[Price]]]) -> None:
        """Of each zone that has moved, the events that its new prices have changed."""
        for view, prices in changed_zones:
            self._notify_zone(view, {price.interval for price in prices})

    def _notify_zone(self, view: ZoneView, new_intervals: set[int]) -> None:
        for operation, event in changed_events(view, new_intervals):
            topic = notifier_topics(str(event["programID"]))["topics"][operation]
            message = json.dumps(notification_document(operation, event), separators=(",", ":"))
            self._client.publish(topic, message, qos=1)
