"""Third-party clients read the prices of a day: they get the prices of the log, tick for tick."""

from __future__ import annotations

import json
import queue
import subprocess
import uuid
from datetime import datetime
from fractions import Fraction

import pytest

from murmurate.service.mqtt_client import connect_mqtt
from murmurate.service.public_api.notifications import zone_topic
from murmurate.service.settings import MqttBroker
from tests.e2e.conftest import DAY_S, INTERVALS, published_rows
from tests.e2e.harbour import STEP_S
from tests.e2e.interop_clients import OPENADR

QUARTERS, HOURS = "harbour-PT15M", "harbour-PT1H"
DAY = "2026-11-14"
FIRST = DAY_S // STEP_S
END_S = DAY_S + INTERVALS * STEP_S
EVCC = "[.[] | {start: .start, end: .end, value: .value}] | tostring"
LISTED = zone_topic("harbour", "prices")
STALE = 2  # intervals, which are seconds here: a response may have been cached, and on its way


@pytest.fixture(scope="module")
def log(day):
    """What has to be paid in an interval: ticks, and what a tick is."""
    known = (row for row in published_rows(day.service) if row.price_ticks is not None)
    return {row.paid_interval: (row.price_ticks, row.tick) for row in known}


@pytest.fixture(scope="module")
def oa3(day, clients):
    return clients.ask("oa3_client.py", "snapshot", day.service.url(OPENADR))


@pytest.fixture(scope="module")
def openadr3(day, clients_312):
    return clients_312.ask("openadr3_client_312.py", day.service.url(OPENADR))


@pytest.fixture(scope="module", params=["python-oa3-client", "openadr3-client nameless", "openadr3-client with_token"])
def openadr(request):
    """What a client of OpenADR has read."""
    if request.param == "python-oa3-client":
        return request.getfixturevalue("oa3")
    return request.getfixturevalue("openadr3")[request.param.split()[1]]


def event(events, program):
    (found,) = [one for one in events if one["id"] == f"{program}-{DAY}" and one["program"] == program]
    return found


def final(rows):
    """The prices that have to be paid, by interval; what is expected of the others is none."""
    assert all(row["end"] - row["start"] == STEP_S for row in rows)
    payloads = [(row["start"], *payload) for row in rows for payload in row["payloads"]]
    return {start_s // STEP_S: value for start_s, kind, value in payloads if kind == "PRICE"}


def assert_are_those_of_the_log(values, log):
    assert values
    for interval, value in values.items():
        ticks, tick = log[interval]
        assert round(Fraction(value) / tick) == ticks
        assert value == float(ticks * tick)


def assert_is_the_day(values, log):
    assert sorted(values) == list(range(FIRST, FIRST + INTERVALS))
    assert_are_those_of_the_log(values, log)


def assert_are_the_means(rows, log):
    assert len(rows) == INTERVALS // 4
    for number, row in enumerate(rows):
        first = FIRST + 4 * number
        prices = [ticks * tick for ticks, tick in map(log.get, range(first, first + 4))]
        assert (row["start"], row["end"]) == (first * STEP_S, (first + 4) * STEP_S)
        assert row["payloads"] == [["PRICE", float(sum(prices) / 4)]]


def by_interval(rows):
    """Rows with a start, an end and a value."""
    found = {}
    for row in rows:
        start_s, end_s = (int(datetime.fromisoformat(row[name]).timestamp()) for name in ("start", "end"))
        assert (start_s % STEP_S, end_s - start_s) == (0, STEP_S)
        found[start_s // STEP_S] = row["value"]
    assert len(found) == len(rows)
    return found


def test_a_client_of_openadr_reads_every_price_of_the_day(openadr, log):
    assert openadr["programs"] == [QUARTERS, HOURS]
    assert_is_the_day(final(event(openadr["events"], QUARTERS)["intervals"]), log)


def test_a_client_of_openadr_reads_hours_that_are_the_exact_means(openadr, log):
    assert_are_the_means(event(openadr["events"], HOURS)["intervals"], log)


def test_python_oa3_client_finds_a_program_by_its_name(oa3):
    assert oa3["resolved"] == [QUARTERS, HOURS]


def test_python_oa3_client_discovers_the_broker(oa3, day):
    assert oa3["mqtt"] is True
    assert oa3["notifiers"]["MQTT"]["URIS"] == ["mqtt://127.0.0.1:1883"]
    operations = ("create", "update", "delete", "+")
    topics = [f"OpenADR/3.1.0/programs/{name}/events/{one}" for name in (QUARTERS, HOURS) for one in operations]
    assert sorted(day.received["topics"]) == sorted(topics)


@pytest.mark.parametrize("program", [QUARTERS, HOURS])
def test_the_last_notification_of_the_day_is_the_event_that_can_be_read(program, oa3, day):
    event_id = f"{program}-{DAY}"
    notifications = [
        notification for notification in day.received["notifications"] if notification["event"]["id"] == event_id
    ]
    assert [notification["operation"] for notification in notifications] == ["CREATE"] + ["UPDATE"] * (
        len(notifications) - 1
    )
    assert all(
        notification["topic"].endswith(f"{program}/events/{notification['operation'].lower()}")
        for notification in notifications
    )
    assert notifications[-1]["event"] == event(oa3["events"], program)
    assert {row["payloads"][0][0] for row in notifications[-1]["event"]["intervals"]} == {"PRICE"}


def test_a_price_that_a_notification_calls_final_is_that_of_the_log_and_stays(log, day):
    known = {}
    for notification in day.received["notifications"]:
        if notification["event"]["id"] == f"{QUARTERS}-{DAY}":
            now = final(notification["event"]["intervals"])
            assert now.items() >= known.items()
            known = now
    assert_is_the_day(known, log)


@pytest.mark.parametrize("access", ["nameless", "with_token"])
def test_openadr3_client_discovers_the_broker(openadr3, access):
    assert openadr3[access]["brokers"] == ["mqtt://127.0.0.1:1883"]
    assert openadr3[access]["topics"] == [f"OpenADR/3.1.0/programs/{name}/events/+" for name in (QUARTERS, HOURS)]


def test_a_broker_keeps_the_prices_of_today_and_tomorrow(day):
    got = queue.SimpleQueue()
    client = connect_mqtt(MqttBroker(), f"test-{uuid.uuid4().hex}", topics=(LISTED,), on_message=got.put)
    try:
        document = json.loads(got.get(timeout=60).payload)
    finally:
        client.disconnect()
        client.loop_stop()
    # The service goes on, so the log is read after the message.
    log = {row.paid_interval: (row.price_ticks, row.tick) for row in published_rows(day.service)}
    final_rows = [row for row in document["prices"] if row["status"] == "final" and row["value"] is not None]
    assert_are_those_of_the_log(by_interval(final_rows), log)
    assert (document["zone"], len(document["prices"])) == ("harbour", 2 * INTERVALS)


def test_smartgridready_reads_every_price_of_the_day(day, clients, log):
    start, end = (datetime.fromtimestamp(at_s).astimezone().isoformat() for at_s in (DAY_S, END_S))
    printed = clients.ask("sgr_vse.py", day.service.url("/zones/harbour"), start, end)
    assert_is_the_day(by_interval(printed["prices"]), log)


@pytest.mark.gojq
def test_evcc_reads_the_prices_from_now_on(day, log):
    seen = {}
    for before_s, body, after_s in day.evcc_responses:
        printed = subprocess.run(["gojq", "-r", EVCC], input=body, capture_output=True, check=True).stdout
        prices = by_interval(json.loads(printed))
        if prices:
            assert sorted(prices) == [at for at in sorted(log) if min(prices) <= at <= max(prices)]
            assert before_s // STEP_S - STALE <= min(prices) <= max(after_s // STEP_S, FIRST)
            assert_are_those_of_the_log(prices, log)
            seen |= prices
    assert seen.keys() >= set(range(FIRST, FIRST + INTERVALS))
