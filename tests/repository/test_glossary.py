"""Every row of docs/glossary.md is complete, says one thing once, and names a file that exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
STAGES = [
    "Readings",
    "Aggregation",
    "Plan and promise",
    "Release and noise",
    "Publisher",
    "Public log",
    "Verification",
    "Service",
]


def rows():
    lines = GLOSSARY.read_text(encoding="utf-8").splitlines()
    table = [line for line in lines if line.startswith("| ") and not line.startswith("| word ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def test_the_glossary_follows_the_pipeline():
    headings = re.findall(r"^## (.+)$", GLOSSARY.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert headings == STAGES


def test_a_word_is_defined_once():
    words = [word.strip() for row in rows() for word in row[0].split(",")]
    assert len(words) > 60
    assert len(words) == len(set(words))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_a_word_has_one_sentence_and_a_file_that_exists(row):
    _, meaning, _, _, file = row
    assert meaning[0].isupper()
    assert meaning.endswith(".")
    assert not re.search(r"[.!?] [A-Z]", meaning), meaning
    assert (ROOT / "src" / "murmurate" / file.strip("`")).exists(), file
