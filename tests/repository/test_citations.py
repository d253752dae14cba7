"""Every test, file, module and commit that a page cites exists. CHANGELOG.md is left out: it names what is gone."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "docs" / "evidence.md"
FOLDERS = ("src", "tests", "benchmarks", "tools", "research", "docs", ".ci", ".github")
FILES = [
    path.relative_to(ROOT).as_posix()
    for top in (*ROOT.glob("*"), ROOT / ".ci", ROOT / ".github")
    for path in (top.rglob("*") if top.name in FOLDERS else [top])
    if path.is_file() and "__pycache__" not in path.parts
]
PAGES = sorted(ROOT / file for file in FILES if file.endswith(".md") and file != "CHANGELOG.md")
TEST_SOURCES = {file: (ROOT / file).read_text(encoding="utf-8") for file in FILES if re.search(r"^tests/.*\.py$", file)}
TEST_NAMES = {name for source in TEST_SOURCES.values() for name in re.findall(r"def (test_\w+)\(", source)}
NO_CITATIONS = {
    "test_only",  # a property of a release
}

TEST = re.compile(r"(?<![\w/.*])(test_\w+)(?![\w/*]|\.py)")
TEST_IN_FILE = re.compile(r"([\w/]+\.py)::(test_\w+)")
PATH = re.compile(r"(?<![\w/.-])(?:\.\./)*((?:src|tests|benchmarks|tools|research|docs|\.ci|\.github)/[\w./-]*)")
FILE = re.compile(r"(?<![\w/.-])(?:\.\./)*((?:[\w-]+/)*[\w-]+\.(?:py|sql|md))(?![\w/]|\.\w)")
RUN = re.compile(r"python3?\s+-m\s+((?:tests|benchmarks|tools|research|murmurate)(?:\.\w+)*)(?!\w|\.`)")
COLUMN = re.compile(r"`python -m (\w+)\.` \|\n((?:\|.*\n?)+)")  # a table whose last cells name modules of a package
MODULE = re.compile(r"(?<![\w./])(?:tests|benchmarks|tools|research)(?:\.\w+)+(?![\w/])")
COMMIT = re.compile(r"(?<![\w-])[0-9a-f]{7,40}(?![\w-])")


def find_missing(text):
    """Return what the text cites and the repository does not have: tests, paths, files and modules."""
    without_addresses = re.sub(r"https?://[^\s)`>]+", "", text)
    tests = [name for name in TEST.findall(without_addresses) if name not in TEST_NAMES]
    for file, name in TEST_IN_FILE.findall(without_addresses):
        sources = [TEST_SOURCES[known] for known in TEST_SOURCES if f"/{known}".endswith(f"/{file}")]
        tests += [] if any(f"def {name}(" in source for source in sources) else [f"{file}::{name}"]
    paths = [path for path in PATH.findall(without_addresses) if not (ROOT / path.rstrip(".-")).exists()]
    files = [
        file for file in FILE.findall(without_addresses) if not any(f"/{known}".endswith(f"/{file}") for known in FILES)
    ]
    modules = [name for name in MODULE.findall(without_addresses) if not has_module(name, "__init__.py")]
    runs = RUN.findall(without_addresses)
    for package, rows in COLUMN.findall(without_addresses):
        runs += [f"{package}.{name}" for name in re.findall(r"`(\w+)` \|$", rows, flags=re.MULTILINE)]
    modules += [name for name in runs if not has_module(name, "__main__.py")]
    return [name for name in dict.fromkeys([*tests, *paths, *files, *modules]) if name not in NO_CITATIONS]


def has_module(name, file_of_package):
    place = ROOT / ("src" if name.startswith("murmurate") else "") / name.replace(".", "/")
    return place.with_suffix(".py").is_file() or (place / file_of_package).is_file()


def find_untraced_rows(text):
    """Return what is wrong with the commits of the evidence: rows without one, and commits that do not exist."""
    rows = [
        [cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"
    ]
    column = next((row.index("commit") - len(row) for row in rows if "commit" in row), -1)
    wrong = []
    for row in rows:
        if "commit" in row or set(row[0]) <= {"-", ":"}:
            continue
        commits = COMMIT.findall(row[column])
        wrong += [] if commits else [f"{row[0]}: {row[column]} is no commit"]
        wrong += [f"{row[0]}: {commit} does not exist" for commit in commits if not has_commit(commit)]
    return wrong


def has_commit(commit):
    command = ["git", "cat-file", "-e", f"{commit}^{{commit}}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0


needs_git = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the tree is not a git checkout")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_cites_exists(page):
    assert find_missing(page.read_text(encoding="utf-8")) == []


def test_all_pages_are_read():
    assert {ROOT / "README.md", EVIDENCE, ROOT / "src" / "murmurate" / "publisher" / "protocol.md"} <= set(PAGES)
    assert len(PAGES) > 40
    assert len(TEST_NAMES) > 1000


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("(`test_a_demand_is_priced_twice`)", "test_a_demand_is_priced_twice"),
        ("`test_citations.py::test_no_such`", "test_no_such"),
        ("`test_names.py::test_all_pages_are_read`", "test_names.py::test_all_pages_are_read"),
        ("`src/murmurate/public_log/record.py`", "src/murmurate/public_log/record.py"),
        ("see [tests](../../tests/imagination/).", "tests/imagination/"),
        ("canonical JSON (`public_log/record.py`)", "public_log/record.py"),
        ("`0999_end.sql` has it", "0999_end.sql"),
        ("[why](0012-no-decision.md)", "0012-no-decision.md"),
        ("run `python -m\ntools.oracle --all`", "tools.oracle"),
        ("`python -m tests.repository`", "tests.repository"),  # a package that cannot be run
        ("| | `python -m tools.` |\n|---|---|\n| a | `docs_site` |\n| b | `oracle` |\n", "tools.oracle"),
        ("the simulator (`tests.simulated`)", "tests.simulated"),
    ],
)
def test_a_citation_of_what_does_not_exist_is_found(text, missing):
    assert missing in find_missing(text)


@pytest.mark.parametrize(
    "text",
    [
        "`test_all_pages_are_read`, `tests/repository/test_citations.py::test_all_pages_are_read`",
        "`src/murmurate/units.py`, `units.py`, [tests](../../tests/repository/), `tests/unit/<package>`",
        "`python -m murmurate`, `python -m venv .venv`, `python -m tests.simulation`, https://example.org/src/a.py",
    ],
)
def test_a_citation_of_what_exists_is_not_found(text):
    assert find_missing(text) == []


@needs_git
def test_each_row_of_the_evidence_has_a_commit_that_exists():
    assert find_untraced_rows(EVIDENCE.read_text(encoding="utf-8")) == []


@needs_git
def test_a_row_without_a_commit_or_with_one_that_does_not_exist_is_found():
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    table = "| run | commit | date |\n|---|---|---|\n"
    assert find_untraced_rows(table) == []
    assert find_untraced_rows(f"{table}| simulation | {head.stdout[:9]} | 2026-11-17 |\n") == []
    assert find_untraced_rows(f"{table}| simulation | first hour | 2026-11-17 |") == [
        "simulation: first hour is no commit"
    ]
    assert find_untraced_rows(f"{table}| simulation | {'0' * 40} | 2026-11-17 |") == [
        f"simulation: {'0' * 40} does not exist"
    ]
