"""`murmurate zone open` and `murmurate zone change` compare a plan with the meter table: households with households."""

import json

import pytest

from murmurate.service.storage.heartbeats import WORKER_HEARTBEAT
from murmurate.service.storage.state_store import PostgresStateStore
from tests.support.operator_cli import an_operator, made_plan, small_zone

HEADER = "meter,zone,bound_wh,kind,household"
NOT_COMPARED = "Warning: no meter table is known"


def table(households, *, bound_wh=500, kind="flat", zone="harbour", meters_each=2):
    """The rows of households with some meters each."""
    rows = [(zone, bound_wh, kind, f"{kind} {home}") for home in range(households) for _ in range(meters_each)]
    return "\n".join([HEADER, *(",".join(map(str, (number, *row))) for number, row in enumerate(rows))]) + "\n"


@pytest.fixture
def planned(tmp_path):
    with an_operator(tmp_path) as operator:
        operator.write("plan.json", made_plan(small_zone()))  # 800 flats up to 1,000 Wh, and a market
        operator.run("murmurate init")
        yield operator


def test_a_plan_that_would_not_hide_a_household_of_the_table_is_not_opened(planned):
    for meters, says in (
        (
            table(801, bound_wh=501),
            "harbour: has a household of kind 'flat' with bound_wh + export_bound_wh = 1002; its plan hides up to 1000",
        ),
        (table(801, kind="shop"), "zone is harbour: has a household of kind 'shop'; the kinds of its plan are"),
        (table(801) + "1602,hill,5,flat,flat 0\n", "household is 'flat 0': must have one zone"),
        (table(801) + "1602,harbour,5,fish market,flat 0\n", "household is 'flat 0': must have one kind"),
    ):
        planned.write("meters.csv", meters)
        assert says in planned.run("murmurate zone open plan.json --meters meters.csv", status=2)
    assert "is not open" in planned.run("murmurate zone change plan.json --meters meters.csv", status=2)


def test_open_and_change_say_how_the_plan_fits_the_table(planned):
    assert NOT_COMPARED in planned.run("murmurate zone open plan.json")
    planned.write("zone-2.toml", small_zone().replace("count = 800", "count = 500"))
    planned.run("murmurate plan zone-2.toml --out plan-2.json")
    planned.write("meters.csv", table(801, bound_wh=501))
    assert "hides up to 1000" in planned.run("murmurate zone change plan-2.json --meters meters.csv", status=2)
    planned.write("meters.csv", table(801))
    found = json.loads(planned.run("murmurate zone change plan-2.json --meters meters.csv --json 2>errors.txt"))
    assert found["changed"] == ["harbour"]
    (warning,) = found["warnings"]
    assert warning.startswith("harbour has 801 households in the meter table, and its plan is made for 501: its prices")
    shown = planned.run("murmurate zone change plan.json --meters meters.csv")  # 1,602 meters of 801 households
    assert "Warning" not in shown


def test_a_zone_without_a_meter_is_said(planned):
    planned.write("meters.csv", table(5, zone="hill"))
    shown = planned.run("murmurate zone open plan.json --meters meters.csv")
    assert "Warning: harbour has no meter in meters.csv: its fallback price is released until it has." in shown


def test_the_table_of_a_running_service_is_compared_without_being_named(planned):
    planned.run("murmurate zone open plan.json")
    state = PostgresStateStore(planned.dsn("state"))
    planned.write("meters.csv", table(801, bound_wh=501))
    state.record_heartbeat(WORKER_HEARTBEAT, {"meters": str(planned.folder / "meters.csv")})
    planned.write("other.json", made_plan(small_zone(promise="any 24 h: epsilon 2")))
    assert "hides up to 1000" in planned.run("murmurate zone change other.json", status=2)
    (planned.folder / "meters.csv").unlink()
    shown = planned.run("murmurate zone change other.json")  # perhaps the service runs on another machine
    assert NOT_COMPARED in shown
    state.close()
