"""What a resident gets who prints the page of a plan, in a real browser."""

import re
import subprocess

import pytest
from tools.screenshots import BASE_URL, NOW_S, town, view_of

from murmurate.service.public_api.pages.routes import plan_page
from murmurate.translations.language import ENGLISH, GERMAN

pytestmark = [pytest.mark.browser, pytest.mark.slow]
CHROMIUM = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"]


@pytest.fixture(scope="module")
def zone():
    return view_of(town(), "seefeld", "Zürich Seefeld")


@pytest.mark.parametrize("language", [ENGLISH, GERMAN], ids=["en", "de"])
def test_the_page_of_a_plan_prints_on_two_sheets_of_a4(zone, language, tmp_path):
    page, printed = tmp_path / "plan.html", tmp_path / "plan.pdf"
    page.write_text(plan_page(zone, NOW_S, BASE_URL, zone.key, language), encoding="utf-8")
    command = [*CHROMIUM, f"--user-data-dir={tmp_path / 'profile'}", f"--print-to-pdf={printed}", page.as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    pdf = printed.read_bytes()
    assert len(re.findall(rb"/Type\s*/Page\b(?!s)", pdf)) <= 2  # without rules for print it is 4, of another size
    (box,) = set(re.findall(rb"/MediaBox\s*\[([^\]]*)\]", pdf))
    width, height = (float(number) for number in box.split()[2:])
    assert (width, height) == (pytest.approx(595, abs=1), pytest.approx(842, abs=1))
