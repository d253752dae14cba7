"""The fragments of the changelog make a section, and the changelog has a place for it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MARKER = "<!-- towncrier release notes start -->"


def draft(folder):
    """The section that towncrier makes of the fragments in a folder, or its error."""
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "9", "--date", "2026-12-01"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_every_fragment_has_a_text_and_is_in_the_next_section():
    done = draft(ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("## 9, 2026-12-01\n")
    for path in (ROOT / "changelog.d").glob("+*"):
        text = path.read_text(encoding="utf-8").strip()
        assert text, path.name
        assert text.splitlines()[0] in done.stdout


def test_a_fragment_of_an_unknown_category_is_an_error(tmp_path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "changelog.d").mkdir()
    (tmp_path / "changelog.d" / "+prices.improved.md").write_text("Better.\n", encoding="utf-8")
    done = draft(tmp_path)
    assert done.returncode == 1
    assert "+prices.improved.md" in done.stderr


@pytest.mark.parametrize("words", [MARKER, "\n# Changes\n"])
def test_the_changelog_has_one_place_for_new_sections(words):
    assert ("\n" + (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")).count(words) == 1
