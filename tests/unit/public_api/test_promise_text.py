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
from murmurate.planning.promise_text import (
    EarlierPlan,
    PlanChanges,
    describe_promises,
    format_length,
    guess_percent,
)
from murmurate.planning.release_terms import PlannedHouseholds, ReleaseTerms
from murmurate.planning.zone_file import EXAMPLE_FORECAST, EXAMPLE_ZONE_FILE, parse_zone
from murmurate.privacy.promise import (
    AbsenceGuessBound,
    HabitGuessBound,
    IntervalPromise,
    WindowPromise,
    max_guess_probability,
    parse_promise,
)
from murmurate.service.log_reader.zone_view import PlanEnd, PriceKind
from murmurate.service.public_api.pages.routes import plan_page
from murmurate.service.public_api.pages.zone_page import zone_page
from murmurate.translations.language import ENGLISH, GERMAN


def terms_with_promises(*promises, **changed):
    return replace(terms_of(), promises=promises, **changed)


def test_a_promise_of_a_day_is_one_sentence_with_its_number():
    terms = terms_with_promises("any 24 h: epsilon 1, delta 1e-06")
    (english,), (german,) = (describe_promises(terms, language).sentences for language in (ENGLISH, GERMAN))
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
        ("interval: 0.5", "From the noisy measurement of one interval alone", "63:37"),
        ("any 7 d: epsilon 2", "any 7 days", "89:11"),
        ("any 2 intervals: epsilon 0.1", "any 30 minutes", "53:47"),
        ("any moment, habits known: 1", "past and future", "74:26"),
        ("any 365 d: epsilon 30, delta 1e-9", "any 365 days", "100:0"),
    ],
)
def test_each_kind_of_promise_has_its_own_sentence(promise, words, odds):
    (sentence,) = describe_promises(terms_with_promises(promise), ENGLISH).sentences
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
    assert guess_percent(read) >= 100 * max_guess_probability(epsilon, delta)


def test_a_promise_in_other_words_is_shown_as_it_is():
    terms = terms_with_promises("nothing is <b>told</b>")
    assert describe_promises(terms, ENGLISH).sentences == ["nothing is <b>told</b>"]
    page = zone_page(with_terms(view_of(), promising("nothing is <b>told</b>")), NOW_S, BASE, KEY)
    assert "nothing is &lt;b&gt;told&lt;/b&gt;" in page


def test_stretches_of_time_come_first_and_the_shortest_of_them_is_the_one_that_stands_out():
    terms = terms_with_promises(
        "interval: 0.5", "any moment, habits known: 1", "any 7 d: epsilon 2", "any 24 h: epsilon 1"
    )
    sentences = describe_promises(terms, ENGLISH).sentences
    assert [("24 hours" in one, "7 days" in one, "moment" in one) for one in sentences[:3]] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]
    html = zone_page(with_terms(view_of(), terms), NOW_S, BASE, KEY)
    assert html.count('class="promise"') == 1
    assert "any 24 hours" in html.partition('class="promise"')[2][:200]


def test_the_table_has_one_release_a_day_and_for_ever():
    habits = (HabitGuessBound(days=365, any_habits=1.0, home_by_day=0.9051),)
    terms = terms_with_promises(
        "any 24 h: epsilon 1, delta 1e-06", "any moment, habits known: 1", spent=(0.99961, 0.5), habits=habits
    )
    rows = [(row.guesses, row.promised, row.spent) for row in describe_promises(terms, GERMAN).rows]
    assert rows == [
        ("51", "–", "ε = 0,001"),  # 1,000 millionths for one release
        ("74", "ε = 1, δ = 10⁻⁶", "ε = 0,9997"),
        ("74", "ε = 1", "ε = 0,5"),
        ("91", "–", "–"),
    ]


def test_one_release_has_no_row_of_its_own_where_its_noise_has_no_bound():
    gaussian = replace(terms_of(), epsilon_micro=np.zeros(96, int), rho_micro=np.full(96, 7))
    assert describe_promises(gaussian, ENGLISH).rows == []
    assert len(describe_promises(terms_with_promises("interval: 0.5"), ENGLISH).rows) == 1
    assert guess_percent(IntervalPromise(Fraction(1, 2))) == 63


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
    assert f"murmurate log verify {BASE}/zones/harbour/log.jsonl --key {KEY}" in page.text
    assert " ".join(["abababab"] * 8) in page.text
    assert f"{BASE}/plans/{'0' * 64}.json" in page.links


@pytest.mark.parametrize(
    ("language", "counted", "column"),
    [
        (ENGLISH, "between −0.700 and 1.00 kWh", "Counted, per interval"),
        (GERMAN, "zwischen −0.700 und 1.00 kWh", "Pro Intervall gezählt"),
    ],
)
def test_the_plan_page_shows_the_range_of_a_household_that_feeds_in(language, counted, column):
    flat = PlannedHouseholds("flat", 40, 1000, Fraction(0))
    kinds = (flat, PlannedHouseholds("flat with PV", 10, 1000, Fraction(0), export_bound_wh=700))
    terms = terms_with_promises("any 24 h: epsilon 1", spent=(0.9,), households=kinds)
    page = Parsed(plan_page(with_terms(view_of(), terms), NOW_S, BASE, KEY, language))
    assert [row[2] for row in page.rows if row[:1] in (["flat"], ["flat with PV"])] == ["1.00 kWh", counted]
    assert column in page.text
    without = plan_page(with_terms(view_of(), replace(terms, households=kinds[:1])), NOW_S, BASE, KEY, language)
    assert f"{column}<" not in without
    assert f"{column}<" in plan_page(with_terms(view_of(), terms), NOW_S, BASE, KEY, language)


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


def view_after_change(before, after, changed_s):
    """A zone whose plan was changed at a moment: the promises of the plan before, and of the one after."""
    terms = {"1" * 64: terms_with_promises(*before), "0" * 64: terms_with_promises(*after)}
    view = view_of()
    ended = PlanEnd("1" * 64, changed_s // view.interval_s)
    return replace(view, older_plans=(ended,), load_terms=terms.__getitem__)


DAY = "any 24 h: epsilon {}, delta 1e-06"
CHANGED_S = NOW_S - 3 * 3600 - NOW_S % 900  # Friday, 22:15 in Zurich


def test_a_stretch_under_one_plan_has_what_its_noise_gives_and_one_across_a_change_what_epsilon_allows():
    """A plan with the same promise may have had less noise."""
    terms = terms_with_promises(DAY.format(1), right_guesses=(0.541,))
    assert describe_promises(terms, ENGLISH).sentences[0].endswith("from 50:50 to at most 55:45.")
    assert [row.guesses for row in describe_promises(terms, ENGLISH).rows if "any 24" in row.scope] == ["55"]
    for now, odds in ((95, "55:45"), (94, "74:26")):
        changes = PlanChanges((EarlierPlan(terms, 0),), now)
        assert describe_promises(terms, ENGLISH, changes).sentences[0].endswith(f"at most {odds}.")


def test_numbers_that_no_promise_holds_across_a_change_are_said_of_this_plan_alone():
    """Days before a change had other noise, and 14 days or a year may reach back to them."""
    terms = terms_with_promises(
        DAY.format(1), absence=AbsenceGuessBound(14, 0.53), habits=(HabitGuessBound(365, 0.7, 0.6),)
    )
    for language, words in ((ENGLISH, ("under this plan", "of this plan")), (GERMAN, ("diesem Plan", "dieses Plans"))):
        absence, habits = describe_promises(terms, language).beyond
        assert words[0] in absence
        assert words[1] in habits


@pytest.mark.parametrize("page", [zone_page, plan_page])
def test_after_a_change_the_weaker_promise_counts_until_no_stretch_reaches_back(page):
    view = view_after_change([DAY.format(1)], [DAY.format(0.5)], CHANGED_S)
    until_s = CHANGED_S + 95 * 900  # the last stretch with an interval before the change ends here
    english = Parsed(page(view, until_s - 1, BASE, KEY)).text
    assert "from 50:50 to at most 74:26. The plan was changed on Friday, 13 November 2026, 22:15." in english
    assert "Until Saturday, 14 November 2026, 22:00 this weaker number counts" in english
    assert "after that at most 63:37." in english
    german = Parsed(page(view, until_s - 1, BASE, KEY, GERMAN)).text
    assert "Bis Samstag, 14. November 2026, 22:00 Uhr gilt diese schwächere Zahl" in german
    later = Parsed(page(view, until_s, BASE, KEY)).text
    assert "at most 63:37." in later
    assert "74:26" not in later
    assert "weaker" not in later


def test_after_a_change_the_table_has_both_promises_with_their_dates():
    view = view_after_change([DAY.format(1)], [DAY.format(0.5)], CHANGED_S)
    rows = [row for row in Parsed(plan_page(view, NOW_S, BASE, KEY)).rows if row and "any 24 hours" in row[0]]
    assert [row[1:3] for row in rows] == [["74", "ε = 1, δ = 10⁻⁶"], ["63", "ε = 0.5, δ = 10⁻⁶"]]
    assert "until Saturday, 14 November 2026, 22:00" in rows[0][0]
    assert "from Saturday, 14 November 2026, 22:00 on" in rows[1][0]


@pytest.mark.parametrize(
    "before",
    [
        [DAY.format(0.2)],  # stronger: the one in force is the weaker
        ["any 24 h: epsilon 3"],  # without delta: a promise of its own
        ["any 7 d: epsilon 3, delta 1e-06"],  # the change is proven for the promise of a day
    ],
)
def test_a_change_that_does_not_weaken_a_promise_is_not_mentioned(before):
    view = view_after_change(before, [DAY.format(0.5)], CHANGED_S)
    text = Parsed(plan_page(view, NOW_S, BASE, KEY)).text
    assert "at most 63:37." in text
    assert "plan was changed" not in text


@pytest.mark.parametrize("promise", ["interval: {}", "any moment, habits known: {}"])
def test_a_stronger_promise_about_a_moment_counts_from_the_change_on(promise):
    words = "It counts from Friday, 13 November 2026, 22:15 on"
    for before, is_said in ((promise.format(2), True), ("any 24 h: epsilon 3", True), (promise.format(0.5), False)):
        text = Parsed(zone_page(view_after_change([before], [promise.format(1)], CHANGED_S), NOW_S, BASE, KEY)).text
        assert (words in text) == is_said


def test_of_several_changes_the_weakest_promise_counts_until_the_last_weaker_one_is_past():
    terms = {str(n) * 64: terms_with_promises(DAY.format(e)) for n, e in ((0, 0.5), (1, 2), (2, 1))}
    view, changed = view_of(), CHANGED_S // 900
    older = (PlanEnd("1" * 64, changed - 40), PlanEnd("2" * 64, changed))
    view = replace(view, older_plans=older, load_terms=terms.__getitem__)
    text = Parsed(zone_page(view, NOW_S, BASE, KEY)).text
    assert "at most 89:11. The plan was changed" in text
    assert "Until Saturday, 14 November 2026, 22:00" in text
    text = Parsed(zone_page(view, (changed - 40 + 95) * 900, BASE, KEY)).text
    assert "at most 74:26. The plan was changed" in text


@pytest.mark.slow
def test_what_a_fallback_price_comes_from_depends_on_whether_prices_are_predicted():
    plan = make_plan(parse_zone(EXAMPLE_ZONE_FILE + EXAMPLE_FORECAST))
    predicted = ReleaseTerms.from_json(plan.to_json())
    for terms, words in (
        (predicted, "is a prediction from the plan and earlier releases"),
        (replace(predicted, prediction=None), "comes from the plan alone"),
    ):
        text = Parsed(plan_page(with_terms(view_of(), terms), NOW_S, BASE, KEY)).text
        assert words in text
        assert "uses no reading." not in text
    view = with_terms(view_of((100,) * 9), predicted)
    at = next(n for n in view.prices if view.prices[n].kind is PriceKind.FALLBACK)
    text = Parsed(zone_page(view, view.start_s(at), BASE, KEY)).text
    assert "so the price is a prediction from earlier releases" in text
