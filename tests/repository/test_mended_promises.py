"""Each promise that was broken and mended names the tests that keep it. test_citations.py looks for them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MENDED = ROOT / "docs" / "explanation" / "mended-promises.md"


def test_each_mended_promise_names_its_tests():
    text = MENDED.read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| **")]
    assert len(rows) == 10 + 4 + 16
    assert [row for row in rows if not re.search(r"`test_\w+`", row)] == []
