"""An operator posts a temperature over HTTP, and the next tile states it: with a real database."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from tests.support import web_server
from tests.support.predicted_zones import FIRST, PredictedShard
from tests.support.sample_logs import check
from tests.unit.verification.test_public_inputs import SERIES as ALL_SERIES
from tests.unit.verification.test_public_inputs import plan

from murmurate.service.auth import ApiClient, AuthStore
from murmurate.service.ingest.http_api import private_app
from murmurate.service.operator_api.operator_access import OperatorAccess
from murmurate.service.operator_api.public_inputs import MAX_SERIES_BYTES, PublicInputsApi
from murmurate.service.storage.session import SessionPool
from murmurate.service.storage.state_store import PostgresStateStore

HOUR_S, SERIES = 3600, ALL_SERIES.temperature
HEADER = SimpleNamespace(interval_s=HOUR_S, lead=2)


@pytest.fixture
def api(state_dsn):
    access, pool, state = AuthStore(state_dsn), SessionPool(state_dsn), PostgresStateStore(state_dsn)
    secrets = {
        "boss": access.add_client(ApiClient(id="boss", zones=frozenset(), is_operator=True)),
        "meterman": access.add_client(ApiClient(id="meterman", zones=frozenset({"hill"}))),
    }
    routes = PublicInputsApi(state=pool, access=OperatorAccess(access, None), interval_s=HOUR_S).routes()
    yield SimpleNamespace(app=private_app(routes), secrets=secrets, state=state)
    for closing in (access, pool, state):
        closing.close()


def post(api, body, series=SERIES, name="boss"):
    return web_server.fetch(
        api.app,
        "/public-inputs",
        method="POST",
        params={"series": series},
        content=body,
        auth=(name, api.secrets.get(name, "")),
    )


def rows(values, first=FIRST):
    starts = [datetime.fromtimestamp((first + n) * HOUR_S, UTC).isoformat() for n in range(len(values))]
    lines = [f"{start},{value}" for start, value in zip(starts, values, strict=True)]
    return "\n".join(["start,value", *lines]).encode()


def find(api, interval):
    return api.state.find_inputs({SERIES}, HEADER, interval)


def test_what_was_posted_is_found_and_a_second_post_replaces_it(api):
    assert find(api, FIRST) == {}
    answer = post(api, b"start,value\n2025-11-24T16:00:00+01:00,-4.25\n2025-11-24T17:00:00Z,3\n", series="other")
    assert (answer.status_code, answer.json()) == (200, {"series": "other", "stored": 2})
    assert post(api, rows([1, 2, 3, 4])).json()["stored"] == 4
    assert find(api, FIRST) == {SERIES: (1000, 3000)}
    assert post(api, rows([-1.5])).status_code == 200
    assert find(api, FIRST) == {SERIES: (-1500, 3000)}
    assert find(api, FIRST + 9) == {SERIES: (4000, None)}
    api.state.purge_inputs((FIRST + 3) * HOUR_S)
    assert find(api, FIRST + 2) == {SERIES: (None, 4000)}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "line 1 is no header: must be start,value"),
        (b"time,value\n", "must be start,value"),
        (b"start,value\n2026-01-01T00:00:00,4", "line 2"),
        (b"start,value\n2026-01-01T00:10:00Z,4", "interval boundary"),
        (b"start,value\n2026-01-01T00:00:00Z,cold", "line 2 is 'cold': must be a number such as -4.25"),
        (b"start,value\n2026-01-01T00:00:00Z,4,5", "line 2 is 3 cells"),
        (b"start,value\n2026-01-01T00:00:00Z,1e300", "must be a number"),
        (b"\xff\xfe", "must be UTF-8 text"),
    ],
)
def test_a_body_with_a_mistake_stores_nothing_and_names_the_line(api, body, words):
    answer = post(api, body)
    assert answer.status_code == 400
    assert words in answer.json()["detail"]
    assert find(api, FIRST) == {}


def test_only_an_operator_posts_and_a_series_has_a_name(api):
    assert post(api, rows([1]), name="meterman").status_code == 401
    assert post(api, rows([1]), name="nobody").status_code == 401
    assert post(api, rows([1]), series="").status_code == 400
    assert post(api, b" " * (MAX_SERIES_BYTES + 1)).status_code == 413
    assert find(api, FIRST) == {}


def test_prices_follow_from_the_values_that_were_posted_in_time(api):
    shard = PredictedShard({"hill": plan()}, find_inputs=api.state.find_inputs)
    post(api, rows([10, 10, 10]))
    shard.release({"hill": 1_200_000})
    post(api, rows([-5] * 3, FIRST + 2))  # the first of them is too late for the tile before
    shard.release({"hill": 1_200_000})
    stated = [tile.header.extensions["inputs"][SERIES] for tile in shard.tiles[1:]]
    assert stated == [{"ahead": 10_000, "now": 10_000}, {"ahead": -5000, "now": 10_000}]
    assert shard.tiles[2].rows["price_ticks"][0] > shard.tiles[1].rows["price_ticks"][0]
    assert check(shard.items(), plans=(plan(),)).findings == []
