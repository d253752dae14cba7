"""docs/explanation/scale.md says what the arithmetic of docs/examples/fleet_sizing.py gives."""

from pathlib import Path

import pytest
from docs.examples import fleet_sizing

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "scale.md"


@pytest.mark.parametrize("table", [fleet_sizing.work, fleet_sizing.means], ids=lambda table: table.__name__)
def test_the_tables_of_the_page_are_computed(table):
    assert "\n".join(table()) in PAGE.read_text(encoding="utf-8")
