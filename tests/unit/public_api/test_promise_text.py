"""The promise in one sentence, with the plan's own number, never better than what is proven."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.zone_views import view_of, with_terms
from tests.unit.public_api.test_pages import BASE, KEY, NOW_S, Parsed, promising, terms_of

from murmurate.planning.plan import make_plan
from murmurate.planning.release_terms import PlannedHouseholds, ReleaseTerms
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.privacy.guess_bound import max_guess_probability
from murmurate.privacy.promise import HabitGuessBound, IntervalPromise, WindowPromise, parse_promise
from murmurate.service.public_api.pages.language import ENGLISH, GERMAN
from murmurate.service.public_api.pages.plan_page import plan_page
from murmurate.service.public_api.pages.promise_text import (
    format_length,
    guess_percent,
    promise_rows,
    promise_sentences,
)
from murmurate.service.public_api.pages.zone_page import zone_page


def terms_with_promises(*promises, **changed):
    return replace(terms_of(), promises=promises, **changed)


def test_a_promise_of_a_day_is_one_sentence_with_its_number():
    terms = terms_with_promises("any 24 h: epsilon 1, delta 1e-06")
    (english,), (german,) = (promise_sentences(terms, language) for language in (ENGLISH, GERMAN))
    assert english == (
        "Someone who knows what all others used and reads every price of any 24 hours can raise the chance of "
        "guessing whether you were home from 50:50 to at most 74:26."
    )
    assert german == (
        "Wer den Verbrauch aller anderen kennt und alle Preise von beliebigen 24 Stunden liest, kann seine Chance, "
        "richtig zu raten, ob Sie zu Hause waren, von 50:50 auf höchstens 74:26 erhöhen."
    )


@pytest.mark.parametrize(
    ("promise", "words", "odds"),
    [
        ("interval: 0.5", "From one price alone", "63:37"),
        ("any 7 d: epsilon 2", "any 7 days", "89:11"),
        ("any 2 intervals: epsilon 0.1", "any 30 minutes", "53:47"),
        ("any moment, habits known: 1", "past and future", "74:26"),
        ("any 365 d: epsilon 30, delta 1e-9", "any 365 days", "100:0"),
    ],
)
def test_each_kind_of_promise_has_its_own_sentence(promise, words, odds):
    (sentence,) = promise_sentences(terms_with_promises(promise), ENGLISH)
    assert words in sentence
    assert sentence.endswith(f"from 50:50 to at most {odds}.")


@given(
    epsilon=st.fractions(min_value=Fraction(1, 1000), max_value=8, max_denominator=10**9),
    delta=st.sampled_from([Fraction(0), Fraction(123_456_789, 10**14), Fraction(1, 3 * 10**6)]),
)
def test_what_a_page_reads_from_the_text_of_a_promise_is_never_better_than_the_promise(epsilon, delta):
    """The text rounds epsilon and delta to six digits; the number of right guesses does not profit from it."""
    promise = WindowPromise(96, epsilon, delta, "24 h")
    read = parse_promise(str(promise), 96)
    for digits in (0, 1):
        assert guess_percent(read, digits) >= 100 * max_guess_probability(epsilon, delta)


def test_a_promise_in_other_words_is_shown_as_it_is():
    assert promise_sentences(terms_with_promises("nothing is <b>told</b>"), ENGLISH) == ["nothing is <b>told</b>"]
    page = zone_page(with_terms(view_of(), promising("nothing is <b>told</b>")), NOW_S, BASE, KEY)
    assert "nothing is &lt;b&gt;told&lt;/b&gt;" in page


def test_stretches_of_time_come_first_and_the_shortest_of_them_is_the_one_that_stands_out():
    terms = terms_with_promises(
        "interval: 0.5", "any moment, habits known: 1", "any 7 d: epsilon 2", "any 24 h: epsilon 1"
    )
    sentences = promise_sentences(terms, ENGLISH)
    assert [("24 hours" in one, "7 days" in one, "moment" in one) for one in sentences[:3]] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]
    html = zone_page(with_terms(view_of(), terms), NOW_S, BASE, KEY)
    assert html.count('class="promise"') == 1
    assert "any 24 hours" in html.partition('class="promise"')[2][:200]


def test_the_table_has_one_price_a_day_and_for_ever():
    habits = (HabitGuessBound(days=365, any_habits=1.0, home_by_day=0.9051),)
    terms = terms_with_promises(
        "any 24 h: epsilon 1, delta 1e-06", "any moment, habits known: 1", spent=(0.99961, 0.5), habits=habits
    )
    rows = [(row.guesses, row.promised, row.spent) for row in promise_rows(terms, GERMAN)]
    assert rows == [
        ("50,1", "–", "ε = 0,001"),  # 1,000 millionths for one price
        ("73,2", "ε = 1, δ = 10⁻⁶", "ε = 0,9997"),
        ("73,2", "ε = 1", "ε = 0,5"),
        ("90,6", "–", "–"),
    ]


def test_one_price_has_no_row_of_its_own_where_its_noise_has_no_bound():
    gaussian = replace(terms_of(), epsilon_micro=np.zeros(96, int), rho_micro=np.full(96, 7))
    assert promise_rows(gaussian, ENGLISH) == []
    assert len(promise_rows(terms_with_promises("interval: 0.5"), ENGLISH)) == 1
    assert guess_percent(IntervalPromise(Fraction(1, 2)), 1) == Fraction("62.3")


def test_lengths_of_time():
    lengths = [format_length(seconds, GERMAN) for seconds in (900, 3600, 7200, 86_400, 172_800)]
    assert lengths == ["15 Minuten", "60 Minuten", "2 Stunden", "24 Stunden", "2 Tagen"]


def test_the_plan_page_says_where_nothing_is_promised_for_ever():
    without, with_moment = (
        Parsed(plan_page(with_terms(view_of(), terms_with_promises(promise)), NOW_S, BASE, KEY)).text
        for promise in ("any 24 h: epsilon 1", "any moment, habits known: 1")
    )
    assert "no number is promised" in without
    assert "no number is promised" not in with_moment


def test_the_plan_page_has_what_a_regulator_asks_for():
    kinds = (PlannedHouseholds("flat", 4000, 1000, Fraction(0)), PlannedHouseholds("shop", 1, 20_000, Fraction(1)))
    kinds += (PlannedHouseholds("workshop", 12, 5000, Fraction(1, 3)),)
    terms = terms_with_promises("any 24 h: epsilon 1", spent=(0.9,), households=kinds)
    page = Parsed(plan_page(with_terms(view_of(), terms), NOW_S, BASE, KEY))
    assert ["flat", "4’000", "1.00 kWh", "protected"] in page.rows
    assert ["shop", "1", "20.0 kWh", "public"] in page.rows
    assert ["workshop", "12", "5.00 kWh", "protected, but for public hours"] in page.rows
    assert "One price for every 15 minutes" in page.text
    assert "paid 30 minutes later" in page.text
    assert "moves the demand of the zone by at most 15.0 kWh" in page.text  # 5 kWh ln 20
    assert "moves by at most 0.300 Rappen per kWh" in page.text  # 0.0002 CHF/kWh a kWh
    assert f"murmurate verify {BASE}/zones/harbour/log.jsonl --key {KEY}" in page.text
    assert " ".join(["abababab"] * 8) in page.text
    assert f"{BASE}/plans/{'0' * 64}.json" in page.links


def test_a_plan_file_has_what_the_page_shows():
    text = EXAMPLE_ZONE_FILE.replace("any 24 h: epsilon 1, delta 1e-6", "interval: 0.5").replace(
        ', "any moment: 1"', ""
    )
    terms = ReleaseTerms.from_json(make_plan(parse_zone(text)).to_json())
    assert terms.households == (
        PlannedHouseholds("flat", 800, 1000, Fraction(0)),
        PlannedHouseholds("fish market", 1, 20_000, Fraction(1)),
    )
    assert terms.spent == (pytest.approx(0.5, abs=1e-5),)
