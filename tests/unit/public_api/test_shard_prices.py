"""The prices of a whole shard for one interval: one answer that is final, complete and never changes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.response_rules import FOR_EVER
from tests.support.web_server import fetch
from tests.support.zone_views import TICKS, seconds, shard_of

from murmurate.errors import MurmurateError
from murmurate.public_log.zone_table import ClosedZone, ZoneRow, ZoneTable
from murmurate.service.log_reader.follower import ChangedShard
from murmurate.service.log_reader.zone_view import ShardView
from murmurate.service.public_api.app import public_app
from murmurate.service.public_api.live_state import LiveState
from murmurate.service.public_api.price_formats import shard_prices_document, shard_prices_path
from murmurate.service.settings import ServiceSettings

NOWHERE = "postgresql://nobody@127.0.0.1:1/none"
BEGIN = seconds(2026, 11, 14) // 900
ROWS = [
    ZoneRow("harbour", "0" * 64, "EUR", "1/100000", BEGIN - 2),
    ZoneRow("old town", "1" * 64, "JPY", "1/7", BEGIN - 2),
]


@given(st.lists(st.lists(st.none() | TICKS, min_size=5, max_size=5), min_size=2, max_size=2), st.integers(1, 6))
def test_each_zone_has_the_ticks_of_the_log_and_withheld_is_null(ticks: list[list[int | None]], lead: int) -> None:
    shard = shard_of(ROWS, ticks, lead=lead)
    for n in range(5):
        document = shard_prices_document(shard, shard.first + n + lead)
        assert document["start"] == f"{datetime.fromtimestamp((shard.first + n + lead) * 900, UTC):%Y-%m-%dT%H:%M:%SZ}"
        rows = document["prices"]
        assert [(row["zone"], row["price_ticks"], row["currency"]) for row in rows] == [
            ("harbour", ticks[0][n], "EUR"),
            ("old town", ticks[1][n], "JPY"),
        ]
        for row in rows:
            assert (row["price"] is None) == (row["price_ticks"] is None) == (row["kind"] == "withheld")
            if row["price"] is not None:
                assert round(Fraction(row["price"]) / Fraction(row["tick"])) == row["price_ticks"]
    for interval in (shard.first + lead - 1, shard.last + lead + 1):
        with pytest.raises(MurmurateError, match="decided and recent"):
            shard_prices_document(shard, interval)


def test_a_later_zone_a_closed_zone_and_another_currency_change_no_earlier_answer() -> None:
    shard = shard_of(ROWS, [[1, 2, 3], [4, 5, 6]])
    before = [shard_prices_document(shard, BEGIN + n) for n in range(3)]
    later = ZoneRow("quay", "2" * 64, "EUR", "1/100", shard.last + 1)
    table = ZoneTable(
        (ROWS[0]._replace(plan="3" * 64, currency="CHF", tick="1/10"), later), (ClosedZone(*ROWS[1], shard.last, 0, 0),)
    )
    changed = replace(shard, head=replace(shard.head, table=table), columns=shard.columns.reordered(shard.table, table))
    assert [shard_prices_document(changed, BEGIN + n) for n in range(3)] == before


@pytest.fixture
def state():
    state = LiveState(NOWHERE, ServiceSettings(url="https://x.example"))
    yield state
    state.lookup_threads.stop()
    state.bulk_threads.stop()
    state.close()


def show(state: LiveState, count: int) -> ShardView:
    shard = shard_of(ROWS, [list(range(count)), list(range(count))], name="quays")
    state.show_shard(ChangedShard(shard, range(0)))
    return shard


def test_prices_are_kept_for_ever_once_they_are_decided_and_not_before(state: LiveState) -> None:
    shard, app = show(state, 3), public_app(state)
    for n in range(3):
        answer = fetch(app, f"/{shard_prices_path(shard, BEGIN + n)}")
        assert (answer.status_code, answer.headers["cache-control"]) == (200, FOR_EVER)
        assert "expires" not in answer.headers
        assert answer.json() == shard_prices_document(shard, BEGIN + n)
    path = f"/{shard_prices_path(shard, BEGIN + 3)}"
    early = fetch(app, path)
    assert (early.status_code, early.headers["cache-control"]) == (404, "no-store")
    show(state, 4)
    assert fetch(app, path).json()["prices"][0]["price_ticks"] == 3


@pytest.mark.parametrize(
    "name",
    ["20261114T000100Z", "2026-11-14T00:00:00Z", "20261114T0000Z", "00010101T000000Z", "99991231T234500Z", "now", "",
     "20261114T00000Z", "20261314T000000Z", "20261114T000000z", "20261114T000000Z%20"],
)  # fmt: skip
def test_an_interval_has_one_name(state: LiveState, name: str) -> None:
    show(state, 3)
    answer = fetch(public_app(state), f"/prices/quays/{name}.json")
    assert (answer.status_code, answer.headers["cache-control"]) == (404, "no-store")
    assert fetch(public_app(state), "/prices/quays/20261114T000000Z.json").status_code == 200
    assert fetch(public_app(state), "/prices/none/20261114T000000Z.json").status_code == 404
