"""The documentation site: links between files become links between pages, and a page that is wrong is noticed."""

import json
import re
import tomllib

import pytest
from tools.docs_site import (
    COMMANDS,
    FIGURE,
    add_version,
    build_pages,
    build_site,
    find_bad_loads,
    make_gallery,
    package_version,
)
from tools.site_pages import (
    collect_pages,
    linked_source,
    page_of,
    rewrite_links,
    site_link,
    source_files,
    with_api_reference,
)

import murmurate as mm
from tests.repository.repository_files import ROOT, read


def test_links_between_files_become_links_between_pages():
    assert page_of("README.md") == "index.md"
    assert page_of("src/murmurate/privacy/noise.md") == "proofs/noise.md"
    assert site_link("README.md", "docs/how-to/serve.md#tls") == "how-to/serve.md#tls"
    assert site_link("docs/explanation/limits.md", "../../SECURITY.md") == "../security.md"
    assert site_link("docs/explanation/guarantee.md", "../../src/murmurate/planning/plan.py") == (
        "../source/src/murmurate/planning/plan.py.md"
    )
    assert site_link("README.md", "https://example.org/a") == "https://example.org/a"


def test_a_link_to_a_folder_becomes_text_and_code_stays_as_it_is():
    text = "[tests](../../tests/), [t][t1]\n\n```\n[a](../../tests/)\n```\n\n[t1]: ../../tests/simulation/\n"
    changed = rewrite_links("docs/explanation/guarantee.md", text)
    assert changed == "tests, [t]\n\n```\n[a](../../tests/)\n```\n\n\n"


def test_each_public_name_has_an_entry_made_from_its_docstring():
    page = with_api_reference(read("docs/reference/api.md"))
    entries = {line.removeprefix("::: ") for line in page.splitlines() if line.startswith("::: ")}
    wanted = {f"{module}.{name}" for name, module in mm._MODULE_OF_NAME.items()} | {"murmurate.errors"}
    assert entries == wanted


def test_every_page_is_in_the_navigation_or_in_a_list(tmp_path):
    collect_pages(tmp_path / "pages")
    project = tomllib.loads(read("docs/zensical.toml"))["project"]
    named = set(re.findall(r"[\w/.-]+\.md", json.dumps(project["nav"])))
    pages = {path.relative_to(tmp_path / "pages").as_posix() for path in (tmp_path / "pages").rglob("*.md")}
    assert named <= pages
    listed = {page for page in pages if page.startswith(("decisions/", "proofs/", "source/"))}
    assert pages - listed <= named


def test_source_that_pages_link_to_is_shown_and_no_other():
    texts = {file: read(file) for file in source_files()}
    shown = linked_source(texts)
    assert {"docs/examples/choose_promise.py", "src/murmurate/planning/plan.py"} <= shown
    assert all((ROOT / file).is_file() for file in shown)


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ('<a href="https://example.org">x</a><img src="data:,"><img src="/b%20c.svg#d"><link href="s.css">', ""),
        ('<img alt="e" src="e.png">', "e.png is missing"),
        ('<img src="https://example.org/e.png">', "loads https://example.org/e.png from another host"),
        ('<script src="//example.org/f.js"></script>', "loads //example.org/f.js from another host"),
        ('<link rel="x" href="https://example.org/g.css">', "loads https://example.org/g.css from another host"),
        ("<style>p { background: url(http://example.org/h) }</style>", "loads http://example.org/h from another host"),
        ('<p style="background: url(http://example.org/i)">', "loads http://example.org/i from another host"),
        ('<pre class="mermaid">', "the theme loads a script from another host for it"),
    ],
)
def test_a_page_may_link_elsewhere_and_loads_only_what_is_in_its_site(tmp_path, page, problem):
    for name, text in {"a.html": page, "b c.svg": "", "s.css": "p { fill: url(#z) }"}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert find_bad_loads(tmp_path) == ([f"a.html: {problem}"] if problem else [])


def test_a_style_sheet_that_loads_a_font_of_another_host_is_noticed(tmp_path):
    (tmp_path / "s.css").write_text("@font-face { src: url(https://example.org/f.woff2) }", encoding="utf-8")
    assert find_bad_loads(tmp_path) == ["s.css: loads https://example.org/f.woff2 from another host"]


def test_older_versions_stay_in_the_list(tmp_path):
    add_version(tmp_path, "0.1.0")
    add_version(tmp_path, "0.2.0")
    add_version(tmp_path, "0.2.0")
    assert json.loads((tmp_path / "versions.json").read_text(encoding="utf-8")) == [
        {"version": "0.2.0", "title": "0.2.0", "aliases": ["latest"]},
        {"version": "0.1.0", "title": "0.1.0", "aliases": []},
    ]
    assert 'url=0.2.0/"' in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_a_figure_of_the_gallery_is_made_by_its_command(tmp_path):
    page = tmp_path / "gallery.md"
    page.write_text(
        "```console\n$ mkdir f && echo x > f/a.svg\n```\n\n<!-- figure: f/a.svg An x -->\n", encoding="utf-8"
    )
    make_gallery(page)
    assert page.read_text(encoding="utf-8").endswith("![An x](gallery/f-a.svg)\n")
    assert (tmp_path / "gallery" / "f-a.svg").read_text(encoding="utf-8") == "x\n"
    ours = read("docs/gallery.md")
    assert len(COMMANDS.findall(ours)) >= 3
    assert len(FIGURE.findall(ours)) >= 4


@pytest.mark.slow
@pytest.mark.parametrize("link", ["nowhere.md", "index.md#no-such-part", "#no-such-part"])
def test_a_broken_link_ends_the_build(tmp_path, link):
    pytest.importorskip("zensical")
    (tmp_path / "zensical.toml").write_text('[project]\nsite_name = "x"\ndocs_dir = "pages"\n', encoding="utf-8")
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "index.md").write_text(f"# Start\n\n[to](#start)\n[broken]({link})\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="does not exist"):
        build_pages(tmp_path)


@pytest.mark.slow
def test_the_site_builds_without_a_broken_link_or_anything_from_another_host(tmp_path):
    pytest.importorskip("zensical")
    assert build_site(tmp_path, gallery=False) == []
    site = tmp_path / package_version()
    assert 'id="murmurate.release.protect"' in (site / "reference" / "api" / "index.html").read_text(encoding="utf-8")
    assert (site / "search.json").stat().st_size > 100_000
    assert "GhoddousiBoroujeni" in (site / "index.html").read_text(encoding="utf-8")
