# ruff: noqa: INP001  a script of its own
"""Check a site that is built: no link leads nowhere, and no page loads anything from another host.

    python -m tools.site_check site/

Links to other sites are allowed; pictures, scripts, styles and fonts of other hosts are not.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {("img", "src"), ("script", "src"), ("iframe", "src"), ("link", "href"), ("source", "src"), ("video", "src")}
LOADED |= {("audio", "src"), ("embed", "src"), ("object", "data"), ("use", "href"), ("image", "href")}
LOADED |= {("img", "srcset"), ("source", "srcset")}
CSS_ADDRESS = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")
LOADS_A_SCRIPT = {"mermaid", "arithmatex"}  # classes for which the theme fetches a script from another host


class Page(HTMLParser):
    """What one page links to, what it loads, and the anchors that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.classes: set[str] = set()
        self._in_style = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the addresses and the anchors of an element."""
        self._in_style = tag == "style"
        for name, given in attrs:
            value = given or ""
            if name in {"id", "name"}:
                self.anchors.add(value)
            elif name == "class":
                self.classes |= set(value.split())
            elif name == "style":
                self.loads += css_addresses(value)
            elif (tag, name) == ("a", "href"):
                self.links.append(value)
            elif (tag, name) in LOADED:
                self.loads += [part.split()[0] for part in value.split(",")] if name == "srcset" else [value]

    def handle_data(self, data: str) -> None:
        """Note what a style sheet inside of the page loads."""
        if self._in_style:
            self.loads += css_addresses(data)


def css_addresses(text: str) -> list[str]:
    """Return what a style sheet loads.

    >>> css_addresses("a { background: url('x.svg') } @import 'y.css'; b { fill: url(#z) }")
    ['x.svg', 'y.css']
    """
    return [one or other for one, other in CSS_ADDRESS.findall(text) if not (one or other).startswith("#")]


@cache
def read_page(path: Path) -> Page:
    """Return a page of the site, read once."""
    return Page(path.read_text(encoding="utf-8"))


def is_elsewhere(address: str) -> bool:
    """Whether an address names another host.

    >>> is_elsewhere("https://example.org/a"), is_elsewhere("//example.org/a"), is_elsewhere("../a#b")
    (True, True, False)
    """
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme not in {"", "data"}


def link_problem(site: Path, page: Path, link: str) -> str | None:
    """Return what is wrong with a link of a page to the same site."""
    parts = urlsplit(link)
    path = unquote(parts.path)
    target = page if not path else (site / path.lstrip("/") if path.startswith("/") else page.parent / path)
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return f"leads nowhere: {link}"
    if parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in read_page(target).anchors:
        return f"names no part of its page: {link}"
    return None


def find_problems(site: Path) -> list[str]:
    """Return what is wrong with the site in a folder, each with the name of its file."""
    found = []
    for path in sorted(site.rglob("*.html")):
        page, name = read_page(path), path.relative_to(site)
        own = [link for link in page.links + page.loads if not is_elsewhere(link) and not link.startswith("data:")]
        wrong = [link_problem(site, path, link) for link in own]
        wrong += [f"loads {address} from another host" for address in page.loads if is_elsewhere(address)]
        wrong += [f"has an element of class {one}" for one in sorted(LOADS_A_SCRIPT & page.classes)]
        found += [f"{name}: {problem}" for problem in dict.fromkeys(wrong) if problem]
    for path in sorted(site.rglob("*.css")):
        addresses = css_addresses(path.read_text(encoding="utf-8"))
        found += [f"{path.relative_to(site)}: loads {one} from another host" for one in addresses if is_elsewhere(one)]
    return found


def main() -> int:
    """Check the site in the folder that is named. Status 1: something is wrong; 2: no folder is named."""
    if len(sys.argv) != 2:
        sys.stderr.write("name the folder of a site\n")
        return 2
    problems = find_problems(Path(sys.argv[1]))
    sys.stderr.write("".join(f"{problem}\n" for problem in problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
