"""Commands of pages run as written and print what is shown: the tutorial, evaluating, examples, real homes."""

import json
import os

import pytest

from tests.repository.repository_files import ROOT, read
from tests.support.documented_commands import commands_of, prints, run_in_shell, shown_below
from tests.support.made_wheel import write_made_wheel

TUTORIAL = ROOT / "docs" / "tutorial" / "plan-and-attack.md"
EVALUATE = ROOT / "docs" / "how-to" / "evaluate.md"
CHOOSE = ROOT / "docs" / "how-to" / "choose-a-promise.md"
COMPARISON = ROOT / "docs" / "explanation" / "comparison.md"
REAL_HOMES = ROOT / "docs" / "how-to" / "real-homes.md"
WHEEL = "data/CityLearn-2.2b0-py3-none-any.whl"


def test_output_that_was_never_printed_is_noticed():
    assert prints("a\n b c\nd", ["a", "b ...", "..."])
    assert not prints("a\nb", ["b", "a"])
    assert not prints("a 1", ["a"])


@pytest.mark.slow
def test_the_tutorial_runs_as_written_and_prints_what_it_shows(tmp_path):
    told = commands_of(TUTORIAL)
    assert any(line.startswith("murmurate audit") for line, _ in told)
    assert not all(succeeds for _, succeeds in told)
    for (line, succeeds), lines in zip(told, shown_below(TUTORIAL), strict=True):
        done = run_in_shell(line, tmp_path)
        assert (done.returncode == 0) == succeeds, (line, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr, (line, done.stderr)
        if not line.startswith("murmurate audit"):  # whose numbers are drawn; another machine may round one otherwise
            assert prints(done.stdout + done.stderr, lines), (line, lines, done.stdout, done.stderr)
    for name in ("plan.json", "audit/index.html"):
        assert name in TUTORIAL.read_text(encoding="utf-8")
        assert (tmp_path / name).stat().st_size > 0, name


@pytest.mark.slow
@pytest.mark.long
def test_the_page_on_evaluating_runs_as_written(tmp_path):
    told = commands_of(EVALUATE)
    assert all(line.startswith("murmurate evaluate --quick") for line, _ in told)
    assert len(told) == 2
    for (line, _), lines in zip(told, shown_below(EVALUATE), strict=True):
        done = run_in_shell(line, tmp_path)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        assert prints(done.stdout, lines), (line, lines, done.stdout)
    for name in ("index.html", "results.json", "homes.png", "promise.svg"):
        assert (tmp_path / "evaluate" / name).stat().st_size > 0, name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "script"),
    [(CHOOSE, "choose_promise.py"), (COMPARISON, "compare_protection.py")],
    ids=["choose", "compare"],
)
def test_the_script_of_a_page_prints_what_the_page_shows(page, script, tmp_path):
    ((line, _),) = commands_of(page)
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    assert line.startswith(f"python docs/examples/{script} --out ")
    done = run_in_shell(line, tmp_path)
    assert done.returncode == 0, done.stderr
    assert prints(done.stdout, shown_below(page)[0]), done.stdout
    assert (tmp_path / line.split()[-1]).stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.long
def test_the_page_on_real_homes_runs_as_written_on_a_made_wheel(tmp_path):
    (download, _), (command, _) = commands_of(REAL_HOMES)
    assert download == "pip download citylearn==2.2b0 --no-deps -d data"
    assert download.replace("-d data", "-d out/data").replace("download", "download -qq") in read(".ci/long")
    assert command == f"python -m research.real_homes {WHEEL} --out homes/"
    write_made_wheel(tmp_path / WHEEL, hours=20 * 7 * 24 + 24)
    checkout = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    done = run_in_shell(command, tmp_path, PYTHONPATH=checkout)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "The page is homes/index.html; figures and homes.json are in the same folder." in done.stdout
    assert "3 measured and 9 modelled homes" in (tmp_path / "homes" / "index.html").read_text(encoding="utf-8")
    zones = json.loads((tmp_path / "homes" / "homes.json").read_text(encoding="utf-8"))["zones"]
    names = [zone["name"].split(",")[0] for zone in zones]
    assert names == ["Fontana", "Alameda County", "Travis County", "Chittenden County"]


def test_the_readme_is_one_screen():
    """Its commands are played by `python -m tests.first_hour`."""
    assert len(read("README.md").splitlines()) <= 60
