"""Interpreters of other Python versions on this machine: python -m tests.support.interpreters 3.12 3.13."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


def find_interpreter(version: str) -> Path | None:
    """Return an interpreter of a version such as 3.12: on the path, of pyenv, or beside this one."""
    return next((path for path in _candidates(version) if _is_version(path, version)), None)


def _candidates(version: str) -> Iterator[Path]:
    if named := shutil.which(f"python{version}"):
        yield Path(named)
    homes = [Path(sys.base_prefix).parent]
    homes.append(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions")
    for home in homes:
        yield from sorted(home.glob(f"{version}.*/bin/python3"), reverse=True)


def _is_version(python: Path, version: str) -> bool:
    """Return whether this interpreter runs. A name on the path may be a shim of a version that is not installed."""
    question = "import sys, venv; print('{}.{}'.format(*sys.version_info))"
    done = subprocess.run([python, "-c", question], capture_output=True, text=True, check=False)
    return done.stdout.strip() == version


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        sys.stdout.write(f"{wanted} {find_interpreter(wanted) or ''}\n")
