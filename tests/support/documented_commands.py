"""Commands of a page and what it shows below them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path


def run_in_shell(line: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command of a page in a folder, with the programs of this environment first on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path} | variables
    command = ["bash", "-ec", line]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def _blocks(text: str) -> list[str]:
    return re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL)


def commands_in(text: str) -> list[tuple[str, bool]]:
    """(command, whether it must succeed), in the order of the text of a page."""
    lines = [line[2:] for block in _blocks(text) for line in block.splitlines() if line.startswith("$ ")]
    return [(line.removeprefix("! "), not line.startswith("! ")) for line in lines]


def commands_of(page: Path) -> list[tuple[str, bool]]:
    return commands_in(page.read_text(encoding="utf-8"))


def shown_below(page: Path) -> list[list[str]]:
    """What the page shows below each of its commands: lines without their spaces at either end, but for empty ones."""
    blocks = _blocks(page.read_text(encoding="utf-8"))
    below = [part.splitlines()[1:] for block in blocks for part in ("\n" + block).split("\n$ ")[1:]]
    return [[line.strip() for line in lines if line.strip()] for lines in below]


def prints(output: str, lines: list[str]) -> bool:
    """Whether a command printed these lines in this order; `...` stands for any others, or for the rest of a line."""
    printed = iter(line.strip() for line in output.splitlines())
    beginnings = [(line.removesuffix("..."), line.endswith("...")) for line in lines if line != "..."]
    return all(
        any(found.startswith(begin) if cut else found == begin for found in printed) for begin, cut in beginnings
    )
