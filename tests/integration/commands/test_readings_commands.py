"""murmurate init and murmurate step aggregate, typed as a person types them."""

import os
import shlex
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from murmurate.planning.household_bounds import decode_bounds
from murmurate.service.landing.append import append_readings
from murmurate.service.landing.layout import Landing
from murmurate.types import Demand
from tests.support.sample_landings import (
    BY_HAND,
    HONEST,
    METERS,
    ROWS,
    START_S,
    STEP_S,
    Meter,
    Row,
    by_hand,
    leave,
    lines,
    meter_csv,
    reading_rows,
    readings,
)

CANARY = 271_828
AT = "--interval 2025-03-01T12:00Z"
SILENT = ("silent_bound_wh", "silent_export_bound_wh")
AGGREGATE = f"murmurate step aggregate --landing landing --meters meters.csv {AT} --out demand.parquet"


class Shell:
    """A folder and what was printed there."""

    def __init__(self, folder):
        self.folder, self.shown = folder, ""
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("MURMURATE_")}
        self.environment |= {"COLUMNS": "200"}

    def run(self, line, status=0):
        """The stdout and stderr of a command. The test fails if its exit status is not `status`."""
        name, *arguments = shlex.split(line)
        command = [str(Path(sys.executable).with_name(name)), *arguments]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False, umask=0
        )
        self.shown += done.stdout + done.stderr
        assert done.returncode == status, (line, done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout, done.stderr

    def refused(self, line):
        """The one line that a person reads."""
        stdout, stderr = self.run(line, status=2)
        assert stdout == ""
        (only,) = stderr.splitlines()
        return only

    def demand(self, name="demand.parquet"):
        """The rows of a demand file, by the begin of their interval [s of UTC]."""
        found = {}
        for row in pq.read_table(self.folder / name, partitioning=None).to_pylist():
            found.setdefault(int(row["interval_start"].timestamp()), []).append(row)
        return {
            start_s: lines(
                Demand(
                    zones=tuple(row["zone"] for row in rows),
                    bounds=tuple(decode_bounds(row["bounds"]) for row in rows),
                    **{name: np.array([row[name] for row in rows]) for name in ("energy_wh", "reported", "imputed")},
                )
            )
            for start_s, rows in found.items()
        }


@pytest.fixture
def shell(tmp_path):
    """With a landing of shards of three, a meter table, and the readings of an interval."""
    shell = Shell(tmp_path)
    landing = Landing.create(tmp_path / "landing", shard_meters=3)
    meter_csv(tmp_path / "meters.csv")
    leave(landing, START_S, ROWS)
    return shell


def test_from_an_empty_folder_to_the_demand_as_the_help_says(tmp_path):
    """The examples below the help of each command, run as they stand."""
    shell = Shell(tmp_path)
    examples = {}
    for command in ("init", "step aggregate"):
        stdout, _ = shell.run(f"murmurate {command} --help")
        (example,) = (line for line in map(str.strip, stdout.splitlines()) if line.startswith("Example"))
        examples[command] = example[example.index("murmurate") :]
    now = time.time()
    stdout, stderr = shell.run(examples["init"])
    where = [f"landing/interval={datetime.fromtimestamp(s // 900 * 900, UTC):%Y%m%dT%H%MZ}" for s in (now, time.time())]
    assert stdout.splitlines()[3:-1] in [
        [
            f"Readings go to {folder}/shard=0/*.parquet",
            "and so on: a folder for each 15 min of UTC, in it one for each 131,072 meters.",
            "Columns: meter, interval_start, energy_wh. Keep this folder where only the service can read it.",
        ]
        for folder in where
    ]
    assert stderr == ""
    meter_csv(tmp_path / "meters.csv")
    landing = Landing.open(tmp_path / "landing")
    last_s = int(time.time() - 60) // 900 * 900 - 900  # and the next, should it end while we type
    assert append_readings(landing, last_s, readings(HONEST))
    assert append_readings(landing, last_s + 900, readings(HONEST))
    stdout, stderr = shell.run(examples["step aggregate"])
    assert stdout.splitlines()[0].endswith(" UTC: 3 zones, 4 of 6 readings are there.")
    assert stderr == ""
    ((start_s, demand),) = shell.demand().items()
    assert start_s in {last_s, last_s + 900}
    assert demand == by_hand(METERS, HONEST)


def test_an_operator_reads_what_was_aggregated_and_what_was_left_out(shell):
    landing = Landing.open(shell.folder / "landing")
    (landing.shard_folder(START_S, 0) / "cut.parquet").write_bytes(b"PAR1")
    stdout, stderr = shell.run(AGGREGATE)
    expected = [
        "Interval 2025-03-01 12:00 UTC: 3 zones, 4 of 6 readings are there.",
        "Left out: 2 readings of meters that the table does not have there.",
        "Left out: 1 reading with the time of another interval.",
        "Left out: 1 file not finished.",
        "Demand, confidential, written to demand.parquet.",
    ]
    assert (stdout.splitlines(), stderr) == (expected, "")
    assert shell.demand() == {START_S: BY_HAND}
    leave(landing, START_S, [Row(0, 2999)], "late")
    expected.insert(4, "Left out: 1 file come late.")
    assert shell.run(f"murmurate step aggregate --landing landing {AT} --out again.parquet")[0].splitlines() == [
        *expected[:-1],
        "Demand, confidential, written to again.parquet.",
    ]
    assert shell.demand("again.parquet") == {START_S: BY_HAND}


def test_several_intervals_are_aggregated_at_once(shell):
    landing = Landing.open(shell.folder / "landing")
    leave(landing, START_S + 2 * STEP_S, [Row(8, 400, START_S + 2 * STEP_S)])
    stdout, _ = shell.run(AGGREGATE.replace("12:00Z", "12:00Z/2025-03-01T14:45+01:00"))
    assert stdout.splitlines()[0] == "Interval 2025-03-01 12:00 UTC and 6 more: 3 zones, 5 of 42 readings are there."
    found = shell.demand()
    assert list(found) == [START_S + n * STEP_S for n in range(7)]
    assert found[START_S] == BY_HAND
    assert found[START_S + STEP_S] == by_hand(METERS, [])
    assert found[START_S + 2 * STEP_S] == by_hand(METERS, [Row(8, 400)])


def test_a_span_across_two_meter_tables_is_aggregated_again_without_them(shell):
    landing = Landing.open(shell.folder / "landing")
    leave(landing, START_S + STEP_S, [row._replace(start_s=START_S + STEP_S) for row in HONEST])
    shell.run(AGGREGATE)
    halved = [meter._replace(bound_wh=meter.bound_wh // 2) for meter in METERS]
    meter_csv(shell.folder / "meters.csv", halved)
    shell.run(AGGREGATE.replace("12:00Z", "12:15Z"))
    span = "--interval 2025-03-01T12:00Z/2025-03-01T12:30Z --out both.parquet"
    assert "is needed to close" in shell.refused(
        f"murmurate step aggregate --landing landing {span}".replace("12:30", "12:45")
    )
    stdout, _ = shell.run(f"murmurate step aggregate --landing landing {span}")
    assert stdout.splitlines()[0] == "Interval 2025-03-01 12:00 UTC and 1 more: 3 zones, 8 of 12 readings are there."
    assert shell.demand("both.parquet") == {START_S: BY_HAND, START_S + STEP_S: by_hand(halved, HONEST)}
    assert "must be" in shell.refused(f"murmurate step aggregate --landing landing --meters meters.csv {span}")


def test_without_an_interval_it_is_the_last_that_is_over(tmp_path):
    shell = Shell(tmp_path)
    shell.run("murmurate init --minutes 1")
    meter_csv(tmp_path / "meters.csv")
    for grace in (0, 200):
        before = time.time()
        shell.run(f"murmurate step aggregate --landing landing --meters meters.csv --out {grace} --grace {grace}")
        over = [int(now - grace) // 60 * 60 - 60 for now in (before, time.time())]
        (start_s,) = shell.demand(str(grace))
        assert start_s in over


def test_a_demand_is_a_table_that_its_owner_alone_reads_even_in_the_place_of_a_file_that_was_not(shell):
    out = shell.folder / "demand.parquet"
    out.touch(0o644)
    out.chmod(0o644)
    shell.run(AGGREGATE)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    kept = {path.name for path in shell.folder.iterdir()}
    assert kept == {"landing", "meters.csv", "demand.parquet"}, "nothing of it may lie about under another name"
    made = [shell.folder / "landing", *(shell.folder / "landing").glob("_*/**/")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o700}
    rows = pq.read_table(out)
    names = ["interval_start", "zone", "energy_wh", "reported", "imputed", *SILENT, "bounds"]
    assert rows.schema.names == names
    assert str(rows.schema.field("interval_start").type) == "timestamp[ms, tz=UTC]"
    assert rows["zone"].to_pylist() == sorted(BY_HAND)


REFUSED = {
    f"step aggregate --landing landing --meters meters.csv {AT}": (
        "--out is missing: name where the demand goes: --out demand.parquet, or --state"
    ),
    f"step aggregate --landing . --meters meters.csv {AT} --out x": (
        "is not a folder for readings: it has no _layout.json; murmurate init creates one"
    ),
    f"step aggregate --landing landing {AT} --out x": (
        "--meters is missing for 20250301T1200Z: is needed to close an interval, for example --meters meters.csv"
    ),
    f"step aggregate --landing landing --meters nowhere.csv {AT} --out x": "nowhere.csv is not there",
    f"{AGGREGATE[10:]} --engine magic": "--engine is magic: must be process or spark",
    f"{AGGREGATE[10:]} --grace 10000000000": "--interval is 2025-03-01T12:00Z: is still open; it can be closed in ",
    "step aggregate --landing landing --meters meters.csv --out x --interval 2025-03-01T12:00": (
        "--interval is 2025-03-01T12:00: must name its time zone (2026-05-01T00:00Z) and begin an interval of 900 s"
    ),
    "step aggregate --landing landing --meters meters.csv --out x --interval noon": (
        "--interval is noon: must be a time such as 2026-05-01T00:00Z"
    ),
    "step aggregate --landing landing --meters meters.csv --out x --interval 2025-03-01T12:00Z/2025-03-01T12:00Z": (
        "--interval is 2025-03-01T12:00Z/2025-03-01T12:00Z: must end after it begins"
    ),
    "step aggregate --landing landing --meters meters.csv --out x --interval 2025-03-01T12:00Z/TOMORROW": (
        "is still open; it can be closed in "
    ),
    "init --minutes 5 --shard-meters 3": "is a landing for 900 s and 3 meters a shard: must have the requested layout",
    "init other --minutes 7": "--minutes is 7: must divide a day, such as 5, 15, 30 or 60",
}


def test_what_cannot_be_done_is_status_2_and_one_line_and_nothing_is_decided(shell):
    tomorrow = f"{datetime.now(UTC) + timedelta(days=1):%F}T00:00Z"
    typed = [f"murmurate {line}".replace("TOMORROW", tomorrow) for line in REFUSED]
    with ThreadPoolExecutor(2) as two:
        for error, reason in zip(two.map(shell.refused, typed), REFUSED.values(), strict=True):
            assert error.startswith("murmurate: ")
            assert reason in error
    assert not (shell.folder / "x").exists()
    assert not list((shell.folder / "landing").glob("_closed/*.json"))


def test_a_table_or_a_file_that_has_changed_since_is_refused_and_the_demand_stays(shell):
    shell.run(AGGREGATE)
    before = shell.demand()
    meter_csv(shell.folder / "meters.csv", [METERS[0]._replace(bound_wh=1500), *METERS[1:]])
    error = shell.refused(AGGREGATE)
    assert error.startswith("murmurate: version of the meter table is ")
    assert error.endswith(", under which interval 20250301T1200Z was closed")
    again = f"murmurate step aggregate --landing landing {AT} --out demand.parquet"
    shell.run(again)
    assert shell.demand() == before
    path = Landing.open(shell.folder / "landing").shard_folder(START_S, 0) / "a.parquet"
    pq.write_table(reading_rows([Row(0, 1)]), path)
    name = path.relative_to(shell.folder / "landing")
    how = "must stay as it was when its interval was closed"
    assert shell.refused(again) == f"murmurate: {name} is changed: {how}"
    path.unlink()
    assert shell.refused(again) == f"murmurate: {name} is gone: {how}"
    assert shell.demand() == before


def test_what_is_older_than_so_many_days_is_purged(shell):
    landing = Landing.open(shell.folder / "landing")
    now_s = int(time.time()) // 900 * 900
    for days in (1, 6, 8):
        leave(landing, now_s - days * 86_400, ROWS)
    stdout, _ = shell.run(f"{AGGREGATE} --keep-days 7")
    assert stdout.splitlines()[-1] == "Readings of 2 intervals purged."
    assert landing.list_intervals()[0] == [now_s - days * 86_400 for days in (6, 1)]
    assert "is purged: its readings were deleted; no demand can be computed from it" in shell.refused(AGGREGATE)


def test_nothing_that_is_printed_holds_a_reading_or_a_demand(shell):
    """One meter in one zone: what it has drawn is the demand. The last file is refused."""
    landing = Landing.create(shell.folder / "canary")
    meter_csv(shell.folder / "one.csv", [Meter(0, "hill", 10**6)])
    leave(landing, START_S, [Row(0, CANARY), Row(5, CANARY), Row(0, CANARY, START_S + 1)])
    line = f"murmurate step aggregate --landing canary --meters one.csv {AT} --out canary.parquet"
    shell.run(line)
    assert shell.demand("canary.parquet")[START_S]["hill"].energy_wh == CANARY
    path = landing.shard_folder(START_S, 0) / "a.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"?")
    shell.refused(line)
    pq.write_table(reading_rows([Row(0, CANARY, START_S - STEP_S)]), path)
    leave(landing, START_S - STEP_S, [Row(0, CANARY, START_S - STEP_S)], unit="ns")
    shell.refused(line.replace("12:00Z", "11:45Z"))
    for form in (str(CANARY), f"{CANARY:,}", f"{CANARY:x}", f"{CANARY / 1000}"):
        assert form not in shell.shown
