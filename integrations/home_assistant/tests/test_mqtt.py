"""A real Home Assistant finds the price of a zone at a broker. tests/e2e/test_home_assistant.py starts the service."""

import asyncio
import json
import os
from datetime import datetime, timedelta

import pytest
from homeassistant.const import STATE_UNAVAILABLE
from homeassistant.util import dt as dt_util
from pytest_homeassistant_custom_component.common import MockConfigEntry

LIVE = json.loads(os.environ["MURMURATE_LIVE"])  # `zone`, and by start the `prices` of its log


@pytest.fixture(autouse=True)
def _real_sockets(socket_enabled) -> None:
    return


@pytest.fixture
def expected_lingering_timers():
    return True  # of the broker's client


async def until(hass, condition):
    for _ in range(600):
        await hass.async_block_till_done()
        if condition():
            return
        await asyncio.sleep(0.1)
    raise AssertionError([state.as_dict() for state in hass.states.async_all()])


async def publish(hass, message):
    payload = {"topic": f"murmurate/zones/{LIVE['zone']}/now", "payload": json.dumps(message)}
    await hass.services.async_call("mqtt", "publish", payload, blocking=True)


async def test_a_zone_is_found_and_shows_the_price_of_the_log(hass, tmp_path):
    (tmp_path / "configuration.yaml").touch()  # as in a new installation
    hass.config.config_dir = str(tmp_path)
    broker = MockConfigEntry(domain="mqtt", data={"broker": "127.0.0.1", "port": 1883, "discovery": True})
    broker.add_to_hass(hass)
    assert await hass.config_entries.async_setup(broker.entry_id)

    def sensor():
        return next((each for each in hass.states.async_all("sensor") if LIVE["zone"] in each.entity_id), None)

    await until(hass, lambda: sensor() is not None and sensor().state not in {STATE_UNAVAILABLE, "unknown"})
    found = sensor()
    start = datetime.fromisoformat(found.attributes["start"])
    assert start <= dt_util.utcnow() < start + timedelta(minutes=15, seconds=5)
    assert float(found.state) == LIVE["prices"][start.isoformat()]
    assert found.attributes["unit_of_measurement"] == "EUR/kWh"
    assert found.attributes["state_class"] == "measurement"
    current = {"price": 2.0, "start": "2020-01-01T00:00:00Z", "end": "2099-01-01T00:00:00Z"}
    for wrong in ({"end": "2020-01-01T00:15:00Z"}, {"price": None}):
        for message, state in ((current, "2.0"), (current | wrong, STATE_UNAVAILABLE)):
            await publish(hass, message)
            await until(hass, lambda state=state: sensor().state == state)
    assert await hass.config_entries.async_unload(broker.entry_id)
