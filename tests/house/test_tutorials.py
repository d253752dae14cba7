"""The pages: every command of the tutorial runs as written, and no link leads nowhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial" / "plan-and-attack.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def commands(page):
    """(command, whether it must succeed), in the order of the page."""
    blocks = re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    lines = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    return [(line.removeprefix("! "), not line.startswith("! ")) for line in lines]


def test_the_tutorial_runs_as_written(tmp_path):
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    told = commands(TUTORIAL)
    assert any(line.startswith("murmurate audit") for line, _ in told)
    assert not all(succeeds for _, succeeds in told)
    for line, succeeds in told:
        done = subprocess.run(
            ["bash", "-ec", line], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert (done.returncode == 0) == succeeds, (line, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr, (line, done.stderr)
    for name in ("plan.json", "audit/report.md"):
        assert name in TUTORIAL.read_text(encoding="utf-8")
        assert (tmp_path / name).stat().st_size > 0, name


def links(page):
    """The relative links of a page, without what stands in code and without their fragments."""
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    found = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"^\[[^\]]+\]: (\S+)", text, flags=re.MULTILINE)
    return [link.partition("#")[0] for link in found if "://" not in link and not link.startswith(("#", "mailto:"))]


def test_links_are_found():
    assert "docs/tutorial/first-release.md" in links(ROOT / "README.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page):
    for link in links(page):
        assert (page.parent / link).exists(), link
