"""The first change of CONTRIBUTING.md, applied to a copy of the tree: its tests pass, and a service has the format."""

import json
import os
import re
import shutil
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
STEP = re.compile(
    r"^In (?:a new file )?`([^`]+)`(?:, above (`+)(.+?)\2)?:\n\n```\w+\n(.*?)```$", re.DOTALL | re.MULTILINE
)
PATH = "/smartenergy/v1/price"
SERVE = f"""
from tests.support.api_servers import NOW_S, public_process, write_log
from tests.support.databases import database
from murmurate.service.storage.migrate import migrate_database

with database("log") as dsn:
    migrate_database(dsn, "log")
    write_log(dsn)
    with public_process(dsn, NOW_S) as (client, _):
        answers = [client.get("/zones/harbour" + path) for path in ("/prices", "{PATH}")]
        print("[" + ",".join(answer.raise_for_status().text for answer in answers) + "]")
"""


def apply_steps(copy: Path) -> list[str]:
    """Write each block of the page into the file that it names, above the line that it names. Returns the files."""
    steps = STEP.findall(PAGE)
    for file, _, anchor, block in steps:
        if not anchor:
            assert not (copy / file).exists()
            (copy / file).write_text(block, encoding="utf-8")
            continue
        lines = (copy / file).read_text(encoding="utf-8").splitlines(keepends=True)
        (at,) = (n for n, line in enumerate(lines) if line.lstrip().startswith(anchor))
        lines.insert(at, block + "\n\n" * block.startswith("def "))
        (copy / file).write_text("".join(lines), encoding="utf-8")
    return [file for file, *_ in steps]


@pytest.mark.slow
def test_the_first_change_works_as_written(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("src", "tests", "docs", "changelog.d"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    environment = os.environ | {"PYTHONPATH": f"{tmp_path / 'src'}:{tmp_path}", "HYPOTHESIS_PROFILE": "quick"}

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    files = apply_steps(tmp_path)
    assert len(files) == 7
    changed = [file for file in files if file.endswith(".py")]
    tests = ["tests/unit/public_api/test_client_formats.py", "tests/unit/service/test_openapi_files.py"]
    for command in (
        ("-m", "ruff", "format", "--check", *changed),
        ("-m", "ruff", "check", *changed),
        ("-m", "pytest", "-p", "no:cacheprovider", *tests),
        ("-c", SERVE),
    ):
        done = run(*command)
        assert done.returncode == 0, done.stdout + done.stderr
    prices, answer = json.loads(done.stdout)
    final = [row for row in prices["prices"] if row["status"] == "final" and row["value"] is not None]
    assert len(final) > 40
    assert (answer["tariff"], answer["interval"]) == ("harbour", 15)
    assert [(row["date"], Fraction(repr(row["value"])) / 100) for row in answer["data"]] == [
        (row["start"], Fraction(repr(row["value"]))) for row in final
    ]
