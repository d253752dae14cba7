"""Sessions for developers: `nox -s quick` before each commit, `nox -s full` before a change lands.

Except for `versions`, a session runs in the environment that CONTRIBUTING.md sets up. So nothing is installed first.
"""

from __future__ import annotations

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import nox

nox.options.default_venv_backend = "none"
nox.options.sessions = ["quick"]
nox.needs_version = ">=2024.10.9"

UNIT = ("tests/unit", "tests/properties", "tests/repository", "tests/paper")
PYTEST = ("pytest", "-p", "no:cacheprovider")
QUICK = {"HYPOTHESIS_PROFILE": "quick", "OPENBLAS_NUM_THREADS": "1"}  # the test processes fill the cores


@nox.session
def quick(session: nox.Session) -> None:
    """Format, lint, types, layers, and the unit tests that are not slow: within a minute on two cores."""
    tests = (*PYTEST, "--numprocesses", "auto", "-m", "not slow", *UNIT, *session.posargs)
    _run_together(
        session, ("ruff", "format", "--check", "."), ("ruff", "check", "."), ("lint-imports",), ("mypy",), tests
    )


@nox.session
def unit(session: nox.Session) -> None:
    """All tests that need no server, and every example in the docs."""
    session.run(*PYTEST, *UNIT, "tests/statistical", "tests/whole_path", "tests/simulation", *session.posargs)
    session.run(*PYTEST, "docs", "README.md")
    session.run(*PYTEST, "--doctest-modules", "--pyargs", "murmurate")


@nox.session
def integration(session: nox.Session) -> None:
    """Tests with PostgreSQL, an MQTT broker and Spark."""
    session.run(*PYTEST, "tests/integration", "tests/fault_injection", *session.posargs)


@nox.session
def e2e(session: nox.Session) -> None:
    """A running service with its databases, its broker and clients of other projects."""
    session.run(*PYTEST, "tests/e2e", *session.posargs)


@nox.session(venv_backend="venv", python=["3.11", "3.12", "3.13", "3.14"])
def versions(session: nox.Session) -> None:
    """The quick unit tests on each Python that is installed, in environments of their own."""
    session.install("--require-hashes", "-r", "requirements-dev.txt")
    session.install("--no-deps", ".")
    session.run(*PYTEST, "--numprocesses", "auto", "-m", "not slow", "tests/unit", "tests/properties", env=QUICK)


@nox.session
def full(session: nox.Session) -> None:
    """Everything that must hold before a change lands."""
    session.run("bash", ".ci/run", external=True)


def _run_together(session: nox.Session, *commands: tuple[str, ...]) -> None:
    """Run commands at the same time, print the output of each, and fail if one of them failed."""
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
