"""Mistakes that people make at the command line, and the rules for every message about one."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from murmurate.cli import main

STATUS_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "exit-status.md"
MAX_LINES = 9  # of what is printed on standard error, boxes included
_PYTHON_WORDS = re.compile(r"Traceback|<class|\bNone\b|\b[A-Z][a-z]\w*(?:Error|Exception|Warning)\b|\[Errno")


@dataclass(frozen=True)
class Mistake:
    """A command line, what its message must name, and its exit status."""

    line: str
    cause: str
    remedy: str
    status: int = 2


@dataclass(frozen=True)
class Finished:
    """What a command printed, and its exit status."""

    status: int
    stdout: str
    stderr: str


def run_in_process(line: str, monkeypatch: pytest.MonkeyPatch, **environment: str) -> Finished:
    """Run a command line as the installed program does, in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with monkeypatch.context() as patched:
        patched.setattr(sys, "argv", line.split())
        patched.setattr(sys, "stdout", out)
        patched.setattr(sys, "stderr", err)
        patched.setenv("COLUMNS", "200")
        for name in ("MURMURATE_STATE", "MURMURATE_LOG", "MURMURATE_KEYS"):
            patched.delenv(name, raising=False)
        for name, value in environment.items():
            patched.setenv(name, value)
        try:
            main()
            status = 0
        except SystemExit as ended:
            status = int(ended.code or 0)
    return Finished(status, *(stream.buffer.getvalue().decode() for stream in (out, err)))


def run_as_program(line: str, folder: Path, **environment: str) -> Finished:
    """Run a command line in a process of its own."""
    words = [sys.executable, "-m", "murmurate", *line.split()[1:]]
    done = subprocess.run(
        words,
        cwd=folder,
        env=os.environ | {"COLUMNS": "200"} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return Finished(done.returncode, done.stdout, done.stderr)


def check_message(mistake: Mistake, finished: Finished) -> None:
    """Check the rules: cause and remedy, a documented status, few lines, no word of Python's."""
    shown = as_one_line(finished.stdout + finished.stderr)
    assert finished.status == mistake.status, (finished.status, shown)
    assert finished.status in documented_statuses()
    assert mistake.cause in shown, shown
    assert mistake.remedy in shown, shown
    assert not (found := _PYTHON_WORDS.search(shown)), (found, shown)
    assert len(finished.stderr.strip().splitlines()) <= MAX_LINES, finished.stderr


def as_one_line(text: str) -> str:
    """Text without the boxes and line breaks of a terminal."""
    return re.sub(r"[\s│╭╮╰╯─]+", " ", text)


def documented_statuses() -> set[int]:
    """The exit statuses that the reference lists."""
    rows = re.findall(r"^\| (\d+) \|", STATUS_PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {int(row) for row in rows}
