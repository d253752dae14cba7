# ruff: noqa: INP001  a script of its own
"""Check that a wheel and an sdist hold files of the repository, and no others.

    python -m tools.package_contents dist/*

A file of the archive that git does not track was left by chance: a note, a key, a core dump. The wheel must hold each
tracked file of the package. The sdist must hold what a build and a reader need. Metadata are made by the build.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = "src/"
MADE_BY_BUILD = "PKG-INFO"
NEEDED_IN_SDIST = ("src/", "docs/", "CHANGELOG.md", "CITATION.cff", "LICENSE", "README.md", "pyproject.toml")


def tracked_files(root: Path) -> set[str]:
    """Return the paths of all files of a repository that git tracks."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True)  # noqa: S607
    return set(listed.stdout.split("\0")) - {""}


def sdist_problems(names: set[str], tracked: set[str]) -> list[str]:
    """Return the strays and the gaps of an sdist with these files, relative to its folder."""
    needed = {path for path in tracked if path.startswith(NEEDED_IN_SDIST)}
    return _describe(names - tracked - {MADE_BY_BUILD}, (needed | {MADE_BY_BUILD}) - names)


def wheel_problems(names: set[str], tracked: set[str]) -> list[str]:
    """Return the strays and the gaps of a wheel with these files."""
    package = {path.removeprefix(SOURCE) for path in tracked if path.startswith(SOURCE)}
    found = {name for name in names if ".dist-info/" not in name}
    return _describe(found - package, package - found)


def _describe(strays: set[str], missing: set[str]) -> list[str]:
    return [f"not in the repository: {name}" for name in sorted(strays)] + [
        f"missing: {name}" for name in sorted(missing)
    ]


def find_problems(archive: Path, tracked: set[str]) -> list[str]:
    """Return what is wrong with a wheel or an sdist."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return wheel_problems(set(wheel.namelist()), tracked)
    with tarfile.open(archive) as sdist:
        return sdist_problems({name.partition("/")[2] for name in sdist.getnames()}, tracked)


def main() -> int:
    """Check the archives that are named. Status 1: something is wrong; 2: no archive is named."""
    archives = [Path(argument) for argument in sys.argv[1:]]
    tracked = tracked_files(ROOT)
    problems = [f"{archive.name}: {problem}" for archive in archives for problem in find_problems(archive, tracked)]
    for problem in problems:
        sys.stderr.write(f"{problem}\n")
    if not archives:
        sys.stderr.write("name at least one wheel or sdist\n")
        return 2
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
