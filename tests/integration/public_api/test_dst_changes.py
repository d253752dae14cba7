"""Days on which the clock changes, through a real log and a real server: 92 and 100 quarter hours, each once."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from tests.support.api_servers import LEAD, STEP_S, ZONES, plan_of, public_process
from tests.support.databases import database
from tests.support.postgres_stores import ShardWriter

from murmurate.service.storage.migrate import migrate_database

DAYS = [
    ("harbour", "2026-03-29", 92),
    ("harbour", "2026-10-25", 100),
    ("old town", "2026-03-08", 92),
    ("old town", "2026-11-01", 100),
    ("harbour", "2026-11-01", 96),
]


def write_log(dsn, zone, first, last):
    """Releases of the intervals first, .., last. Returns the price in ticks of each interval that pays one."""
    writer = ShardWriter(dsn, {zone: plan_of(zone)}, first=first, lead=LEAD)
    for interval in range(first - 1, last + 1):
        writer.write(1, None if interval % 9 == 1 else 400_000 + interval % 96 * 1000)
    writer.close()
    return writer.prices(zone), Fraction(writer.terms[zone].tick)


@pytest.fixture(scope="module", params=DAYS, ids=lambda case: f"{case[1]} in {case[0]}")
def changed(request):
    """The log of a day and a little more, its local midnights, and a client of the public API that shows it."""
    zone, text, count = request.param
    timezone = ZoneInfo(ZONES[zone][1])
    begin = datetime.fromisoformat(text).replace(tzinfo=timezone)
    end = datetime.fromisoformat(text).replace(tzinfo=timezone) + timedelta(days=1)
    first, last = (int(at.timestamp()) // STEP_S for at in (begin, end))
    with database("log") as dsn:
        migrate_database(dsn, "log")
        ticks, tick = write_log(dsn, zone, first - LEAD - 2, last - LEAD + 1)
        with public_process(dsn, last * STEP_S - 60, timezone=timezone.key) as (client, _):
            yield zone, text, count, first, ticks, tick, client


def seconds(text):
    assert text.endswith("Z")
    return int(datetime.fromisoformat(text).astimezone(UTC).timestamp())


def test_the_day_has_every_quarter_hour_once(changed):
    zone, day, count, first, ticks, tick, client = changed
    rows = client.get(f"/zones/{zone}/days/{day}.json").raise_for_status().json()["prices"]
    assert [seconds(row["start"]) // STEP_S for row in rows] == list(range(first, first + count))
    assert all(seconds(one["end"]) == seconds(other["start"]) for one, other in pairwise(rows))
    assert [row["price_ticks"] for row in rows] == [ticks[first + number] for number in range(count)]
    assert [round(Fraction(row["price"]) / tick) for row in rows] == [row["price_ticks"] for row in rows]


def test_prices_has_every_quarter_hour_of_today_and_tomorrow_and_calls_nothing_final_that_is_not(changed):
    zone, day, count, first, ticks, tick, client = changed
    document = client.get(f"/zones/{zone}/prices").raise_for_status().json()
    next_day = (datetime.fromisoformat(day) + timedelta(days=1)).strftime("%Y-%m-%d")
    both = client.get(f"/zones/{zone}/prices", params={"from": day}).raise_for_status().json()
    today = client.get(f"/zones/{zone}/prices", params={"from": day, "to": next_day}).raise_for_status().json()
    assert (document["currency"], document["timezone"]) == (ZONES[zone][0], ZONES[zone][1])
    assert both == document
    assert len(today["prices"]) == count
    assert today["prices"] == document["prices"][:count]
    rows = document["prices"]
    assert [seconds(row["start"]) // STEP_S for row in rows] == list(range(first, first + count + 96))
    assert all(one["end"] == other["start"] for one, other in pairwise(rows))
    known = [ticks[n] for n in range(first, first + count + 96) if n in ticks]
    assert [round(Fraction(row["value"]) / tick) for row in rows if row["status"] == "final"] == known
    assert [row["status"] for row in rows] == ["final"] * len(known) + ["expected"] * (count + 96 - len(known))


def test_openadr_has_the_same_day_in_quarter_hours_and_in_hours(changed):
    zone, day, count, first, ticks, tick, client = changed
    events = {one["id"]: one for one in client.get("/openadr3/3.1.0/events").raise_for_status().json()}
    name = zone.replace(" ", "_20")
    native, hours = events[f"{name}-PT15M-{day}"], events[f"{name}-PT1H-{day}"]
    values = [one["payloads"][0]["values"][0] for one in native["intervals"]]
    assert [round(Fraction(value) / tick) for value in values] == [ticks[first + number] for number in range(count)]
    assert len(hours["intervals"]) == count // 4
    for number, hour in enumerate(hours["intervals"]):
        four = [ticks[first + 4 * number + part] for part in range(4)]
        assert hour["payloads"] == [{"type": "PRICE", "values": [float(sum(four) * tick / 4)]}]


def test_history_and_verification_see_the_same(changed):
    zone, _, count, first, ticks, _, client = changed
    start, end = (
        datetime.fromtimestamp(at * STEP_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for at in (first, first + count)
    )
    lines = client.get(f"/zones/{zone}/history.csv", params={"start": start, "end": end}).text.splitlines()
    column = lines[0].split(",").index("price_ticks")
    assert [int(line.split(",")[column]) for line in lines[1:]] == [ticks[first + number] for number in range(count)]
    lines = [json.loads(line) for line in client.get(f"/zones/{zone}/log.jsonl").text.splitlines()]
    measured = [line for line in lines if line.get("row") and line["tile"]["interval"] == first - LEAD]
    assert [line["row"]["price_ticks"] for line in measured] == [ticks[first]]
