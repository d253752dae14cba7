"""Odds in the documentation are rounded as pages round them: up, to a whole percent."""

import re
from fractions import Fraction
from pathlib import Path

from murmurate.planning.promise_text import format_odds
from murmurate.privacy.promise import MomentPromise, WindowPromise

ROOT = Path(__file__).parents[2]
PAGES = sorted({ROOT / "README.md", *(ROOT / "docs").rglob("*.md")} - {ROOT / "docs" / "evidence.md"})
EPSILONS = ("1/2", "1", "2", "3", "4")
GUESSING = "50:50"


def odds_in(text):
    found = re.findall(r"(?<![\d:.,])(\d{1,2}) ?: ?(\d{1,2})(?![\d:.,]*\d)", text)
    return [f"{int(right)}:{int(wrong)}" for right, wrong in found if int(right) + int(wrong) == 100]


def test_every_pair_of_odds_is_one_that_a_page_would_show():
    shown = {GUESSING, *(format_odds(MomentPromise(Fraction(epsilon))) for epsilon in EPSILONS)}
    others = {(page.name, odds) for page in PAGES for odds in odds_in(page.read_text("utf-8")) if odds not in shown}
    assert others == set()
    assert odds_in("from 73:27 to 62 : 38, at 08:00 and 1:99:1") == ["73:27", "62:38"]


def test_the_table_of_the_promises_has_the_odds_of_each_epsilon():
    page = (ROOT / "docs" / "how-to" / "choose-a-promise.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| ([\d/]+) \| (\d+:\d+) \|$", page, flags=re.MULTILINE))
    assert len(rows) == 4
    for epsilon, odds in rows.items():
        assert format_odds(WindowPromise(96, Fraction(epsilon), Fraction(1, 10**6), "24 h")) == odds
