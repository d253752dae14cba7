"""The operator's page: what needs attention comes first, in two languages, and names and reasons are text."""

import re
from dataclasses import replace
from html import unescape
from math import inf

import pytest
from tests.support.zone_views import seconds, view_of, with_keys
from tests.unit.public_api.test_pages import Parsed

from murmurate.public_log.zone_table import ZoneTable
from murmurate.service.auth import ApiClient
from murmurate.service.log_reader.zone_view import PriceKind
from murmurate.service.operator_api.attention import find_attention
from murmurate.service.operator_api.routes import operator_page
from murmurate.service.operator_api.status import service_status
from murmurate.service.settings import ServiceSettings
from murmurate.service.worker.zone_warnings import warn_of_household_counts
from murmurate.translations.language import GERMAN, LANGUAGES

NOW_S = seconds(2026, 11, 14, 0, 20)


def page_of(name):
    """A page on which `name` stands as zone, title, key, plan, client, reason and broken shard."""
    view = with_keys(view_of(zone=name), name, name)
    shard = replace(view.shard, head=replace(view.shard.head, table=ZoneTable((view.row._replace(plan=name),))))
    return operator_page(
        service_status(
            [shard],
            {f"{name} too": name},
            display_of=lambda zone: replace(view.display, title=zone),
            now_s=NOW_S,
            grace_s=60,
            reading_counts={},
            heartbeat=(1.0, {"blocked": 1, "reasons": {name: name}}),
            clients=[ApiClient(id=name, zones=frozenset({name}))],
        ),
        ServiceSettings(),
    )


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", '"><img src=x onerror=y>', "' onload='x", "{{ 7 * 7 }}", "{% raw %}", "&lt;"]
)
def test_a_name_or_a_reason_is_text_and_never_markup(name):
    html = page_of(name)
    tags = re.compile(r"<[a-z/][^>]*>")
    without_values = [re.sub(r'"[^"]*"', '""', tag) for tag in tags.findall(html)]
    assert without_values == [re.sub(r'"[^"]*"', '""', tag) for tag in tags.findall(page_of("x"))]
    shown = unescape(tags.sub("\n", html))
    assert shown.count(name) >= 5  # twice as a zone, as a client, as two reasons


CLIENTS = [
    ApiClient(id="head-end", zones=frozenset({"harbour"})),
    ApiClient(id="boss", zones=frozenset(), is_operator=True),
]
CALM = service_status(
    [view_of().shard],
    {},
    display_of=ServiceSettings().display_of,
    now_s=NOW_S,
    grace_s=60,
    reading_counts={"accepted": 1602},
    heartbeat=(1.0, {}),
    worker_beat=(1.0, {}),
    clients=CLIENTS,
)
OFF = warn_of_household_counts({"harbour": 801}, {"harbour": 2})
FEED = {"share_reported": {"harbour": 0.5, "hill": 0.6}}
TROUBLE = {
    "nothing": {},
    "no zone": {"zone_count": 0, "up_to_date_count": 0, "zones": ()},
    "log": {"log_age_s": inf},
    "old log": {"log_age_s": 300_000.0, "broken_shards": {"quay": "tile 7 is not signed"}},
    "no worker": {"worker_beat": None, "heartbeat": None, "clients": CLIENTS[1:]},
    "silent": {"worker_beat": (120.0, {}), "up_to_date_count": 0, "ingest_warnings": {"MQTT broker": "is away"}},
    "release": {"heartbeat": (9.0, {"reasons": {"harbour": "quorum"}, "warnings": OFF, "unfinished": 3} | FEED)},
    "prices": {"last_kinds": {PriceKind.FALLBACK: 1, PriceKind.WITHHELD: 2}, "zone_count": 1001},
    "figures": {
        "worker_beat": (1.0, {"clock_difference_s": {"log": 70.0, "state": -80.0}, "table_problem": "unreadable"}),
    },
    "old readings": {"worker_beat": (1.0, {"oldest_readings_age_s": 1e7})},
}


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES)
@pytest.mark.parametrize("trouble", TROUBLE.values(), ids=TROUBLE)
def test_what_status_says_needs_attention_stands_first_on_the_page_with_its_remedy(trouble, language):
    status = replace(CALM, **trouble)
    items = find_attention(status, ServiceSettings(), language)
    text = Parsed(operator_page(status, ServiceSettings(), language)).text
    first = text.partition(language.plain("operator.last_release"))[0]
    at = -1
    for item in items:
        assert item.problem in first
        assert (at := first.index(item.remedy, at + 1)) > first.index(item.problem)
        assert item.is_message or (item.problem.endswith(".") and item.remedy.endswith("."))
    assert bool(items) == (trouble != {})
    assert (language.plain("operator.nothing") in first) == (not items)
    assert [item.about for item in items] == [item.about for item in find_attention(status, ServiceSettings())]


def test_a_plan_made_for_other_households_than_the_table_has_is_on_the_page():
    text = Parsed(operator_page(replace(CALM, **TROUBLE["release"]), ServiceSettings())).text
    assert "harbour: has 2 households in the meter table, and its plan is made for 801" in text


@pytest.mark.parametrize("trouble", TROUBLE.values(), ids=TROUBLE)
def test_no_english_word_is_left_on_the_german_page_but_in_messages(trouble):
    html = operator_page(replace(CALM, **trouble), ServiceSettings(), GERMAN)
    assert '<html lang="de">' in html
    text = Parsed(re.sub(r'<span lang="en">.*?</span>|<code>.*?</code>', "", html)).text
    text = re.sub(r"murmurate [a-z]+( [a-z]+)?|tile 7 is not signed", "", text)
    assert not re.findall(r"\b(the|and|price|prices|of|ago|zones|shards were|none|nothing|up to date)\b", text)


def test_quiet_numbers_are_folded():
    html = operator_page(CALM, ServiceSettings())
    before, folded = html.partition("<details>")[::2]
    assert "1,602" not in before
    assert "1,602" in folded.partition("</details>")[0]
