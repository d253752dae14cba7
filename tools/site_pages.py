# ruff: noqa: INP001  a script of its own
"""Collect the pages of the documentation site: docs/, the README and its neighbours, and proofs beside the source.

Links between files of the repository become links between pages of the site. A source file that a page links to gets a
page of its own; a link to a folder becomes plain text.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
INLINE_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
REFERENCE_LINK = re.compile(r"^\[([^\]]+)\]: (\S+)$", re.MULTILINE)
API_ROW = re.compile(r"^\| `(\w+)` \| (.+) \| `([\w.]+)` \|$", re.MULTILINE)
FENCE_LANGUAGES = {".py": "python", ".yml": "yaml", ".toml": "toml"}


def page_of(file: str) -> str | None:
    """Return the page of the site that shows a file of the repository, or None where it is a folder.

    >>> page_of("docs/how-to/serve.md"), page_of("README.md"), page_of("src/murmurate/privacy/noise.md")
    ('how-to/serve.md', 'index.md', 'proofs/noise.md')
    >>> page_of("src/murmurate/planning/plan.py"), page_of("docs/decisions/README.md")
    ('source/src/murmurate/planning/plan.py.md', 'decisions/index.md')
    """
    path = PurePosixPath(file)
    if file == "README.md":
        return "index.md"
    if file in {"docs/decisions", "docs/decisions/README.md"}:
        return "decisions/index.md"
    if (ROOT / file).is_dir():
        return None
    if file.startswith("docs/") and path.suffix not in FENCE_LANGUAGES:
        return file.removeprefix("docs/")
    if path.suffix == ".md":
        return path.name.lower() if len(path.parts) == 1 else f"proofs/{path.name}"
    return f"source/{file}.md"


def linked_file(source: str, link: str) -> str | None:
    """Return the file or folder of the repository that a link of the file `source` leads to, if it leads to one."""
    target = link.partition("#")[0]
    if not target or "://" in link or link.startswith("mailto:"):
        return None
    return os.path.normpath(PurePosixPath(source).parent / target)


def site_link(source: str, link: str) -> str | None:
    """Return the link between pages for a link between files; None where no page shows its target."""
    file = linked_file(source, link)
    if file is None:
        return link
    here, page = page_of(source), page_of(file)
    if here is None or page is None:
        return None
    fragment = link.partition("#")[1:]
    return os.path.relpath(page, PurePosixPath(here).parent) + "".join(fragment)


def rewrite_links(source: str, text: str) -> str:
    """Return the text of a file with the links of the site."""
    without_page = {name for name, link in REFERENCE_LINK.findall(text) if site_link(source, link) is None}

    def change_inline(found: re.Match[str]) -> str:
        link = site_link(source, found[2])
        return found[1] if link is None else f"[{found[1]}]({link})"

    def change_reference(found: re.Match[str]) -> str:
        link = site_link(source, found[2])
        return "" if link is None else f"[{found[1]}]: {link}"

    def change(part: str) -> str:
        for name in without_page:
            part = part.replace(f"][{name}]", "]")
        return REFERENCE_LINK.sub(change_reference, INLINE_LINK.sub(change_inline, part))

    parts = FENCE.split(text)
    parts[::2] = [change(part) for part in parts[::2]]
    return "".join(parts)


def with_api_reference(text: str) -> str:
    """Return the page of public names with what mkdocstrings makes of the docstring of each, below its table."""
    sections = re.split(r"(?m)^(?=## )", text)
    for number, section in enumerate(sections):
        names = [f"{module}.{name}" for name, _, module in API_ROW.findall(section) if name != "errors"]
        linked = API_ROW.sub(
            lambda row: f"| [`{row[1]}`][{_object_of(row[1], row[3])}] | {row[2]} | `{row[3]}` |", section
        )
        entries = [f"::: {name}\n" for name in names]
        if "`murmurate.errors`" in section and "| `errors` |" in section:
            entries.append("::: murmurate.errors\n    options:\n      show_root_toc_entry: true\n")
        sections[number] = linked + "".join(f"\n{entry}" for entry in entries) + "\n" * bool(entries)
    return "".join(sections)


def _object_of(name: str, module: str) -> str:
    return module if name == "errors" else f"{module}.{name}"


def title_of(text: str) -> str:
    """Return the first heading of a page."""
    return next(line.removeprefix("# ").strip() for line in text.splitlines() if line.startswith("# "))


def list_of_pages(title: str, introduction: str, pages: dict[str, str]) -> str:
    """Return a page that links to others, given their texts by file name."""
    rows = "\n".join(f"- [{title_of(text)}]({name})" for name, text in sorted(pages.items()))
    return f"# {title}\n\n{introduction}\n\n{rows}\n"


def source_page(file: str) -> str:
    """Return a page that shows a source file. It is no result of a search."""
    text = (ROOT / file).read_text(encoding="utf-8")
    language = FENCE_LANGUAGES.get(PurePosixPath(file).suffix, "text")
    head = f"---\nsearch:\n  exclude: true\n---\n\n# {PurePosixPath(file).name}\n\n`{file}`"
    return f"{head}\n\n````{language}\n{text}````\n"


def source_files() -> list[str]:
    """Return the Markdown files of the repository that become pages."""
    proofs = [*(ROOT / "src").rglob("*.md"), ROOT / "research" / "consumption_laws.md"]
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *proofs]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def linked_source(texts: dict[str, str]) -> set[str]:
    """Return the files that pages link to and that are neither pages nor pictures."""
    found = set()
    for source, text in texts.items():
        links = [link for _, link in INLINE_LINK.findall(text)] + [link for _, link in REFERENCE_LINK.findall(text)]
        files = {file for link in links if (file := linked_file(source, link))}
        found |= {file for file in files if (page_of(file) or "").startswith("source/")}
    return found


def collect_pages(folder: Path) -> None:
    """Write all pages and pictures of the site into a folder."""
    shutil.copytree(ROOT / "docs", folder, ignore=shutil.ignore_patterns("*.md", "*.toml", "*.py", "__pycache__"))
    texts = {file: (ROOT / file).read_text(encoding="utf-8") for file in source_files()}
    pages = {page_of(file) or file: rewrite_links(file, text) for file, text in texts.items()}
    pages["reference/api.md"] = with_api_reference(pages["reference/api.md"])
    proofs = {page.removeprefix("proofs/"): text for page, text in pages.items() if page.startswith("proofs/")}
    introduction = "Each proof stands beside the code that it is about, in the package itself."
    pages["proofs/index.md"] = list_of_pages("Proofs", introduction, proofs)
    pages |= {f"source/{file}.md": source_page(file) for file in linked_source(texts)}
    for page, text in pages.items():
        (folder / page).parent.mkdir(parents=True, exist_ok=True)
        (folder / page).write_text(text, encoding="utf-8")
