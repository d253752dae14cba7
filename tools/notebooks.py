# ruff: noqa: INP001  a script of its own
"""Run the notebooks and draw their figures for the pages: python tools/notebooks.py [--check].

The last figure of docs/notebooks/NAME.ipynb becomes docs/images/NAME.svg. With --check nothing is written, and the
status is 1 if a figure of the docs differs from what its notebook draws now. Needs nbclient and ipykernel.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

from murmurate.lab.plot_style import MUTED_COLOR, NAIVE_COLOR, PRIVATE_COLOR, TEXT_COLOR

DOCS = Path(__file__).parents[1] / "docs"
CELL_TIMEOUT_S = 600  # of a machine that does much else
MAX_DEVIATION = 0.1  # of a coordinate [points]: another processor may round another way
COLORS = [color.removeprefix("#") for color in (TEXT_COLOR, PRIVATE_COLOR, NAIVE_COLOR, MUTED_COLOR)]
MATPLOTLIBRC = f"""\
axes.prop_cycle: cycler('color', {COLORS})
axes.spines.right: False
axes.spines.top: False
axes.titlelocation: left
axes.titleweight: bold
axes.titlesize: 10
legend.frameon: False
svg.hashsalt: murmurate
text.color: {COLORS[0]}
axes.labelcolor: {COLORS[0]}
"""
NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")


def draw_figure(notebook: Path) -> str:
    """Run a notebook from its first cell to its last and return its last figure as SVG."""
    document = nbformat.read(notebook, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        style = Path(folder) / "matplotlibrc"
        style.write_text(MATPLOTLIBRC, encoding="utf-8")
        environment = os.environ | {"MATPLOTLIBRC": str(style), "SOURCE_DATE_EPOCH": "0"}
        sockets = Config(KernelManager={"transport": "ipc", "connection_file": f"{folder}/kernel.json"})  # no ports
        NotebookClient(document, config=sockets, timeout=CELL_TIMEOUT_S).execute(env=environment, cwd=folder)
    outputs = [output.get("data", {}) for cell in document.cells for output in cell.get("outputs", [])]
    (*_, svg) = [data["image/svg+xml"] for data in outputs if "image/svg+xml" in data]
    return re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)  # versions and dates


def is_same_figure(one: str, other: str) -> bool:
    """Whether two drawings have the same text and elements, at nearly the same places."""
    bare = [re.sub(r'(id="|url\(#|href="#)[^")]*', "", svg) for svg in (one, other)]
    if len({NUMBER.sub("", svg) for svg in bare}) > 1:
        return False
    numbers = [[float(number) for number in NUMBER.findall(svg)] for svg in bare]
    return all(abs(a - b) <= MAX_DEVIATION for a, b in zip(*numbers, strict=True))


def main() -> int:
    """Draw the figures of all notebooks. Status 1 with --check: one differs."""
    parser = argparse.ArgumentParser(description="Run the notebooks and draw their figures for the pages.")
    parser.add_argument("--check", action="store_true", help="Write nothing; compare with the figures of the docs.")
    is_check = parser.parse_args().check
    differing = 0
    for notebook in sorted((DOCS / "notebooks").glob("*.ipynb")):
        svg, figure = draw_figure(notebook), DOCS / "images" / f"{notebook.stem}.svg"
        if not is_check:
            figure.write_text(svg, encoding="utf-8")
        elif not figure.exists() or not is_same_figure(svg, figure.read_text(encoding="utf-8")):
            sys.stderr.write(f"{figure.name} is not what {notebook.name} draws: run python tools/notebooks.py\n")
            differing += 1
    return min(differing, 1)


if __name__ == "__main__":
    sys.exit(main())
