"""CityLearn's wheel, made up: read as a ZIP file, checked row by row, never installed."""

import sys
import zipfile
from datetime import UTC, datetime

import numpy as np
import pytest
from research.data_sets.citylearn import read_citylearn
from tests.support.made_wheel import FOLDER, MODELLED_HEADER, PLACES, write_made_wheel

from murmurate.errors import ReadingError

ALAMEDA = f"{FOLDER}/ca_alameda_county_neighborhood/resstock-amy2018-2021-release-1-2.csv"


def changed(tmp_path, name, change):
    """A made wheel in which one file was changed, or left out if `change` returns None."""
    source, target = write_made_wheel(tmp_path / "made.whl", hours=72), tmp_path / "changed.whl"
    with zipfile.ZipFile(source) as before, zipfile.ZipFile(target, "w") as after:
        for member in before.namelist():
            text = before.read(member).decode()
            text = change(text) if member == name else text
            if text is not None:
                after.writestr(member, text)
    return target


def replaced_row(number, change):
    """Change the row of this number, as an editor counts."""

    def change_text(text):
        rows = text.split("\n")
        rows[number - 1] = change(rows[number - 1])
        return "\n".join(rows)

    return change_text


def test_every_neighbourhood_is_read_with_its_time_and_occupancy(tmp_path):
    found = read_citylearn(write_made_wheel(tmp_path / "made.whl", hours=72))
    assert [data.energy_wh.shape for data in found] == [(72, 3)] * len(PLACES)
    assert [data.measured for data in found] == [True, False, False, False]
    assert [data.occupied is None for data in found] == [True, False, False, False]
    assert datetime.fromtimestamp(found[0].start_s, UTC) == datetime(2016, 8, 1, 7, tzinfo=UTC)
    assert datetime.fromtimestamp(found[3].start_s, UTC) == datetime(2018, 1, 1, 5, tzinfo=UTC)
    assert {data.interval_s for data in found} == {3600}
    assert all("MIT" in data.licence and not data.missing.any() for data in found)
    assert found[1].temperature_c.shape == (72,)
    assert "citylearn" not in sys.modules


def test_readings_and_people_are_those_of_the_file(tmp_path):
    wheel = write_made_wheel(tmp_path / "made.whl", hours=72)
    with zipfile.ZipFile(wheel) as archive:
        rows = [row.split(",") for row in archive.read(ALAMEDA).decode().splitlines()[1:]]
    data = read_citylearn(wheel)[1]
    number = data.households.index("resstock-amy2018-2021-release-1-2")
    assert np.abs(data.energy_wh[:, number] - [1000 * float(row[4]) for row in rows]).max() <= 0.5
    assert data.occupied[:, number].tolist() == [float(row[6]) > 0 for row in rows]
    assert 0 < data.occupied.mean() < 1


def test_days_begin_at_local_midnight_and_are_whole(tmp_path):
    first = read_citylearn(write_made_wheel(tmp_path / "made.whl", hours=72))[0]
    days = first.whole_days()
    assert days.energy_wh.shape == (48, 3)
    assert days.start_s == first.start_s + 3600
    assert days.calendar().slot.tolist() == [*range(24)] * 2
    assert np.array_equal(days.energy_wh, first.energy_wh[1:49])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (replaced_row(5, lambda row: row.replace("1,4,", "1,5,")), ":5 is another hour: must be month 1, hour 4"),
        (replaced_row(7, lambda row: row + "x"), ":7 is not readable: must have numbers"),
        (replaced_row(9, lambda _: "1,8"), ":9 is not readable: must have numbers"),
        (replaced_row(4, lambda row: row.replace(",0.0,", ",0.0,-")), ":4 is a wrong occupant_count"),
        (replaced_row(6, lambda row: ",".join([*row.split(",")[:4], "nan", "0", "1"])), ":6 is a wrong non_shiftable"),
        (lambda text: text.replace("occupant_count", "people"), "is without occupant_count: must have the columns"),
        (lambda text: "\n".join(text.split("\n")[:40]) + "\n", "is 39 rows long: must have 72"),
        (lambda text: "\n".join([*text.split("\n")[:30], *text.split("\n")[29:]]), "73 rows long: must have 72"),
    ],
)
def test_an_error_names_the_file_and_the_row(tmp_path, change, words):
    with pytest.raises(ReadingError) as error:
        read_citylearn(changed(tmp_path, ALAMEDA, change))
    assert words in str(error.value)
    assert str(error.value).startswith(ALAMEDA)


def test_a_doubled_and_a_missing_hour_are_noticed_even_if_the_number_of_rows_is_right(tmp_path):
    def shift(text):
        rows = text.split("\n")
        return "\n".join([*rows[:10], rows[9], *rows[10:72], ""])

    with pytest.raises(ReadingError, match=":11 is another hour: must be month 1, hour 10"):
        read_citylearn(changed(tmp_path, ALAMEDA, shift))


def test_a_file_that_is_not_the_wheel_is_refused(tmp_path):
    (tmp_path / "x.whl").write_text("not a wheel", encoding="utf-8")
    with pytest.raises(ReadingError, match="pip download citylearn"):
        read_citylearn(tmp_path / "x.whl")
    with zipfile.ZipFile(tmp_path / "empty.whl", "w") as archive:
        archive.writestr("other/data.csv", MODELLED_HEADER)
    with pytest.raises(ReadingError, match="without the homes of Fontana"):
        read_citylearn(tmp_path / "empty.whl")
    without_weather = changed(tmp_path, f"{FOLDER}/tx_travis_county_neighborhood/weather.csv", lambda _: None)
    with pytest.raises(ReadingError, match=r"weather.csv is missing"):
        read_citylearn(without_weather)
