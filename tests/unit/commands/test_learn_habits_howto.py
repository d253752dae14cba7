"""docs/how-to/learn-habits.md runs as written and prints what it shows."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.documented_commands import commands_of, prints, shown_below
from tests.support.labeled_samples import write_labeled_sample

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "learn-habits.md"


@pytest.mark.slow
def test_the_page_runs_as_written(tmp_path):
    write_labeled_sample(tmp_path / "sample.parquet", households=3000, days=7, seed=6)
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    told = commands_of(PAGE)
    assert [line.split()[0] for line, _ in told] == ["murmurate", "murmurate", "sed", "sed", "cat", "murmurate"]
    for (line, _), lines in zip(told, shown_below(PAGE), strict=True):
        done = subprocess.run(
            ["bash", "-ec", line], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (line, done.stderr)
        assert prints(done.stdout, lines), (line, lines, done.stdout)
    plan = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
    assert [habits["epsilon"] for habits in plan["learned"]] == ["2"]
