"""tools/evidence.py writes a row only for a commit, and marks what missed its goal."""

import subprocess
import sys

import pytest
from tools.evidence import COLUMNS, put_row, recorded_commit

from tests.repository.repository_files import ROOT

HEAD = f"# Evidence\n\n| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}\n"


@pytest.fixture
def tree(tmp_path):
    """A repository with the program and an empty page, all committed."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "tools" / "evidence.py").write_bytes((ROOT / "tools" / "evidence.py").read_bytes())
    (tmp_path / "docs" / "evidence.md").write_text(HEAD)
    (tmp_path / ".gitignore").write_text("__pycache__/\n")
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "all"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


def record(tree, name, script, *options):
    command = [sys.executable, "-m", "tools.evidence", name, *options, "--", sys.executable, "-c", script]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)


def rows(tree):
    lines = (tree / "docs" / "evidence.md").read_text().splitlines()[4:]
    return [dict(zip(COLUMNS, line.strip("| ").split(" | "), strict=True)) for line in lines]


def test_a_row_names_the_figures_and_the_commit(tree):
    assert record(tree, "sum", "print('noise'); print('1 + 1 = 2')", "--lines", "1").returncode == 0
    (row,) = rows(tree)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=tree, capture_output=True, text=True, check=True).stdout
    assert head.startswith(row["commit"])
    assert (row["run"], row["figures"], row["goals"]) == ("sum", "1 + 1 = 2", "met")


@pytest.mark.parametrize("script", ["print('9 s (goal 5) MISSED'); print('end')", "raise SystemExit(3)"])
def test_a_missed_goal_is_marked_and_ends_with_1(tree, script):
    assert record(tree, "sum", script, "--lines", "1").returncode == 1
    assert rows(tree)[0]["goals"] == "**missed**"


def test_a_tree_with_changes_is_refused(tree):
    (tree / "tools" / "more.py").write_text("")
    done = record(tree, "sum", "print(2)")
    assert done.returncode == 1
    assert "tools/more.py" in done.stderr
    assert rows(tree) == []


def test_rows_before_do_not_make_the_tree_dirty_and_a_row_is_replaced(tree):
    for printed in (1, 2, 3):
        assert record(tree, f"run {printed % 2}", f"print({printed})").returncode == 0
    assert [(row["run"], row["figures"]) for row in rows(tree)] == [("run 1", "3"), ("run 0", "2")]


def test_a_cell_cannot_break_the_table():
    cells = dict.fromkeys(COLUMNS, "a|b")
    assert put_row(HEAD, cells).splitlines()[-1].count("|") == len(COLUMNS) + 1


def test_the_commit_of_a_run_is_found_if_it_met_its_goals(tree):
    record(tree, "good", "print(1)")
    record(tree, "bad", "raise SystemExit(1)")
    assert recorded_commit(tree, "good") == rows(tree)[0]["commit"]
    assert recorded_commit(tree, "bad") == recorded_commit(tree, "other") == ""
