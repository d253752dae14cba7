"""Tables of the docs: decisions, glossary, notation and figures are complete, and name what exists."""

import importlib
import re
from datetime import date
from fractions import Fraction

import pytest
from docs.examples import fleet_sizing

from murmurate.planning.promise_text import format_odds
from murmurate.privacy.promise import MomentPromise, WindowPromise
from tests.repository.repository_files import PACKAGE, PAGES, read, table_rows

DECISIONS = {page.rpartition("/")[2]: read(page) for page in PAGES if re.match(r"docs/decisions/\d", page)}
HEAD = re.compile(
    r"# (?P<number>\d+)\. (?P<title>.+)\n\n- Status: (?P<status>.+)\n- Date: (?P<date>\S+)\n"
    r"(?:- Supersedes: (?P<old>.+)\n)?\n"
)
STATUS = re.compile(r"accepted|proposed|withdrawn|(accepted, in part )?superseded by \[\d{4}\]\(\S+\)")
LINK = re.compile(r"\[(\d{4})\]\((\1-\S+\.md)\)")
GLOSSARY = [row for row in table_rows("docs/glossary.md") if row[0] != "word"]
STAGES = "Readings, Aggregation, Plan and promise, Release and noise, Publisher, Public log, Verification, Service"
NOTATION = table_rows("docs/notation.md")[1:]
GUESSING = "50:50"


def find_problems(decisions):
    """Return what is wrong with the heads of decisions, given their texts by file name."""
    problems, links = [], {"status": set(), "old": set()}
    for name, text in decisions.items():
        head = HEAD.match(text)
        if head is None or int(head["number"]) != int(name[:4]):
            problems.append(f"{name}: must begin with its number and title, its status and its date")
            continue
        if not STATUS.fullmatch(head["status"]):
            problems.append(f"{name}: {head['status']} is no status")
        try:
            date.fromisoformat(head["date"])
        except ValueError:
            problems.append(f"{name}: {head['date']} is no date")
        for member, found in links.items():
            found |= {(name, other) for _, other in LINK.findall(head[member] or "")}
    superseding = {(old, new) for new, old in links["old"]}
    return problems + [f"{old} and {new} must name each other" for old, new in sorted(links["status"] ^ superseding)]


def test_each_decision_has_a_status_and_a_date_and_names_what_it_supersedes():
    assert len(DECISIONS) >= 16
    assert find_problems(DECISIONS) == []


def test_the_list_has_each_decision_with_its_status_and_each_number():
    rows = [row for row in table_rows("docs/decisions/README.md") if row[0].isdigit()]
    assert [int(number) for number, *_ in rows] == list(range(1, len(rows) + 1))
    expected = [
        [name[:4], f"[{head['title']}]({name})", LINK.sub(r"\1", head["status"])]
        for name, text in DECISIONS.items()
        if (head := HEAD.match(text))
    ]
    assert [row for row in rows if "](" in row[1]] == expected


RIGHT = {
    "0001-a.md": "# 1. A\n\n- Status: superseded by [0002](0002-b.md)\n- Date: 2026-11-15\n\nText.\n",
    "0002-b.md": "# 2. B\n\n- Status: accepted\n- Date: 2026-11-16\n- Supersedes: [0001](0001-a.md)\n\nText.\n",
}


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("- Status: accepted\n", "", "0002-b.md: must begin with its number and title, its status and its date"),
        ("# 2.", "# 3.", "0002-b.md: must begin with its number and title, its status and its date"),
        ("accepted", "true", "0002-b.md: true is no status"),
        ("2026-11-16", "2026-11-31", "0002-b.md: 2026-11-31 is no date"),
        ("- Supersedes: [0001](0001-a.md)\n", "", "0001-a.md and 0002-b.md must name each other"),
        ("superseded by [0002](0002-b.md)", "accepted", "0001-a.md and 0002-b.md must name each other"),
    ],
)
def test_a_wrong_head_is_found(old, new, problem):
    assert find_problems(RIGHT) == []
    assert problem in find_problems({name: text.replace(old, new) for name, text in RIGHT.items()})


def test_the_glossary_follows_the_pipeline_and_defines_a_word_once():
    assert ", ".join(re.findall(r"^## (.+)$", read("docs/glossary.md"), flags=re.MULTILINE)) == STAGES
    words = [word.strip() for row in GLOSSARY for word in row[0].split(",")]
    assert len(words) > 60
    assert len(words) == len(set(words))


@pytest.mark.parametrize("row", GLOSSARY, ids=lambda row: row[0])
def test_a_word_has_one_sentence_and_a_file_that_exists(row):
    _, meaning, _, _, file = row
    assert meaning[0].isupper()
    assert meaning.endswith(".")
    assert not re.search(r"[.!?] [A-Z]", meaning), meaning
    assert (PACKAGE / file.strip("`")).exists(), file


def resolve(dotted):
    """Import the longest module prefix, then walk attributes."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            found = getattr(found, name)
        return found
    raise ModuleNotFoundError(dotted)


def test_the_table_of_symbols_is_read_and_a_name_that_does_not_exist_is_noticed():
    assert len(NOTATION) >= 20
    assert all(len(row) == 4 for row in NOTATION)
    with pytest.raises(AttributeError):
        resolve("murmurate.units.Furlongs")


@pytest.mark.parametrize("row", NOTATION, ids=lambda row: row[0])
def test_each_symbol_resolves_to_a_name_in_the_code(row):
    names = re.findall(r"`([^`]+)`", row[2])
    assert names, f"{row[0]} names nothing"
    for name in names:
        package = "research" if name.startswith(("paper.", "metrics.")) else "murmurate"
        resolve(f"{package}.{name}")


def odds_in(text):
    found = re.findall(r"(?<![\d:.,])(\d{1,2}) ?: ?(\d{1,2})(?![\d:.,]*\d)", text)
    return [f"{int(right)}:{int(wrong)}" for right, wrong in found if int(right) + int(wrong) == 100]


def test_odds_are_rounded_as_pages_round_them_up_to_a_whole_percent():
    epsilons = ("1/2", "1", "2", "3", "4")
    shown = {GUESSING, *(format_odds(MomentPromise(Fraction(epsilon))) for epsilon in epsilons)}
    pages = [page for page in PAGES if page.startswith(("docs/", "README")) and page != "docs/evidence.md"]
    assert {(page, odds) for page in pages for odds in odds_in(read(page)) if odds not in shown} == set()
    assert odds_in("from 73:27 to 62 : 38, at 08:00 and 1:99:1") == ["73:27", "62:38"]


def test_the_table_of_the_promises_has_the_odds_of_each_epsilon():
    page = read("docs/how-to/choose-a-promise.md")
    rows = dict(re.findall(r"^\| ([\d/]+) \| (\d+:\d+) \|$", page, flags=re.MULTILINE))
    assert len(rows) == 4
    for epsilon, odds in rows.items():
        assert format_odds(WindowPromise(96, Fraction(epsilon), Fraction(1, 10**6), "24 h")) == odds


@pytest.mark.parametrize("table", [fleet_sizing.work, fleet_sizing.means], ids=lambda table: table.__name__)
def test_the_tables_of_the_page_on_scale_are_computed(table):
    assert "\n".join(table()) in read("docs/explanation/scale.md")
