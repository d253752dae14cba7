# ruff: noqa: INP001  a script of its own
"""Check the form of CHANGELOG.md, and print the notes of a release.

    python -m tools.changelog                # check
    python -m tools.changelog --tag v0.1.0   # check that this tag may be released, and print its notes

Each release is a section, the newest first: `## 0.2.0, 2026-11-30`, or `## 0.2.0, not released yet` for the first one.
"""

from __future__ import annotations

import argparse
import re
import sys
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

import murmurate

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"
UNRELEASED = "not released yet"


class ReleaseSection(NamedTuple):
    """One section of the changelog."""

    line: int  # of the heading, from 1
    version: str
    day: str  # a date, or `UNRELEASED`
    notes: str


def read_sections(text: str) -> list[ReleaseSection]:
    """Return the sections of a changelog in their order. A heading without a comma has an empty day."""
    parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    found, line = [], 1 + parts[0].count("\n")
    for heading, notes in zip(parts[1::2], parts[2::2], strict=True):
        version, _, day = heading.partition(", ")
        found.append(ReleaseSection(line, version, day, notes.strip() + "\n"))
        line += notes.count("\n")
    return found


def find_problems(text: str, version: str) -> list[str]:
    """Return what is wrong with a changelog of a package of this version."""
    sections = read_sections(text)
    if not sections:
        return ["no section: the first one must begin with ## VERSION, DATE"]
    problems = [f"line {section.line}: {fault}" for section in sections for fault in _heading_faults(section)]
    problems += [
        f"line {section.line}: only the first section may be {UNRELEASED}"
        for section in sections[1:]
        if section.day == UNRELEASED
    ]
    if sections[0].version != version:
        problems.append(f"line {sections[0].line}: is {sections[0].version}, and the package is {version}")
    return problems or _order_faults(sections)


def _heading_faults(section: ReleaseSection) -> list[str]:
    faults = []
    try:
        Version(section.version)
    except InvalidVersion:
        faults.append(f"{section.version!r} is no version, such as 0.2.0")
    if section.day != UNRELEASED and not _is_date(section.day):
        faults.append(f"{section.day!r} is no date, such as 2026-11-30, nor {UNRELEASED!r}")
    if not section.notes.strip():
        faults.append("has no notes")
    return faults


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _order_faults(sections: list[ReleaseSection]) -> list[str]:
    pairs = list(pairwise(sections))
    faults = [
        f"line {older.line}: {older.version} must be older than {newer.version}"
        for newer, older in pairs
        if Version(older.version) >= Version(newer.version)
    ]
    return faults + [
        f"line {older.line}: {older.day} must not be after {newer.day}"
        for newer, older in pairs
        if newer.day != UNRELEASED and older.day > newer.day
    ]


def tag_problems(text: str, version: str, tag: str) -> list[str]:
    """Return why a tag must not be released: it has another version, or the changelog has no date for it."""
    problems = find_problems(text, version)
    if tag != f"v{version}":
        problems.append(f"the tag is {tag}, and the package is {version}")
    if not problems and read_sections(text)[0].day == UNRELEASED:
        problems.append(f"{version} has no date yet")
    return problems


def main() -> int:
    """Check the changelog of this repository. Status 1: something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tag", help="print the notes of the release that this tag makes")
    tag = parser.parse_args().tag
    text, version = CHANGELOG.read_text(encoding="utf-8"), murmurate.__version__
    problems = find_problems(text, version) if tag is None else tag_problems(text, version, tag)
    for problem in problems:
        sys.stderr.write(f"{CHANGELOG.name}: {problem}\n")
    if tag is not None and not problems:
        sys.stdout.write(read_sections(text)[0].notes)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
