"""The operator's page and metrics over real databases: how far each zone is, what it cost, and never a demand."""

import asyncio
import base64
import re
import time
from collections import Counter
from dataclasses import replace
from itertools import cycle, islice
from types import SimpleNamespace

import httpx
import numpy as np
import psycopg
import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families
from tests.support.cpu_time import work_of
from tests.support.operator_cli import small_zone
from tests.support.zone_views import seconds, view_of
from tests.unit.public_api.test_pages import Parsed

from murmurate.planning.plan import make_plan
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.planning.zone_file import parse_zone
from murmurate.privacy.noise import SystemNoise
from murmurate.public_log.record import RecordKind
from murmurate.public_log.signing import Ed25519Signer
from murmurate.publisher.desired_state import DesiredState, Opening
from murmurate.publisher.record_writer import RecordWriter
from murmurate.service.auth import ApiClient, AuthStore
from murmurate.service.clock import ServiceClock
from murmurate.service.ingest.http_api import private_app
from murmurate.service.operator_api.metrics import render_metrics
from murmurate.service.operator_api.page import operator_page
from murmurate.service.operator_api.routes import OperatorApi
from murmurate.service.operator_api.status import MAX_STATUS_ZONES, BackgroundLogReader, service_status
from murmurate.service.settings import ServiceSettings
from murmurate.service.storage.databases import Databases
from murmurate.service.storage.public_log_store import PostgresLogStore
from murmurate.service.storage.session_pool import SessionPool
from murmurate.service.storage.state_store import WORKER_HEARTBEAT, PostgresStateStore
from murmurate.service.worker.publish_loop import Publisher
from murmurate.types import Demand

CANARY_WH = 8_675_309
STEP_S, LEAD, GRACE_S = 300, 2, 60
FIRST = 5_900_000  # in the past: the log takes no interval that is not over
ZONES = ("harbour", '<script>"quay"\n\\')
SIGNER = Ed25519Signer(bytes(32))


@pytest.fixture(scope="module")
def plan():
    return make_plan(parse_zone(small_zone())).to_json()


@pytest.fixture
def unread_api(state_dsn, log_dsn, plan):
    """Two zones whose first four intervals are decided: two measured, a forecast, one too late. A fifth is due."""
    terms, state, log = ReleaseTerms.from_json(plan), PostgresStateStore(state_dsn), PostgresLogStore(log_dsn)
    log.publish_plan(terms.plan_digest, plan)
    opening = Opening(plan=terms.plan_digest, key=SIGNER.public_key, first=FIRST, lead=LEAD)
    state.store_openings(dict.fromkeys(ZONES, opening))
    column = np.full(len(ZONES), CANARY_WH)
    for interval in (FIRST, FIRST + 1, FIRST + 3):
        counts = {"energy_wh": column, "reported": column * 0 + 801, "imputed": column * 0}
        state.store_demand(interval, Demand(zones=ZONES, **counts, bounds=({"": 1000},) * len(ZONES)))
    record_writer = RecordWriter(
        terms_for_plan={terms.plan_digest: terms}.get, signers={SIGNER.public_key: SIGNER}, noise=SystemNoise()
    )
    publisher = Publisher(state=state, log=log, write_entries=record_writer.write_entries, wait_for_slot=lambda: None)
    for until, in_time_from in ((FIRST + 2, FIRST), (FIRST + 3, FIRST + 4)):
        desired = DesiredState(until=until, opening=opening, priced_from=in_time_from)
        assert not publisher.publish(dict.fromkeys(ZONES, desired), timeout_s=120).unfinished
    state.record_heartbeat(
        WORKER_HEARTBEAT,
        {"interval_s": STEP_S, "up_to_date": 1, "blocked": 1, "unfinished": 0, "reasons": {ZONES[1]: "a <b> reason"}},
    )
    with_secrets = AuthStore(state_dsn)
    secrets = {
        "boss": with_secrets.add_client(ApiClient(id="boss", zones=frozenset(), is_operator=True)),
        "meterman": with_secrets.add_client(ApiClient(id="meterman", zones=frozenset(ZONES))),
    }
    databases = Databases.from_dsns(state=state_dsn, log=log_dsn)
    now_s = (FIRST + 5) * STEP_S + GRACE_S + 1.0
    clock = ServiceClock(simulated_s=now_s, wall_s=time.time(), speed=1e-9)
    pool = SessionPool(state_dsn)
    counts = Counter(accepted=1602, late=3, refused=1)
    made = OperatorApi(databases=databases, settings=ServiceSettings(clock=clock), state=pool, counts=counts)
    app = private_app(made.routes())
    yield SimpleNamespace(
        app=app, secrets=secrets, publisher=publisher, opening=opening, operator_api=made, plan=terms.plan_digest
    )
    for closing in (made, pool, state, log, with_secrets):
        closing.close()


@pytest.fixture
def api(unread_api):
    """The API once it has read the log: a page waits for it for a moment only, which may be too short here."""
    until_shown(unread_api, "harbour")
    return unread_api


def fetch(api, path, name="boss", secret=None):
    coded = base64.b64encode(f"{name}:{secret or api.secrets.get(name, '')}".encode()).decode()
    headers = {} if not name else {"authorization": f"Basic {coded}"}

    async def get():
        transport = httpx.ASGITransport(app=api.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://private") as client:
            return await client.get(path, headers=headers)

    return asyncio.run(get())


def until_shown(api, words):
    """Wait until the page shows these words: the log is read again after a second."""
    end = time.monotonic() + 120
    while words not in (page := Parsed(fetch(api, "/operator").text).text):
        assert time.monotonic() < end, page
        time.sleep(0.1)


def samples(text):
    """Every sample by its name and its labels, as Prometheus reads the text. No sample is there twice."""
    rows = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    found = {(sample.name, *sample.labels.items()): sample.value for sample in rows}
    assert len(found) == len(rows)
    return found


def test_the_page_says_how_far_each_zone_is(api):
    answer = fetch(api, "/operator")
    assert answer.status_code == 200
    page = Parsed(answer.text)
    rows = {row[0]: row for row in page.rows if len(row) == 9}
    assert rows.keys() == set(ZONES)
    for row in rows.values():
        assert row[1] == "1 behind"
        assert row[3:6] == ["2", "1", "1"]
        assert row[7:] == [api.plan[:8], SIGNER.public_key[:8]]
    for words in ("0 of 2", "1,602", "Needs an operator", "a <b> reason", "in 5 min"):
        assert words in page.text
    desired = DesiredState(until=FIRST + 4, opening=api.opening)
    assert not api.publisher.publish(dict.fromkeys(ZONES, desired), timeout_s=120).unfinished
    until_shown(api, "2 of 2")


def test_no_demand_is_on_the_page_or_in_the_metrics(api):
    for path in ("/operator", "/metrics"):
        text = fetch(api, path).text
        assert len(text) > 500
        assert not re.search(r"8[,. ']?675[,. ']?309|8[,. ']?675[.]3", text)


def test_the_page_has_no_script_no_secret_and_nothing_from_elsewhere(api):
    answer = fetch(api, "/operator")
    assert "<script" not in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert answer.headers["cache-control"] == "no-store"
    assert ZONES[1] in Parsed(answer.text).text
    for text in (answer.text, fetch(api, "/metrics").text):
        assert not [secret for secret in api.secrets.values() if secret in text]


@pytest.mark.parametrize("path", ["/operator", "/metrics"])
def test_who_is_no_operator_is_asked_for_a_name_and_a_secret(api, path):
    for name, secret in (("", None), ("boss", "wrong"), ("nobody", "x"), ("meterman", None)):
        answer = fetch(api, path, name, secret)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Basic")
        assert "murmurate_" not in answer.text
        assert "Zones" not in answer.text


def test_prometheus_reads_the_metrics(api):
    answer = fetch(api, "/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = samples(answer.text)
    outcomes = {"accepted": 1602, "late": 3, "refused": 1}
    assert {key: found["murmurate_readings_total", ("outcome", key)] for key in outcomes} == outcomes
    assert found["murmurate_zones_up_to_date",] == 1
    assert found["murmurate_zones_blocked",] == 1
    assert found["murmurate_zones_unfinished",] == 0
    assert 0 <= found["murmurate_release_age_seconds",] < 120
    quay = ("zone", ZONES[1])
    assert found["murmurate_zone_decided_interval_end_seconds", quay] == (FIRST + 4 + LEAD) * STEP_S
    kinds = {"measured": 2, "forecast": 1, "withheld": 1}
    assert {key: found["murmurate_zone_releases_24h", ("kind", key), quay] for key in kinds} == kinds
    head = next(view for view in api.operator_api._log_reader.views.values() if view.zone == "harbour")
    assert head.total_epsilon_micro > 0
    assert found["murmurate_zone_epsilon_total", ("zone", "harbour")] == head.total_epsilon_micro / 1e6


def test_a_metric_has_one_type_and_a_second_request_counts_nothing_twice(api):
    first, second = (fetch(api, "/metrics").text for _ in range(2))
    aged = ("murmurate_release_age_seconds",)
    assert samples(first) | {aged: 0} == samples(second) | {aged: 0}
    types = {family.name: family.type for family in text_string_to_metric_families(first)}
    counters = {"murmurate_readings", "murmurate_zone_epsilon", "murmurate_zone_rho"}
    assert {name for name, kind in types.items() if kind == "counter"} == counters
    assert {kind for name, kind in types.items() if name not in counters} == {"gauge"}
    assert not [family for family in REGISTRY.collect() if family.name.startswith("murmurate")]


def test_a_log_out_of_reach_leaves_the_page_and_says_so(unread_api):
    unread_api.operator_api._log_reader = BackgroundLogReader(
        "postgresql://nobody@127.0.0.1:1/none", ServiceSettings().display_of
    )
    answer = fetch(unread_api, "/operator")
    assert answer.status_code == 200
    assert "The log is not read yet" in answer.text
    assert "1,602" in answer.text


def test_a_log_that_takes_its_time_does_not_hold_the_page(unread_api, log_dsn):
    with psycopg.connect(log_dsn) as other:
        other.execute("LOCK TABLE public_log.head IN ACCESS EXCLUSIVE MODE")
        begun = time.monotonic()
        page = fetch(unread_api, "/operator").text
        assert time.monotonic() - begun < 30  # a page that waits for the lock comes after the server's 60 s
        assert "The log is not read yet" in page
    until_shown(unread_api, "0 of 2")


def views_of(count):
    ticks = tuple(islice(cycle((8120, None, 9000, 9100)), 288))
    one = view_of(ticks)
    return {f"zone {n}": replace(one, zone=f"zone {n}", total_epsilon_micro=n) for n in range(count)}


def facts(views, broken=None):
    now_s = seconds(2026, 11, 16, 23, 31)
    return service_status(views, broken or {}, now_s=now_s, grace_s=60, reading_counts={}, heartbeat=None, clients=[])


def test_two_hundred_zones_are_shown_within_a_second():
    views = views_of(200)
    assert work_of(lambda: (operator_page(facts(views)), render_metrics(facts(views)))) < 35
    page, text = operator_page(facts(views)), render_metrics(facts(views))
    assert sum(len(row) == 9 for row in Parsed(page).rows) == 200
    assert len(samples(text)) > 200 * 7


def test_zones_that_need_an_operator_come_first_and_the_page_ends():
    views = views_of(MAX_STATUS_ZONES + 10)
    views["zone 999"] = replace(views["zone 999"], last_decided=views["zone 999"].last_decided - 3)
    found = facts(views, {"zone 998": "is out of order"})
    assert [zone.zone for zone in found.zones[:3]] == ["zone 998", "zone 999", "zone 0"]
    assert len(found.zones) == MAX_STATUS_ZONES
    assert (found.zone_count, found.up_to_date_count) == (MAX_STATUS_ZONES + 10, MAX_STATUS_ZONES + 8)
    assert "10 zones more" in operator_page(found)


def test_a_zone_whose_log_never_made_sense_is_told_too():
    found = facts(views_of(1), {"quay": "has no <first> record"})
    assert (found.zone_count, found.up_to_date_count) == (2, 1)
    assert "has no <first> record" in Parsed(operator_page(found)).text
    assert samples(render_metrics(found))["murmurate_zones_broken",] == 1


def test_a_day_that_was_never_decided_is_not_counted_as_released():
    """The worker has stood still for two days: the last 24 hours have nothing, whatever came before."""
    one = view_of((8120,) * 96)
    (found,) = facts({"harbour": one}).zones
    assert sum(found.releases_by_kind.values()) == 0
    assert found.intervals_behind == 288 - 96 == found.due_releases + 96
    assert RecordKind.MEASURED not in found.releases_by_kind


def test_the_next_deadline_is_when_the_grace_of_the_running_interval_ends():
    found = facts(views_of(1))
    assert found.next_deadline_s == seconds(2026, 11, 16, 23, 31) + 900
    assert facts({}).next_deadline_s is None
