"""The operator's page: names and reasons are text, never markup and never template code."""

import re
from dataclasses import replace
from html import unescape

import pytest
from tests.support.zone_views import seconds, view_of, with_keys

from murmurate.public_log.zone_table import ZoneTable
from murmurate.service.auth import ApiClient
from murmurate.service.operator_api.routes import operator_page
from murmurate.service.operator_api.status import service_status

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
        )
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
