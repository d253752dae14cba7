"""Every row of docs/notation.md names something that exists."""

import importlib
import re
from pathlib import Path

import pytest

NOTATION = Path(__file__).parents[2] / "docs" / "notation.md"


def rows():
    lines = NOTATION.read_text(encoding="utf-8").splitlines()
    table = [line for line in lines if line.startswith("|") and not set(line) <= set("|-: ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[1:]]


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


def test_the_table_is_read():
    assert len(rows()) >= 20
    assert all(len(row) == 4 for row in rows())


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_each_symbol_resolves_to_a_name_in_the_code(row):
    names = re.findall(r"`([^`]+)`", row[2])
    assert names, f"{row[0]} names nothing"
    for name in names:
        package = "research" if name.startswith(("paper.", "metrics.")) else "murmurate"
        resolve(f"{package}.{name}")


def test_a_name_that_does_not_exist_is_noticed():
    with pytest.raises(AttributeError):
        resolve("murmurate.units.Furlongs")
