"""What the tests of the repository read: its files, its pages with their tables, and the syntax of the package."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "murmurate"
FOLDERS = ("src", "tests", "benchmarks", "tools", "research", "deploy", "docs", ".ci", ".github")
FILES = sorted(
    path.relative_to(ROOT).as_posix()
    for top in (*ROOT.glob("*"), ROOT / ".ci", ROOT / ".github")
    for path in (top.rglob("*") if top.name in FOLDERS else [top])
    if path.is_file() and "__pycache__" not in path.parts
)
PAGES = [file for file in FILES if file.endswith(".md")]


@cache
def read(file):
    return (ROOT / file).read_text(encoding="utf-8")


@cache
def syntax_of_package():
    """The syntax of each file of the package, by path."""
    return {ROOT / file: ast.parse(read(file)) for file in FILES if re.search(r"^src/murmurate/.*\.py$", file)}


def table_rows(page):
    """The cells of each row of the tables of a page, but for the lines below their heads."""
    lines = [line for line in read(page).splitlines() if line.startswith("|") and not set(line) <= set("|-: ")]
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
