"""The pages: every command of the tutorial runs as written and prints what is shown, and no link leads nowhere."""

import re
from pathlib import Path

import pytest

from tests.support.documented_commands import commands_of, prints, run_in_shell, shown_below

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial" / "plan-and-attack.md"
EVALUATE = ROOT / "docs" / "how-to" / "evaluate.md"
CHOOSE = ROOT / "docs" / "how-to" / "choose-a-promise.md"
COMPARISON = ROOT / "docs" / "explanation" / "comparison.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


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
