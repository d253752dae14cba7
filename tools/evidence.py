# ruff: noqa: INP001  a script of its own
"""Run a long check and write its row into docs/evidence.md: python -m tools.evidence NAME [--lines N] -- COMMAND ...

The row has the last lines that the command printed, whether it met its goals, its core time, the load of the machine,
and the commit. A command misses its goals if its status is not 0 or a line contains MISSED; then this program ends with
1. A tree with changes that are not committed is refused: no commit could be named. A row of the same name is replaced.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

PAGE = Path("docs") / "evidence.md"
COLUMNS = ("run", "command", "figures", "goals", "core s", "load", "date", "commit")
MISSED = "MISSED"


def commit_of(root: Path) -> str:
    """Return the commit of a tree without other changes than the page itself. Raises SystemExit if there are some."""
    changed = _git(root, "status", "--porcelain", "--", ".", f":!{PAGE}")
    if changed:
        raise SystemExit(f"evidence: commit these changes first, so that the row can name a commit:\n{changed}")
    return _git(root, "rev-parse", "--short=10", "HEAD")


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True)  # noqa: S603, S607
    return done.stdout.strip()


def put_row(page: str, cells: dict[str, str]) -> str:
    """Return the page with a row more, or with the row of this name replaced."""
    row = "| " + " | ".join(cells[column].replace("|", "/") for column in COLUMNS) + " |"
    lines = page.rstrip("\n").split("\n")
    same = [number for number, line in enumerate(lines) if line.startswith(f"| {cells['run']} |")]
    if same:
        lines[same[0]] = row
    else:
        lines.append(row)
    return "\n".join(lines) + "\n"


def recorded_commit(root: Path, name: str) -> str:
    """Return the commit in the row of a run that met its goals; empty if there is none."""
    for line in (root / PAGE).read_text(encoding="utf-8").splitlines():
        cells = dict(zip(COLUMNS, (cell.strip() for cell in line.strip("|").split("|")), strict=False))
        if cells["run"] == name and cells.get("goals") == "met":
            return cells["commit"]
    return ""


def run_command(command: list[str], lines: int) -> tuple[str, bool]:
    """Run a command and show what it prints. Return its last lines, and whether it met its goals."""
    printed: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:  # noqa: S603
        for line in process.stdout or ():
            sys.stdout.write(line)
            sys.stdout.flush()
            printed.append(" ".join(line.split()))
    figures = [line for line in printed if line][-lines:]
    return "; ".join(figures), process.returncode == 0 and not any(MISSED in line for line in printed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--lines", type=int, default=12, help="how many of the last lines are figures")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    root = Path(__file__).parents[1]
    commit = commit_of(root)
    figures, met = run_command(options.command, options.lines)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cells = {
        "run": options.name,
        "command": f"`{' '.join(options.command)}`",
        "figures": figures,
        "goals": "met" if met else "**missed**",
        "core s": f"{used.ru_utime + used.ru_stime:.0f}",
        "load": f"{os.getloadavg()[1]:.1f}",
        "date": f"{datetime.fromtimestamp(time.time(), UTC):%Y-%m-%d}",
        "commit": commit,
    }
    page = root / PAGE
    page.write_text(put_row(page.read_text(encoding="utf-8"), cells), encoding="utf-8")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
