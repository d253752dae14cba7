"""The changelog has one section for each release, each with its date, and `tools/changelog.py` notices what has not."""

import subprocess
import sys
from pathlib import Path

import pytest
from tools.changelog import CHANGELOG, find_problems, read_sections, tag_problems

import murmurate

ROOT = Path(__file__).parents[2]
RIGHT = "# Changes\n\n## 0.2.0, 2026-12-01\n\n- New.\n\n### Part\n\n- More.\n\n## 0.1.0, 2026-11-30\n\n- First.\n"


def test_the_changelog_of_this_repository_is_right():
    assert find_problems(CHANGELOG.read_text(encoding="utf-8"), murmurate.__version__) == []


def test_a_section_has_its_line_version_day_and_notes():
    assert read_sections(RIGHT) == [
        (3, "0.2.0", "2026-12-01", "- New.\n\n### Part\n\n- More.\n"),
        (11, "0.1.0", "2026-11-30", "- First.\n"),
    ]
    assert find_problems(RIGHT, "0.2.0") == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (", 2026-11-30", "", "line 11: '' is no date, such as 2026-11-30, nor 'not released yet'"),
        ("2026-11-30", "30 November", "line 11: '30 November' is no date, such as 2026-11-30, nor 'not released yet'"),
        ("2026-11-30", "2026-11-31", "line 11: '2026-11-31' is no date, such as 2026-11-30, nor 'not released yet'"),
        ("2026-11-30", "not released yet", "line 11: only the first section may be not released yet"),
        ("2026-11-30", "2026-12-02", "line 11: 2026-12-02 must not be after 2026-12-01"),
        ("## 0.1.0", "## 0.10.0", "line 11: 0.10.0 must be older than 0.2.0"),
        ("## 0.1.0", "## Release", "line 11: 'Release' is no version, such as 0.2.0"),
        ("- First.", "", "line 11: has no notes"),
        ("## 0.2.0", "## 0.3.0", "line 3: is 0.3.0, and the package is 0.2.0"),
    ],
)
def test_a_wrong_section_is_named_by_its_line(old, new, problem):
    assert find_problems(RIGHT.replace(old, new), "0.2.0") == [problem]


def test_a_changelog_without_a_section_is_wrong():
    assert find_problems("# Changes\n", "0.1.0") == ["no section: the first one must begin with ## VERSION, DATE"]


def test_only_the_tag_of_a_dated_version_is_released():
    assert tag_problems(RIGHT, "0.2.0", "v0.2.0") == []
    assert tag_problems(RIGHT, "0.2.0", "v0.2.1") == ["the tag is v0.2.1, and the package is 0.2.0"]
    unreleased = RIGHT.replace("2026-12-01", "not released yet")
    assert find_problems(unreleased, "0.2.0") == []
    assert tag_problems(unreleased, "0.2.0", "v0.2.0") == ["0.2.0 has no date yet"]


def test_the_command_refuses_a_tag_of_another_version():
    command = [sys.executable, "-m", "tools.changelog"]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0
    done = subprocess.run([*command, "--tag", "v999"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"CHANGELOG.md: the tag is v999, and the package is {murmurate.__version__}\n" in done.stderr
