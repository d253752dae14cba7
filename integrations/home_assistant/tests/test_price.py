"""The integration in a real Home Assistant, on days of running services. tests/e2e/test_home_assistant.py starts them.

Each day is a dictionary: the `url` of the service, the time `now` that it shows, and by start the `prices` of its log.
"""

import json
import os
from datetime import datetime, timedelta
from pathlib import Path

import custom_components  # noqa: F401  first, or Home Assistant's own folder of that name is found
import pytest
from homeassistant.components.recorder.statistics import statistics_during_period
from homeassistant.config_entries import SOURCE_USER, ConfigEntryState
from homeassistant.const import STATE_UNAVAILABLE
from homeassistant.data_entry_flow import FlowResultType
from homeassistant.util import dt as dt_util
from pytest_homeassistant_custom_component.common import MockConfigEntry, async_fire_time_changed
from pytest_homeassistant_custom_component.components.recorder.common import (
    async_wait_recording_done,
    do_adhoc_statistics,
)

DAYS = json.loads(Path(os.environ["MURMURATE_DAYS"]).read_text())
ZONE, TIME_ZONE = "harbour", "Europe/Berlin"
QUARTER = timedelta(minutes=15)
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def _real_sockets(request, socket_enabled):
    for name in ("recorder_mock", "enable_custom_integrations"):  # in this order, or there is no recorder
        if name in (*request.fixturenames, "enable_custom_integrations"):
            request.getfixturevalue(name)


@pytest.fixture
async def day(request, hass, freezer):
    """A day of a service, and Home Assistant at the same time and place."""
    chosen = DAYS[getattr(request, "param", "usual")]
    await hass.config.async_set_time_zone(TIME_ZONE)
    freezer.move_to(datetime.fromisoformat(chosen["now"]))
    return chosen


def page(day):
    return f"{day['url']}/zones/{ZONE}"


def price_at(day, when):
    start = datetime.fromtimestamp(when.timestamp() // 900 * 900, dt_util.UTC)
    return day["prices"].get(start.isoformat())


async def fill_in(hass, url):
    flow = await hass.config_entries.flow.async_init("murmurate", context={"source": SOURCE_USER})
    assert (flow["type"], flow["errors"]) == (FlowResultType.FORM, {})
    return await hass.config_entries.flow.async_configure(flow["flow_id"], {"url": url})


async def set_up(hass, day):
    done = await fill_in(hass, page(day))
    assert done["type"] is FlowResultType.CREATE_ENTRY
    await hass.async_block_till_done()
    return done["result"]


def price_of(hass):
    (state,) = hass.states.async_all("sensor")
    return state


async def move_to(hass, freezer, when):
    freezer.move_to(when)
    async_fire_time_changed(hass, when)
    await hass.async_block_till_done()


async def test_the_form_names_what_is_wrong_and_a_zone_is_set_up_once(hass, day):
    wrong = {
        f"{day['url']}/zones/nowhere": "unknown_zone",
        day["url"]: "unknown_zone",
        "harbour": "unknown_zone",
        f"{NOWHERE}/zones/{ZONE}": "cannot_connect",
    }
    for url, error in wrong.items():
        answer = await fill_in(hass, url)
        assert (answer["type"], answer["errors"]) == (FlowResultType.FORM, {"base": error})
    done = await fill_in(hass, f" {page(day)}/?lang=de#promise")
    assert (done["title"], done["data"]) == (ZONE, {"url": page(day)})
    await hass.async_block_till_done()
    again = await fill_in(hass, page(day))
    assert (again["type"], again["reason"]) == (FlowResultType.ABORT, "already_configured")


async def test_without_a_service_it_is_tried_again_later(hass):
    entry = MockConfigEntry(domain="murmurate", data={"url": f"{NOWHERE}/zones/{ZONE}"})
    entry.add_to_hass(hass)
    assert not await hass.config_entries.async_setup(entry.entry_id)
    assert entry.state is ConfigEntryState.SETUP_RETRY


@pytest.mark.parametrize(
    ("day", "quarters"), [("usual", 96), ("autumn", 100), ("spring", 92)], indirect=["day"], ids=str
)
async def test_the_price_and_all_of_today_and_tomorrow_are_those_of_the_log(hass, day, quarters):
    await set_up(hass, day)
    state, today = price_of(hass), dt_util.start_of_local_day()
    about = state.attributes
    assert float(state.state) == pytest.approx(price_at(day, dt_util.utcnow()), abs=1e-12)
    assert about["unit_of_measurement"] == "EUR/kWh"
    assert len(about["today"]) == quarters
    assert len(about["tomorrow"]) == 96
    assert about["tomorrow_valid"] is True
    begin = dt_util.as_utc(today)
    ends = {"raw_today": begin + quarters * QUARTER, "raw_tomorrow": begin + (quarters + 96) * QUARTER}
    for name, end in ends.items():
        rows = about[name]
        for row in rows:
            assert dt_util.as_utc(row["end"]) - dt_util.as_utc(row["start"]) == QUARTER
            assert row["start"].tzinfo.key == TIME_ZONE
            if row["is_final"]:
                assert row["value"] == price_at(day, row["start"])
        withheld = {begin + n * QUARTER for n in range(int((end - begin) / QUARTER))}
        withheld -= {dt_util.as_utc(row["start"]) for row in rows}
        assert all(price_at(day, start) is None and start <= dt_util.utcnow() for start in withheld)
        begin = end
    by_start = {dt_util.as_utc(row["start"]): row["value"] for row in about["raw_today"]}
    utc_today = dt_util.as_utc(today)
    assert about["today"] == [by_start.get(utc_today + n * QUARTER) for n in range(quarters)]
    final = {datetime.fromisoformat(start) for start, price in day["prices"].items() if price is not None}
    shown = {dt_util.as_utc(row["start"]) for name in ends for row in about[name] if row["is_final"]}
    assert shown == {start for start in final if start >= utc_today}
    assert about["final_until"] == max(map(datetime.fromisoformat, day["prices"])) + QUARTER


async def test_final_prices_outlive_the_service_and_no_price_is_shown_after_them(hass, day, freezer):
    entry = await set_up(hass, day)
    hass.config_entries.async_update_entry(entry, data={"url": f"{NOWHERE}/zones/{ZONE}"})
    await entry.runtime_data.async_refresh()
    assert not entry.runtime_data.last_update_success
    now, last = dt_util.utcnow(), price_of(hass).attributes["final_until"]
    begin = datetime.fromtimestamp(now.timestamp() // 900 * 900, dt_util.UTC)
    while begin < last:
        await move_to(hass, freezer, max(begin, now))
        shown, price = price_of(hass).state, price_at(day, begin)
        assert shown == STATE_UNAVAILABLE if price is None else float(shown) == price
        begin += QUARTER
    await move_to(hass, freezer, last - timedelta(seconds=1))
    assert price_of(hass).state != STATE_UNAVAILABLE
    for later in (timedelta(0), timedelta(minutes=1), timedelta(days=1)):
        await move_to(hass, freezer, last + later)
        assert price_of(hass).state == STATE_UNAVAILABLE


async def test_the_price_has_long_term_statistics(recorder_mock, hass, day):
    await set_up(hass, day)
    await async_wait_recording_done(hass)
    start = dt_util.utcnow().replace(minute=0, second=0, microsecond=0)
    period = dt_util.utcnow().replace(minute=dt_util.utcnow().minute // 5 * 5, second=0, microsecond=0)
    do_adhoc_statistics(hass, start=period)
    await async_wait_recording_done(hass)
    found = await hass.async_add_executor_job(
        statistics_during_period, hass, start, None, {price_of(hass).entity_id}, "5minute", None, {"mean"}
    )
    (rows,) = found.values()
    assert rows[0]["mean"] == pytest.approx(float(price_of(hass).state))


async def test_a_zone_can_be_removed(hass, day):
    entry = await set_up(hass, day)
    assert await hass.config_entries.async_remove(entry.entry_id)
    assert not hass.states.async_all("sensor")
