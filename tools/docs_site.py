# ruff: noqa: INP001  a script of its own
"""Build the documentation site: python -m tools.docs_site --out site [--gallery].

Pages go to `site/VERSION/`, the list of versions to `site/versions.json`. Versions that are there already stay. A link
that leads nowhere ends the build (Zensical's strict mode), and so does a picture, script, style or font that is missing
or comes from another host.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tools.site_pages import ROOT, collect_pages

REDIRECT = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>murmurate</title>
<meta http-equiv="refresh" content="0; url={0}/"><a href="{0}/">murmurate {0}</a></html>
"""

COMMANDS = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FIGURE = re.compile(r"<!-- figure: (\S+) (.+?) -->")  # other readers of the gallery do not see it
TAG = re.compile(r"<(?!a\s)[a-z][^>]*>")  # any but a link, which may lead to another host
LOADED = re.compile(r"""\s(?:src|srcset|href|data|poster)="([^"\s]+)|url\(\s*['"]?([^'")]+)|@import\s+['"]([^'"]+)""")
FETCHES_SCRIPT = re.compile(r"<[a-z][^>]*class=\"[^\"]*\b(?:mermaid|arithmatex)\b")  # the theme gets it from elsewhere


def package_version() -> str:
    """Return the version of the package, without importing it."""
    text = (ROOT / "src" / "murmurate" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"$', text, flags=re.MULTILINE)
    if found is None:
        raise SystemExit("src/murmurate/__init__.py has no __version__")
    return found[1]


def build_pages(work: Path) -> Path:
    """Build the pages in a folder that has a project for Zensical. Return the folder of the built site."""
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--strict", "-f", "zensical.toml"]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise SystemExit(re.sub(r"\x1b\[[\d;]*m", "", f"zensical: {done.stdout}{done.stderr}"))  # without colours
    return work / "site"


def run_commands(page: str, folder: Path) -> None:
    """Run each command of a page in a folder; one that fails ends the build."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for block in COMMANDS.findall(page):
        for line in block.splitlines():
            if line.startswith("$ "):
                subprocess.run(  # noqa: S603  commands of our own page
                    ["/bin/bash", "-ec", line[2:]], cwd=folder, check=True, stdout=subprocess.DEVNULL,
                    env=os.environ | {"PATH": programs, "PYTHONPATH": str(ROOT)},
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


def find_bad_loads(site: Path) -> list[str]:
    """Return what pages and style sheets load that another host has, or nobody."""
    found = []
    for path in sorted([*site.rglob("*.html"), *site.rglob("*.css")]):
        text = path.read_text(encoding="utf-8")
        styles = [text] if path.suffix == ".css" else re.findall(r"<style.*?</style>", text, flags=re.DOTALL)
        addresses = {
            next(filter(None, groups)) for part in [*TAG.findall(text), *styles] for groups in LOADED.findall(part)
        }
        for address in sorted(addresses):
            parts = urlsplit(address)
            base = site if parts.path.startswith("/") else path.parent
            if parts.netloc or parts.scheme not in {"", "data"}:
                found.append(f"{path.relative_to(site)}: loads {address} from another host")
            elif not parts.scheme and not (base / unquote(parts.path).lstrip("/")).exists():
                found.append(f"{path.relative_to(site)}: {address} is missing")
        if path.suffix == ".html" and FETCHES_SCRIPT.search(text):
            found.append(f"{path.relative_to(site)}: the theme loads a script from another host for it")
    return found


def add_version(site: Path, version: str) -> None:
    """Put a version first in the list that the pages offer, and lead readers of the bare address to it."""
    listed = site / "versions.json"
    known = json.loads(listed.read_text(encoding="utf-8")) if listed.exists() else []
    others = [{**each, "aliases": []} for each in known if each["version"] != version]
    entries = [{"version": version, "title": version, "aliases": ["latest"]}, *others]
    listed.write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")
    (site / "index.html").write_text(REDIRECT.format(version), encoding="utf-8")


def build_site(out: Path, *, gallery: bool) -> list[str]:
    """Build this version into a folder. Return what is wrong with it."""
    version = package_version()
    with tempfile.TemporaryDirectory() as made:
        work = Path(made)
        shutil.copy(ROOT / "docs" / "zensical.toml", work)
        (work / "src").symlink_to(ROOT / "src")
        collect_pages(work / "pages")
        if gallery:
            make_gallery(work / "pages" / "gallery.md")
        built = build_pages(work)
        problems = find_bad_loads(built)
        shutil.rmtree(out / version, ignore_errors=True)
        shutil.copytree(built, out / version)
    add_version(out, version)
    return problems


def main() -> int:
    """Build the site. Status 1: it has problems, which are printed."""
    parser = argparse.ArgumentParser(description="The documentation site, in a folder for each version.")
    parser.add_argument("--out", type=Path, default=Path("out/site"))
    parser.add_argument(
        "--gallery", action="store_true", help="Run the commands of the gallery and show their figures."
    )
    asked = parser.parse_args()
    problems = build_site(asked.out, gallery=asked.gallery)
    sys.stderr.write("".join(f"{problem}\n" for problem in problems))
    pages = sum(1 for _ in (asked.out / package_version()).rglob("*.html"))
    sys.stdout.write(f"{pages} pages in {asked.out / package_version()}, {len(problems)} problems\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
