"""Wheel and sdist hold files of the repository and no others, and `tools/package_contents.py` notices others."""

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from tools.package_contents import find_problems, sdist_problems, tracked_files, wheel_problems

ROOT = Path(__file__).parents[2]
LEFT_BY_CHANCE = (".env", "notes.txt", "core.4711", "out/plan.json", "keys/log.key", ".github/draft.md", ".venv/x.py")
IGNORED = shutil.ignore_patterns(
    ".git", ".venv", "out", "dist", "build", ".*_cache", ".hypothesis", "__pycache__", ".nox"
)

pytestmark = pytest.mark.slow


def git(folder, *arguments):
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "core.hooksPath=none")
    subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, check=True)


def build(folder, target, out):
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", out]
    subprocess.run(command, cwd=folder, capture_output=True, check=True)
    (archive,) = Path(out).iterdir()
    return archive


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A copy of the repository in which files were left by chance after the last commit."""
    copy = tmp_path_factory.mktemp("copy") / "murmurate"
    shutil.copytree(ROOT, copy, ignore=IGNORED)
    git(copy, "init", "--quiet")
    git(copy, "add", "--all")
    for name in LEFT_BY_CHANCE:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text("left\n", encoding="utf-8")
    return copy


def test_the_sdist_holds_the_repository_and_nothing_that_was_left_beside_it(repository, tmp_path):
    tracked = tracked_files(repository)
    assert not tracked & set(LEFT_BY_CHANCE)
    archive = build(repository, "sdist", tmp_path / "dist")
    assert find_problems(archive, tracked) == []
    with tarfile.open(archive) as sdist:
        tops = {name.split("/")[1] for name in sdist.getnames()}
    assert tops == {
        ".gitignore", "CHANGELOG.md", "CITATION.cff", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "LICENSE", "PKG-INFO",
        "README.md", "SECURITY.md", "benchmarks", "docs", "noxfile.py", "pyproject.toml", "requirements-dev.txt",
        "research", "src", "tests", "tools",
    }  # fmt: skip


def test_the_wheel_holds_the_package_and_nothing_else(repository, tmp_path):
    assert find_problems(build(repository, "wheel", tmp_path / "dist"), tracked_files(repository)) == []


def test_a_file_that_was_left_inside_of_the_package_is_found(repository, tmp_path):
    stray = repository / "src" / "murmurate" / "readings.csv"
    stray.write_text("meter,energy_wh\n", encoding="utf-8")
    try:
        wheel, sdist = (build(repository, target, tmp_path / target) for target in ("wheel", "sdist"))
    finally:
        stray.unlink()
    tracked = tracked_files(repository)
    assert find_problems(wheel, tracked) == ["not in the repository: murmurate/readings.csv"]
    assert find_problems(sdist, tracked) == ["not in the repository: src/murmurate/readings.csv"]
    done = subprocess.run(
        [sys.executable, "-m", "tools.package_contents", wheel, sdist],
        cwd=repository, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert f"{wheel.name}: not in the repository: murmurate/readings.csv\n" in done.stderr


def test_a_file_that_is_missing_is_found():
    tracked = {"src/murmurate/a.py", "src/murmurate/b.sql", "LICENSE", ".ci/run"}
    assert wheel_problems({"murmurate/a.py", "murmurate-1.dist-info/RECORD"}, tracked) == ["missing: murmurate/b.sql"]
    assert sdist_problems({"PKG-INFO", "src/murmurate/a.py", "LICENSE"}, tracked) == ["missing: src/murmurate/b.sql"]
