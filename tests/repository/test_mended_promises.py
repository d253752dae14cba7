"""Each promise that was broken and mended names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MENDED = ROOT / "docs" / "explanation" / "mended-promises.md"


def test_each_mended_promise_is_pinned_by_tests_that_exist():
    text = MENDED.read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| **")]
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(rows) == 13 + 6
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row)
        assert named, row
        for name in named:
            assert f"def {name}(" in sources, name
