"""Zones of several shards through the app, without a log: lists in pages, look-ups by key, notices, caches."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from paho.mqtt.enums import MQTTErrorCode
from tests.support.waiting import wait_until
from tests.support.web_server import fetch
from tests.support.zone_views import seconds, shard_of, terms_with

from murmurate.public_log.zone_table import ClosedZone, ZoneRow, ZoneTable
from murmurate.service.clock import ServiceClock
from murmurate.service.log_reader.follower import ChangedShard
from murmurate.service.public_api.app import public_app
from murmurate.service.public_api.live_state import LiveState
from murmurate.service.public_api.notifications import MqttNotifier
from murmurate.service.public_api.pages.routes import page_routes
from murmurate.service.settings import MqttBroker, ServiceSettings

NOWHERE = "postgresql://nobody@127.0.0.1:1/none"
ADR = "/openadr3/3.1.0"
BEGIN = seconds(2026, 11, 14) // 900
SHARDS = {"one": ["a", "a-B", "d d"], "two": ["a-PT15M", "b"], "three": ["Zürich"]}
ZONES = sorted(zone for zones in SHARDS.values() for zone in zones)
SHARDS_TO_COME = {"four": [f"zone {n:03}" for n in range(60)]}


def shard(name: str, count: int = 120) -> Any:
    rows = [ZoneRow(zone, "0" * 64, "CHF", "1/100000", BEGIN - 2) for zone in sorted((SHARDS | SHARDS_TO_COME)[name])]
    return shard_of(rows, [[100 + n for n in range(count)] for _ in rows], name=name)


def state_of(notifier: MqttNotifier | None = None) -> LiveState:
    clock = ServiceClock(simulated_s=(BEGIN + 100) * 900 + 1.0, wall_s=0.0, speed=1e-12)
    state = LiveState(NOWHERE, ServiceSettings(url="https://x.example", clock=clock), notifier)
    state.plan_terms.put("0" * 64, terms_with([9000], 900, "CHF"))
    for name in SHARDS:
        state.show_shard(ChangedShard(shard(name), range(0)))
    return state


@pytest.fixture
def state() -> Iterator[LiveState]:
    made = state_of()
    yield made
    made.close()


def get(state: LiveState, path: str) -> httpx.Response:
    return fetch(public_app(state, page_routes(state)), path)


@pytest.mark.slow
def test_programs_and_events_are_found_by_key_and_listed_in_order(state: LiveState) -> None:
    programs = get(state, f"{ADR}/programs").json()
    ids = [program["id"] for program in programs]
    assert ids == sorted(ids)
    assert len(ids) == 2 * len(ZONES)
    assert [
        program["id"]
        for skip in range(len(ids))
        for program in get(state, f"{ADR}/programs?skip={skip}&limit=1").json()
    ] == ids
    events = get(state, f"{ADR}/events").json()
    assert [(event["programID"], event["id"][-10:]) for event in events] == sorted(
        (event["programID"], event["id"][-10:]) for event in events
    )
    assert {event["programID"] for event in events} == set(ids)
    for program in programs:
        assert get(state, f"{ADR}/programs/{program['id']}").json() == program
        assert get(state, f"{ADR}/programs?programName={program['id']}").json() == [program]
        own = [event for event in events if event["programID"] == program["id"]]
        assert get(state, f"{ADR}/events?programID={program['id']}").json() == own
    for event in events:
        assert get(state, f"{ADR}/events/{event['id']}").json() == event
    pages = [get(state, f"{ADR}/events?skip={skip}&limit=5").json() for skip in range(0, len(events) + 5, 5)]
    assert [event for page in pages for event in page] == events
    active = get(state, f"{ADR}/events?active=true").json()
    assert active == [event for event in events if event["id"] in {one["id"] for one in active}]
    assert 0 < len(active) < len(events)


@pytest.mark.slow
def test_a_page_of_events_is_counted_and_nothing_before_it_is_built(
    state: LiveState, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.show_shard(ChangedShard(shard("four"), range(0)))
    index, looked_at = state.program_index, []
    find = index.find
    monkeypatch.setattr(index, "find", lambda program_id: looked_at.append(program_id) or find(program_id))
    for query in ("", "active=true&", "dateStart=2026-11-15&"):
        got, skip = [], 0
        while page := get(state, f"{ADR}/events?{query}skip={skip}&limit=50").json():
            got += [event["id"] for event in page]
            skip += 50
        looked_at.clear()
        assert [event["id"] for event in get(state, f"{ADR}/events?{query}skip={len(got) - 3}").json()] == got[-3:]
        assert len(looked_at) < 15  # an example of each group, and the last programs, of more than a hundred
        assert get(state, f"{ADR}/events?{query}skip={len(got)}").json() == []
        assert len(got) == len(set(got)) > 100


@pytest.mark.parametrize(
    "name", ["a", "a-PT1", "x-PT15M", "-PT15M", "a-PT15M-2026-11-31", "a-PT15M-2020-01-01", "PT15M"]
)
def test_what_is_not_there_is_not_found(state: LiveState, name: str) -> None:
    assert get(state, f"{ADR}/programs/{name}").status_code == 404
    assert get(state, f"{ADR}/events/{name}").status_code == 404
    assert get(state, f"{ADR}/events?programID={name}").json() == []


def test_only_answers_about_a_shard_that_has_changed_are_made_again(state: LiveState) -> None:
    paths = [
        "/zones/a/now",
        "/zones/b/now",
        f"{ADR}/programs/b-PT15M",
        f"{ADR}/events?programID=a-PT1H",
        "/zones",
        "/shards",
    ]
    for path in paths:
        assert get(state, path).status_code == 200
    state.show_shard(ChangedShard(shard("two", 121), range(0)))
    keys = {path: tuple(path.encode().partition(b"?")[::2]) for path in paths}
    kept = [path for path, key in keys.items() if state.volatile_cache.find(key, 0.0) is not None]
    assert kept == ["/zones/a/now", f"{ADR}/events?programID=a-PT1H"]


class Broker:
    """A client of paho that keeps what it is given, until it is full."""

    def __init__(self, room: int = 10_000) -> None:
        self.messages: list[tuple[str, Any]] = []
        self.room, self.connected = room, True

    def is_connected(self) -> bool:
        return self.connected

    def publish(self, topic: str, message: str, qos: int, retain: bool) -> Any:
        assert (qos, retain) == (1, topic.startswith("murmurate/"))
        if len(self.messages) >= self.room:
            return SimpleNamespace(rc=MQTTErrorCode.MQTT_ERR_QUEUE_SIZE)
        self.messages.append((topic, json.loads(message)))
        return SimpleNamespace(rc=MQTTErrorCode.MQTT_ERR_SUCCESS)


def notified(broker: Broker, *changes: ChangedShard, openadr: bool = True) -> list[tuple[str, Any]]:
    notifier = MqttNotifier(broker, openadr=openadr)  # type: ignore[arg-type]
    state = state_of(notifier)
    for change in changes:
        notifier.notify(change)
    assert wait_until(lambda: not notifier._waiting)
    notifier.close()  # it ends the one that is being published
    state.close()
    return broker.messages


def test_a_new_price_is_told_alone_and_in_the_event_that_it_changes() -> None:
    new = shard("one", 121)
    told = notified(Broker(), ChangedShard(new, range(new.last, new.last + 1)))
    small = {topic: message for topic, message in told if topic.startswith("murmurate/")}
    assert list(small) == [f"murmurate/zones/{slug}/price" for slug in ("a", "a-B", "d_20d")]
    assert small["murmurate/zones/a/price"]["price_ticks"] == 220
    assert all(len(json.dumps(message)) < 300 for message in small.values())
    events = [(topic, message) for topic, message in told if topic.startswith("OpenADR/")]
    assert len(events) == 2 * len(SHARDS["one"])
    for topic, message in events:
        assert topic == f"OpenADR/3.1.0/programs/{message['object']['programID']}/events/update"
        assert (message["objectType"], message["operation"]) == ("EVENT", "UPDATE")
        assert message["object"]["id"].endswith("2026-11-15")


def test_without_openadr_events_prices_are_told_alone_and_no_broker_is_named() -> None:
    new = shard("one", 121)
    told = notified(Broker(), ChangedShard(new, range(new.last, new.last + 1)), openadr=False)
    assert [topic for topic, _ in told] == [f"murmurate/zones/{slug}/price" for slug in ("a", "a-B", "d_20d")]
    named = {True: 200, False: 404}
    for is_told, status in named.items():
        state = LiveState(NOWHERE, ServiceSettings(mqtt=MqttBroker(openadr_events=is_told)))
        state.show_shard(ChangedShard(new, range(0)))
        assert ("MQTT" in get(state, f"{ADR}/notifiers").json()) == is_told
        assert get(state, f"{ADR}/notifiers/mqtt/topics/programs/a-PT15M/events").status_code == status
        state.close()


def test_the_last_price_of_a_zone_is_told_although_it_was_closed_at_once() -> None:
    new = shard("one", 121)
    first, *others = new.table.rows
    table = ZoneTable(tuple(others), (ClosedZone(*first, new.last, 0, 0),))
    ended = replace(new, head=replace(new.head, table=table))
    told = notified(Broker(), ChangedShard(ended, range(new.last, new.last + 1)))
    prices = [topic for topic, _ in told if topic.startswith("murmurate/")]
    assert prices == [f"murmurate/zones/{slug}/price" for slug in ("a", "a-B", "d_20d")]
    longer = shard("one", 122)
    later = replace(longer, head=replace(longer.head, table=table))
    told = notified(Broker(), ChangedShard(later, range(later.last, later.last + 1)))
    assert not [topic for topic, _ in told if "/a/" in topic or "/a-PT" in topic]


def test_while_the_broker_is_away_only_the_newest_price_of_each_zone_waits() -> None:
    broker = Broker()
    broker.connected = False
    notifier = MqttNotifier(broker, openadr=False)  # type: ignore[arg-type]
    state = state_of(notifier)
    for count in range(121, 151):
        new = shard("one", count)
        notifier.notify(ChangedShard(new, range(new.last, new.last + 1)))
    assert [len(change.new_intervals) for change in notifier._waiting.values()] == [1]
    assert notifier.dropped_count == 29 * len(SHARDS["one"])
    broker.connected = True
    assert wait_until(lambda: len(broker.messages) == len(SHARDS["one"]))
    state.close()
    assert {message["price_ticks"] for _, message in broker.messages} == {249}


def test_prices_that_come_while_a_broker_is_slow_are_all_published() -> None:
    notifier, new = MqttNotifier(Broker()), shard("one", 123)  # type: ignore[arg-type]  not started: none is taken
    for interval in range(new.last - 2, new.last + 1):
        notifier.notify(ChangedShard(new, range(interval, interval + 1)))
    assert [change.new_intervals for change in notifier._waiting.values()] == [range(new.last - 2, new.last + 1)]
    assert notifier.dropped_count == 0


def test_what_a_broker_does_not_take_before_it_is_lost_is_dropped_and_counted() -> None:
    broker, new = Broker(room=2), shard("one", 121)
    notifier = MqttNotifier(broker, openadr=False)  # type: ignore[arg-type]
    state = state_of(notifier)
    broker.connected = False  # lost while it publishes
    notifier.publish_shard(ChangedShard(new, range(new.last, new.last + 1)), state.views.make_view, state.plan_terms)
    assert (len(broker.messages), notifier.dropped_count) == (2, 1)
    state.close()


def test_the_log_away_at_the_start_opens_the_port_and_says_so() -> None:
    async def start() -> tuple[str, int]:
        state = LiveState(NOWHERE, ServiceSettings())
        await asyncio.wait_for(state.start(), 60)
        reason, zones = state.not_ready_reason, len(state.views)
        await state.stop()
        state.close()
        return reason, zones

    assert asyncio.run(start()) == ("the public log has not answered for a while", 0)
