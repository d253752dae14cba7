# ruff: noqa: INP001  a script of its own
"""Make the figures of the gallery: run the commands of docs/gallery.md and put each figure below its command.

The page names a figure in a comment, which other readers of the page do not see: <!-- figure: audit/attacks.svg -->
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

COMMANDS = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FIGURE = re.compile(r"<!-- figure: (\S+) (.+?) -->")


def run_commands(page: str, folder: Path) -> None:
    """Run each command of a page in a folder; one that fails ends the build."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for block in COMMANDS.findall(page):
        for line in block.splitlines():
            if line.startswith("$ "):
                subprocess.run(  # noqa: S603  commands of our own page
                    ["/bin/bash", "-ec", line[2:]], cwd=folder, env=os.environ | {"PATH": programs}, check=True,
                    stdout=subprocess.DEVNULL,
                )  # fmt: skip


def make_gallery(page: Path) -> None:
    """Run the commands of a page and show in it the figures that they made."""
    text = page.read_text(encoding="utf-8")
    pictures = page.with_name("gallery")
    pictures.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        run_commands(text, Path(made))

        def show(found: re.Match[str]) -> str:
            name = found[1].replace("/", "-")
            shutil.copy(Path(made) / found[1], pictures / name)
            return f"![{found[2]}](gallery/{name})"

        page.write_text(FIGURE.sub(show, text), encoding="utf-8")
