"""Benchmarks: one form of figures and goals, one exit status, and each that a page cites exists."""

import re
from pathlib import Path

import pytest
from benchmarks.goals import Goals

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted(
    path for path in (ROOT / "benchmarks").glob("*.py") if "sys.exit(main())" in path.read_text(encoding="utf-8")
)
PAGES = [
    ROOT / "README.md",
    *(
        page
        for folder in ("tutorial", "how-to", "explanation", "reference")
        for page in (ROOT / "docs" / folder).glob("*.md")
    ),
]


def test_a_missed_goal_is_marked_and_is_the_exit_status(capsys):
    goals = Goals()
    goals.print_figure("time", 19.94, "s", at_most=20)
    goals.print_figure("records", 123_456.7)
    goals.check("digests", "equal", held=True)
    assert goals.exit_status() == 0
    goals.print_figure("share", 0.899, at_least=0.9)
    goals.check("digests", "differ", held=False)
    goals.print_figure("ratio", float("nan"), at_most=1)
    assert goals.exit_status() == 1
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "time: 19.9 s at most 20",
        "records: 123,457",
        "digests: equal",
        "share: 0.899 at least 0.9 MISSED",
        "digests: differ MISSED",
        "ratio: nan at most 1 MISSED",
    ]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_every_benchmark_says_how_to_start_it_and_ends_with_the_status_of_its_goals(path):
    text = path.read_text(encoding="utf-8")
    assert f"python -m benchmarks.{path.stem}" in text.split('"""')[1]
    assert ".exit_status()" in text


def test_every_benchmark_that_a_page_cites_exists():
    named = {name for page in PAGES for name in re.findall(r"benchmarks[./](\w+)", page.read_text(encoding="utf-8"))}
    scale = (ROOT / "docs" / "explanation" / "scale.md").read_text(encoding="utf-8")
    named |= set(re.findall(r"\| `(\w+)` \|$", scale, flags=re.MULTILINE))
    assert {"aggregation", "publisher_throughput", "anonymous_load"} <= named
    assert named <= {path.stem for path in PROGRAMS}
