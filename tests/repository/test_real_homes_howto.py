"""docs/how-to/real-homes.md: its commands run as written on a made wheel, and its figures are those of one run."""

import json
import os
from pathlib import Path

import pytest

from tests.support.documented_commands import commands_of, run_in_shell
from tests.support.made_wheel import write_made_wheel

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "real-homes.md"
WHEEL = "data/CityLearn-2.2b0-py3-none-any.whl"
DOWNLOAD = "pip download citylearn==2.2b0 --no-deps -d data"


def commands():
    return [line for line, _ in commands_of(PAGE)]


def test_the_page_downloads_what_the_long_run_downloads():
    assert commands()[0] == DOWNLOAD
    assert DOWNLOAD.replace("-d data", "-d out/data").replace("download", "download -qq") in (
        ROOT / ".ci" / "long"
    ).read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_page_runs_as_written_on_a_made_wheel(tmp_path):
    write_made_wheel(tmp_path / WHEEL, hours=20 * 7 * 24 + 24)
    checkout = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    told = [command for command in commands() if command != DOWNLOAD]
    assert told == [f"python -m research.real_homes {WHEEL} --out homes/"]
    for command in told:
        done = run_in_shell(command, tmp_path, PYTHONPATH=checkout)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        assert "The page is homes/index.html; figures and homes.json are in the same folder." in done.stdout
    page = (tmp_path / "homes" / "index.html").read_text(encoding="utf-8")
    assert "3 measured and 9 modelled homes" in page
    zones = json.loads((tmp_path / "homes" / "homes.json").read_text(encoding="utf-8"))["zones"]
    assert [zone["name"].split(",")[0] for zone in zones] == [
        "Fontana",
        "Alameda County",
        "Travis County",
        "Chittenden County",
    ]
