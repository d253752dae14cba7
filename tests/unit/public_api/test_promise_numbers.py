"""Every number that a page or the terminal says about a promise is that of the plan, in each language.

The numbers of whole sections are read, in their order, and compared with numbers that are computed here from the plan.
So a wrong number fails, wherever it comes from: the words, the template, the plan's file, the rounding.
"""

import io
import json
import re
from dataclasses import replace
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from math import ceil

import pytest
from rich.console import Console
from tests.support.zone_views import view_of, with_terms
from tests.unit.public_api.test_pages import BASE, KEY, NOW_S, Parsed

from murmurate.commands.plan import make_plan_report
from murmurate.planning import promise_text
from murmurate.planning.plan import make_plan
from murmurate.planning.promise_text import describe_promises
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.planning.zone import LearnedHabits
from murmurate.planning.zone_file import EXAMPLE_FORECAST, EXAMPLE_ZONE_FILE, parse_zone
from murmurate.prediction.public_forecast import ConsentedSample
from murmurate.privacy.promise import IntervalPromise, MomentPromise, WindowPromise
from murmurate.service.public_api.pages.routes import plan_page
from murmurate.service.public_api.pages.zone_page import zone_page
from murmurate.translations.language import ENGLISH, GERMAN, LANGUAGES

PROMISES = 'promise = ["any 24 h: epsilon 1, delta 1e-6", "any moment: 1"]'
ZONE_FILES = {
    "day and moment": EXAMPLE_ZONE_FILE,
    "interval": EXAMPLE_ZONE_FILE.replace(PROMISES, 'promise = ["interval: 0.5"]'),
    "day and year": EXAMPLE_ZONE_FILE.replace(
        PROMISES, 'promise = ["any 365 d: epsilon 31, delta 1e-6", "any 24 h: epsilon 0.7, delta 1e-5"]'
    ),
}
LEARNED = LearnedHabits(
    name="resident", bound="b", epsilon=Fraction(1, 2), households=1200, confidence=0.99996, proven=False
)
POWERS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
HOURS = {"en": ["08:00", "16:00"], "de": ["8", "16"]}


@pytest.fixture(scope="module")
def plans():
    made = {name: make_plan(parse_zone(text)) for name, text in ZONE_FILES.items()}
    day = made["day and moment"]
    return made | {"learned": replace(day, zone=replace(day.zone, learned=(LEARNED,)))}


def numbers_in(text):
    """A power of ten that stands alone is one number, and so is a pair of odds."""
    return re.findall(r"(?:\d+(?:[.,]\d+)?·)?10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+|\d+(?:[.,:]\d+)*", text)


def right_guesses(epsilon, delta=Fraction(0)):
    """(e^epsilon + delta)/(1 + e^epsilon) in percent, rounded up, by decimals instead of fractions."""
    odds = Context(prec=40).exp(Decimal(epsilon.numerator) / Decimal(epsilon.denominator))
    return ceil(100 * (odds + Decimal(float(delta))) / (1 + odds))


def percent_up(probability):
    return ceil(100 * probability)


def odds_of(right):
    return ["50:50", f"{right}:{100 - right}"]


def format_number(value, language):
    digits, _, power = f"{value:g}".partition("e")
    if power:
        digits = ("" if digits == "1" else f"{digits}·") + "10" + str(int(power)).translate(POWERS)
    return digits.replace(".", "," if language is GERMAN else ".")


def rounded_up(value, digits, language):
    return format_number(float(Context(prec=digits, rounding=ROUND_CEILING).create_decimal(Decimal(value))), language)


class ExpectedNumbers:
    """The numbers of each part of a page, in their order, computed from a plan."""

    def __init__(self, plan, language):
        self.plan, self.language = plan, language
        order = (WindowPromise, MomentPromise, IntervalPromise)
        self.costs = sorted(
            plan.costs, key=lambda c: (order.index(type(c.promise)), getattr(c.promise, "intervals", 0))
        )

    def length(self, promise):
        return {96: "24", 365 * 96: "365"}[promise.intervals]

    def right(self, cost):
        promise = cost.promise
        if isinstance(promise, MomentPromise):
            return right_guesses(promise.leakage)
        if isinstance(promise, WindowPromise):  # the noise gives less than epsilon allows
            return min(right_guesses(promise.epsilon, promise.delta), percent_up(cost.right_guesses))
        return right_guesses(promise.epsilon)

    def sentences(self):
        for cost in self.costs:
            yield from [self.length(cost.promise)] if isinstance(cost.promise, WindowPromise) else []
            yield from odds_of(self.right(cost))

    def beyond(self):
        yield from [str(self.plan.absence.days), *odds_of(percent_up(self.plan.absence.right_guesses))]
        if self.plan.habits:
            rights = [str(percent_up(bound.home_by_day)) for bound in self.plan.habits]
            yield from ["100", *HOURS[self.language.code], *rights, "50"]

    def basis(self):
        yield "801"
        for learned in self.plan.zone.learned:
            assert learned is LEARNED
            yield from ("1,200" if self.language is ENGLISH else "1.200", format_number(0.5, self.language))
            yield format_number(0.9999, self.language)  # rounded down

    def rows(self):
        has_interval = any(isinstance(cost.promise, IntervalPromise) for cost in self.costs)
        if not has_interval and self.plan.distribution.value != "gaussian":
            (kind,) = self.plan.zone.private_kinds
            spent = Fraction(ceil(Fraction(kind.bound_wh) / Fraction(float(self.plan.scale_wh.min())) * 10**6), 10**6)
            yield from (str(right_guesses(spent)), self.spent(spent))
        for cost in self.costs:
            yield from [self.length(cost.promise)] if isinstance(cost.promise, WindowPromise) else []
            yield str(self.right(cost))
            yield format_number(float(cost.promised), self.language)
            if getattr(cost.promise, "delta", 0):
                yield format_number(float(cost.promise.delta), self.language)
            yield self.spent(cost.spent)
        yield from (str(self.plan.absence.days), str(percent_up(self.plan.absence.right_guesses)))
        for bound in self.plan.habits:
            yield from [*HOURS[self.language.code], str(percent_up(bound.home_by_day))]

    def spent(self, cost):
        return format_number(ceil(Fraction(cost) * 10_000) / 10_000, self.language)

    def notes(self):
        for cost in self.costs:
            if getattr(cost.promise, "delta", 0):
                above = rounded_up(cost.above_epsilon, 3, self.language)
                epsilon = format_number(float(cost.promise.epsilon), self.language)
                between = [epsilon, above] if self.language is ENGLISH else [above, epsilon]
                yield from [self.length(cost.promise), *between]


def section(html, title):
    """The text of a section from its heading on, without what follows the promises on the page of a zone."""
    part = next(part for part in html.split("<h2>") if part.startswith(title)).partition('<dl class="facts">')[0]
    part = part.partition("</section>")[0].partition("</h2>")[2]
    return re.sub(r"<[^>]*>", " ", re.sub(r"<small>.*?</small>", "", part))


def stated_on_the_zone_page(terms, language):
    html = zone_page(with_terms(view_of(country=None), terms), NOW_S, BASE, KEY, language)
    return numbers_in(section(html, language.plain("zone.promise_title")))


def stated_on_the_plan_page(terms, language):
    html = plan_page(with_terms(view_of(country=None), terms), NOW_S, BASE, KEY, language)
    lead = html.partition('class="promise"')[2].partition("<section>")[0]
    return numbers_in(lead) + numbers_in(section(html, language.plain("plan.promise_title")))[2:]  # without its lead


def stated_in_the_terminal(plan):
    console = Console(width=100, record=True, file=io.StringIO())
    make_plan_report(plan).print_brief(console)
    shown = console.export_text()
    rows_and_notes = re.split(r"─{9,} *\n", shown)[1].partition("Noise:")[0]
    basis = shown.partition("Stands on:")[2].partition("Does not cover:")[0]
    return numbers_in(rows_and_notes) + numbers_in(" ".join(basis.split()))


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES)
@pytest.mark.parametrize("name", [*ZONE_FILES, "learned"])
def test_the_numbers_of_a_promise_are_those_of_the_plan_on_every_page(plans, name, language):
    plan = plans[name]
    terms, expected = ReleaseTerms.from_json(plan.to_json()), ExpectedNumbers(plan, language)
    zone_numbers = [*expected.sentences(), *expected.beyond(), *expected.basis()]
    assert stated_on_the_zone_page(terms, language) == zone_numbers
    plan_numbers = [*expected.sentences(), *expected.rows(), *expected.notes(), *expected.basis()]
    assert stated_on_the_plan_page(terms, language) == plan_numbers


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ZONE_FILES, "learned"])
def test_the_numbers_of_a_promise_are_those_of_the_plan_in_the_terminal(plans, name):
    expected = ExpectedNumbers(plans[name], ENGLISH)
    stated = stated_in_the_terminal(plans[name])
    assert stated == [*expected.rows(), *expected.notes(), *expected.basis()]


def planted_terms(plan, edit):
    """What a page loads of a plan whose file states another number."""
    document = json.loads(plan.to_json())
    edit(document)
    terms = ReleaseTerms.from_json(plan.to_json())
    habits = tuple(replace_bound(bound, entry) for bound, entry in zip(terms.habits, document["habits"], strict=True))
    return replace(
        terms,
        promises=tuple(entry["promise"] for entry in document["promises"]),
        spent=tuple(entry["spent"] for entry in document["promises"]),
        above_epsilon=tuple(entry["above_epsilon"] for entry in document["promises"]),
        right_guesses=tuple(entry["right_guesses"] for entry in document["promises"]),
        absence=terms.absence._replace(**document["absence"]),
        habits=habits,
    )


def replace_bound(bound, entry):
    return bound._replace(**entry)


PLANTED = {
    "a promise": lambda plan: plan["promises"][0].update(promise="any 24 h: epsilon 0.9, delta 1e-06"),
    "a cost": lambda plan: plan["promises"][0].update(spent=0.5),
    "delta for the probability of more": lambda plan: plan["promises"][0].update(above_epsilon=1e-6),
    "guesses from a window": lambda plan: plan["promises"][0].update(right_guesses=0.5399),
    "an absence": lambda plan: plan["absence"].update(right_guesses=0.6599),
    "habits": lambda plan: plan["habits"][2].update(home_by_day=0.8999),
}


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES)
@pytest.mark.parametrize("edit", PLANTED.values(), ids=PLANTED)
def test_a_planted_number_in_a_plan_fails(plans, edit, language):
    plan = plans["day and moment"]
    expected = ExpectedNumbers(plan, language)
    terms = planted_terms(plan, edit)
    right = [*expected.sentences(), *expected.rows(), *expected.notes(), *expected.basis()]
    assert stated_on_the_plan_page(terms, language) != right
    if edit in (PLANTED["an absence"], PLANTED["habits"], PLANTED["guesses from a window"]):
        right = [*expected.sentences(), *expected.beyond(), *expected.basis()]
        assert stated_on_the_zone_page(terms, language) != right


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES)
def test_a_planted_rounding_and_a_planted_word_fail(plans, monkeypatch, language):
    plan = plans["day and moment"]
    terms, expected = ReleaseTerms.from_json(plan.to_json()), ExpectedNumbers(plan, language)
    right = [*expected.sentences(), *expected.beyond(), *expected.basis()]
    typed = language.texts["promise.window"].replace("{odds}", "73:27")
    wrong = replace(language, texts={**language.texts, "promise.window": typed})
    assert stated_on_the_zone_page(terms, wrong) != right
    down = promise_text.guess_percent
    monkeypatch.setattr(promise_text, "guess_percent", lambda promise: down(promise) - 1)
    assert stated_on_the_zone_page(terms, language) != right
    assert stated_in_the_terminal(plan) != [*expected.rows(), *expected.notes(), *expected.basis()]


@pytest.mark.slow
def test_terminal_zone_page_and_plan_page_say_the_same_about_what_a_promise_stands_on(plans):
    plan = plans["learned"]
    terms = ReleaseTerms.from_json(plan.to_json())
    console = Console(width=100, record=True, file=io.StringIO())
    make_plan_report(plan).print_brief(console)
    terminal = " ".join(console.export_text().split())
    basis = describe_promises(terms, ENGLISH).basis
    assert len(basis) == 3
    for language in LANGUAGES.values():
        view = with_terms(view_of(country=None), terms)
        pages = [Parsed(page(view, NOW_S, BASE, KEY, language)).text for page in (zone_page, plan_page)]
        for sentence in describe_promises(terms, language).basis:
            assert all(sentence in page for page in pages)
            assert sentence in terminal or language is GERMAN
    assert "nothing about what a household uses below its bound" in basis[0]
    assert "whether it is in the zone at all" in basis[0]
    assert "801, is public." in basis[0]
    assert "as the models of the plan say" in basis[1]
    assert "tested on random models and is not proven" in basis[2]
    proven = replace(terms, learned=(LEARNED._replace(proven=True),))
    assert "This bound is proven." in describe_promises(proven, ENGLISH).basis[2]
    window = ReleaseTerms.from_json(plans["day and year"].to_json())
    assert len(describe_promises(window, ENGLISH).basis) == 1
    counted = replace(window, households=tuple(replace(kind, is_from_table=True) for kind in window.households))
    assert (
        "801, is public; where it comes from a meter table it is rounded."
        in (describe_promises(counted, ENGLISH).basis[0])
    )


@pytest.mark.slow
def test_a_forecast_from_a_sample_is_stated_with_what_its_households_spent():
    plan = make_plan(parse_zone(ZONE_FILES["interval"] + EXAMPLE_FORECAST))
    terms = ReleaseTerms.from_json(plan.to_json())
    model = terms.prediction.model
    public = replace(model.public, sample=ConsentedSample(1503, Fraction(3, 2)))
    sampled = replace(terms, prediction=replace(terms.prediction, model=replace(model, public=public)))
    assert len(describe_promises(terms, ENGLISH).basis) == 1
    for language, says in ((ENGLISH, ("1,503", "1.5", "10⁻⁶")), (GERMAN, ("1.503", "1,5", "10⁻⁶"))):
        (sentence,) = describe_promises(sampled, language).basis[1:]
        assert numbers_in(sentence) == list(says)
        for page in (zone_page, plan_page):
            shown = Parsed(page(with_terms(view_of(country=None), sampled), NOW_S, BASE, KEY, language)).text
            assert sentence in shown


def test_what_the_terminal_shows_has_no_markup():
    for language in LANGUAGES.values():
        plain = [
            text
            for key, text in language.texts.items()
            if key.startswith(("promise.", "basis.", "limits.", "attention."))
        ]
        assert not [text for text in plain if re.search(r"[<>&]", text)]
