"""A day of a thousand homes, from their meters to the readers of prices, through real servers."""

from __future__ import annotations

from datetime import datetime
from fractions import Fraction

import httpx

from tests.e2e.conftest import INTERVALS, records
from tests.e2e.running_service import STEP_S


def test_every_interval_is_released_once_from_what_the_meters_reported(day):
    service, instance, feed, *_ = day
    releases = [record for record in records(instance) if record["kind"] in {"measured", "forecast", "withheld"}]
    of_day = [record for record in releases if record["interval"] in feed.expected]
    assert [record["kind"] for record in of_day] == ["measured"] * INTERVALS
    known = service.demand()
    assert {at: known.get(at) for at in feed.expected} == feed.expected


def test_the_log_at_its_address_verifies(day):
    service, instance, *_ = day
    key = records(instance)[0]["key"]
    shown = service.run("verify", instance.url("/zones/harbour/log.jsonl"), "--key", key)
    assert "Everything holds." in shown


def test_the_day_says_what_the_log_says_tick_for_tick(day):
    _, instance, *_ = day
    by_interval = {record["applies"]: record for record in records(instance) if record["price_ticks"] is not None}
    rows = httpx.get(instance.url("/zones/harbour/days/2026-11-14.json")).json()["prices"]
    assert len(rows) == INTERVALS
    for row in rows:
        interval = int(datetime.fromisoformat(row["start"]).timestamp()) // STEP_S
        record = by_interval[interval]
        assert row["price_ticks"] == record["price_ticks"]
        assert round(Fraction(row["price"]) / Fraction(record["tick"])) == record["price_ticks"]
