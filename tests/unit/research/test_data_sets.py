"""Readers of Low Carbon London, the Irish trial and ECO, on samples that are made here."""

import doctest
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from research.data_sets import reading_grid
from research.data_sets.eco import read_eco
from research.data_sets.irish_trial import read_irish_trial
from research.data_sets.low_carbon_london import read_low_carbon_london
from research.data_sets.reading_grid import ReadingGrid, parse_kwh, round_kwh

from murmurate.errors import ReadingError

LONG = "LCLid,stdorToU,DateTime,KWH/hh (per half hour) "
DAY_S = 86_400


def written(tmp_path, text, name="made.csv"):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def utc(seconds):
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def london(tmp_path, *rows, header=LONG):
    return read_low_carbon_london([written(tmp_path, "\r\n".join([header, *rows, ""]))])


@given(st.integers(0, 10**8))
def test_both_ways_to_round_kwh_agree_to_the_nearest_wh_half_up(tenths_of_a_milliwatt_hour):
    text = f"{tenths_of_a_milliwatt_hour / 10**7:.7f}"
    whole = parse_kwh(text, "here")
    assert whole == (tenths_of_a_milliwatt_hour + 5000) // 10_000
    assert round_kwh(np.array([float(text)])).tolist() == [whole]


def test_the_examples_of_the_docstrings_hold():
    found = doctest.testmod(reading_grid)
    assert (found.failed, found.attempted) == (0, 2)


def test_a_home_may_feed_in():
    assert parse_kwh("-0.1", "here") == -100


def test_half_a_wh_is_rounded_up():
    texts = ["0.0005", "0.0015", "0.0025", "0.00249999", "1.0005"]
    assert [parse_kwh(text, "here") for text in texts] == [1, 2, 3, 2, 1001]
    assert round_kwh(np.array([float(text) for text in texts])).tolist() == [1, 2, 3, 2, 1001]


@pytest.mark.parametrize("text", ["", "x", "nan", "inf", "1e9", "0,5"])
def test_what_is_not_kwh_is_refused_without_repeating_it(text):
    with pytest.raises(ReadingError, match=r"^f:3 is not a reading: must be a number of kWh") as error:
        parse_kwh(text, "f:3")
    assert error.value.value == "not a reading"


def test_london_in_rows_has_the_blank_in_its_header_and_its_missing_readings(tmp_path):
    data = london(
        tmp_path,
        "MAC000003,Std,2012-10-12 01:00:00.0000000, 0.0995 ",
        "MAC000002,Std,2012-10-12 00:30:00.0000000, 0.25 ",
        "MAC000002,Std,2012-10-12 00:30:00.0000000, 0.250 ",
        "MAC000002,Std,2012-10-12 01:00:00.0000000,Null",
        "MAC000002,Std,2012-12-18 15:13:41.0000000,Null",
        "MAC000002,Std,2012-10-12 01:30:00.0000000,0",
    )
    assert data.households == ("MAC000002", "MAC000003")
    assert (utc(data.start_s), data.interval_s, data.slots_per_day) == ("2012-10-12 00:30", 1800, 48)
    assert data.energy_wh.tolist() == [[250, 0], [0, 100], [0, 0]]
    assert data.missing.tolist() == [[False, True], [True, False], [False, True]]


@pytest.mark.parametrize(
    ("day", "local_slots"),
    [("2013-03-31", [0, 1, *range(4, 48), 0, 1]), ("2013-10-27", [2, 3, *range(2, 48)])],
)
def test_london_is_gmt_through_both_clock_changes(tmp_path, day, local_slots):
    rows = [f"MAC000002,Std,{day} {number // 2:02}:{number % 2 * 30:02}:00,0.1" for number in range(48)]
    data = london(tmp_path, *rows)
    assert (utc(data.start_s), data.energy_wh.shape, bool(data.missing.any())) == (f"{day} 00:00", (48, 1), False)
    assert data.calendar().slot.tolist() == local_slots


def test_london_by_kaggle_is_the_same_in_rows_and_in_days(tmp_path):
    rows = [f"MAC000002,2012-10-13 {n // 2:02}:{n % 2 * 30:02}:00.0000000,{n / 100}" for n in range(48)]
    long = london(tmp_path, *rows, header="LCLid,tstp,energy(kWh/hh)")
    header = ",".join(["LCLid", "day", *(f"hh_{n}" for n in range(48))])
    wide = london(tmp_path, ",".join(["MAC000002", "2012-10-13", *(str(n / 100) for n in range(48))]), header=header)
    assert np.array_equal(long.energy_wh, wide.energy_wh)
    assert long.start_s == wide.start_s
    assert wide.energy_wh[:3, 0].tolist() == [0, 10, 20]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("MAC2,Std,2012-10-12 00:30:00,0.26", ":3 is a second, different reading: must equal the first"),
        ("MAC2,Std,2012-10-12 00:31:00,0.26", ":3 is a reading off the half hour"),
        ("MAC2,Std,2012-10-12 00:30:00,minus", ":3 is not a reading"),
        ("MAC2,Std,12 Oct 2012,0.26", ":3 is a wrong time"),
        ("MAC2,Std,2012-10-12 00:30:00+01:00,0.26", ":3 is a wrong time"),
        ("MAC2,Std,2012-10-12 00:30:00", ":3 is 3 columns wide: must have 4"),
    ],
)
def test_an_error_in_london_names_the_row(tmp_path, row, words):
    with pytest.raises(ReadingError) as error:
        london(tmp_path, "MAC2,Std,2012-10-12 00:30:00,0.25", row)
    assert words in str(error.value)


def test_london_without_its_columns_or_its_households_is_refused(tmp_path):
    with pytest.raises(ReadingError, match="must have LCLid with DateTime"):
        london(tmp_path, "1,2", header="a,b")
    path = written(tmp_path, f"{LONG}\nMAC2,Std,2012-10-12 00:30:00,0.25\n")
    with pytest.raises(ReadingError, match="without a reading"):
        read_low_carbon_london([path], households={"MAC3"})
    assert read_low_carbon_london([path], households={"MAC2"}).energy_wh.tolist() == [[250]]


def irish(tmp_path, *codes):
    rows = [f"1392 {code} 0.14" for code in codes]
    return read_irish_trial([written(tmp_path, "\n".join([*rows, ""]), "File1.txt")])


def test_the_irish_trial_counts_half_hours_of_local_days(tmp_path):
    data = irish(tmp_path, "19503", "19504")
    assert utc(data.start_s) == "2009-07-14 00:00"  # 01:00 of Irish summer time
    assert (data.energy_wh.tolist(), data.households) == ([[140], [140]], ("1392",))


@pytest.mark.parametrize(
    ("day", "codes", "half_hours", "begins"),
    [
        (298, range(1, 51), 50, "2009-10-24 23:00"),
        (669, range(1, 51), 50, "2010-10-30 23:00"),
        (452, (1, *range(4, 49)), 46, "2010-03-28 00:00"),
        (453, range(1, 49), 48, "2010-03-28 23:00"),
    ],
)
def test_irish_days_with_a_clock_change_have_23_or_25_hours_without_a_gap(tmp_path, day, codes, half_hours, begins):
    data = irish(tmp_path, *(f"{day:03}{code:02}" for code in codes))
    assert (len(data.energy_wh), utc(data.start_s), bool(data.missing.any())) == (half_hours, begins, False)
    following = irish(tmp_path, *(f"{day:03}{code:02}" for code in codes), f"{day + 1:03}01")
    assert len(following.energy_wh) == half_hours + 1
    assert not following.missing.any()


@pytest.mark.parametrize("code", ["45202", "45203", "19549", "29851", "19500", "00001", "1950", "195x3", "1950311"])
def test_a_half_hour_that_an_irish_day_lacks_is_refused_with_its_row(tmp_path, code):
    with pytest.raises(ReadingError, match=r"File1.txt:2 is "):
        irish(tmp_path, "19501", code)


def test_doubled_irish_readings_count_once_unless_they_differ(tmp_path):
    path = written(tmp_path, "1 19501 0.14\n1 19501 0.140\n", "File1.txt")
    assert read_irish_trial([path]).energy_wh.tolist() == [[140]]
    path = written(tmp_path, "1 19501 0.14\n1 19502 0.1\n1 19501 0.15\n", "File1.txt")
    with pytest.raises(ReadingError, match=r"File1.txt:3 is a second, different reading"):
        read_irish_trial([path])


def eco_day(tmp_path, day, watts, home="01"):
    """Write a day; the columns after the first must not matter."""
    rows = [f"{value},{value + 7},-1,0" for value in watts]
    written(tmp_path, "\n".join([*rows, ""]), f"{home}_sm_csv/{home}/{day}.csv")


def test_eco_sums_seconds_and_leaves_out_what_is_missing(tmp_path):
    watts = np.full(DAY_S, 1000)
    watts[:900] = 2000
    watts[900:990] = -1  # a tenth of the second quarter hour
    watts[1800:1891] = -1  # more than a tenth of the third
    eco_day(tmp_path, "2012-06-01", watts)
    data = read_eco(tmp_path)
    assert (utc(data.start_s), data.energy_wh.shape) == ("2012-05-31 22:00", (96, 1))
    assert data.energy_wh[:4, 0].tolist() == [500, 250, 0, 250]
    assert np.flatnonzero(data.missing[:, 0]).tolist() == [2]
    assert not data.occupancy_known.any()


def test_eco_says_who_was_home_where_it_was_written_down(tmp_path):
    for day in (1, 2):
        eco_day(tmp_path, f"2012-06-0{day}", np.full(DAY_S, 400))
    state = np.ones(DAY_S, int)
    state[: 900 + 451] = 0  # away for one interval and just over half of the next
    written(tmp_path, "day,0\n" + ",".join(["2012-06-02", *map(str, state)]) + "\n", "01_summer.csv")
    data = read_eco(tmp_path)
    assert data.occupancy_known[:, 0].tolist() == [False] * 96 + [True] * 96
    assert np.flatnonzero(data.occupancy_known[:, 0] & ~data.occupied[:, 0]).tolist() == [96, 97]


def test_an_eco_day_with_a_clock_change_is_missing(tmp_path):
    for day in ("2012-10-27", "2012-10-28", "2012-10-29"):
        eco_day(tmp_path, day, np.full(DAY_S, 400))
    data = read_eco(tmp_path, 3600)
    assert len(data.energy_wh) == 24 + 25 + 24
    assert np.flatnonzero(data.missing[:, 0]).tolist() == [*range(24, 49)]


def test_errors_in_eco_name_file_and_row(tmp_path):
    with pytest.raises(ReadingError, match="without homes"):
        read_eco(tmp_path)
    eco_day(tmp_path, "2012-06-01", [5, -3, *[1] * (DAY_S - 2)])
    with pytest.raises(ReadingError, match=r"2012-06-01.csv:2 is a wrong power"):
        read_eco(tmp_path)
    eco_day(tmp_path, "2012-06-01", [5] * 10)
    with pytest.raises(ReadingError, match=r"is 10 rows long: must have 86,400"):
        read_eco(tmp_path)
    eco_day(tmp_path, "2012-06-01", [5] * DAY_S)
    written(tmp_path, "2012-06-01,0,1\n", "01_summer.csv")
    with pytest.raises(ReadingError, match=r"01_summer.csv:1 is 2 states"):
        read_eco(tmp_path)
    with pytest.raises(ReadingError, match="interval is 7 s: must divide an hour"):
        read_eco(tmp_path, 7)


@given(st.permutations(range(6)))
def test_the_order_of_rows_does_not_matter(order):
    grid = ReadingGrid(900)
    for number in order:
        grid.add_reading("ab"[number % 2], 900 * number, number, "here")
    found = grid.to_readings("here")
    assert found.energy_wh.sum(axis=1).tolist() == [*range(6)]
    assert (found.start_s, found.missing.sum()) == (0, 6)


def test_a_year_is_cut_and_only_complete_households_are_kept(tmp_path):
    start = datetime(2012, 12, 30, tzinfo=UTC)
    rows = [
        f"{home},Std,{start + timedelta(minutes=30 * n):%Y-%m-%d %H:%M:%S},0.1"
        for home in ("A", "B")
        for n in range(48 * 5)
        if (home, n) != ("B", 100)
    ]
    data = london(tmp_path, *rows)
    days = data.cut_days(date(2013, 1, 1), 2)
    assert (utc(days.start_s), days.energy_wh.shape) == ("2013-01-01 00:00", (96, 2))
    assert days.complete_households().households == ("A",)
    assert data.cut_days(date(2013, 1, 2), 2).complete_households().households == ("A", "B")
    with pytest.raises(ReadingError, match="must be within the data: 2012-12-30 and 5 days"):
        data.cut_days(date(2013, 1, 2), 9)
    with pytest.raises(ReadingError, match="without a complete household"):
        data.choose_households(np.array([1])).complete_households()
