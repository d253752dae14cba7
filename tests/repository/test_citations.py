"""What a page cites exists: tests, files, modules, links, sections, commits. CHANGELOG.md names what is gone."""

import re
import subprocess

import pytest

from murmurate.cli import COMMANDS
from tests.repository.repository_files import FILES, PAGES, ROOT, read

EVIDENCE = "docs/evidence.md"
TEST_SOURCES = {file: read(file) for file in FILES if re.search(r"^tests/.*\.py$", file)}
TEST_NAMES = {name for source in TEST_SOURCES.values() for name in re.findall(r"def (test_\w+)\(", source)}
CITING = [page for page in PAGES if page != "CHANGELOG.md"]
NO_CITATIONS = {
    "test_only",  # a property of a release
}

TEST = re.compile(r"(?<![\w/.*])(test_\w+)(?![\w/*]|\.py)")
TEST_IN_FILE = re.compile(r"([\w/]+\.py)::(test_\w+)")
PATH = re.compile(r"(?<![\w/.-])(?:\.\./)*((?:src|tests|benchmarks|tools|research|deploy|docs|\.ci|\.github)/[\w./-]*)")
FILE = re.compile(r"(?<![\w/.-])(?:\.\./)*((?:[\w-]+/)*[\w-]+\.(?:py|sql|md))(?![\w/]|\.\w)")
RUN = re.compile(r"python3?\s+-m\s+((?:tests|benchmarks|tools|research|murmurate)(?:\.\w+)*)(?!\w|\.`)")
COLUMN = re.compile(r"`python -m (\w+)\.` \|\n((?:\|.*\n?)+)")  # a table whose last cells name modules of a package
MODULE = re.compile(r"(?<![\w./])(?:tests|benchmarks|tools|research)(?:\.\w+)+(?![\w/])")
COMMIT = re.compile(r"(?<![\w-])[0-9a-f]{7,40}(?![\w-])")
COMMAND = re.compile(r"(?:`|\$ |! |&& )murmurate (?!reading 1`)([a-z]+(?: [a-z]+)?)")  # that begins a signature
SECTION = re.compile(r"theory\.md[`,]*\s+\(?sections? (\d+(?:\.\d+)?)(?: and (\d+(?:\.\d+)?))?")
ABSENT = re.compile(r"\b(?:THEOR" + r"Y|DESIG" + r"N|STYL" + r"E|UTILIT" + r"Y|KEEPER" + r"S)\b(?!_)")  # not in here


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


@pytest.mark.parametrize("page", CITING)
def test_what_a_page_cites_exists(page):
    assert find_missing(read(page)) == []


def test_all_pages_are_read():
    assert {"README.md", EVIDENCE, "src/murmurate/publisher/protocol.md"} <= set(PAGES)
    assert len(PAGES) > 40
    assert len(TEST_NAMES) > 1000
    assert len([link for page in PAGES for link in links(page) if "#" in link]) > 10
    assert len(theory_citations()) > 15


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


def find_unknown_commands(text):
    names = set(COMMANDS)
    known = names | {name.split()[0] for name in names if " " in name}  # a group, as in `murmurate zone -h`
    return [cited for cited in COMMAND.findall(text) if cited not in known and cited.split()[0] not in names]


def test_each_command_that_a_page_cites_exists():
    assert {page: found for page in PAGES if (found := find_unknown_commands(read(page)))} == {}
    assert find_unknown_commands(
        "`murmurate verify`, `murmurate log`, `murmurate log veriy a`, `murmurate plan a`"
    ) == [
        "verify",
        "log veriy",
    ]


def links(page):
    """The relative links of a page, without what stands in code."""
    text = re.sub(r"```.*?```|`[^`]*`", "", read(page), flags=re.DOTALL)
    found = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"^\[[^\]]+\]: (\S+)", text, flags=re.MULTILINE)
    return [link for link in found if "://" not in link and not link.startswith("mailto:")]


def anchors(page):
    """The anchors that GitHub gives to the headings of a page."""
    text = re.sub(r"```.*?```", "", read(page), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def find_broken_links(page):
    broken = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = ((ROOT / page).parent / path).resolve() if path else ROOT / page
        exists = target.exists() and (not anchor or anchor in anchors(target.relative_to(ROOT).as_posix()))
        broken += [] if exists else [link]
    return broken


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file_and_to_a_heading_of_it(page):
    assert find_broken_links(page) == []


def test_a_link_that_leads_nowhere_is_found(monkeypatch):
    assert "docs/tutorial/first-release.md" in links("README.md")
    assert "5-exactly-once-publishing" in anchors("docs/explanation/architecture.md")
    texts = {"README.md": "# A b\n[x](#a-b) [y](#c) [z](docs/none.md) `[w](v)`\n[t]: docs/\n"}
    monkeypatch.setitem(globals(), "read", texts.get)
    assert find_broken_links("README.md") == ["#c", "docs/none.md"]


@pytest.mark.parametrize(
    ("page", "row", "count"),
    [("explanation/mended-promises.md", r"\| \*\*", 30), ("explanation/deviations.md", r"\| [A-Z]\d+ ", 30)],
)
def test_each_mended_promise_and_each_deviation_names_its_tests(page, row, count):
    rows = [line for line in read(f"docs/{page}").splitlines() if re.match(row, line)]
    assert len(rows) >= count
    assert [line for line in rows if not re.search(r"`test_\w+`", line) and "(text only)" not in line] == []


def texts():
    """The sources and pages that may cite a document, and their texts."""
    folders = ("src/", "tests/", "benchmarks/", "research/", "tools/", "docs/", "pyproject.toml", "CONTRI", "README")
    return {
        file: read(file) for file in FILES if file.startswith(folders) and file.endswith((".py", ".md", "project.toml"))
    }


def theory_citations():
    return {
        (file, number)
        for file, text in texts().items()
        for match in SECTION.finditer(text)
        for number in match.groups()
        if number
    }


def test_each_citation_of_the_theory_names_a_section_that_exists():
    sections = set(re.findall(r"^##+ (\d+(?:\.\d+)?)\.? ", read("docs/explanation/theory.md"), flags=re.MULTILINE))
    assert {"1.5", "2.2", "3.1", "4.3", "7"} <= sections
    assert sorted(cited for cited in theory_citations() if cited[1] not in sections) == []


def test_no_document_is_cited_that_is_not_in_the_repository():
    assert len(texts()) > 500
    assert {file: found for file, text in texts().items() if (found := ABSENT.findall(text))} == {}


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


@needs_git
def test_each_row_of_the_evidence_has_a_commit_that_exists():
    assert find_untraced_rows(read(EVIDENCE)) == []


@needs_git
def test_a_row_without_a_commit_or_with_one_that_does_not_exist_is_found():
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    table = "| run | commit | date |\n|---|---|---|\n"
    assert find_untraced_rows(table) == []
    assert find_untraced_rows(f"{table}| simulation | {head.stdout[:9]} | 2026-11-17 |\n") == []
    for commit, problem in (("first hour", "first hour is no commit"), ("0" * 40, f"{'0' * 40} does not exist")):
        assert find_untraced_rows(f"{table}| simulation | {commit} | 2026-11-17 |") == [f"simulation: {problem}"]
