"""Every page in a real browser: contrast, structure and names by axe-core, and what the keyboard reaches."""

import json
import re
import subprocess
from html import unescape
from importlib.resources import files

import pytest
from tools.screenshots import make_pages

pytestmark = [pytest.mark.browser, pytest.mark.slow]
CHROMIUM = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=600000"]
SCHEMES = {"light": (320, []), "dark": (1280, ["--blink-settings=preferredColorScheme=0"])}
# What is folded is unfolded first. An element that has the focus must show it, by an outline of 2 px or more. `wide`
# has what must be scrolled sideways.
LOOK = """<script src="axe.min.js"></script><script>
addEventListener("load", async () => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
  const unseen = [], reached = [...document.querySelectorAll("a, summary, button, input, [tabindex]")];
  for (const one of reached) {
    one.focus();
    const { outlineStyle, outlineWidth } = getComputedStyle(one);
    const isSeen = document.activeElement === one && outlineStyle !== "none" && parseFloat(outlineWidth) >= 2;
    if (!isSeen || one.tabIndex !== 0) unseen.push(one.outerHTML);
  }
  const wide = [...document.querySelectorAll("html, .scroll")].filter((one) => one.scrollWidth > one.clientWidth);
  const found = (await axe.run()).violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
  const violations = found.map(({ id, nodes }) => [id, nodes[0].html, nodes[0].failureSummary]);
  const report = { violations, unseen, reached: reached.length, wide: wide.map(({ outerHTML }) => outerHTML) };
  parent.postMessage(JSON.stringify([NAME, report]), "*");
});
</script>"""
FRAMES = """<!DOCTYPE html><title>Pages</title><script>
addEventListener("message", ({ data }) => {
  if (typeof data !== "string" || !data.startsWith("[")) return;
  document.body.append(Object.assign(document.createElement("pre"), { textContent: data }));
});
</script>"""
PLANTED = {  # page, what is replaced, by what, and what must be found
    "faint text": ("zones", r"--soft: #\w+", "--soft: var(--grid)", "color-contrast"),
    "no language": ("zones", r'<html lang="en">', "<html>", "html-has-lang"),
    "no name": ("zone", r' aria-labelledby="curve-title curve-desc"|<(title|desc) id.*?</\1>', "", "svg-img-alt"),
    "an address without text": ("operator", r">Metrics</a>", "></a>", "link-name"),
    "no sign of the focus": ("zones", r"outline: 2px", "outline: 0px", "unseen"),
    "not reached by Tab": ("zones", r"<a ", '<a tabindex="-1" ', "unseen"),
    "a table as wide as a desk": ("zones", '<table class="zones"', '<table class="zones" style="width: 90rem"', "wide"),
}


def look_at(pages, folder, *, width, options):
    """Return what the browser has found on each page, all of them in one window."""
    (folder / "axe.min.js").write_bytes((files("axe_core_python") / "axe.min.js").read_bytes())
    frames = FRAMES
    for number, (name, html) in enumerate(pages.items()):
        own = html.replace("</head>", LOOK.replace("NAME", json.dumps(name)) + "</head>")
        (folder / f"{number}.html").write_text(own, encoding="utf-8")
        frames += f'<iframe src="{number}.html" width="{width}" height="9000"></iframe>'
    window = folder / "window.html"
    window.write_text(frames, encoding="utf-8")
    command = [*CHROMIUM, *options, f"--user-data-dir={folder / 'profile'}", "--dump-dom", window.as_uri()]
    shown = subprocess.run(command, check=True, capture_output=True, timeout=600, text=True).stdout
    return dict(json.loads(unescape(text)) for text in re.findall(r"<pre>(.*?)</pre>", shown, re.DOTALL))


@pytest.fixture(scope="module", params=["light", pytest.param("dark", marks=pytest.mark.long)])
def found(request, tmp_path_factory):
    width, options = SCHEMES[request.param]
    pages = make_pages()
    for name, (page, text, planted, _) in PLANTED.items():
        pages[name], count = re.subn(text, planted, pages[page], flags=re.DOTALL)
        assert count, name
    looked = look_at(pages, tmp_path_factory.mktemp("pages"), width=width, options=options)
    assert looked.keys() == pages.keys()
    return looked


def test_axe_finds_nothing_serious_on_any_page(found):
    assert len(found.keys() - PLANTED) == 8
    assert {name: own["violations"] for name, own in found.items() if name not in PLANTED and own["violations"]} == {}


def test_the_keyboard_reaches_every_link_and_shows_where_it_is(found):
    assert {name: own["unseen"] for name, own in found.items() if name not in PLANTED and own["unseen"]} == {}
    assert min(own["reached"] for own in found.values()) > 0
    assert found["zone"]["reached"] > 12


def test_no_page_is_scrolled_sideways_on_a_small_phone_or_on_a_desk(found):
    """WCAG 2.2, 1.4.10: at 320 px too."""
    assert {name: own["wide"] for name, own in found.items() if name not in PLANTED and own["wide"]} == {}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_barrier_is_found(found, name):
    rule = PLANTED[name][3]
    assert found[name].get(rule) or rule in {each[0] for each in found[name]["violations"]}
