"""Notebooks run from their first cell to their last, use public names alone, and draw the figures of the docs."""

import ast
import json
import re
import subprocess
import sys

import pytest

from tests.repository.repository_files import FILES, ROOT, read

NOTEBOOKS = [file for file in FILES if re.fullmatch(r"docs/notebooks/[\w-]+\.ipynb", file)]


def code_of(notebook):
    cells = [cell for cell in json.loads(read(notebook))["cells"] if cell["cell_type"] == "code"]
    return "\n".join(line for cell in cells for line in "".join(cell["source"]).splitlines() if line[:1] != "%")


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_a_notebook_imports_public_names_and_numpy_and_matplotlib(notebook):
    imports = [node for node in ast.walk(ast.parse(code_of(notebook))) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert {ast.unparse(node) for node in imports} == {
        "import matplotlib.pyplot as plt",
        "import numpy as np",
        "import murmurate as mm",
    }


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_a_notebook_is_stored_without_outputs_and_shown_in_the_gallery(notebook):
    cells = json.loads(read(notebook))["cells"]
    assert [cell["id"] for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []
    gallery = read("docs/gallery.md")
    name = notebook.rpartition("/")[2].removesuffix(".ipynb")
    assert f"](notebooks/{name}.ipynb)" in gallery
    assert f"](images/{name}.svg)" in gallery


@pytest.mark.slow
@pytest.mark.jupyter
def test_notebooks_draw_the_figures_of_the_docs():
    assert len(NOTEBOOKS) == 2
    done = subprocess.run(
        [sys.executable, "tools/notebooks.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.jupyter
def test_another_figure_is_noticed_and_another_rounding_is_not():
    from tools.notebooks import is_same_figure  # noqa: PLC0415 - needs nbclient

    figure = read("docs/images/attack-your-own-mechanism.svg")
    (first, *_) = re.findall(r'd="M (\d+\.\d+)', figure)
    assert is_same_figure(figure, figure.replace(first, f"{float(first) + 1e-6:.6f}"))
    assert not is_same_figure(figure, figure.replace(first, f"{float(first) + 1:.6f}"))
    assert not is_same_figure(figure, figure.replace("<path ", "<line ", 1))
