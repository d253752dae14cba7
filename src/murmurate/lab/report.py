"""The report of plan, audit, evaluate and backtest: sentences, tables and figures as page, JSON and terminal output."""

from __future__ import annotations

import io
import json
import shlex
import sys
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from matplotlib.figure import Figure  # a plan is printed without matplotlib

PAGE_NAME = "index.html"
_FILE_WIDTH = 100  # columns, if the output is no terminal
_ROW_STYLES = {"broken": "red", "muted": "dim"}  # in a terminal, by the class that a row has on the page
_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;color:#22303c;background:#fff;max-width:64rem;margin:0 auto;padding:1.5rem}
h1{font-size:1.6rem;margin:0 0 .3rem}h2{font-size:1.2rem;margin:2.2rem 0 .4rem}p,li{max-width:46rem}
img{width:100%;height:auto}table{border-collapse:collapse;font-size:.9rem;margin:.6rem 0;width:100%}
th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #e6eaee}th{font-weight:600;vertical-align:bottom}
th:first-child,td:first-child{text-align:left;padding-left:0}td{white-space:nowrap}td:first-child{min-width:12rem}
td:first-child,td:last-child{white-space:normal}
tr.private td{background:#eaf4fb}tr.broken td{color:#b3261e}tr.muted td,.muted{color:#5d6b77}.muted{font-size:.9rem}
summary{cursor:pointer;font-weight:600}details{margin:.5rem 0}.scroll{overflow-x:auto}
"""


class Report:
    """A title, the parts below it in reading order, and the numbers for scripts.

    The page shows every part. The terminal shows the parts that are `brief`; figures and headings are for the page.
    """

    def __init__(self, title: str, numbers: dict[str, Any], numbers_name: str = "results.json") -> None:
        self.title, self.numbers_name = title, numbers_name
        self._numbers = numbers
        self._page: list[str] = []
        self._brief: list[RenderableType] = []
        self._figures: dict[str, bytes] = {}  # by file name

    def add_heading(self, text: str) -> None:
        """Add a heading to the page."""
        self._page.append(f"<h2>{escape(text)}</h2>")

    def add_text(self, text: str, *, brief: bool = True, muted: bool = False) -> None:
        """Add a paragraph. `muted` is for explanations of what stands below."""
        opened = '<p class="muted">' if muted else "<p>"
        self._page.append(f"{opened}{escape(text)}</p>")
        if brief:
            self._brief.append(Text(text))

    def add_list(self, sentences: Sequence[str], *, brief: bool = True) -> None:
        """Add a list of sentences."""
        self._page.append("<ul>" + "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences) + "</ul>")
        if brief:
            self._brief.extend(Text(f"- {sentence}") for sentence in sentences)

    def add_table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        kinds: Sequence[str] = (),
        brief: bool = True,
        summary: str = "",
        is_open: bool = False,
    ) -> None:
        """Add a table. `kinds` has the class of each row: private, broken, muted or none.

        With a `summary` the page shows the table below it when the reader opens it.
        """
        kinds = kinds or [""] * len(rows)
        head = "".join(f"<th>{escape(name)}</th>" for name in columns)
        body = "".join(
            f'<tr class="{kind}">' + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
            for kind, cells in zip(kinds, rows, strict=True)
        )
        html = f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'
        if summary:
            html = f"<details{' open' * is_open}><summary>{escape(summary)}</summary>{html}</details>"
        self._page.append(html)
        if brief:
            table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
            for number, name in enumerate(columns):
                is_long_header = number > 0 and all(len(cells[number]) < len(name) for cells in rows)  # only it wraps
                table.add_column(Text(name), justify="right" if number else "left", no_wrap=not is_long_header)
            for kind, cells in zip(kinds, rows, strict=True):
                table.add_row(*map(Text, cells), style=_ROW_STYLES.get(kind, ""))
            self._brief.append(table)

    def add_figure(self, name: str, figure: Figure, description: str) -> None:
        """Add a figure, which the page contains. It is also written as PNG and SVG, the same bytes in every run."""
        import matplotlib as mpl  # noqa: PLC0415 - a plan is printed without it

        with mpl.rc_context({"svg.hashsalt": name}):
            for kind in ("png", "svg"):
                file = io.BytesIO()
                figure.savefig(file, format=kind, dpi=200, metadata={"Date": None} if kind == "svg" else None)
                self._figures[f"{name}.{kind}"] = file.getvalue()
        encoded = b64encode(self._figures[f"{name}.svg"]).decode()
        self._page.append(f'<img alt="{escape(description)}" src="data:image/svg+xml;base64,{encoded}">')

    def to_html(self, command: str) -> str:
        """Return the page, which needs no other file. `command` made it."""
        title = escape(self.title)
        head = (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{title}</title><style>{_STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n"
        )
        made_by = f'<p class="muted">Made by <code>{escape(command)}</code>. '
        numbers = f"All numbers are in <code>{escape(self.numbers_name)}</code>.</p>"
        return head + "\n".join([*self._page, made_by + numbers]) + "\n</body></html>\n"

    def to_json(self) -> str:
        """Return the numbers. An infinite one is the text "infinite", because JSON has none."""
        return json.dumps(_without_infinities(self._numbers), indent=1, allow_nan=False) + "\n"

    def print_brief(self, console: Console) -> None:
        """Print the title and the brief parts."""
        console.print(Text(self.title, style="bold"))
        for part in self._brief:
            console.print(part)

    def write_and_print(self, out: Path, *, as_json: bool, program: str = "murmurate") -> None:
        """Write page, numbers and figures into the folder, and print the numbers or the brief parts."""
        numbers = self.to_json()
        (out / self.numbers_name).write_text(numbers, encoding="utf-8")
        for name, data in self._figures.items():
            (out / name).write_bytes(data)
        page = self.to_html(f"{program} {shlex.join(sys.argv[1:])}")
        (out / PAGE_NAME).write_text(page, encoding="utf-8")
        if as_json:
            sys.stdout.write(numbers)
            return
        console = make_console()
        self.print_brief(console)
        written = f"\nThe page is {out / PAGE_NAME}; figures and {self.numbers_name} are in the same folder."
        console.print(Text(written), soft_wrap=True)


def _without_infinities(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_infinities(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinities(item) for item in value]
    return "infinite" if isinstance(value, float) and not isfinite(value) else value


def make_console() -> Console:
    """Return the console for a report: as wide as the terminal, or 100 columns in a file."""
    return Console(width=None if Console().is_terminal else _FILE_WIDTH, highlight=False)


def make_progress_bar() -> Progress:
    """Return a progress bar on standard error. It disappears at the end."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
