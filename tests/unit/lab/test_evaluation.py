"""An evaluation is the same with any number of processes, and its page has what it must."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from murmurate.commands.evaluate import make_setting, parse_sizes
from murmurate.errors import ModelError, PrivacyError
from murmurate.lab.evaluate.evaluation import Stress, count_tasks, evaluate_region
from murmurate.lab.evaluate.evaluation_report import (
    homes_sentences,
    make_evaluation_report,
    money_sentence,
    results_document,
)
from murmurate.lab.evaluate.promised_noise import (
    DEFAULT_PROMISES,
    NoiseLaw,
    PromisedNoise,
    parse_promises,
    plan_noise,
)
from murmurate.lab.evaluate.region import RegionSize, simulate_region
from murmurate.lab.evaluate.zone_pricing import Setting, Way

STRONG = PromisedNoise("any 24 h: epsilon 1, delta 1e-06; any moment, habits known: 1", NoiseLaw(25.702, 53.293), 1.0)
WEAK = PromisedNoise("any 24 h: epsilon 4, delta 1e-06", NoiseLaw.gaussian(11.69), 4.0)


@pytest.fixture(scope="module")
def region():
    return simulate_region(3, (200, 400), scale=RegionSize(sample=1000, whole=1200, zones=2, days=49))


@pytest.fixture(scope="module")
def evaluation(region):
    done = []
    found = evaluate_region(region, [STRONG, WEAK], Setting(), progress=lambda: done.append(1))
    assert len(done) == count_tasks(sizes=2, promises=2)
    return found


@pytest.mark.slow
def test_more_homes_and_weaker_promises_do_not_make_it_worse(evaluation):
    error = {
        (homes, number): compared.results[Way.PRIVATE].error
        for homes, of_size in evaluation.comparisons.items()
        for number, compared in enumerate(of_size)
    }
    assert error[400, 0] < error[200, 0]
    assert error[400, 1] < error[400, 0]
    for of_size in evaluation.comparisons.values():
        for compared in of_size:
            assert compared.results[Way.EXACT].error < compared.results[Way.PRIVATE].error
            assert compared.results[Way.PRIVATE].error < compared.results[Way.FORECAST].error
            assert compared.results[Way.PRIVATE].error < 1.02 * compared.results[Way.REGIONAL_LOAD].error


@pytest.mark.slow
def test_a_wrong_level_and_homes_that_change_are_corrected(evaluation):
    """In zones alone: the regional load does not show it, and few homes take weeks to."""
    for stress in evaluation.stress.values():
        assert stress[Stress.WRONG_LEVEL].error_ratio < 0.9
        assert stress[Stress.LESS_USE].error_ratio < 0.9
        assert stress[Stress.STRONG_ANSWER].loss_ratio < 1
        assert stress[Stress.SHIFTED].loss_ratio < 1
        assert stress[Stress.SHIFTED].step_ratio < 1
        assert stress[Stress.SHIFTED] != stress[Stress.STRONG_ANSWER]


@pytest.mark.long
def test_an_evaluation_does_not_depend_on_the_number_of_processes(region, evaluation):
    again = evaluate_region(replace(region, zones={200: region.zones[200]}), [STRONG, WEAK], Setting(), jobs=2)
    first, *others = results_document(evaluation, {})["sizes"]
    assert len(others) == 1
    assert results_document(again, {})["sizes"] == [first]


class Page(HTMLParser):
    """What a page loads from elsewhere, and its open elements."""

    def __init__(self):
        super().__init__()
        self.addresses, self.open, self.rows = [], [], 0

    def handle_starttag(self, tag, attrs):
        self.addresses += [value for name, value in attrs if name in {"src", "href"}]
        self.rows += tag == "tr"
        if tag not in {"meta", "img"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.slow
def test_the_page_is_complete_and_stands_alone(evaluation, tmp_path, capsys):
    report = make_evaluation_report(evaluation, "A <source> & more.", {"kind": "simulated"})
    report.write_and_print(tmp_path, as_json=False)
    text, page = (tmp_path / "index.html").read_text(encoding="utf-8"), Page()
    page.feed(text)
    assert page.open == []
    assert len(page.addresses) == 2
    assert all(address.startswith("data:image/svg+xml;base64,") for address in page.addresses)
    assert "A &lt;source&gt; &amp; more." in text
    for way in Way:
        assert way.value in text
    for words in ("How many homes do I need?", "What does a stronger promise cost me?", "What this does not show"):
        assert words in text
    assert all(word in text for word in ("Real meters", "Solar feed-in", "mislead"))
    assert page.rows >= 2 * (len(Way) + 2)  # in the table of each size, noise for each promise
    for name in ("homes", "promise"):
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
        ET.parse(tmp_path / f"{name}.svg")  # noqa: S314 - our own file
    share = f"{100 * evaluation.comparisons[400][0].value_of_data:.0f} % of what exact data add"
    said = " ".join(capsys.readouterr().out.split())
    for shown in (said, text):
        assert share in shown
        assert "At 400 homes, “any 24 h: epsilon 1 + any moment: 1” instead of “any 24 h: epsilon 4”" in shown
        assert re.search(r"0\.\d\d \(200 homes\)", shown)


def exact_adds_nothing(compared):
    return replace(compared, results=compared.results | {Way.EXACT: compared.results[Way.REGIONAL_LOAD]})


@pytest.mark.slow
def test_results_hold_what_was_measured(evaluation):
    document = results_document(evaluation, {"kind": "simulated"})
    assert [size["homes"] for size in document["sizes"]] == [200, 400]
    first = document["sizes"][0]
    assert {one["way"] for one in first["ways"]} == {way.value for way in Way if not way.uses_noise}
    share, rival = evaluation.comparisons[200][0].value_of_data, evaluation.comparisons[400][0].strongest_rival
    assert f"({rival.way.value}) loses {rival.loss:.3f} EUR" in money_sentence(evaluation)
    nothing = replace(evaluation, comparisons={400: (exact_adds_nothing(evaluation.comparisons[400][0]),)})
    assert homes_sentences(nothing)[0].startswith("At 400 homes even exact data add nothing")
    assert first["promises"][0]["share_of_what_exact_data_add"] == share
    assert first["stress"]["less_use_from_day"] == 36


def test_sizes_are_numbers_of_homes():
    assert parse_sizes("1000,300,300") == (300, 1000)
    for wrong in ("", "many", "5", "1000000000", "300,x"):
        with pytest.raises(ModelError, match="for example 300,1000,10000"):
            parse_sizes(wrong)


def test_other_curves_and_elasticities_are_refused():
    assert make_setting("linear", 0.3).elasticity == 0.3
    with pytest.raises(ModelError, match="linear or convex"):
        make_setting("cubic", 0.1)
    with pytest.raises(ModelError, match=r"between 0\.01 and 0\.9"):
        make_setting("linear", 0.0)


def test_promises_that_cannot_be_read_are_refused():
    with pytest.raises(PrivacyError, match="must read like"):
        parse_promises("no promise")
    with pytest.raises(PrivacyError, match="must read like"):
        parse_promises(" ; ")


@pytest.mark.slow
def test_the_planner_finds_the_noise_that_is_known_for_these_promises():
    """Standard deviations over the bound: docs/decisions/0010, and the Gaussian for a window of epsilon 2 and 4."""
    sds = [plan_noise(text).law.sd for text in DEFAULT_PROMISES]
    assert sds == pytest.approx([43.30, 21.85, 11.69], rel=2e-3)
