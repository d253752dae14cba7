"""Sessions for developers: `nox -s quick` before each commit, `nox -s full` before a change lands.

Except for `versions`, a session runs in the environment that CONTRIBUTING.md sets up. So nothing is installed first.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nox

nox.options.default_venv_backend = "none"
nox.options.sessions = ["quick"]
nox.needs_version = ">=2024.10.9"

UNIT = ("tests/unit", "tests/properties", "tests/repository", "tests/paper")
PYTEST = ("pytest", "-p", "no:cacheprovider")
CHECKS = (("ruff", "format", "--check", "."), ("ruff", "check", "."), ("lint-imports",), ("mypy",))
INSTALL_TOOLS = "pip install --no-compile --require-hashes -r requirements-quick.txt"
INSTALL_PACKAGE = "pip install --no-deps --editable ."
FIND_PACKAGE = "from importlib.util import find_spec as find; it = find('murmurate'); print(it.origin if it else '')"
QUICK = {"HYPOTHESIS_PROFILE": "quick", "OPENBLAS_NUM_THREADS": "1"}  # the test processes fill the cores


@nox.session
def quick(session: nox.Session) -> None:
    """Format, lint, types, layers, and the unit tests that are not slow: within a minute on two cores."""
    _run_quickly(session, UNIT)


@nox.session
def changed(session: nox.Session) -> None:
    """The same for the packages that differ from `main` or the commit given: nox -s changed -- HEAD~3. No server."""
    base = session.posargs[0] if session.posargs else "main"
    command = ("git", "diff", "--name-only", base, "--", "src", "tests", "docs", "pyproject.toml")
    differing = _run(command)
    if differing.returncode:
        session.error(f"git does not know {base}: name a commit, as in nox -s changed -- HEAD~3")
    files = differing.stdout.split() + _run(("git", "ls-files", "--others", "--exclude-standard")).stdout.split()
    folders = sorted({folder for file in files for folder in _tests_of(Path(file))})
    session.log(f"tests of what differs from {base}: {' '.join(folders) or 'none'}")
    _run_quickly(session, tuple(folders))


@nox.session
def unit(session: nox.Session) -> None:
    """All tests that need no server, and every example in the docs."""
    session.run(
        *PYTEST, "-n", "auto", *UNIT, "tests/statistical", "tests/whole_path", "tests/simulation", *session.posargs
    )
    session.run(*PYTEST, "-n", "auto", "docs", "README.md")
    session.run(*PYTEST, "--doctest-modules", "--pyargs", "murmurate")


@nox.session
def integration(session: nox.Session) -> None:
    """Tests with PostgreSQL, an MQTT broker and Spark."""
    session.run(*PYTEST, "tests/integration", "tests/fault_injection", "tests/deploy", *session.posargs)


@nox.session
def e2e(session: nox.Session) -> None:
    """A running service with its databases, its broker and clients of other projects."""
    session.run(*PYTEST, "tests/e2e", *session.posargs)


@nox.session(venv_backend="venv", python=["3.11", "3.12", "3.13", "3.14"])
def versions(session: nox.Session) -> None:
    """The quick unit tests on each Python that is installed, each in its own environment."""
    session.install("--require-hashes", "-r", "requirements-quick.txt")
    session.install("--no-deps", ".")
    session.run(*PYTEST, "--numprocesses", "auto", "-m", "not slow", "tests/unit", "tests/properties", env=QUICK)


@nox.session
def full(session: nox.Session) -> None:
    """Everything that must hold before a change lands."""
    session.run("bash", ".ci/run", external=True)


def _tests_of(file: Path) -> set[str]:
    """The folders or files of tests that a changed file asks for: tests mirror the packages."""
    if file.parts[:2] == ("src", "murmurate"):
        package = file.parts[3 if file.parts[2] == "service" else 2]
        mirrored = dict.fromkeys(("cli.py", "operations"), "commands")
        mirrored |= dict.fromkeys(("demo", "storage", "worker"), "service")
        near = mirrored.get(package, package)
        return {f"tests/unit/{near}"} if Path(f"tests/unit/{near}").is_dir() else {"tests/unit", "tests/properties"}
    if file.name.startswith("test_") and file.parts[1] in {"unit", "properties", "repository", "paper"}:
        return {str(file)} if file.exists() else set()
    if file.parts[:2] == ("tests", "support"):
        return {"tests/unit"}
    return {"tests/repository"} if file.parts[0] in {"docs", "pyproject.toml"} else set()


def _run_quickly(session: nox.Session, tests: tuple[str, ...]) -> None:
    """Run the checks and, at the same time, tests that are not slow. Print the output of each; fail if one failed."""
    commands = list(CHECKS)
    missing = [program for program, *_ in (*CHECKS, PYTEST) if not shutil.which(program)]
    if missing:
        session.error(f"{', '.join(missing)} not found: run {INSTALL_TOOLS}")
    package = _run(("python", "-c", FIND_PACKAGE)).stdout.strip()
    if not package:
        session.error(f"murmurate is not installed: run {INSTALL_PACKAGE}")
    if not Path(package).samefile("src/murmurate/__init__.py"):
        session.error(f"python imports murmurate from {package}, not from this tree: run {INSTALL_PACKAGE}")
    if tests:
        commands.append((*PYTEST, "--numprocesses", "auto", "-m", "not slow", *tests))
    began = time.monotonic()
    with ThreadPoolExecutor(len(commands)) as pool:
        for done in pool.map(_run, commands):
            session.log(f"{' '.join(done.args[:3])}\n{done.stdout}")
            if done.returncode:
                session.error(f"{done.args[0]} failed")
    session.log(f"{time.monotonic() - began:.0f} s")


def _run(command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    environment = os.environ | QUICK
    return subprocess.run(  # noqa: S603  the commands above
        command, env=environment, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
