"""python-oa3-client reads programs, events and notifications: `… snapshot URL` or `… listen URL SECONDS`.

In the mode `listen` it prints "listening" on stderr once it listens, and ends early if its stdin is closed.
"""

from __future__ import annotations

import json
import select
import sys
from collections.abc import Callable

from openadr3.entities.models import Event, Notification
from openadr3_client import VenClient
from openadr3_client.ven import extract_topics

PAGE = 1  # the shortest: a client that pages correctly with it does so with any length


def paged(listing: Callable[..., list], **query: str) -> list:
    found: list = []
    while page := listing(skip=len(found), limit=PAGE, **query):
        found += page
    return found


def event_fields(event: Event) -> dict[str, object]:
    """An event as the client's own models understand it."""
    rows = []
    for interval in event.resolved_intervals():
        begin, end = interval.interval_period.period
        values = [[payload.type, float(payload.values[0])] for payload in interval.payloads]
        rows.append({"start": int(begin.timestamp()), "end": int(end.timestamp()), "payloads": values})
    return {"id": event.id, "program": event.program_id, "intervals": rows}


def resolved(ven: VenClient, name: str) -> str | None:
    try:
        return ven.resolve_program_id(name)
    except KeyError:
        return None


def snapshot(ven: VenClient) -> dict[str, object]:
    programs = paged(ven.programs)
    return {
        "programs": [program.id for program in programs],
        "resolved": [resolved(ven, program.program_name) for program in programs],
        "events": [event_fields(event) for program in programs for event in paged(ven.events, programID=program.id)],
        "notifiers": ven.discover_notifiers(),
        "mqtt": ven.vtn_supports_mqtt(),
    }


def listen(ven: VenClient, seconds: float) -> dict[str, object]:
    channel = ven.add_mqtt(ven.get_mqtt_broker_uris()[0])
    channel.start()
    topics = []
    for program in paged(ven.programs):
        topics += extract_topics(ven.get_mqtt_topics_program_events(program.id)) or []
    channel.subscribe_topics(topics)
    sys.stderr.write("listening\n")
    sys.stderr.flush()
    select.select([sys.stdin], [], [], seconds)
    notifications = [(message.topic, message.payload) for message in channel.messages]
    assert all(isinstance(notification, Notification) for _, notification in notifications)
    rows = [
        {"topic": topic, "operation": one.operation, "event": event_fields(one.object)} for topic, one in notifications
    ]
    return {"topics": topics, "notifications": rows}


def main(mode: str, url: str, *more: str) -> dict[str, object]:
    with VenClient(url=url, client_id="anybody", client_secret="anything") as ven:  # noqa: S106
        return snapshot(ven) if mode == "snapshot" else listen(ven, float(more[0]))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(*sys.argv[1:])))
