"""Parts of a report that is one HTML file: style, paragraphs, tables, and figures that stand in the file itself."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from html import escape
from pathlib import Path

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;color:#22303c;background:#fff;max-width:64rem;margin:0 auto;padding:1.5rem}
h1{font-size:1.6rem;margin:0 0 .3rem}h2{font-size:1.2rem;margin:2.2rem 0 .4rem}p,li{max-width:46rem}
img{width:100%;height:auto}table{border-collapse:collapse;font-size:.9rem;margin:.6rem 0;width:100%}
th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #e6eaee}th{font-weight:600;vertical-align:bottom}
th:first-child,td:first-child{text-align:left;padding-left:0}td{white-space:nowrap}td:first-child{min-width:12rem;white-space:normal}
tr.private td{background:#eaf4fb}.muted{color:#5d6b77;font-size:.9rem}summary{cursor:pointer;font-weight:600}
details{margin:.5rem 0}.scroll{overflow-x:auto}
"""


def html_document(title: str, parts: Sequence[str]) -> str:
    """Return a whole page: its title as heading, and its parts below."""
    head = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n<h1>{escape(title)}</h1>\n"
    )
    return head + "\n".join(parts) + "\n</body></html>\n"


def html_paragraph(text: str, kind: str = "") -> str:
    """Return a paragraph. `kind` is its class, such as muted."""
    opened = f'<p class="{kind}">' if kind else "<p>"
    return f"{opened}{escape(text)}</p>"


def html_list(sentences: Sequence[str]) -> str:
    """Return a list of sentences."""
    return "<ul>" + "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences) + "</ul>"


def html_figure(path: Path, description: str) -> str:
    """Return an SVG file as an image in the page."""
    encoded = b64encode(path.read_bytes()).decode()
    return f'<img alt="{escape(description)}" src="data:image/svg+xml;base64,{encoded}">'


def html_table(names: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Return a table. Each row has the name of its class and its cells."""
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(
        f'<tr class="{kind}">' + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>" for kind, cells in rows
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'
