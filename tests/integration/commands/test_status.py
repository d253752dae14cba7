"""`murmurate status` over real databases: what it shows of a service that is down, and never a demand."""

import json
import re
from datetime import datetime
from zoneinfo import ZoneInfo

import psycopg
import pytest

from murmurate.service.storage.heartbeats import WORKER_BEAT, WORKER_HEARTBEAT
from murmurate.service.storage.state_store import PostgresStateStore
from murmurate.service.worker.figures import WorkerFigures
from murmurate.service.worker.publisher_context import LOG_CLOCK
from tests.support.database_clock import set_database_clock
from tests.support.operator_cli import PAYING, STEP_S, an_operator, operator  # noqa: F401
from tests.support.ports import free_port


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """A zone whose first intervals were measured and released, a landing and settings; nothing runs."""
    with an_operator(tmp_path_factory.mktemp("operator")) as made:
        made.stop_clock()
        first = made.open_and_find_first(hours_ago=1)
        made.store_demand(first, made.made_s // STEP_S)
        made.run("murmurate step release")
        made.run("murmurate client add head-end --zone harbour")
        addresses = f'public = "127.0.0.1:{free_port()}"\nprivate = "127.0.0.1:{free_port()}"\n'
        made.write("service.toml", addresses + 'timezone = "Europe/Zurich"\n')
        yield made


@pytest.fixture
def opened(released):
    """No worker has run yet."""
    with psycopg.connect(released.dsn("state"), autocommit=True) as connection:
        connection.execute("DELETE FROM curator.heartbeat")
    released.shown = ""
    return released


def heartbeat(operator, *, share=1.0, **more):  # noqa: F811
    """What a worker reports whose zone heard from this share of its 800 meters."""
    state = PostgresStateStore(operator.dsn("state"))
    counts = {"interval": operator.made_s // STEP_S - 1, "reported": int(800 * share), "expected": 800}
    report = {"interval_s": STEP_S, "feed": counts, "share_reported": {"harbour": share}}
    state.record_heartbeat(WORKER_HEARTBEAT, report | more)
    state.record_heartbeat(WORKER_BEAT, WorkerFigures().to_report())
    state.close()


def document(operator, line, status):  # noqa: F811
    return json.loads(operator.run(f"{line} --json", status=status))


def test_status_of_a_service_that_is_down(opened):
    shown = opened.run("murmurate status service.toml", status=1)
    assert "the service need not run" in shown
    assert shown.count("Europe/Zurich") == 1  # one clock, named once
    assert not re.search(r"\d{2}Z|UTC", shown)
    local = datetime.fromtimestamp(opened.made_s, ZoneInfo("Europe/Zurich"))
    assert f"{local:%a %d %b %Y, %H:%M}" in shown
    assert "1 of 1 up to date" in shown
    assert "1 measured" in shown
    assert "head-end (harbour)" in shown
    assert "worker: The worker has never run." in shown
    assert "does not answer" in shown
    found = document(opened, "murmurate status service.toml", 1)
    assert [item["about"] for item in found["attention"]] == ["worker", "private", "public"]
    assert all(item["problem"] and item["remedy"] for item in found["attention"])
    (zone,) = found["zone_list"]
    assert (zone["zone"], zone["kind"], zone["state"]) == ("harbour", "measured", "up to date")
    decided = datetime.fromisoformat(zone["decided_until"]).astimezone(ZoneInfo("Europe/Zurich"))
    assert re.search(rf"up to date +{decided:%a %H:%M}", shown)
    assert zone["price"] > 0
    assert zone["last_24_hours"]["measured"] > 0


def test_all_is_well_is_status_0_and_too_few_readings_are_not(opened):
    heartbeat(opened)
    shown = opened.run("murmurate status")  # without settings no process is expected
    assert "800 of 800 readings" in shown
    assert "Nothing needs attention." in shown
    assert document(opened, "murmurate status --zone harbour", 0)["ok"]
    heartbeat(opened, share=0.5, reasons={"harbour": "a reason"})
    found = document(opened, "murmurate status", 1)
    assert found["feed"]["reported"] == 400
    assert {item["about"] for item in found["attention"]} == {"harbour", "feed"}
    assert str(PAYING) not in opened.shown
    assert "1571" not in json.dumps(found["feed"])


def test_a_zone_that_stands_still_or_has_no_measurement_needs_attention(opened):
    heartbeat(opened)
    late = json.dumps(document(opened, "murmurate status", 0))
    assert "behind" not in late.replace("intervals_behind", "")
    opened.write("later.toml", f"[clock]\nsimulated_s = {opened.made_s + 86_400}\nwall_s = {opened.made_s}\n")
    found = document(opened, "murmurate status later.toml", 1)
    assert ("zones", "Zones behind: 1 of 1") in {
        (item["about"], item["problem"].split(",")[0]) for item in found["attention"]
    }


def test_what_cannot_be_read_is_named_and_the_rest_is_shown(opened):
    heartbeat(opened)
    away = "postgresql://postgres@127.0.0.1:1/none"
    found = document(opened, f"murmurate status --state {away}", 1)
    assert [item["about"] for item in found["attention"]] == ["state"]
    assert found["zone_list"][0]["kind"] == "measured"
    found = document(opened, f"murmurate status --log {away}", 1)
    assert [item["about"] for item in found["attention"]] == ["log"]
    assert found["feed"]["reported"] == 800
    assert "is not open" in opened.run("murmurate status --zone quay", status=2)


def test_a_log_whose_clock_is_behind_is_the_reason_and_not_a_slow_database(opened):
    heartbeat(opened, unfinished=1, reasons={LOG_CLOCK: "is behind: check NTP on its server"})
    found = document(opened, "murmurate status", 1)
    assert [item["about"] for item in found["attention"]] == [LOG_CLOCK]
    state = PostgresStateStore(opened.dsn("state"))
    state.record_heartbeat(WORKER_BEAT, WorkerFigures(clock_difference_s={"state": -0.3, "log": 70.0}).to_report())
    state.close()
    found = document(opened, "murmurate status", 1)
    assert ("clock", "The clock of the worker is 70 s ahead of that of the database log.") in {
        (item["about"], item["problem"]) for item in found["attention"]
    }
    assert found["worker"]["clock_difference_s"] == {"state": -0.3, "log": 70.0}
    heartbeat(opened, unfinished=1)
    assert [item["about"] for item in document(opened, "murmurate status", 1)["attention"]] == ["shards"]


def test_release_names_a_log_whose_clock_is_behind(operator):  # noqa: F811
    operator.stop_clock()
    operator.open_and_find_first(hours_ago=1)
    set_database_clock(operator.dsn("log"), -7 * 86_400)
    assert "clock of the log" in operator.run("murmurate step release --timeout 2 --slot 0.02", status=1)
    printed = operator.run("murmurate step release --timeout 2 --slot 0.02 --json 2> /dev/null", status=1)
    assert list(json.loads(printed)["blocked"]) == [LOG_CLOCK]
    set_database_clock(operator.dsn("log"), 0)
    assert "1 of 1 zone up to date" in operator.run("murmurate step release --slot 0.02")
