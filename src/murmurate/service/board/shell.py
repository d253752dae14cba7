"""What all pages share: the frame, the style sheet, and the headers that keep anything foreign out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from importlib.resources import files

HTML = "text/html; charset=utf-8"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
_CSS = files("murmurate.service.board").joinpath("page.css").read_text(encoding="utf-8")
_BIRDS = ((5, 15, 1.5), (9, 10, 2), (13.5, 13, 1.3), (15, 7, 1.8), (19.5, 10.5, 1.2), (10.5, 17.5, 1.1), (20, 5, 1))
_FLOCK = "".join(f'<circle cx="{x}" cy="{y}" r="{r}"/>' for x, y, r in _BIRDS)
_ICON = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24' fill='#0a6a66'>{_FLOCK}</svg>".replace('"', "'")
_DATA = "data:image/svg+xml," + _ICON.replace("#", "%23").replace("<", "%3C").replace(">", "%3E")


def document(title: str, body: str, *, top: str = "", wide: bool = False) -> str:
    """A whole page. `title` is text; `body` and `top` are markup."""
    mark = f'<svg viewBox="0 0 24 24" aria-hidden="true">{_FLOCK}</svg>'
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{escape(title)}</title>\n<link rel="icon" href="{_DATA}">\n<style>\n{_CSS}</style>\n</head>\n'
        f'<body>\n<div class="page{" wide" if wide else ""}">\n'
        f'<header class="top"><span class="brand">{mark}murmurate</span>{top}</header>\n'
        f"<main>\n{body}</main>\n</div>\n</body>\n</html>\n"
    )


def section(title: str, *parts: str) -> str:
    """A part of a page under its title; `parts` are markup."""
    return f"<section>\n<h2>{escape(title)}</h2>\n{''.join(parts)}</section>\n"


def bullets(lines: tuple[str, ...]) -> str:
    return '<ul class="plain">\n' + "".join(f"<li>{escape(line)}</li>\n" for line in lines) + "</ul>\n"


def facts(rows: list[tuple[str, str]]) -> str:
    """Names (text) and what is said about them (markup)."""
    return '<dl class="facts">\n' + "".join(f"<dt>{escape(a)}</dt><dd>{b}</dd>\n" for a, b in rows) + "</dl>\n"


def table(names: tuple[str, ...], rows: Sequence[tuple[str, ...]], style: str, *, numbers: tuple[int, ...] = ()) -> str:
    """A table; its names are text, its cells markup. Columns in `numbers` stand right."""
    of: Callable[[int], str] = lambda at: ' class="number"' if at in numbers else ""  # noqa: E731
    head = "".join(f'<th scope="col"{of(at)}>{escape(name)}</th>' for at, name in enumerate(names))
    body = "".join(
        "<tr>"
        + "".join(f'<td{of(at)} data-name="{escape(names[at])}">{cell}</td>' for at, cell in enumerate(row))
        + "</tr>\n"
        for row in rows
    )
    inner = f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n"
    return f'<div class="scroll"><table class="{style}">\n{inner}</table></div>\n'
