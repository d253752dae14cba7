"""What people read about prices of a plan that reads no meter: no fallback, no alarm, and that no meter is read."""

import re
from dataclasses import replace

import pytest
from tests.support.predicted_zones import FIRST, PredictedShard, plan_text
from tests.support.zone_views import view_of
from tests.unit.public_api.test_pages import BASE, KEY, Parsed

from murmurate.commands.status import print_status, status_document
from murmurate.planning.promise_text import EarlierPlan, PlanChanges, describe_promises
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.service.log_reader.price_columns import PriceColumns
from murmurate.service.log_reader.zone_view import PriceKind, ShardView
from murmurate.service.operator_api.attention import find_attention
from murmurate.service.operator_api.routes import operator_page, status_metrics
from murmurate.service.operator_api.status import service_status
from murmurate.service.public_api.pages.routes import plan_page
from murmurate.service.public_api.pages.zone_page import zone_page
from murmurate.service.public_api.price_formats import current_price_document
from murmurate.service.settings import ServiceSettings
from murmurate.service.web.text import format_metrics
from murmurate.translations.language import ENGLISH, GERMAN, LANGUAGES

PUBLIC, READING = plan_text(households=60, read_meters=False), plan_text(households=60)
TERMS, READING_TERMS = ReleaseTerms.from_json(PUBLIC), ReleaseTerms.from_json(READING)
HOURS = 30
NOW_S = (FIRST + HOURS) * 3600 + 120
NO_METER = {"en": "made from public numbers alone; no meter was read", "de": "kein Zähler wurde gelesen"}
KEPT = {language.code: language.plain("promise.public_rows") for language in LANGUAGES.values()}
NOTHING_TOLD = {"en": "no meter is read. So they tell nothing about anybody", "de": "kein Zähler wird gelesen"}


def public_view(text=PUBLIC):
    """A zone as the public process sees it after a day."""
    played = PredictedShard({"hill": text})
    assert played.head is not None
    columns = PriceColumns(played.head.table, HOURS)
    for n in range(HOURS):
        rows = played.release({"hill": 30_000}).rows
        columns.write(FIRST + n, rows, played.head.table, (FIRST + n + 1) * 3600 + 61.25, None)
    shard = ShardView(played.head, KEY, columns, FIRST, FIRST + HOURS - 1)
    terms = ReleaseTerms.from_json(text)
    return replace(view_of(), shard=shard, row=played.head.table.rows[0], load_terms=lambda _: terms)


VIEW = public_view()


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES)
def test_pages_say_that_no_meter_is_read_and_call_no_price_a_fallback(language):
    tag = {ENGLISH: "en", GERMAN: "de"}[language]
    parsed, plan = Parsed(zone_page(VIEW, NOW_S, BASE, KEY, language)), plan_page(VIEW, NOW_S, BASE, KEY, language)
    zone, plan = parsed.text, Parsed(plan).text
    assert NO_METER[tag] in zone
    kinds = {row[3] for row in parsed.rows if len(row) == 4}
    assert kinds == {language.plain("kind.public")}
    assert language.plain("zone.legend_fallback").split(">")[-1] not in zone
    for page in (zone, plan):
        assert language.plain("kind.measured") not in page
        assert NOTHING_TOLD[tag] in page
        for key in ("limits.habits", "limits.operator", "limits.channels", "zone.noise", "plan.cost_title"):
            assert language.plain(key) not in page
        assert not re.search(r"noise|noisy|reading|Rauschen|verrauscht|Messwert", page.replace(KEPT[tag], ""))
    assert language.plain("zone.promise_why") not in zone
    assert f"{100 * TERMS.prediction.predicted_error:.0f} %" in zone
    assert language.plain("plan.cost_public") in plan


def test_the_price_of_now_is_of_its_kind_in_every_format():
    document = current_price_document(VIEW, NOW_S)
    assert document is not None
    assert document["kind"] == "public"
    assert {price.kind for price in VIEW.prices.values()} == {PriceKind.PUBLIC}


def test_promises_are_kept_without_spending_and_help_no_guess():
    found = describe_promises(TERMS, ENGLISH)
    assert [row.guesses for row in found.rows] == ["50"]
    assert [row.promised for row in found.rows] == ["ε = 1"]
    assert found.beyond == []
    assert len(found.sentences) == 1


def test_while_prices_of_an_earlier_plan_that_read_meters_count_its_promise_is_stated_too():
    now = FIRST + 5
    changes = PlanChanges((EarlierPlan(READING_TERMS, FIRST),), now)
    stated = replace(TERMS, promises=("any 48 h: epsilon 0.1",))  # it says nothing about the prices before
    for terms in (TERMS, stated):
        found, before = describe_promises(terms, ENGLISH, changes), describe_promises(READING_TERMS, ENGLISH)
        assert found.sentences[1].startswith(f"Prices from before {FIRST} were made with meters")
        assert found.sentences[2:] == before.sentences
        assert (found.rows, found.beyond, found.limits) == (before.rows, before.beyond, before.limits)
    earlier_public = PlanChanges((EarlierPlan(TERMS, FIRST),), now)
    assert len(describe_promises(TERMS, ENGLISH, earlier_public).sentences) == 1


def test_a_plan_that_read_no_meter_weakens_no_promise_of_the_next_one():
    """Nothing was released under it, so no stretch that reaches back to it costs more."""
    weak = replace(TERMS, promises=("any 24 h: epsilon 4",))
    after_pause = PlanChanges((EarlierPlan(weak, FIRST),), FIRST + 5)
    assert describe_promises(READING_TERMS, ENGLISH, after_pause) == describe_promises(READING_TERMS, ENGLISH)
    weak = replace(READING_TERMS, promises=("any 24 h: epsilon 4",))
    after_weak = PlanChanges((EarlierPlan(weak, FIRST),), FIRST + 5)
    assert describe_promises(READING_TERMS, ENGLISH, after_weak) != describe_promises(READING_TERMS, ENGLISH)


def status_of(view, heartbeat=None):
    return service_status(
        [view.shard],
        {},
        display_of=ServiceSettings().display_of,
        now_s=(FIRST + HOURS) * 3600 + 120,
        grace_s=60,
        reading_counts={},
        heartbeat=heartbeat or (1.0, {}),
        worker_beat=(1.0, {}),
        clients=[],
    )


def test_a_service_of_such_zones_needs_nobody_and_a_zone_that_reads_meters_needs_a_client():
    assert find_attention(status_of(VIEW), ServiceSettings()) == []
    assert [item.about for item in find_attention(status_of(public_view(READING)), ServiceSettings())] == ["feed"]


def test_status_operator_page_and_metrics_count_the_kind(capsys):
    status = status_of(VIEW)
    document = status_document(status, ServiceSettings(), {}, None, [])
    assert document["zones"]["last_price"] == {"measured": 0, "fallback": 0, "withheld": 0, "public": 1}
    assert document["zone_list"][0]["kind"] == "public"
    print_status(document, ServiceSettings())
    printed = capsys.readouterr().out
    assert "the last of each zone: 1 public" in printed
    assert "Nothing needs attention." in printed
    page = Parsed(operator_page(status, ServiceSettings()))
    (row,) = (row for row in page.rows if row and row[0] == "hill")
    assert row[3:7] == ["0", "24", "0", "0"]  # measured, public, fallback, no price
    metrics = format_metrics(status_metrics(status))
    assert 'murmurate_zone_releases_24h{kind="public",zone="hill"} 24.0' in metrics
    assert 'murmurate_zone_releases_24h{kind="fallback",zone="hill"} 0.0' in metrics
