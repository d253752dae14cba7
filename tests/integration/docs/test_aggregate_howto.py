"""docs/how-to/aggregate.md runs as written, and prints what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

from murmurate.service.landing.append import append_readings
from murmurate.service.landing.layout import Landing, parse_interval_name
from murmurate.types import Readings

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "aggregate.md"


def test_the_page_runs_as_written(tmp_path):
    text = PAGE.read_text(encoding="utf-8")
    (table,) = re.findall(r"```csv\n(.*?)```", text, flags=re.DOTALL)
    (tmp_path / "meters.csv").write_text(table, encoding="utf-8")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    blocks = re.findall(r"```console\n\$ (.*?)\n(.*?)```", text, flags=re.DOTALL)
    assert [command.split()[1] for command, _ in blocks] == ["init", "step"]
    for command, printed in blocks:
        done = subprocess.run(
            ["bash", "-ec", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), command
        assert printed in {"...\n", done.stdout}, command
        if command == "murmurate init":
            readings = Readings.from_columns(meter=[0, 1, 2], energy_wh=[250, 30, 9000])
            append_readings(Landing.open(tmp_path / "landing"), parse_interval_name("20261114T1215Z"), readings)
