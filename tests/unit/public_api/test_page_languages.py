"""Pages in English and German: the same keys everywhere, each one used, the language that the reader asks for."""

import re
from datetime import date
from pathlib import Path
from string import Formatter

import pytest
from tests.support.web_server import fetch
from tests.support.zone_views import seconds, view_of, with_terms
from tests.unit.public_api.test_pages import BASE, KEY, NOW_S, Parsed, live_state_of, promising

import murmurate.service
from murmurate.planning import promise_text
from murmurate.service.clock import ServiceClock
from murmurate.service.public_api.app import public_app
from murmurate.service.public_api.pages.formatting import format_day
from murmurate.service.public_api.pages.routes import page_routes, plan_page
from murmurate.service.public_api.pages.zone_page import zone_page
from murmurate.translations.language import ENGLISH, GERMAN, LANGUAGES, preferred_language

SERVICE = Path(murmurate.service.__file__).parent
SOURCES = [
    *(SERVICE / "web" / "templates").glob("*.html"),
    *(SERVICE / "public_api" / "pages").glob("*.py"),
    *(SERVICE / "operator_api").glob("*.py"),
    Path(promise_text.__file__),
]
BY_LAST_WORD = ("attention", "operator")  # tables whose keys stand in the source without the table
CHOSEN_BY_DATA = ("number.", "subunit.", "subunit_short.")  # a country, a currency


def placeholders(text):
    return sorted(name for _, name, _, _ in Formatter().parse(text) if name is not None)


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES)
def test_every_key_is_in_every_language_with_the_same_placeholders_and_markup(language):
    assert language.texts.keys() == ENGLISH.texts.keys()
    for key, text in ENGLISH.texts.items():
        assert placeholders(language.texts[key]) == placeholders(text), key
        assert re.findall(r"<[^>]*>", language.texts[key]) == re.findall(r"<[^>]*>", text), key
        assert language.texts[key].strip(), key


def test_every_key_is_used_and_every_used_key_is_there():
    source = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
    named = set(re.findall(r'"([a-z]+\.[a-z_0-9]+)"', source)) & ENGLISH.texts.keys()
    named |= {f"{table}.{word}" for table in BY_LAST_WORD for word in re.findall(r'"([a-z_]+)"', source)}
    begun = tuple(re.findall(r't\("([a-z]+\.[a-z_]*)" ~', source)) + tuple(re.findall(r'f"([a-z]+\.[a-z]+_)\{', source))
    chosen = tuple(begin for begin in (*begun, *CHOSEN_BY_DATA) if begin.strip(".") not in BY_LAST_WORD)
    unused = [key for key in ENGLISH.texts if key not in named and not key.startswith(chosen)]
    assert unused == []
    called = set(re.findall(r'(?:\bt|\.text|\.plain)\("([a-z]+\.[a-z_0-9]+)"[,)]', source))
    assert len(called) > 80
    assert called - ENGLISH.texts.keys() == set()


def test_german_is_written_without_a_sharp_s_so_that_it_is_right_in_switzerland_too():
    assert [key for key, text in GERMAN.texts.items() if "ß" in text] == []


def test_dates_and_numbers_are_those_of_the_language():
    assert format_day(date(2026, 3, 4), GERMAN) == "Mittwoch, 4. März 2026"
    for country, price in (("CH", "8.1"), ("DE", "8,1"), (None, "8,1")):
        view = view_of(country=country, begin_s=seconds(2026, 11, 14), currency="EUR")
        text = Parsed(zone_page(view, NOW_S - 1200, BASE, KEY, GERMAN)).text
        assert f"{price}Cent pro kWh" in text
    assert "8.1cents per kWh" in Parsed(zone_page(view, NOW_S - 1200, BASE, KEY)).text


def test_a_currency_without_a_known_subunit_is_shown_as_it_is():
    text = Parsed(zone_page(view_of(currency="XTS"), NOW_S - 1200, BASE, KEY)).text
    assert "0.0812XTS per kWh" in text


def test_no_english_word_is_left_on_a_german_page():
    view = with_terms(view_of(), promising("any 24 h: epsilon 1, delta 1e-6"))
    for page in (zone_page, plan_page):
        html = re.sub("<pre>.*?</pre>", "", page(view, NOW_S, BASE, KEY, GERMAN), flags=re.DOTALL)  # to paste
        text = Parsed(html).text.replace(BASE, "")
        assert not re.findall(r"\b(the|and|price|prices|expected|plan of|of|hours|today|nothing)\b", text)
        assert '<html lang="de">' in page(view, NOW_S, BASE, KEY, GERMAN)


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("de", "de"),
        ("de-CH,de;q=0.9,en;q=0.8", "de"),
        ("en-GB,en;q=0.9,de;q=0.8", "en"),
        ("fr-CH, fr;q=0.9, de;q=0.7, en;q=0.5", "de"),
        ("it", "en"),
        ("de;q=0, en;q=0.1", "en"),
        ("de;q=x, de;q=1e9, ;;;==,,", "en"),
        ("x" * 100_000 + ",de", "en"),
    ],
)
def test_the_browser_says_which_language_it_prefers(header, code):
    assert preferred_language(header).code == code


@pytest.mark.slow
def test_a_cache_never_gives_a_reader_the_language_of_another():
    view = view_of()
    live_state = live_state_of(view, clock=ServiceClock(simulated_s=NOW_S + 0.0, wall_s=0.0, speed=1e-12))
    app = public_app(live_state, page_routes(live_state))
    for path in ("/", "/zones/harbour", "/zones/harbour/plan") * 2:  # made, then cached
        for asked, header, code in (
            ("", "de", "de"),
            ("", "en", "en"),
            ("?lang=de", "en", "de"),
            ("?lang=en", "de", "en"),
        ):
            answer = fetch(app, path + asked, headers={"accept-language": header})
            assert (answer.status_code, answer.headers["content-language"]) == (200, code)
            assert f'<html lang="{code}">' in answer.text
            assert answer.headers["vary"] == "accept-language"
            same = {"accept-language": header, "if-none-match": answer.headers["etag"]}
            again = fetch(app, path + asked, headers=same)
            assert (again.status_code, again.headers["vary"]) == (304, "accept-language")
            changed = fetch(app, path, headers={**same, "accept-language": "en" if code == "de" else "de"})
            assert changed.status_code == 200
    assert fetch(app, "/zones/harbour?lang=xx").status_code == 400
    assert fetch(app, "/?lang=de&lang=en").status_code == 400


@pytest.mark.parametrize("code", LANGUAGES)
def test_links_between_pages_keep_the_language_and_one_leads_to_the_other(code):
    other = "de" if code == "en" else "en"
    view = view_of()
    zone = Parsed(zone_page(view, NOW_S, BASE, KEY, LANGUAGES[code])).links
    plan = Parsed(plan_page(view, NOW_S, BASE, KEY, LANGUAGES[code])).links
    assert {f"{BASE}/?lang={code}", f"{BASE}/zones/harbour/plan?lang={code}", f"{BASE}/zones/harbour?lang={other}"} <= {
        *zone
    }
    assert {f"{BASE}/zones/harbour?lang={code}", f"{BASE}/zones/harbour/plan?lang={other}"} <= {*plan}
