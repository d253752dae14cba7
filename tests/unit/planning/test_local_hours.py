"""Hours of a zone file are those of its time zone, through clock changes, always on the household's side."""

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmurate.errors import MurmurateError
from murmurate.planning.plan import load_plan, make_plan
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.time_zones import UTC_CLOCK, local_clock, utc_offset_min

BOTH = 'promise = ["any 24 h: epsilon 1, delta 1e-6", "any moment: 1"]'
NAMES = ["UTC", "Europe/Zurich", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Africa/Casablanca"]


def shop(hours, zone="Europe/Zurich", minutes=15):
    text = EXAMPLE_ZONE_FILE.replace(BOTH, 'promise = ["interval: 0.5"]').replace('"always"', f'["{hours}"]')
    text = re.sub(
        r"periods = .*\n.*\n.*\n", 'periods = { a = "00:00" }\narrive = { a = 0.5 }\nleave = { a = 0.5 }\n', text
    )
    return text.replace("Europe/Lisbon", zone).replace("interval_minutes = 15", f"interval_minutes = {minutes}")


@pytest.mark.slow
@settings(max_examples=40)
@given(
    name=st.sampled_from(NAMES),
    hours=st.tuples(st.integers(0, 23), st.integers(0, 23)).filter(lambda h: h[0] != h[1]),
    minutes=st.sampled_from([15, 60, 240, 480]),
    day=st.integers(0, 365 * 4),
)
def test_nothing_is_public_but_what_the_door_says_in_every_minute_of_every_day(name, hours, minutes, day):
    first, last = (hour * 60 // minutes * minutes for hour in hours)
    if first == last:
        return
    words = f"{first // 60:02d}:{first % 60:02d}-{last // 60:02d}:{last % 60:02d}"
    public = parse_zone(shop(words, name, minutes)).kinds[1].public
    midnight = datetime(2025, 1, 1, tzinfo=UTC) + timedelta(days=day)
    for minute in range(0, 1440, 5):
        local = (midnight + timedelta(minutes=minute)).astimezone(ZoneInfo(name))
        open_now = (local.hour * 60 + local.minute - first) % 1440 < (last - first) % 1440
        assert open_now or not public[minute // minutes]


def test_a_market_that_closes_at_eight_in_zurich_is_hidden_at_half_past():
    """It was public until 20:00 UTC, 22:00 on its own clocks in summer: a loss of 10 where 0.5 was promised."""
    terms = ReleaseTerms.from_json(make_plan(parse_zone(shop("08:00-20:00"))).to_json())
    for local in ("2026-07-01T20:30", "2026-07-01T21:45", "2026-01-15T20:30", "2026-01-15T07:30"):
        at = datetime.fromisoformat(local).replace(tzinfo=ZoneInfo("Europe/Zurich"))
        scale_wh = terms.scale_wh[terms.slot_of_day(int(at.timestamp()) // 900)]
        assert 20_000 / scale_wh <= 0.5
    noon = datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Zurich"))
    assert terms.scale_wh[terms.slot_of_day(int(noon.timestamp()) // 900)] < 2100


def test_public_hours_without_a_time_zone_are_refused():
    text = shop("08:00-20:00").replace('time_zone = "Europe/Zurich"                 # whose clocks', "# whose clocks")
    with pytest.raises(MurmurateError, match="need time_zone"):
        parse_zone(text)
    assert parse_zone(text.replace('["08:00-20:00"]', '"always"')).clock == UTC_CLOCK


def test_a_time_zone_that_does_not_exist_is_named_with_its_line():
    with pytest.raises(MurmurateError, match="line 4: time_zone is 'Europe/Zürich'"):
        parse_zone(EXAMPLE_ZONE_FILE.replace("Europe/Lisbon", "Europe/Zürich"))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_clock_knows_every_offset_and_every_change_of_its_zone(name):
    clock, zone = local_clock(name), ZoneInfo(name)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    before = utc_offset_min(name, int(at.timestamp()))
    while at.year < 2028:
        at += timedelta(minutes=30)
        found = at.astimezone(zone).utcoffset() // timedelta(minutes=1)
        assert found in clock.offsets_min
        if found != before:
            assert (at.hour * 60 + at.minute or 1440, before, found) in clock.changes
        before = found


@pytest.mark.slow
def test_a_plan_is_proven_with_the_offsets_it_states_and_not_with_todays_database():
    made = make_plan(parse_zone(EXAMPLE_ZONE_FILE))
    assert load_plan(made.to_json()).zone.clock == made.zone.clock == local_clock("Europe/Lisbon")


@pytest.mark.slow
def test_clock_changes_cost_a_moment_a_little_noise():
    with_changes, without = (
        make_plan(
            parse_zone(EXAMPLE_ZONE_FILE.replace(BOTH, 'promise = ["any moment: 1"]').replace("Europe/Lisbon", name))
        )
        for name in ("Europe/Lisbon", "UTC")
    )
    assert 1 < with_changes.scale_wh[0] / without.scale_wh[0] < 1.001
