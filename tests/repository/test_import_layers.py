"""Imports point down, and the page of the architecture has every layer."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import murmurate
from tests.repository.repository_files import ROOT, read, syntax_of_package


def test_imports_point_down():
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "6 kept, 0 broken" in done.stdout


def test_the_table_of_the_architecture_has_a_row_for_each_layer():
    contracts = tomllib.loads(read("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["name"] == "imports point down")
    table = (
        read("docs/explanation/architecture.md").partition("| packages | hold |\n|---|---|\n")[2].partition("\n\n")[0]
    )
    rows = [re.findall(r"`(\w+)`", row.split("|")[1]) for row in table.splitlines()]
    assert rows == [[name.strip().removeprefix("murmurate.") for name in layer.split("|")] for layer in layers]


def test_the_package_imports_nothing_else_of_the_repository():
    """Research, benchmarks, tools and tests use the package, never the other way round: the wheel lacks them."""
    others = {"benchmarks", "research", "tests", "tools"}
    imported = {
        (path.name, name)
        for path, tree in syntax_of_package().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""])
    }
    assert ("cell_values.py", "murmurate.errors") in imported
    assert sorted(each for each in imported if each[1].split(".")[0] in others) == []


def test_what_is_tested_is_the_installed_package_not_the_tree():
    """CI installs the wheel; only a developer's editable install may find the tree."""
    place = Path(murmurate.__file__).parts
    assert "site-packages" in place if os.environ.get("HYPOTHESIS_PROFILE") == "ci" else place
