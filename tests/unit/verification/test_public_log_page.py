"""The page on the public log: its program checks the lines of a zone, and it names every member and column."""

import json
import re
import subprocess
import sys

import pytest
from tests.support.predicted_zones import PredictedShard, plan_text
from tests.support.sample_logs import DOCS, NEW, PLAN, log

from murmurate.public_log.tile import ROW_COLUMNS, ROW_LAYOUT, row_dtype

PAGE = (DOCS / "reference" / "public-log.md").read_text(encoding="utf-8")
(PROGRAM,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture
def run(tmp_path):
    def check(lines):
        (tmp_path / "check.py").write_text(PROGRAM, encoding="utf-8")
        (tmp_path / "log.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        command = [sys.executable, "-I", "check.py", "log.jsonl"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.stdout if done.returncode == 0 else None

    return check


@pytest.mark.parametrize("zone", ["harbour", "ünder the hill"])
def test_the_program_on_the_page_checks_the_lines_of_a_zone_with_nothing_of_ours(run, zone):
    assert "import murmurate" not in PROGRAM
    assert len(PROGRAM.splitlines()) <= 50
    assert run([PLAN, *log().lines(zone)]) == (
        f"{zone}: 9 records hold; the next tile must be signed by {NEW.public_key}\n"
    )


def test_the_program_on_the_page_checks_predicted_prices_as_rows_like_others(run):
    shard = PredictedShard({"hill": plan_text(households=3000)})
    for _ in range(3):
        shard.release({"hill": 1_000_000})
    lines = shard.lines("hill")
    assert run(lines).startswith("hill: 3 records hold")
    assert run([*lines[:-1], lines[-1].replace('"states":[', '"states":[1')]) is None


@pytest.mark.slow
def test_the_program_on_the_page_finds_what_was_changed_or_left_out(run):
    lines = log().lines("hill")
    assert run([*lines[:3], *lines[4:]]) is None
    for old, new in (('"price_ticks":', '"price_ticks":1'), ('"seq":', '"seq":1'), ('"proof":["', '"proof":["00')):
        assert run([*lines[:-1], lines[-1].replace(old, new)]) is None


def test_every_member_and_column_is_on_the_page():
    line = json.loads(log().lines("hill")[3])
    table = json.loads(log().table.text)
    for member in (*line, *line["row"], *line["tile"], *table, *table["zones"][0]):
        assert f"`{member}`" in PAGE, member


def test_the_offsets_on_the_page_are_those_of_a_row():
    rows = dict(re.findall(r"^\| (\d+) \| `(\w+)` \| ", PAGE, flags=re.MULTILINE))
    fields = row_dtype(ROW_LAYOUT).fields
    assert rows == {str(fields[name][1]): name for name, _ in ROW_COLUMNS}
    assert row_dtype().itemsize == 90
