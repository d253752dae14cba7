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

from murmurate.curator.plan import make_plan
from murmurate.curator.terms import Terms
from murmurate.curator.zonefile import parse_zone
from murmurate.privacy.noise import SystemNoise
from murmurate.publication.desk import Desk
from murmurate.publication.record import Kind
from murmurate.publication.signing import Ed25519Signer
from murmurate.publication.wish import Opening, Wish
from murmurate.quantities import Demand
from murmurate.service.access import Access, Client
from murmurate.service.clock import Clock
from murmurate.service.databases import Databases
from murmurate.service.doors.http import private_app
from murmurate.service.operator.door import OperatorDoor
from murmurate.service.operator.facts import MOST_ZONES, LogSide, facts_of
from murmurate.service.operator.metrics import metrics
from murmurate.service.operator.page import operator_page
from murmurate.service.pool import Pool
from murmurate.service.publiclog import PostgresLog
from murmurate.service.publishing import Publisher
from murmurate.service.settings import Settings
from murmurate.service.state import PostgresState
from tests.board.test_pages import Parsed
from tests.board.views import seconds, view_of
from tests.service.operators import small_zone

CANARY_WH = 8_675_309
STEP_S, LEAD, GRACE_S = 300, 2, 60
FIRST = 5_900_000  # in the past: the log takes no interval that is not over
ZONES = ("harbour", '<script>"quay"\n\\')
SIGNER = Ed25519Signer(bytes(32))
SAMPLE = re.compile(r'([a-z_0-9]+)(\{(?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)+\})? (-?[0-9.e+-]+)')


@pytest.fixture(scope="module")
def plan():
    return make_plan(parse_zone(small_zone())).to_json()


@pytest.fixture
def door(state_dsn, log_dsn, plan):
    """Two zones whose first four intervals are decided: two measured, a forecast, one too late. A fifth is due."""
    terms, state, log = Terms.of(plan), PostgresState(state_dsn), PostgresLog(log_dsn)
    log.publish_plan(terms.plan, plan)
    opening = Opening(plan=terms.plan, key=SIGNER.public, first=FIRST, lead=LEAD)
    state.open(dict.fromkeys(ZONES, opening))
    column = np.full(len(ZONES), CANARY_WH)
    for interval in (FIRST, FIRST + 1, FIRST + 3):
        counts = {"energy_wh": column, "reported": column * 0 + 801, "imputed": column * 0}
        state.remember(interval, Demand(zones=ZONES, **counts, bounds=({"": 1000},) * len(ZONES)))
    desk = Desk(terms={terms.plan: terms}.get, signers={SIGNER.public: SIGNER}, noise=SystemNoise())
    publisher = Publisher(state=state, log=log, write=desk.write, wait=lambda: None)
    for until, in_time_from in ((FIRST + 2, FIRST), (FIRST + 3, FIRST + 4)):
        wish = Wish(until=until, opening=opening, in_time_from=in_time_from)
        assert not publisher.publish(dict.fromkeys(ZONES, wish), patience_s=20).moved
    state.beat(
        "road", {"interval_s": STEP_S, "done": 1, "aside": 1, "unfinished": 0, "why": {ZONES[1]: "a <b> reason"}}
    )
    with_secrets = Access(state_dsn)
    secrets = {
        "boss": with_secrets.add(Client(id="boss", zones=frozenset(), operator=True)),
        "meterman": with_secrets.add(Client(id="meterman", zones=frozenset(ZONES))),
    }
    databases = Databases.of(state=state_dsn, log=log_dsn)
    now_s = (FIRST + 5) * STEP_S + GRACE_S + 1.0
    clock = Clock(played_s=now_s, real_s=time.time(), speed=1e-9)
    pool = Pool(lambda: Access(state_dsn))
    counts = Counter(accepted=1602, late=3, refused=1)
    made = OperatorDoor(databases=databases, settings=Settings(playback=clock), access=pool, counts=counts)
    app = private_app(made.routes(), lambda *_, **__: None)
    yield SimpleNamespace(app=app, secrets=secrets, publisher=publisher, opening=opening, door=made, plan=terms.plan)
    for closing in (made, pool, state, log, with_secrets):
        closing.close()


def fetch(door, path, name="boss", secret=None):
    coded = base64.b64encode(f"{name}:{secret or door.secrets.get(name, '')}".encode()).decode()
    headers = {} if not name else {"authorization": f"Basic {coded}"}

    async def get():
        transport = httpx.ASGITransport(app=door.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://private") as client:
            return await client.get(path, headers=headers)

    return asyncio.run(get())


def samples(text):
    """Every sample by its name and labels; refuses a line that is neither a sample nor a comment of its family."""
    found, family = {}, None
    assert text.endswith("\n")
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("# "):
            _, word, family, *rest = line.split(" ", 3)
            assert word in {"HELP", "TYPE"}
            assert word == "HELP" or rest[0] in {"counter", "gauge"}
            continue
        match = SAMPLE.fullmatch(line)
        assert match, line
        assert match[1] == family
        key = match[1] + (match[2] or "")
        assert key not in found
        found[key] = float(match[3])
    return found


def test_the_page_says_how_far_each_zone_is(door):
    answer = fetch(door, "/operator")
    assert answer.status_code == 200
    page = Parsed(answer.text)
    rows = {row[0]: row for row in page.rows if len(row) == 9}
    assert rows.keys() == set(ZONES)
    for row in rows.values():
        assert row[1] == "1 behind"
        assert row[3:6] == ["2", "1", "1"]
        assert row[7:] == [door.plan[:8], SIGNER.public[:8]]
    for words in ("0 of 2", "1,602", "Needs a person", "a <b> reason", "in 5 min"):
        assert words in page.text
    wish = Wish(until=FIRST + 4, opening=door.opening)
    assert not door.publisher.publish(dict.fromkeys(ZONES, wish), patience_s=20).moved
    time.sleep(1.05)
    assert "2 of 2" in Parsed(fetch(door, "/operator").text).text


def test_no_demand_is_on_the_page_or_in_the_metrics(door):
    for path in ("/operator", "/metrics"):
        text = fetch(door, path).text
        assert len(text) > 500
        assert not re.search(r"8[,. ']?675[,. ']?309|8[,. ']?675[.]3", text)


def test_the_page_has_no_script_no_secret_and_nothing_from_elsewhere(door):
    answer = fetch(door, "/operator")
    assert "<script" not in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert answer.headers["cache-control"] == "no-store"
    assert ZONES[1] in Parsed(answer.text).text
    for text in (answer.text, fetch(door, "/metrics").text):
        assert not [secret for secret in door.secrets.values() if secret in text]


@pytest.mark.parametrize("path", ["/operator", "/metrics"])
def test_who_is_no_operator_is_asked_for_a_name_and_a_secret(door, path):
    for name, secret in (("", None), ("boss", "wrong"), ("nobody", "x"), ("meterman", None)):
        answer = fetch(door, path, name, secret)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Basic")
        assert "murmurate_" not in answer.text
        assert "Zones" not in answer.text


def test_metrics_can_be_read_line_by_line(door):
    answer = fetch(door, "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = samples(answer.text)
    assert found['murmurate_readings_total{fate="accepted"}'] == 1602
    assert found["murmurate_zones_aside"] == 1
    assert 0 <= found["murmurate_release_age_seconds"] < 120
    quay = 'zone="<script>\\"quay\\"\\n\\\\"'
    assert found[f"murmurate_zone_decided_interval_end_seconds{{{quay}}}"] == (FIRST + 4 + LEAD) * STEP_S
    kinds = [
        found[f'murmurate_zone_releases_24h{{{quay},kind="{kind}"}}'] for kind in ("measured", "forecast", "withheld")
    ]
    assert kinds == [2, 1, 1]
    head = next(view for view in door.door._log.views.values() if view.zone == "harbour")
    assert head.total_epsilon_micro > 0
    assert found['murmurate_zone_epsilon_total{zone="harbour"}'] == pytest.approx(head.total_epsilon_micro / 1e6)


def test_a_log_out_of_reach_leaves_the_page_and_says_so(door):
    door.door._log = LogSide("postgresql://nobody@127.0.0.1:1/none", Settings().sign)
    answer = fetch(door, "/operator")
    assert answer.status_code == 200
    assert "The log is not read yet" in answer.text
    assert "1,602" in answer.text


def test_a_log_that_takes_its_time_does_not_hold_the_page(door, log_dsn):
    with psycopg.connect(log_dsn) as other:
        other.execute("LOCK TABLE public_log.head IN ACCESS EXCLUSIVE MODE")
        begun = time.perf_counter()
        page = fetch(door, "/operator").text
        assert time.perf_counter() - begun < 1
        assert "The log is not read yet" in page
    time.sleep(0.5)
    assert "0 of 2" in fetch(door, "/operator").text


def views_of(count):
    ticks = tuple(islice(cycle((8120, None, 9000, 9100)), 288))
    one = view_of(ticks)
    return {f"zone {n}": replace(one, zone=f"zone {n}", total_epsilon_micro=n) for n in range(count)}


def facts(views, broken=None):
    now_s = seconds(2026, 11, 16, 23, 31)
    return facts_of(views, broken or {}, now_s=now_s, grace_s=60, counts={}, beat=None, clients=[])


def test_two_hundred_zones_are_shown_within_a_second():
    views = views_of(200)
    begun = time.perf_counter()
    page, text = operator_page(facts(views)), metrics(facts(views))
    assert time.perf_counter() - begun < 1
    assert sum(len(row) == 9 for row in Parsed(page).rows) == 200
    assert len(samples(text)) > 200 * 7


def test_those_who_need_a_person_come_first_and_the_page_ends():
    views = views_of(MOST_ZONES + 10)
    views["zone 999"] = replace(views["zone 999"], decided=views["zone 999"].decided - 3)
    found = facts(views, {"zone 998": "is out of order"})
    assert [zone.zone for zone in found.zones[:3]] == ["zone 998", "zone 999", "zone 0"]
    assert len(found.zones) == MOST_ZONES
    assert (found.zone_count, found.fine_count) == (MOST_ZONES + 10, MOST_ZONES + 8)
    assert "10 zones more" in operator_page(found)


def test_a_zone_whose_log_never_made_sense_is_told_too():
    found = facts(views_of(1), {"quay": "has no <first> record"})
    assert (found.zone_count, found.fine_count) == (2, 1)
    assert "has no <first> record" in Parsed(operator_page(found)).text
    assert samples(metrics(found))["murmurate_zones_broken"] == 1


def test_a_day_that_was_never_decided_is_not_counted_as_released():
    """The road has stood still for two days: the last 24 hours have nothing, whatever came before."""
    one = view_of((8120,) * 96)
    (found,) = facts({"harbour": one}).zones
    assert sum(found.kinds.values()) == 0
    assert found.behind == 288 - 96 == found.due + 96
    assert Kind.MEASURED not in found.kinds


def test_the_next_deadline_is_when_the_grace_of_the_running_interval_ends():
    found = facts(views_of(1))
    assert found.next_deadline_s == seconds(2026, 11, 16, 23, 31) + 900
    assert facts({}).next_deadline_s is None
