"""`murmurate readings import` as a user runs it: messages, exit status, JSON, and the made file."""

import json
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal
from tests.support.reading_dialects import half_hours, time_rows, to_text
from typer.testing import CliRunner

from murmurate.cli import app
from murmurate.commands.import_readings import import_readings
from murmurate.errors import MurmurateError
from murmurate.lab.sample_homes import SAMPLE_ZONE, sample_energy, write_sample
from murmurate.readings.file_import import ImportOptions

READINGS = half_hours("2024-01-01T00:00", "2024-01-01T06:00")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "readings.csv"
    path.write_bytes(to_text(time_rows(READINGS, time="iso", mark=","), ";"))
    return path


def run(*arguments):
    return CliRunner().invoke(app, ["readings", "import", *map(str, arguments)])


def test_the_summary_says_what_was_found_and_taken(file, tmp_path):
    done = run(file, "--timezone", "Europe/Zurich", "--out", tmp_path / "out")
    assert done.exit_code == 0
    assert "24 rows; UTF-8, semicolons; a row a reading; 30 minutes; kWh (from the column energy_kWh)" in done.output
    assert "Taken: 48 readings of 15 minutes from 2 meters" in done.output
    assert "Nothing was refused." in done.output
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["meters.csv", "readings.parquet", "zone.toml"]


def test_json_holds_counts_and_places_and_strict_is_a_status(file, tmp_path):
    file.write_text(file.read_text(encoding="utf-8") + "A;2024-01-02 00:00:00;none of yours\n", encoding="utf-8")
    arguments = (file, "--timezone", "Europe/Zurich", "--out", tmp_path / "out", "--json")
    found = json.loads(run(*arguments).stdout)
    assert (found["readings"], found["meters"], found["refused"]) == (48, 2, 1)
    assert found["refusals"][0]["first"] == ["readings.csv:26, energy_kWh"]
    assert run(*arguments, "--strict").exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--timezone", "Zurich"], "time_zone is 'Zurich': must be a name such as Europe/Zurich"),
        ([], "the offset of times from UTC is missing: name the clock"),
        (["--unit", "MWh"], "--unit is MWh: must be kWh or Wh"),
        (["--decimal", ";"], "--decimal is ;: must be point or comma"),
        (["--dates", "ymd"], "--dates is ymd: must be dmy or mdy"),
        (["--stamps", "middle"], "--stamps is middle: must be start or end"),
        (["--interval-minutes", "25"], "--interval-minutes is 25: must divide an hour"),
        (["--meter-column", "house"], "without the column house: must be one of meter_id, timestamp, energy_kWh"),
        (["--zone", "a/b"], "--zone is 'a/b': must have 1 to 200 bytes"),
    ],
)
def test_a_mistake_is_named_with_its_remedy(file, tmp_path, arguments, message):
    done = run(file, "--out", tmp_path / "out", *arguments)
    assert isinstance(done.exception, MurmurateError)  # which main() prints as one line, with status 2
    assert message in str(done.exception)


@pytest.mark.slow
def test_a_mistake_ends_with_one_line_and_status_2(file):
    done = subprocess.run(
        [sys.executable, "-m", "murmurate", "readings", "import", file],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("murmurate: the offset of times from UTC is missing")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_the_made_file_imports_to_what_was_simulated(tmp_path):
    options = ImportOptions(tmp_path / "out", "town", 1000, interval_s=1800, time_zone=SAMPLE_ZONE)
    summary = import_readings([write_sample(tmp_path)], options)
    assert summary.refused.total == 3
    table = pq.read_table(tmp_path / "out" / "readings.parquet")
    assert len(table) == 200 * (42 * 48 + 2) - 3
    start_s = table["interval_start"].cast(pa.int64()).to_numpy() // 1000
    number = np.array([int(name[1:]) - 1 for name in table["meter_id"].to_pylist()])
    expected = sample_energy()  # simulated a second time: the file is the same in every run
    assert_array_equal(table["energy_wh"].to_numpy(), expected[(start_s - start_s.min()) // 1800, number])
