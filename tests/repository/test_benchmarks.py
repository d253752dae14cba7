"""Benchmarks: one form of figures and goals, and one exit status."""

import pytest
from benchmarks.goals import Goals

from tests.repository.repository_files import FILES, read

PROGRAMS = [file for file in FILES if file.startswith("benchmarks/") and "sys.exit(main())" in read(file)]


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


@pytest.mark.parametrize("file", PROGRAMS)
def test_every_benchmark_says_how_to_start_it_and_ends_with_the_status_of_its_goals(file):
    text = read(file)
    assert f"python -m {file.removesuffix('.py').replace('/', '.')}" in text.split('"""')[1]
    assert ".exit_status()" in text
