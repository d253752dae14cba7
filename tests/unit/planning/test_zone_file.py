"""Mistakes in a zone file are reported with their line and a remedy."""

import numpy as np
import pytest

from murmurate.errors import ZoneFileError
from murmurate.planning.household_bounds import MeterSummary
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.planning.zone_forecast import EXAMPLE_FORECAST
from murmurate.privacy.noise import NoiseDistribution


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
        ("morning = 0.98", 'morning = "often"', "line 16: arrive is not readable: must have the form"),
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
