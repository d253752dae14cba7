"""Mistakes in a zone file are reported with their line and a remedy."""

import re
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, unquote
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.responses import Response
from starlette.routing import Route

from murmurate.errors import MurmurateError, ZoneFileError
from murmurate.planning.household_bounds import MeterSummary
from murmurate.planning.plan import load_plan, make_plan
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.planning.zone_file import EXAMPLE_FORECAST, EXAMPLE_ZONE_FILE, parse_zone
from murmurate.privacy.noise import NoiseDistribution
from murmurate.time_zones import UTC_CLOCK, local_clock, utc_offset_min
from murmurate.types import MAX_ZONE_NAME_BYTES, is_zone_name


def test_the_example_is_read_as_it_looks():
    zone = parse_zone(EXAMPLE_ZONE_FILE)
    flat, market = zone.kinds
    assert (zone.name, zone.intervals_per_day, zone.household_count) == ("harbour", 96, 801)
    assert (flat.bound_wh, flat.count, any(flat.public)) == (1000, 800, False)
    assert all(market.public)
    assert flat.secret_pair.home[:601] == pytest.approx(1 / 601)
    assert (flat.secret_pair.home[601:] == 0).all()
    assert np.bincount(flat.models[0].period).tolist() == [4, 32, 28, 32]
    assert zone.distribution is None


def test_other_ways_to_say_it():
    text = EXAMPLE_ZONE_FILE.replace("uniform_to = 600", "histogram = [3, 1], step_wh = 200", 1)
    text = text.replace('alpha = "0.0002"\nbeta = "0.08"', 'knots = [[0, "0.08"], [400000, "0.20"]]')
    text = text.replace('public = "always"', 'public = ["08:00-12:00", "22:00-02:00"]')
    text = text.replace("[tariff]", 'noise = "laplace"\n[tariff]')
    zone = parse_zone(text)
    home = zone.kinds[0].secret_pair.home
    assert (home[0], home[200], home[400]) == pytest.approx((0.75 / 200, 0.25 / 200, 0))
    assert float(zone.curve.price(200_000)) == pytest.approx(0.14)
    whole_day = parse_zone(EXAMPLE_ZONE_FILE.replace('"always"', '["00:00-24:00"]'))
    assert all(whole_day.kinds[1].public)
    in_utc = parse_zone(text.replace("Europe/Lisbon", "UTC"))
    assert [t for t in range(96) if in_utc.kinds[1].public[t]] == [*range(8), *range(32, 48), *range(88, 96)]
    assert [t for t in range(96) if zone.kinds[1].public[t]] == [*range(4), *range(32, 44), *range(88, 96)]
    assert zone.distribution is NoiseDistribution.LAPLACE


def test_meters_may_come_from_a_file():
    text = EXAMPLE_ZONE_FILE.replace("count = 800\nbound_wh = 1000", 'meters = "flats.csv"')
    table = {("flats.csv", "harbour", "flat"): MeterSummary(1234, 900)}
    zone = parse_zone(text, lambda *asked: table[asked])
    assert (zone.kinds[0].count, zone.kinds[0].bound_wh) == (1234, 900)


def test_a_table_without_kinds_is_not_counted_for_two_of_them():
    one = EXAMPLE_ZONE_FILE.replace("count = 800\nbound_wh = 1000", 'meters = "these.csv"')
    assert parse_zone(one, lambda *_: MeterSummary(10, 600, is_of_kind=False)).household_count == 11
    two = one.replace("count = 1\nbound_wh = 20000", 'meters = "these.csv"')
    with pytest.raises(ZoneFileError, match=r"meters is 'these.csv': must have a column kind"):
        parse_zone(two, lambda *_: MeterSummary(10, 20_000, is_of_kind=False))


def test_a_class_of_models_is_a_list_of_names():
    text = EXAMPLE_ZONE_FILE.replace(
        "[[households]]", '[occupancy.late]\nperiods = { all = "00:00" }\narrive = { all = 0.5 }\n'
                           "leave = { all = 0.5 }\n\n[[households]]", 1)  # fmt: skip
    zone = parse_zone(text.replace('occupancy = "resident"', 'occupancy = ["resident", "late"]', 1))
    assert [len(kind.models) for kind in zone.kinds] == [2, 1]
    assert [kind.name for kind in zone.private_kinds] == ["flat"]  # the market has no secret


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("bound_wh = 1000", "bound_wh = 0", "line 22: bound_wh is 0: must be at least 1 Wh"),
        ("bound_wh = 1000", "bound_wh = 2000000", "line 22: bound_wh is 2000000: must be at least 1 Wh and at most"),
        ("bound_wh = 1000", "bound_wh = 9.5", "line 22: bound_wh is 9.5: must be a whole number"),
        ("count = 800", "cont = 800", "line 21: key is 'cont': did you mean 'count'?"),
        ("count = 800\n", "", "line 19: count is missing: must be given in [[households]] number 1"),
        ("count = 800", "count = 0", "line 21: count is 0: must be at least 1 household"),
        ('"07:00"', '"7 am"', "line 15: periods is '7 am': must be the start of an interval, such as \"07:00\""),
        ("any moment: 1", "any moment 1", "line 5: promise is 'any moment 1': must read like"),
        ('"0.0002"', '"cheap"', 'line 8: alpha is cheap: must be a finite number such as 0.5 or "1/3"'),
        ("uniform_to = 600", "uniform_to = 6000", "line 24: home is 6000: uniform_to must lie between 0 and bound_wh"),
        ("uniform_to = 600", "mean = 3", "line 24: home is ['mean']: must be { uniform_to = 600 } or"),
        ('= "resident"', '= "student"', "line 25: occupancy is ['student']: must name one or more of resident"),
        ("[tariff]", "[tarif]", "line 7: key is 'tarif': did you mean 'tariff'?"),
        (
            'name = "harbour"',
            "name = harbour",
            "line 1: 'name = harbour' is not TOML: write a text in quotes, as in name =",
        ),
        ("0.98", "1.0", "line 16: arrive is [1.0, 0.05, 0.99, 0.01]: must be chances, 0 or more and below 1"),
        ("noon = 0.05, evening", "moon = 0.05, evening", "line 16: arrive is ['evening', 'moon', 'morning', 'night']"),
        ("[tariff]", 'calibration = "shift"\n[tariff]', "line 7: key is 'calibration': known are currency"),
        ("[tariff]", 'noise = "cauchy"\n[tariff]', "line 7: noise is 'cauchy': must be best, or one of laplace"),
        ("interval_minutes = 15", "interval_minutes = 17", "line 3: interval_minutes is 17: must divide a day"),
        ('"always"', '"8-20"', "line 34: public is '8': must be the start of an interval"),
        ('"always"', '["08:00-08:00"]', "line 34: public is '08:00-08:00': must be hours such as"),
        ("uniform_to = 600", 'uniform_to = "abc"', "line 24: home is not readable: must have the form"),
        ("morning = 0.98", 'morning = "often"', "line 16: arrive is ['often', 0.05, 0.99, 0.01]: must be chances"),
        ('alpha = "0.0002"', 'segments = [[0, "1"]]', "line 8: segments is not readable: must have the form"),
        (
            'beta = "0.08"',
            'beta = "0.08"\nknots = [[0, "1"]]',
            "line 8: tariff is knots and alpha: must be given in one",
        ),
        (
            '["any 24 h: epsilon 1, delta 1e-6", "any moment: 1"]',
            "[]",
            "line 5: promise is empty: must have at least one promise",
        ),
        ("[tariff]", "[forecast]\nlevel = 1.0\n[tariff]", "line 7: file is missing: must be given in [forecast]"),
        ('tick = "0.00001"', 'tick = "0"', "line 8: tick is 0: must be positive"),
    ],
)
def test_a_mistake_is_reported_with_its_line_and_a_remedy(old, new, says):
    with pytest.raises(ZoneFileError) as caught:
        parse_zone(EXAMPLE_ZONE_FILE.replace(old, new, 1))
    assert str(caught.value).startswith(says)


def test_a_forecast_needs_intervals_of_an_hour_or_less():
    """A plan of two hours ended with a traceback: the filter has a gain for each hour."""
    text = EXAMPLE_ZONE_FILE + EXAMPLE_FORECAST
    for minute in ("07:00", "23:00"):
        text = text.replace(minute, minute.replace("07", "06").replace("23", "22"))
    parse_zone(text.replace("interval_minutes = 15", "interval_minutes = 60"))
    with pytest.raises(ZoneFileError, match="line 3: interval_minutes is 120: must be 60 or less where prices are"):
        parse_zone(text.replace("interval_minutes = 15", "interval_minutes = 120"))


# --- the name of a zone is an address: one that cannot be read is refused before the zone is opened


UNREADABLE = [
    "",
    "east/1",
    "/",
    "a\\\\b",
    ".",
    "..",
    ".hidden",
    " harbour",
    "harbour ",
    "two\\nlines",
    "nul\\u0000",
    "x" * 201,
]


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_zone_file_with_a_name_that_cannot_be_an_address_is_refused(name):
    with pytest.raises(ZoneFileError, match=r"line 1: .*no slash or backslash"):
        parse_zone(EXAMPLE_ZONE_FILE.replace('name = "harbour"', f'name = "{name}"'))


@pytest.mark.parametrize("name", ["harbour", "Zürich, unter dem Berg", "old town?#%", "a+b", "東京", "x" * 200])
def test_a_name_in_any_language_is_taken(name):
    assert parse_zone(EXAMPLE_ZONE_FILE.replace('name = "harbour"', f'name = "{name}"')).name == name


@given(st.text(max_size=MAX_ZONE_NAME_BYTES).filter(is_zone_name))
def test_every_name_that_is_taken_is_found_at_its_address(name):
    route = Route("/zones/{zone}/now", lambda _: Response())
    found = route.path_regex.match(unquote(f"/zones/{quote(name, safe='')}/now"))
    assert found.group("zone") == name


# --- hours of a zone file are those of its time zone, through clock changes, always on the household's side


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
