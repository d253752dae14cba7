"""OpenADR 3.1 as others read it: by the specification, and never a day with a hole."""

import json
import re
from datetime import date, datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.openadr_schema import errors_in
from tests.support.zone_views import event_documents, seconds, until, view_of, views

from murmurate.service.log_reader.zone_view import Price, ZoneView, format_rfc3339
from murmurate.service.public_api.local_days import day_of_interval, intervals_of_day, recent_days, steps_of_day
from murmurate.service.public_api.openadr import (
    changed_events,
    event_days,
    event_document,
    notification_json,
    notifier_topics,
    program_document,
    programs_of_zone,
    zone_slug,
)

BASE = "https://rates.example"
LENGTHS = {"H": 3600, "M": 60, "S": 1}


def program_documents(view: ZoneView, base_url: str = BASE) -> list[dict[str, object]]:
    return [program_document(program, base_url) for program in programs_of_zone(view)]


def length_s(duration: str) -> int:
    return sum(int(number) * LENGTHS[unit] for number, unit in re.findall(r"(\d+)([HMS])", duration))


def begin_s(period: dict[str, str]) -> int:
    return int(datetime.fromisoformat(period["start"]).timestamp())


def steps(view: ZoneView, *, native: bool) -> list[Any]:
    """The intervals of all events of a program."""
    wanted = {program.id for program in programs_of_zone(view) if program.is_native == native}
    found: list[Any] = event_documents(view)
    return [interval for event in found if event["programID"] in wanted for interval in event["intervals"]]


def parts_of(view: ZoneView, step: Any) -> list[int]:
    period = step["intervalPeriod"]
    first = begin_s(period) // view.interval_s
    return list(range(first, first + length_s(period["duration"]) // view.interval_s))


@pytest.mark.slow
@given(views())
def test_programs_and_events_are_what_the_specification_says(view: ZoneView) -> None:
    for program in program_documents(view):
        assert errors_in(program, "program") == []
    for event in event_documents(view):
        assert errors_in(event, "event") == []


def test_what_is_told_of_an_event_is_what_the_specification_says() -> None:
    for program in programs_of_zone(view_of()):
        told = json.loads(notification_json("UPDATE", event_days(program)[0]))
        assert errors_in(told, "notification") == []
    assert errors_in(notifier_topics("harbour-PT15M"), "notifierTopicsResponse") == []


@given(views(), st.sampled_from(("CREATE", "UPDATE")))
def test_a_notification_holds_the_event_that_can_be_read_to_the_letter(view: ZoneView, operation: Any) -> None:
    for day in (day for program in programs_of_zone(view) for day in event_days(program)):
        envelope = {"objectType": "EVENT", "operation": operation, "object": event_document(day)}
        assert notification_json(operation, day) == json.dumps(envelope, separators=(",", ":"))


def test_the_specification_is_read_in_earnest() -> None:
    event: Any = event_documents(view_of())[0]
    assert errors_in({name: value for name, value in event.items() if name != "programID"}, "event")
    assert errors_in(event | {"id": "a b"}, "event")
    assert errors_in(event | {"createdDateTime": "2026-11-14T00:00Z"}, "event")
    assert errors_in(event | {"intervals": [{"id": 0}]}, "event")
    assert errors_in(event | {"priority": "high"}, "event")
    assert errors_in({}, "notifiersResponse")
    assert errors_in({"type": "blank"}, "problem")


@given(views())
def test_an_event_has_every_interval_of_its_day_end_to_end(view: ZoneView) -> None:
    found: list[Any] = event_documents(view)
    for event in found:
        periods = [interval["intervalPeriod"] for interval in event["intervals"]]
        step_s = length_s(periods[0]["duration"])
        day = date.fromisoformat(str(event["id"])[-10:])
        assert len(periods) == len(steps_of_day(view.display.timezone, day, step_s))
        assert event["intervalPeriod"] == periods[0]
        for before, after in pairwise(periods):
            assert begin_s(before) + length_s(before["duration"]) == begin_s(after)


@given(views())
def test_every_recent_day_has_an_event_of_its_own_intervals(view: ZoneView) -> None:
    native = next(program.id for program in programs_of_zone(view) if program.is_native)
    found = [event["id"] for event in event_documents(view) if event["programID"] == native]
    assert found == [f"{native}-{day}" for day in recent_days(view)]
    own = [interval for day in recent_days(view) for interval in intervals_of_day(view, day)]
    assert [parts_of(view, step) for step in steps(view, native=True)] == [[interval] for interval in own]


@given(views())
def test_only_what_is_decided_is_a_price(view: ZoneView) -> None:
    for step in steps(view, native=True):
        (interval,) = parts_of(view, step)
        price = view.prices.get(interval)
        if interval > view.last_decided:
            assert step["payloads"] == [{"type": "PRICE_FORECAST", "values": [view.expected_price(interval)]}]
        elif price is None or price.value is None:
            assert step["payloads"] == [{"type": "NO_PRICE", "values": [True]}]
        else:
            assert step["payloads"] == [{"type": "PRICE", "values": [price.value]}]


def exact(view: ZoneView, interval: int) -> Fraction | None:
    price: Price | None = view.prices.get(interval)
    if interval > view.last_decided:
        return view.expected_ticks(interval) * view.tick
    return None if price is None or price.ticks is None else price.ticks * price.tick


@given(views())
def test_an_hour_is_the_exact_mean_of_its_intervals_or_nothing(view: ZoneView) -> None:
    for step in steps(view, native=False):
        parts = parts_of(view, step)
        values = [exact(view, interval) for interval in parts]
        if None in values:
            assert step["payloads"] == [{"type": "NO_PRICE", "values": [True]}]
        else:
            kind = "PRICE" if all(interval in view.prices for interval in parts) else "PRICE_FORECAST"
            mean = float(sum(value for value in values if value is not None) / Fraction(len(values)))
            assert step["payloads"] == [{"type": kind, "values": [mean]}]


@given(views())
def test_an_event_is_dated_by_the_log(view: ZoneView) -> None:
    for event in event_documents(view):
        found: Any = event["intervals"]
        prices = [view.prices.get(interval) for step in found for interval in parts_of(view, step)]
        taken = sorted(price.logged_s for price in prices if price is not None)
        assert event["createdDateTime"] == format_rfc3339(taken[0])
        assert event["modificationDateTime"] == format_rfc3339(taken[-1])


@pytest.mark.slow
@given(st.lists(views(), max_size=4))
def test_lists_are_in_order(several: list[ZoneView]) -> None:
    for view in several:
        ids = [str(program["id"]) for program in program_documents(view)]
        assert ids == sorted(set(ids))
        found: list[Any] = event_documents(view)
        order = [(event["programID"], event["intervalPeriod"]["start"]) for event in found]
        assert order == sorted(set(order))


NAMES = st.text(max_size=60) | st.text(alphabet="a_-4Fä ", max_size=4)  # some look like the escape of others


@given(NAMES, NAMES)
def test_no_two_zones_share_a_slug(one: str, other: str) -> None:
    assert (zone_slug(one) == zone_slug(other)) == (one == other)
    assert zone_slug(zone_slug(one)) != zone_slug(one) or "_" not in zone_slug(one)


@given(st.text(max_size=33))
def test_a_slug_can_be_read_back(zone: str) -> None:
    if "__" not in zone_slug(zone):
        escaped = re.sub(rb"_(..)", lambda found: bytes.fromhex(found[1].decode()), zone_slug(zone).encode())
        assert escaped.decode() == zone


@pytest.mark.slow
@given(st.text(min_size=101, max_size=300), st.text(max_size=1))
def test_long_names_stay_apart_and_within_the_ids_of_the_specification(zone: str, more: str) -> None:
    assert (zone_slug(zone) == zone_slug(zone + more)) == (not more)
    for event in event_documents(view_of([1] * 4, zone=zone)):
        assert errors_in(event, "event") == []
        assert len(str(event["id"])) <= 128


def test_a_program_says_where_it_is_and_whether_its_prices_bind() -> None:
    found: list[Any] = program_documents(view_of(zone="fish market"), f"{BASE}/")
    assert [program["id"] for program in found] == ["fish_20market-PT15M", "fish_20market-PT1H"]
    assert [program["attributes"][-1]["values"] for program in found] == [[True], [False]]
    assert found[0]["programDescriptions"] == [{"URL": f"{BASE}/zones/fish%20market"}]


def test_a_zone_of_hours_or_of_odd_intervals_has_no_companion() -> None:
    for interval_s in (3600, 7200, 2700):
        assert len(program_documents(view_of(interval_s=interval_s))) == 1


def test_an_hour_that_is_half_decided_is_a_forecast() -> None:
    view = view_of([8000, 8000, 8000, 8000, 10000, 10000], expected=[6000], begin_s=seconds(2026, 11, 13, 23))
    first, second, *_ = steps(view, native=False)
    assert first["payloads"] == [{"type": "PRICE", "values": [0.08]}]
    assert second["payloads"] == [{"type": "PRICE_FORECAST", "values": [0.08]}]


def test_the_companion_of_half_hour_zones_waits_for_its_first_hour() -> None:
    """In Kolkata the first hour of UTC begins half an hour after midnight, which is 18:30 UTC."""
    view = view_of([1, 2], begin_s=seconds(2026, 11, 13, 18, 30), timezone="Asia/Kolkata")
    assert day_of_interval(view, view.first_priced) == date(2026, 11, 14)
    assert [event["id"] for event in event_documents(view)] == ["harbour-PT15M-2026-11-14"]


def test_the_topic_of_all_operations_matches_each_of_them() -> None:
    topics = notifier_topics("harbour-PT15M")["topics"]
    pattern = re.compile(re.escape(topics["ALL"]).replace(re.escape("+"), "[^/]+"))
    assert topics["ALL"].count("+") == 1
    assert all(pattern.fullmatch(topics[operation]) for operation in ("CREATE", "UPDATE", "DELETE"))
    assert len(set(topics.values())) == 4


def test_what_a_view_has_dropped_does_not_change_the_days_it_has() -> None:
    begin = seconds(2026, 11, 13, 23)
    long, short = (view_of(range(250), begin_s=begin, dropped=dropped) for dropped in (0, 96))
    known = {str(event["id"]): event for event in event_documents(long)}
    assert all(known[str(event["id"])] == event for event in event_documents(short))
    assert len(event_documents(short)) == len(event_documents(long)) - 2
    assert date(2026, 11, 14) + timedelta(days=1) == recent_days(short)[0]


@pytest.mark.slow
@settings(max_examples=60)
@given(views(), st.integers(min_value=1, max_value=7))
def test_a_client_that_receives_every_notification_has_every_event(view: ZoneView, at_once: int) -> None:
    events: dict[str, Any] = {}
    intervals = sorted(view.prices)
    for at in range(0, len(intervals), at_once):
        new = intervals[at : at + at_once]
        for operation, day in changed_events(until(view, new[-1]), range(new[0], new[-1] + 1)):
            assert operation == ("UPDATE" if day.id in events else "CREATE")
            events[day.id] = json.loads(notification_json(operation, day))["object"]
    assert [events[name] for name in sorted(events)] == sorted(
        event_documents(view), key=lambda event: str(event["id"])
    )
