"""Each decision has a status and a date, superseded ones name each other, and the list of decisions is complete."""

import re
from datetime import date
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"
DECISIONS = {path.name: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("[0-9]*.md"))}
HEAD = re.compile(
    r"# (?P<number>\d+)\. (?P<title>.+)\n\n- Status: (?P<status>.+)\n- Date: (?P<date>\S+)\n"
    r"(?:- Supersedes: (?P<old>.+)\n)?\n"
)
STATUS = re.compile(r"accepted|proposed|withdrawn|(accepted, in part )?superseded by \[\d{4}\]\(\S+\)")
LINK = re.compile(r"\[(\d{4})\]\((\1-\S+\.md)\)")


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
    rows = re.findall(
        r"^\| (\d{4}) \| (.+) \| (.*)\|$", (FOLDER / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert [int(number) for number, _, _ in rows] == list(range(1, len(rows) + 1))
    expected = [
        (name[:4], f"[{head['title']}]({name})", LINK.sub(r"\1", head["status"]))
        for name, text in DECISIONS.items()
        if (head := HEAD.match(text))
    ]
    assert [(number, title, status.strip()) for number, title, status in rows if "](" in title] == expected


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
