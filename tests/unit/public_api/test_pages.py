"""The pages for people: they show what is in the log, a name in them is text, and every link leads somewhere."""

import re
import time
from dataclasses import replace
from fractions import Fraction
from html.parser import HTMLParser
from math import log
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.routing import Match
from tests.support.web_server import fetch
from tests.support.zone_views import (
    TICK,
    seconds,
    terms_with,
    view_of,
    views,
    with_keys,
    with_prices,
    with_terms,
    with_totals,
)

from murmurate.pricing.rate import RateCurve, Segment
from murmurate.privacy.noise import NoiseDistribution
from murmurate.privacy.promise import HabitGuessBound
from murmurate.service.clock import ServiceClock
from murmurate.service.log_reader.follower import ChangedShard
from murmurate.service.log_reader.zone_view import Price, PriceKind
from murmurate.service.public_api.app import public_app
from murmurate.service.public_api.live_state import LiveState
from murmurate.service.public_api.local_days import day_of_interval, intervals_of_day
from murmurate.service.public_api.pages.noise_band import half_width_wh, noise_band
from murmurate.service.public_api.pages.routes import page_routes, plan_page, zones_page
from murmurate.service.public_api.pages.zone_page import zone_page
from murmurate.service.settings import ServiceSettings

BASE = "https://prices.example.ch"
KEY = "ab" * 32
NOW_S = seconds(2026, 11, 14, 0, 20)
HOSTILE = "\"><script>alert(1)</script><img src=x onerror=alert(2)>'&amp;{{ 7 * 7 }}{% raw %}"
VOID = {"meta", "link", "br", "circle", "rect", "line", "path"}  # those of SVG close themselves


class Parsed(HTMLParser):
    """Elements in their order, cells of tables, amounts in them, links; refuses tags that do not balance."""

    def __init__(self, html):
        super().__init__()
        self.open, self.elements, self.rows, self.amounts, self.text = [], [], [], [], ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
            self.amounts.append(None)
        if tag == "data" and "td" in [name for name, _ in self.open]:
            self.amounts[-1] = dict(attrs)["value"]
        if tag == "td":
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop()[0] == tag

    def handle_data(self, data):
        tags = [tag for tag, _ in self.open]
        self.text += data if "style" not in tags else ""
        if "td" in tags:
            self.rows[-1][-1] += data

    @property
    def links(self):
        return [own["href"] for tag, own in self.elements if tag == "a"]


def terms_of(law=NoiseDistribution.LAPLACE, curve=None):
    terms = terms_with([0], 900, "CHF")
    curve = curve or terms.curve
    return replace(terms, distribution=law, curve=curve, forecast_ticks=curve.price_ticks(np.full(96, 100_000)))


def live_state_of(*of, clock=None):
    live_state = LiveState(
        "postgresql://nobody@127.0.0.1:1/none",
        ServiceSettings(url=BASE, clock=clock or ServiceClock()),
    )
    for view in of:
        live_state.show_shard(ChangedShard(view.shard, range(0)))
        live_state.plan_terms.put(view.plan_digest, view.terms)
    return live_state


def day_rows(page):
    """The decided prices in the table of the day: start, price, level, kind, and the price as programs read it."""
    rows = zip(page.rows, page.amounts, strict=True)
    return [[*row, amount] for row, amount in rows if len(row) == 4 and row[3] != "Expected"]


def is_rounded(text, price, view):
    """To tenths of a cent, or whole cents from 100 on; without cents to three significant digits."""
    units = 100 if view.currency in {"CHF", "EUR", "GBP", "USD"} else 1
    exact, shown = price * units, Fraction(text)
    if units == 1:
        return abs(shown - exact) <= abs(exact) / 200
    digits = 1 if abs(exact) < 100 else 0
    return (
        text != "-0.0" and len(text.partition(".")[2]) <= 1 and abs(shown - exact) <= Fraction(51, 10 ** (digits + 2))
    )


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(view=views(), at=st.floats(min_value=-0.2, max_value=1.2))
def test_every_price_of_the_day_is_on_the_page_rounded_and_for_programs_tick_for_tick(view, at):
    """So is the price now. At every moment of an interval the page is the same."""
    now_s = view.start_s(view.first_priced) + at * (view.last_decided + 1 - view.first_priced) * view.interval_s
    begin_s = view.start_s(view.interval_at(now_s))
    (html,) = {zone_page(view, begin_s + part * view.interval_s, BASE, KEY) for part in (0, 0.3, 0.999)}
    day = intervals_of_day(view, day_of_interval(view, view.interval_at(now_s)))
    own = [view.prices[n] for n in day if n in view.prices]
    shown = day_rows(Parsed(html))
    assert [row[4] and Fraction(row[4]) / view.tick for row in shown] == [price.ticks for price in own]
    rounded = [(row[1], price) for row, price in zip(shown, own, strict=True) if price.ticks is not None]
    assert all(is_rounded(text, price.ticks * price.tick, view) for text, price in rounded)
    words = {PriceKind.MEASURED: "Measured", PriceKind.FALLBACK: "Fallback", PriceKind.WITHHELD: "No price"}
    assert [row[3] for row in shown] == [words[price.kind] for price in own]
    found = re.search(r'<p class="big">(?:No price|<data value="(.*?)">.*)</p>', html)
    price = view.prices.get(view.interval_at(now_s))
    assert (found[1] and Fraction(found[1]) / view.tick) == (None if price is None else price.ticks)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [HOSTILE, "<script>", "' onload='x", "</style><script>x</script>", "a\u2028b", "{{ 7 * 7 }}", "{% raw %}", "{# x"],
)
def test_what_others_have_named_is_text_and_never_markup(name):
    """`tidy` has the same page with an innocent name: a name that adds an element or an attribute is markup."""
    view, tidy = (with_terms(view_of(zone=one, currency=one), promising(one)) for one in (name, "x"))
    titled = tuple(replace(one, display=replace(one.display, title=f"{one.zone}!")) for one in (view, tidy))
    for bad, good in ((view, tidy), titled):
        for page in (zone_page, plan_page):
            html, calm = page(bad, NOW_S, BASE, KEY), page(good, NOW_S, BASE, KEY)
            assert "<script" not in html
            assert _skeleton(html) == _skeleton(calm)
            assert Parsed(html).text.count(name) >= 5  # zone, currency and promises
    html = zones_page([view], NOW_S, BASE)
    assert "<script" not in html
    assert _skeleton(html) == _skeleton(zones_page([tidy], NOW_S, BASE))


def promising(words):
    return replace(terms_of(), promises=(words, f"{words} again"))


def _skeleton(html):
    return [(tag, sorted(own)) for tag, own in Parsed(html).elements]


def test_there_is_no_script_and_nothing_from_elsewhere():
    view = view_of()
    pages = (zone_page(view, NOW_S, BASE, KEY), plan_page(view, NOW_S, BASE, KEY), zones_page([view], NOW_S, BASE))
    for html in pages:
        elements = Parsed(html).elements
        assert not {tag for tag, _ in elements} & {"script", "iframe", "object", "embed", "img", "form", "base"}
        assert not [own for _, own in elements if any(name.startswith("on") for name in own)]
        fetched = [own.get("src") or own["href"] for tag, own in elements if "src" in own or tag == "link"]
        assert all(address.startswith("data:") for address in fetched)
        assert "url(" not in html.replace("url(#hatch)", "")


@pytest.mark.parametrize("currency", ["CHF", "EUR"])
@pytest.mark.parametrize("zone", ["harbour", "old town?#%", "Zürich"])
def test_every_link_leads_to_a_route(zone, currency):
    view = view_of(zone=zone, currency=currency)
    live_state = live_state_of(view)
    routes = public_app(live_state, page_routes(live_state))._inner.routes
    pages = (zone_page(view, NOW_S, BASE, KEY), plan_page(view, NOW_S, BASE, KEY), zones_page([view], NOW_S, BASE))
    links = [link for page in pages for link in Parsed(page).links]
    assert len(links) > 9
    assert any("/vse/" in link for link in links) == (currency == "CHF")
    for link in links:
        assert link.startswith(f"{BASE}/")
        scope = {"type": "http", "method": "GET", "path": unquote(urlsplit(link).path), "headers": []}
        matches = [(match, child) for match, child in (route.matches(scope) for route in routes) if match is Match.FULL]
        assert matches, link
        assert matches[0][1]["path_params"].get("zone", zone) == zone


def test_the_words_for_each_kind_are_on_the_page():
    kinds = (PriceKind.MEASURED, PriceKind.FALLBACK, PriceKind.WITHHELD)
    for kind, words in zip(kinds, ("with noise added", "comes from the public plan", "No price"), strict=True):
        view = view_of((100,) * 4)
        at = view.first_priced + 1
        price = Price(at, kind, None if kind is PriceKind.WITHHELD else 100, TICK, None, 0.0)
        view = with_prices(view, {at: price})
        html = zone_page(view, view.start_s(at), BASE, KEY)
        assert words in html[html.index('class="now"') : html.index("<h2>")]
    assert html.count('class="gap"') == 1
    assert 'class="key gap"' in html


def test_each_hour_of_a_day_on_which_the_clock_changes_has_its_own_name():
    view = view_of((100,) * 120, begin_s=seconds(2026, 10, 24, 22))
    page = Parsed(zone_page(view, seconds(2026, 10, 25, 12), BASE, KEY))
    names = [row[0] for row in day_rows(page)]
    assert len(names) == len(set(names)) == 100
    assert {"02:00 (UTC+02:00)", "02:00 (UTC+01:00)"} <= set(names)


@pytest.mark.parametrize("end", [10, 24])
def test_labels_of_hours_are_equally_far_apart_and_each_is_over_its_hour(end):
    """The first and the last one too: none is moved to stay inside."""
    view = view_of((100,) * 8, begin_s=seconds(2026, 11, 13, 23))
    html = zone_page(view, seconds(2026, 11, 14, end - 1), BASE, KEY)
    labels = re.findall(r'x="([\d.]+)%" y="292" text-anchor="(\w+)">(\d\d):00', html)
    assert [float(x) for x, _, _ in labels] == [12.5 * n for n in range(9)]
    assert [(int(hour), anchor) for _, anchor, hour in labels] == [(3 * n % 24, "middle") for n in range(9)]


def test_a_zone_without_a_title_is_called_zone():
    view = view_of(zone="quartier")
    assert "<h1>Zone quartier</h1>" in zone_page(view, NOW_S, BASE, KEY)
    titled = replace(view, display=replace(view.display, title="Am Wasser"))
    assert '<h1>Am Wasser</h1>\n<p class="soft">Zone quartier</p>' in zone_page(titled, NOW_S, BASE, KEY)


@pytest.mark.parametrize(("law", "factor"), [(NoiseDistribution.LAPLACE, log(20)), (NoiseDistribution.GAUSSIAN, 1.96)])
def test_the_band_is_the_tariff_at_the_95_percent_points_of_the_noise(law, factor):
    terms = terms_of(law)
    ticks = int(terms.curve.price_ticks(300_000))
    ((low, high),) = noise_band(
        terms, [Price(7, PriceKind.MEASURED, ticks, TICK, 5000.0, 0.0)], lead=2, since=0
    ).values()
    assert low == pytest.approx(0.08 + 0.0002 * (300 - 5 * factor), abs=3e-5)
    assert high == pytest.approx(0.08 + 0.0002 * (300 + 5 * factor), abs=3e-5)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(scale_wh=st.floats(50, 2000), cores=st.floats(0, 12))
def test_huber_noise_stays_within_its_reach_95_times_in_100(scale_wh, cores):
    core_wh = int(cores * scale_wh)
    size = np.arange(int(core_wh + 30 * scale_wh))
    tail = np.exp(-(size / scale_wh - core_wh / (2 * scale_wh)))
    weight = np.where(size <= core_wh, np.exp(-(size**2) / (2 * scale_wh * max(core_wh, 1))), tail)
    weight[1:] *= 2  # either sign
    reach = half_width_wh(NoiseDistribution.HUBER, scale_wh, core_wh)
    assert weight[reach + 1 :].sum() / weight.sum() == pytest.approx(0.05, abs=0.002)


def test_the_page_never_understates_what_habits_prices_may_teach():
    habits = (
        HabitGuessBound(days=1, any_habits=0.6, home_by_day=0.5301),
        HabitGuessBound(days=30, any_habits=1.0, home_by_day=0.999),
    )
    terms = replace(terms_of(), habits=habits)
    text = Parsed(zone_page(with_terms(view_of(), terms), NOW_S, BASE, KEY)).text
    assert "at most 54 after a day and 100 after 30 days are right" in text
    silent = Parsed(zone_page(with_terms(view_of(), terms_of()), NOW_S, BASE, KEY)).text
    assert "are right" not in silent


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(demand_wh=st.integers(-50_000, 900_000), noise_wh=st.integers(-400_000, 400_000))
def test_the_band_holds_the_price_without_noise_wherever_the_noise_stays_within_its_reach(demand_wh, noise_wh):
    """Also over steps, level stretches, floor and cap."""
    pieces = [Segment(0, Fraction(1, 10), Fraction(0)), Segment(100_000, Fraction(2, 10), Fraction(1, 1000))]
    pieces.append(Segment(300_000, Fraction(6, 10), Fraction(0)))
    curve = RateCurve.from_segments(pieces, tick="0.00001", floor="0.1", cap="0.5")
    scale_wh = (abs(noise_wh) + 1) / log(20)
    noised = int(curve.price_ticks(demand_wh + noise_wh))
    ((low, high),) = noise_band(
        terms_of(curve=curve), [Price(7, PriceKind.MEASURED, noised, TICK, scale_wh, 0.0)], lead=2, since=0
    ).values()
    assert low <= float(curve.price(demand_wh)) <= high


def test_prices_at_and_beyond_the_cap_have_a_band_beside_others():
    """No demand makes a price beyond the cap: the search for it ends all the same."""
    prices = [
        Price(n, PriceKind.MEASURED, ticks, TICK, 5000.0, 0.0)
        for n, ticks in enumerate((8120, 0, -7, 200_000, 10**7, 199_999, 12_345))
    ]
    band = noise_band(terms_of(), prices, lead=2, since=0)
    assert list(band) == list(range(7))
    assert all(0 <= low <= high <= 2 for low, high in band.values())


def test_a_tariff_that_falls_has_no_band():
    falling = RateCurve.affine(alpha="-0.0002", beta="2", tick="0.00001")
    assert (
        noise_band(terms_of(curve=falling), [Price(7, PriceKind.MEASURED, 100, TICK, 5000.0, 0.0)], lead=2, since=0)
        == {}
    )


def test_a_page_is_sent_with_headers_that_keep_anything_foreign_out():
    view = view_of()
    live_state = live_state_of(view, clock=ServiceClock(simulated_s=NOW_S + 0.0, wall_s=0.0, speed=1e-12))
    app = public_app(live_state, page_routes(live_state))
    for path in ("/", "/zones/harbour", "/zones/harbour/plan"):
        answer = fetch(app, path)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; style-src 'unsafe-inline';")
        assert answer.headers["referrer-policy"] == "no-referrer"
        again = fetch(app, path, headers={"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    assert fetch(app, "/zones/nowhere").status_code == 404
    assert fetch(app, "/zones/harbour?x=1").status_code == 400


def test_a_page_is_asked_for_again_just_after_the_price_changes():
    live_state = live_state_of(view_of())
    for part_s in (0.0, 400.0, 899.0):
        live_state.clock = ServiceClock(simulated_s=NOW_S // 900 * 900 + part_s, wall_s=time.time())
        left_s = 900 - part_s
        refresh = int(fetch(public_app(live_state, page_routes(live_state)), "/zones/harbour").headers["refresh"])
        assert left_s < refresh <= left_s + 4


def test_a_page_follows_the_log():
    view = view_of((8120, 9000))
    live_state = live_state_of(view, clock=ServiceClock(simulated_s=NOW_S + 0.0, wall_s=0.0, speed=1e-12))
    app = public_app(live_state, page_routes(live_state))
    assert "0.09000" in fetch(app, "/zones/harbour").text
    live_state.show_shard(ChangedShard(view_of((8120, 9001)).shard, range(0)))
    assert "0.09001" in fetch(app, "/zones/harbour").text


def test_the_page_tells_how_to_verify_and_which_key_signs():
    view = with_keys(view_of(zone="old town; rm -rf"), "ab" * 32, "cd" * 32)
    text = Parsed(zone_page(view, NOW_S, BASE, KEY)).text
    assert f"murmurate log verify {BASE}/zones/old%20town%3B%20rm%20-rf/log.jsonl --key {KEY}" in text
    assert "now signed by cdcdcdcd…, its successor" in text
    assert "Compare it with the one that the operator shows elsewhere" in text
    assert "successor" not in zone_page(with_keys(view, "ab" * 32, "ab" * 32), NOW_S, BASE, KEY)


def test_the_cost_of_the_chain_is_on_no_page_for_residents():
    view = with_totals(view_of(), 12_345_678, 294)
    for page in (zone_page, plan_page):
        text = Parsed(page(view, NOW_S, BASE, KEY)).text
        assert not [number for number in ("12.345", "0.000294", "ρ", "rho") if number in text]


def test_all_text_can_be_read_by_day_and_by_night():
    """WCAG 2.2, 1.4.3: a contrast of at least 4.5 to 1, on the paper and on a card."""
    style = zones_page([], NOW_S, BASE).partition("<style>")[2]
    for mode in style.split(":root")[1:3]:
        colours = dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6})", mode))
        assert colours.keys() >= {"paper", "card", "ink", "soft", "accent", "fallback", "withheld", "good", "bad"}
        for under in ("paper", "card"):
            for name in ("ink", "soft", "accent", "fallback", "withheld", "good", "bad"):
                light, dark = sorted((_luminance(colours[name]), _luminance(colours[under])), reverse=True)
                assert (light + 0.05) / (dark + 0.05) >= 4.5, (name, under)


def _luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.slow
def test_many_zones_fill_one_page_and_no_more():
    live_state = live_state_of(*(view_of(zone=f"zone {n:04}") for n in range(1003)))
    app = public_app(live_state, page_routes(live_state))
    page = Parsed(fetch(app, "/").text)
    assert sum(len(row) == 3 for row in page.rows) == 1000
    assert "More zones: 3." in page.text
    (following,) = (link for link in page.links if "after=" in link and "lang=en" in link)
    assert following == f"{BASE}/?after=zone%200999&lang=en"
    last = Parsed(fetch(app, following).text)
    assert [row[0] for row in last.rows if len(row) == 3] == ["zone 1000", "zone 1001", "zone 1002"]
    assert "More zones" not in last.text
