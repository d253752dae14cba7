"""What is published for Home Assistant, to a client of paho that keeps it as a broker retains it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from paho.mqtt.enums import MQTTErrorCode
from tests.support.waiting import wait_until
from tests.support.web_server import fetch
from tests.support.zone_views import seconds, shard_of, terms_with

from murmurate.public_log.zone_table import ClosedZone, ZoneRow, ZoneTable
from murmurate.service.clock import ServiceClock
from murmurate.service.clock_comparison import ClockDifferenceError
from murmurate.service.log_reader.follower import ChangedShard
from murmurate.service.log_reader.zone_view import ShardView
from murmurate.service.public_api import home_assistant
from murmurate.service.public_api.app import public_app
from murmurate.service.public_api.home_assistant import HomeAssistantTopics
from murmurate.service.public_api.live_state import LiveState
from murmurate.service.settings import ServiceSettings

BEGIN = seconds(2026, 11, 14) // 900
NOW_S = (BEGIN + 100) * 900 + 1.0
DISCOVERY = "homeassistant/sensor/murmurate_{}/config"


class Broker:
    """What is retained by topic, and how often each was sent."""

    def __init__(self) -> None:
        self.retained: dict[str, Any] = {}
        self.sent: list[str] = []
        self.connected = True

    def is_connected(self) -> bool:
        return self.connected

    def publish(self, topic: str, message: str, qos: int, retain: bool) -> Any:
        assert (qos, retain) == (1, True)
        self.retained[topic] = json.loads(message) if message else None
        self.sent.append(topic)
        return SimpleNamespace(rc=MQTTErrorCode.MQTT_ERR_SUCCESS)


def shard(count: int = 120) -> ShardView:
    rows = [ZoneRow(zone, "0" * 64, "CHF", "1/100000", BEGIN - 2) for zone in ("a", "d d")]
    return shard_of(rows, [[100 + n for n in range(count)] for _ in rows], name="one")


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def clock() -> SimpleNamespace:
    return SimpleNamespace(now_s=NOW_S, is_right=True)


@pytest.fixture
def state(broker: Broker, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveState]:
    def current_time(_: LiveState) -> float:
        if not clock.is_right:
            raise ClockDifferenceError("it differs")
        return float(clock.now_s)

    monkeypatch.setattr(LiveState, "current_time", current_time)
    topics = HomeAssistantTopics(broker, "https://x.example")  # type: ignore[arg-type]
    still = ServiceClock(simulated_s=NOW_S, wall_s=0.0, speed=1e-12)
    url = "postgresql://nobody@127.0.0.1:1/none"
    made = LiveState(url, ServiceSettings(url="https://x.example", clock=still), home_assistant=topics)
    made.plan_terms.put("0" * 64, terms_with([9000], 900, "CHF"))
    show(made, shard())
    yield made
    made.close()


def show(state: LiveState, view: ShardView) -> None:
    state.show_shard(ChangedShard(view, range(0)))
    state.home_assistant.show(view)


def has(broker: Broker, topic: str, times: int = 1) -> bool:
    return wait_until(lambda: broker.sent.count(topic) >= times)


def test_a_zone_has_its_price_now_its_list_and_its_sensor(state: LiveState, broker: Broker) -> None:
    assert has(broker, DISCOVERY.format("d_20d"))
    for zone, slug in (("a", "a"), ("d d", "d_20d")):
        app = public_app(state)
        assert broker.retained[f"murmurate/zones/{slug}/now"] == fetch(app, f"/zones/{zone}/now").json()
        assert broker.retained[f"murmurate/zones/{slug}/prices"] == fetch(app, f"/zones/{zone}/prices").json()
        sensor = broker.retained[DISCOVERY.format(slug)]
        assert sensor["state_topic"] == sensor["availability_topic"] == f"murmurate/zones/{slug}/now"
        assert sensor["unit_of_measurement"] == "CHF/kWh"
        assert sensor["device"]["configuration_url"] == f"https://x.example/zones/{zone.replace(' ', '%20')}"


@pytest.mark.usefixtures("state")
def test_the_price_now_follows_the_clock_and_is_null_where_there_is_none(
    broker: Broker, clock: SimpleNamespace
) -> None:
    assert has(broker, "murmurate/zones/a/now")
    before = broker.retained["murmurate/zones/a/now"]
    clock.now_s += 900
    assert has(broker, "murmurate/zones/a/now", 2)
    assert broker.retained["murmurate/zones/a/now"]["start"] == before["end"]
    clock.now_s += 86_400
    assert has(broker, "murmurate/zones/a/now", 3)
    assert broker.retained["murmurate/zones/a/now"]["price"] is None
    assert broker.sent.count("murmurate/zones/a/prices") == 1


def test_it_is_sent_again_after_a_while_and_all_of_it_to_a_broker_that_was_away(
    state: LiveState, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert has(broker, DISCOVERY.format("d_20d"))
    monkeypatch.setattr(home_assistant, "REPEAT_S", 0.0)
    assert has(broker, "murmurate/zones/a/now", 3)
    assert broker.sent.count(DISCOVERY.format("a")) == 1
    broker.connected = False
    assert wait_until(lambda: not state.home_assistant._told)
    broker.connected = True
    assert has(broker, DISCOVERY.format("a"), 2)
    assert has(broker, "murmurate/zones/a/prices", 2)


def test_nothing_is_called_now_while_the_clock_is_wrong(
    state: LiveState, broker: Broker, clock: SimpleNamespace
) -> None:
    assert has(broker, DISCOVERY.format("d_20d"))
    clock.is_right, count = False, len(broker.sent)
    show(state, shard(121))
    assert not wait_until(lambda: len(broker.sent) > count, timeout_s=1)
    clock.is_right = True
    assert has(broker, "murmurate/zones/a/prices", 2)


def test_the_sensor_of_a_closed_zone_ends(state: LiveState, broker: Broker) -> None:
    assert has(broker, DISCOVERY.format("d_20d"))
    view = shard()
    first, *others = view.table.rows
    table = ZoneTable(tuple(others), (ClosedZone(*first, view.last, 0, 0),))
    show(state, replace(view, head=replace(view.head, table=table)))
    assert has(broker, DISCOVERY.format("a"), 2)
    assert broker.retained[DISCOVERY.format("a")] is None
    assert broker.retained[DISCOVERY.format("d_20d")] is not None
