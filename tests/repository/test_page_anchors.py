"""A link to a part of a page names a heading of that page."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "src").rglob("*.md"))]


def anchors(page):
    """The anchors that GitHub gives to the headings of a page."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def parts(page):
    """(page, anchor) of each relative link with an anchor."""
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = [link.partition("#") for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    return [((page.parent / path).resolve() if path else page, anchor) for path, _, anchor in links if anchor]


def test_an_anchor_is_made_of_the_words_of_a_heading():
    assert "5-exactly-once-publishing" in anchors(ROOT / "docs" / "explanation" / "architecture.md")
    assert sum(len(parts(page)) for page in PAGES) > 10


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_anchor_is_a_heading(page):
    for target, anchor in parts(page):
        assert anchor in anchors(target), (target.name, anchor)
