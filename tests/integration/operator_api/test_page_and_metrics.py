"""The operator's page and metrics over real databases: how far each zone is, what it cost, and never a demand."""

import re
import time
from collections import Counter
from itertools import cycle, islice
from types import SimpleNamespace

import psycopg
import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families
from tests.support import web_server
from tests.support.cpu_time import work_of
from tests.support.operator_cli import small_zone
from tests.support.postgres_stores import ShardWriter
from tests.support.sample_shards import OLD_KEY
from tests.support.waiting import wait_until
from tests.support.zone_views import seconds, shard_of
from tests.unit.public_api.test_pages import Parsed

from murmurate.planning.plan import make_plan
from murmurate.planning.zone_file import parse_zone
from murmurate.public_log.zone_table import ZoneRow
from murmurate.service.auth import ApiClient, AuthStore
from murmurate.service.clock import ServiceClock
from murmurate.service.ingest.http_api import private_app
from murmurate.service.log_reader.zone_view import PriceKind
from murmurate.service.operator_api.routes import OperatorApi, operator_page, status_metrics
from murmurate.service.operator_api.status import MAX_STATUS_ZONES, BackgroundLogReader, service_status
from murmurate.service.settings import ServiceSettings
from murmurate.service.storage.databases import Database, Databases
from murmurate.service.storage.heartbeats import WORKER_BEAT, WORKER_HEARTBEAT
from murmurate.service.storage.session import SessionPool
from murmurate.service.storage.state_store import PostgresStateStore
from murmurate.service.web.text import format_metrics
from murmurate.service.worker.figures import WorkerFigures

CANARY_WH = 8_675_309
STEP_S, LEAD, GRACE_S = 300, 2, 60
FIRST = 5_900_000  # in the past: the log takes no interval that is not over
ZONES = ("harbour", '<script>"quay"\n\\')


def sample_figures():
    """The figures of a worker that has seen some trouble."""
    figures = WorkerFigures(oldest_readings_age_s=600_000.0, clock_difference_s={"state": 601.5, "log": -0.2})
    figures.not_aggregated["disk"], figures.retention_failed["landing"] = 2, 1
    figures.damage, figures.table_problem = {"_closed/notes.json": "is not a file"}, ("loses meters", "has 6 of 10")
    for seconds_late in (1.5, 3.0, 2000.0):
        figures.lateness.observe(seconds_late)
    figures.aggregation.observe(0.25)
    return figures


@pytest.fixture(scope="module")
def plan():
    return make_plan(parse_zone(small_zone())).to_json()


@pytest.fixture
def unread_api(state_dsn, log_dsn, plan):
    """Two zones whose first four intervals are decided: two measured, a fallback, one too late. A fifth is due."""
    writer, state = (
        ShardWriter(log_dsn, dict.fromkeys(ZONES, plan), first=FIRST, lead=LEAD),
        PostgresStateStore(state_dsn),
    )
    writer.write()
    writer.write(2, CANARY_WH)
    writer.write()
    writer.write(priced_from=FIRST + 4)
    digest = writer.terms["harbour"].plan_digest
    state.record_heartbeat(
        WORKER_HEARTBEAT,
        {
            "interval_s": STEP_S,
            "up_to_date": 1,
            "blocked": 1,
            "blocked_zones": 3,
            "unfinished": 0,
            "reasons": {ZONES[1]: "a <b> reason"},
            "warnings": {"_closed/notes.json": "is not a file of this landing"},
            "zones_without_meters": 1,
            "share_reported": {"harbour": 0.95},
        },
    )
    state.record_heartbeat(WORKER_BEAT, sample_figures().to_report())
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
    yield SimpleNamespace(app=app, secrets=secrets, writer=writer, operator_api=made, plan=digest)
    for closing in (made, pool, state, writer, with_secrets):
        closing.close()


@pytest.fixture
def api(unread_api):
    """The API once it has read the log: a page waits for it for a moment only, which may be too short here."""
    until_shown(unread_api, "harbour")
    return unread_api


def fetch(api, path, name="boss", secret=None):
    return web_server.fetch(api.app, path, auth=(name, secret or api.secrets.get(name, "")) if name else None)


def until_shown(api, words):
    """Wait until the page shows these words: the log is read again after a second."""
    assert wait_until(lambda: words in Parsed(fetch(api, "/operator").text).text)


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
    rows = {row[0]: row for row in page.rows if len(row) == 10}
    assert rows.keys() == set(ZONES)
    for row in rows.values():
        assert row[1] == "1 behind"
        assert row[3:7] == ["2", "0", "1", "1"]  # measured, public, fallback, no price
        assert row[8:] == [api.plan[:8], OLD_KEY.public_key[:8]]
    for words in ("0 of 2", "1,602", "Needs attention", "a <b> reason", "in 5 min"):
        assert words in page.text
    api.writer.write()
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
    assert found["murmurate_shards_up_to_date",] == 1
    assert found["murmurate_shards_blocked",] == 1
    assert found["murmurate_shards_unfinished",] == 0
    assert found["murmurate_zones_blocked",] == 3
    assert found["murmurate_zones_up_to_date",] == 0
    assert 0 <= found["murmurate_release_age_seconds",] < 120
    assert min(found["murmurate_database_bytes", ("database", name)] for name in ("state", "log")) > 1_000_000
    quay = ("zone", ZONES[1])
    assert found["murmurate_zone_decided_interval_end_seconds", quay] == (FIRST + 4 + LEAD) * STEP_S
    kinds = {"measured": 2, "fallback": 1, "withheld": 1}
    assert {key: found["murmurate_zone_releases_24h", ("kind", key), quay] for key in kinds} == kinds
    head = api.writer.head
    total = int(head.totals[0, head.table.position["harbour"]])
    assert total > 0
    assert found["murmurate_zone_epsilon_total", ("zone", "harbour")] == total / 1e6


def test_the_figures_of_the_worker_are_metrics_and_stand_on_the_page(api):
    found = samples(fetch(api, "/metrics").text)
    assert 0 <= found["murmurate_worker_heartbeat_age_seconds",] < 120
    assert found["murmurate_intervals_not_aggregated_total", ("cause", "disk")] == 2
    assert found["murmurate_retention_failed_total", ("cause", "landing")] == 1
    assert found["murmurate_oldest_readings_age_seconds",] == 600_000
    assert found["murmurate_damaged_files",] == 1
    assert found["murmurate_clock_difference_seconds", ("process", "worker"), ("store", "state")] == 601.5
    assert found["murmurate_clock_difference_seconds", ("process", "worker"), ("store", "log")] == -0.2
    assert found["murmurate_meter_table_not_in_force", ("cause", "loses meters")] == 1
    assert found["murmurate_meter_table_not_in_force", ("cause", "unreadable")] == 0
    assert found["murmurate_zones_without_meters",] == 1
    assert found["murmurate_zone_share_reported", ("zone", "harbour")] == 0.95
    lateness = "murmurate_release_lateness_seconds"
    assert [found[f"{lateness}_bucket", ("le", bound)] for bound in ("2.0", "5.0", "+Inf")] == [1, 2, 3]
    assert found[f"{lateness}_count",] == 3
    assert found["murmurate_aggregation_seconds_sum",] == 0.25
    page = Parsed(fetch(api, "/operator").text).text
    for words in ("_closed/notes.json", "is not a file of this landing", "Damaged files", "7 days"):
        assert words in page, words


def test_a_metric_has_one_type_and_a_second_request_counts_nothing_twice(api):
    first, second = (fetch(api, "/metrics").text for _ in range(2))
    ages = {("murmurate_release_age_seconds",): 0, ("murmurate_worker_heartbeat_age_seconds",): 0}
    assert samples(first) | ages == samples(second) | ages
    types = {family.name: family.type for family in text_string_to_metric_families(first)}
    counters = {"murmurate_readings", "murmurate_zone_epsilon", "murmurate_zone_rho", "murmurate_part_restarts"}
    counters |= {"murmurate_intervals_not_aggregated", "murmurate_retention_failed"}
    histograms = {"murmurate_release_lateness_seconds", "murmurate_aggregation_seconds"}
    assert {name for name, kind in types.items() if kind == "counter"} == counters
    assert {name for name, kind in types.items() if kind == "histogram"} == histograms
    assert {kind for name, kind in types.items() if name not in counters | histograms} == {"gauge"}
    assert not [family for family in REGISTRY.collect() if family.name.startswith("murmurate")]


def test_a_log_out_of_reach_leaves_the_page_and_says_so(unread_api):
    unread_api.operator_api._log_reader = BackgroundLogReader(Database("log", "postgresql://nobody@127.0.0.1:1/none"))
    answer = fetch(unread_api, "/operator")
    assert answer.status_code == 200
    assert "The public log is not read yet" in answer.text
    assert "1,602" in answer.text


def test_a_log_that_takes_its_time_does_not_hold_the_page(unread_api, log_dsn):
    with psycopg.connect(log_dsn) as other:
        other.execute("LOCK TABLE public_log.head IN ACCESS EXCLUSIVE MODE")
        begun = time.monotonic()
        page = fetch(unread_api, "/operator").text
        assert time.monotonic() - begun < 30  # a page that waits for the lock comes after the server's 60 s
        assert "The public log is not read yet" in page
    until_shown(unread_api, "0 of 2")


TICKS = tuple(islice(cycle((8120, None, 9000, 9100)), 288))


def shards_of(*counts, late=0):
    """Shards of so many zones that were opened together. The last one is late by so many intervals."""
    since, found = seconds(2026, 11, 14) // 900 - 2, []
    for number, count in enumerate(counts):
        names = [f"zone {number}-{n:04}" for n in range(count)]
        rows = [ZoneRow(zone, "0" * 64, "CHF", "1/100000", since) for zone in names]
        ticks = TICKS[: len(TICKS) - (late if number == len(counts) - 1 else 0)]
        found.append(shard_of(rows, [ticks] * count, name=f"shard {number}"))
    return found


def facts(shards, broken=None):
    now_s = seconds(2026, 11, 16, 23, 31)
    more = {"reading_counts": {}, "heartbeat": None, "clients": []}
    return service_status(
        shards, broken or {}, display_of=ServiceSettings().display_of, now_s=now_s, grace_s=60, **more
    )


def test_two_hundred_zones_are_shown_within_a_second():
    shards = shards_of(100, 100)
    assert (
        work_of(
            lambda: (operator_page(facts(shards), ServiceSettings()), format_metrics(status_metrics(facts(shards))))
        )
        < 35
    )
    page, text = operator_page(facts(shards), ServiceSettings()), format_metrics(status_metrics(facts(shards)))
    assert sum(len(row) == 10 for row in Parsed(page).rows) == 200
    assert len(samples(text)) > 200 * 7


def test_zones_that_need_an_operator_come_first_and_the_page_ends():
    found = facts(shards_of(MAX_STATUS_ZONES, 4, 6, late=3), {"shard 1": "is out of order"})
    assert [zone.zone for zone in found.zones[:11]] == [
        *(f"zone 1-{n:04}" for n in range(4)),
        *(f"zone 2-{n:04}" for n in range(6)),
        "zone 0-0000",
    ]
    assert [zone.intervals_behind for zone in found.zones[:11]] == [0] * 4 + [3] * 6 + [0]
    assert len(found.zones) == MAX_STATUS_ZONES
    assert (found.zone_count, found.up_to_date_count, found.broken_zone_count) == (1010, MAX_STATUS_ZONES, 4)
    page = Parsed(operator_page(found, ServiceSettings())).text
    assert "Zones not shown: 10." in page
    assert "shard 1" in page
    assert "is out of order" in page


def test_a_shard_whose_log_never_made_sense_is_told_too():
    found = facts(shards_of(1), {"quay": "has no <first> tile"})
    assert (found.zone_count, found.up_to_date_count) == (1, 1)
    assert "has no <first> tile" in Parsed(operator_page(found, ServiceSettings())).text
    assert samples(format_metrics(status_metrics(found)))["murmurate_shards_broken",] == 1


def test_a_day_that_was_never_decided_is_not_counted_as_released():
    """The worker has stood still for two days: the last 24 hours have nothing, whatever came before."""
    (found,) = facts(shards_of(1, late=192)).zones
    assert sum(found.releases_by_kind.values()) == 0
    assert found.intervals_behind == 288 - 96 == found.due_releases + 96
    assert PriceKind.MEASURED not in found.releases_by_kind


def test_a_hundred_thousand_zones_do_not_make_the_status_slower():
    """Shards are looked at one by one, zones only where they are shown."""
    some, many = (shards_of(*[MAX_STATUS_ZONES] * 2), shards_of(*[MAX_STATUS_ZONES] * 2) * 20)
    assert facts(many).zone_count == 20 * facts(some).zone_count
    many_work = min(work_of(lambda: facts(many)) for _ in range(5))
    assert many_work < 4 * min(work_of(lambda: facts(some)) for _ in range(5)) + 1


def test_the_next_deadline_is_when_the_grace_of_the_running_interval_ends():
    found = facts(shards_of(1))
    assert found.next_deadline_s == seconds(2026, 11, 16, 23, 31) + 900
    assert facts([]).next_deadline_s is None
