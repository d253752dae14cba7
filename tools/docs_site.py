# ruff: noqa: INP001  a script of its own
"""Build the documentation site: python -m tools.docs_site --out site [--gallery].

Pages go to `site/VERSION/`, the list of versions to `site/versions.json`. Versions that are there already stay. A link
that leads nowhere, or a page that loads something from another host, ends the build with status 1.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.site_check import find_problems
from tools.site_gallery import make_gallery
from tools.site_pages import ROOT, collect_pages

REDIRECT = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>murmurate</title>
<meta http-equiv="refresh" content="0; url={0}/"><a href="{0}/">murmurate {0}</a></html>
"""


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
        raise SystemExit(f"zensical: {done.stdout}{done.stderr}")
    return work / "site"


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
        problems = find_problems(built)
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
