"""Wheel and sdist hold what they should, and nothing that was left there by chance."""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.repository.repository_files import ROOT

CHECK = Path(sys.executable).with_name("check-wheel-contents")
LEFT_BY_CHANCE = (".env", "notes.txt", "core.4711", "out/plan.json", "keys/log.key", ".github/draft.md", ".venv/x.py")
IGNORED = shutil.ignore_patterns(
    ".git", ".venv", "out", "dist", "build", ".*_cache", ".hypothesis", "__pycache__", ".nox"
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A copy of the repository with files that were left by chance, and its wheel and sdist in `dist`."""
    pytest.importorskip("hatchling")
    copy = tmp_path_factory.mktemp("copy") / "murmurate"
    shutil.copytree(ROOT, copy, ignore=IGNORED)
    for name in LEFT_BY_CHANCE:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text("left\n", encoding="utf-8")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", "dist"], cwd=copy, capture_output=True, check=True
    )
    return copy


def test_the_sdist_holds_the_parts_that_are_named_and_nothing_that_was_left_beside_them(repository):
    (archive,) = (repository / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert not names & set(LEFT_BY_CHANCE)
    assert {name.partition("/")[0] for name in names} == {
        ".gitignore", "CHANGELOG.md", "CITATION.cff", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "LICENSE", "PKG-INFO",
        "README.md", "SECURITY.md", "benchmarks", "deploy", "docs", "noxfile.py", "pyproject.toml",
        "requirements-dev.txt", "requirements-docs.txt", "requirements-quick.txt", "research", "src", "tests", "tools",
    }  # fmt: skip
    package = {path.relative_to(repository).as_posix() for path in (repository / "src").rglob("*") if path.is_file()}
    assert package <= names


def test_two_builds_have_the_same_bytes_and_metadata_that_the_index_accepts(repository):
    """Whatever the times and rights of the files, the umask and the time zone are."""
    pytest.importorskip("twine")
    archives = sorted((repository / "dist").iterdir())
    for path in (repository / "src").rglob("*.py"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    subprocess.run(
        ["sh", "-c", 'umask 077 && exec "$0" -m hatchling build -d again', sys.executable],
        cwd=repository, env=os.environ | {"TZ": "Pacific/Auckland"}, capture_output=True, check=True,
    )  # fmt: skip
    assert [path.name for path in archives] == sorted(path.name for path in (repository / "again").iterdir())
    assert [path.read_bytes() == (repository / "again" / path.name).read_bytes() for path in archives] == [True, True]
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *archives], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.count("PASSED")) == (0, 2), done.stdout


def test_the_wheel_holds_the_package_and_a_missing_file_is_found(repository):
    pytest.importorskip("check_wheel_contents")
    (wheel,) = (repository / "dist").glob("*.whl")
    done = subprocess.run([CHECK, wheel], cwd=repository, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    (repository / "src" / "murmurate" / "later.sql").write_text("", encoding="utf-8")
    done = subprocess.run([CHECK, wheel], cwd=repository, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "later.sql" in done.stdout
