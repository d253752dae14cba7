"""A day of a thousand homes, from their meters to the readers of prices, through real servers."""

from __future__ import annotations

from datetime import datetime
from fractions import Fraction

import httpx

from tests.e2e.conftest import INTERVALS, published_rows, zone_lines
from tests.e2e.harbour import STEP_S, demand_by_interval


def test_every_interval_is_released_once_from_what_the_meters_reported(day):
    operator, service, feed, *_ = day
    of_day = [(row.interval, row.kind) for row in published_rows(service) if row.interval in feed.expected]
    assert of_day == [(interval, "measured") for interval in sorted(feed.expected)]
    assert len(of_day) == INTERVALS
    known = demand_by_interval(operator)
    assert {at: known.get(at) for at in feed.expected} == feed.expected


def test_the_log_at_its_address_verifies(day):
    key = zone_lines(day.service)[0]["tile"]["key"]
    shown = day.operator.run(f"murmurate log verify {day.service.url('/zones/harbour/log.jsonl')} --key {key}")
    assert "Everything holds." in shown


def test_the_day_says_what_the_log_says_tick_for_tick(day):
    by_interval = {row.paid_interval: row for row in published_rows(day.service) if row.price_ticks is not None}
    prices = httpx.get(day.service.url("/zones/harbour/days/2026-11-14.json")).json()["prices"]
    assert len(prices) == INTERVALS
    for price in prices:
        row = by_interval[int(datetime.fromisoformat(price["start"]).timestamp()) // STEP_S]
        assert price["price_ticks"] == row.price_ticks
        assert round(Fraction(price["price"]) / row.tick) == row.price_ticks
