"""Many zones under one plan: opened, released, verified and changed together."""

import json
import re

import pytest

from murmurate.service.storage.public_log_store import PostgresLogStore
from tests.support.operator_cli import STEP_S, an_operator, small_zone

BEGIN = f"$(date -u -d @$(( ($(date +%s) / {STEP_S} - 12) * {STEP_S} )) +%FT%TZ)"
ZONES = [f"feeder-{number}" for number in range(25)]


@pytest.fixture
def operator(tmp_path):
    with an_operator(tmp_path) as one:
        one.run("murmurate init")
        one.write("zone.toml", small_zone())
        one.run("murmurate plan zone.toml")
        one.write("zones.txt", "\n".join(ZONES) + "\n")
        yield one


def open_zones(operator, names="zones.txt", status=0):
    return operator.run(f'murmurate zone open plan.json --zones {names} --lead 60 --first "{BEGIN}"', status=status)


def plans_in_force(operator):
    log = PostgresLogStore(operator.dsn("log"))
    rows = {row.zone: row.plan for offer in log.read_heads(log.heads()).values() for row in offer.table.rows}
    log.close()
    return rows


def digest_of(operator, name):
    return json.loads((operator.folder / name).read_text(encoding="utf-8"))["digest"]


def first_interval(operator):
    log = PostgresLogStore(operator.dsn("log"))
    ((offer),) = log.read_heads(log.heads()).values()
    log.close()
    return offer.table.rows[0].since


def test_a_name_that_cannot_be_an_address_is_refused_before_any_zone_is_opened(operator):
    operator.write("names.txt", "feeder-1\neast/2\n")
    assert "zone is 'east/2': must have" in open_zones(operator, "names.txt", status=2)
    assert plans_in_force(operator) == {}


def test_one_plan_serves_every_zone_of_a_file(operator):
    shown = open_zones(operator)
    assert shown.count(": open. First measured") == 20
    assert "... 25 zones: 25 are open, 0 of them were before." in shown
    assert plans_in_force(operator) == dict.fromkeys(ZONES, digest_of(operator, "plan.json"))
    first = first_interval(operator)
    operator.store_demand(first, first + 3, zone="feeder-3")
    assert "25 of 25 zones up to date" in operator.run("murmurate step release --slot 0.02")
    operator.run("murmurate log export log.tar")
    assert "Everything holds" in operator.run("murmurate log verify log.tar")
    operator.run("murmurate log export three.jsonl --zone feeder-3")
    assert "Everything holds" in operator.run("murmurate log verify three.jsonl")


def test_zones_under_one_plan_change_together(operator):
    open_zones(operator)
    first = first_interval(operator)
    operator.store_demand(first, first + 3, zone="feeder-3")
    operator.run("murmurate step release --slot 0.02")
    operator.write("more.toml", small_zone(promise="any 24 h: epsilon 2"))
    operator.run("murmurate plan more.toml --out more.json")
    shown = operator.run("murmurate zone change more.json --zones zones.txt")
    assert "... 25 zones: under plan" in shown
    assert set(plans_in_force(operator).values()) == {digest_of(operator, "more.json")}
    assert "already" in operator.run("murmurate zone change more.json --zones zones.txt")
    operator.run("murmurate step release --slot 0.02")
    operator.run("murmurate log export log.tar")
    assert "Everything holds" in operator.run("murmurate log verify log.tar")


def test_each_zone_is_proven_by_its_own_history_and_one_that_cannot_change_keeps_all_from_it(operator):
    """Half the window for the same epsilon is less noise: only where something was measured does it break the day's."""
    open_zones(operator)
    first = first_interval(operator)
    operator.store_demand(first, first + 3, zone="feeder-3")
    operator.run("murmurate step release --slot 0.02")
    before = plans_in_force(operator)
    operator.write("half.toml", small_zone(promise="any 12 h: epsilon 3"))
    operator.run("murmurate plan half.toml --out half.json")
    assert "must keep 'any 24 h: epsilon 3'" in operator.run(
        "murmurate zone change half.json --zones zones.txt", status=2
    )
    assert plans_in_force(operator) == before
    operator.write("others.txt", "\n".join(zone for zone in ZONES if zone != "feeder-3"))
    operator.run("murmurate zone change half.json --zones others.txt")
    changed = {zone for zone, plan in plans_in_force(operator).items() if plan == digest_of(operator, "half.json")}
    assert changed == set(ZONES) - {"feeder-3"}
    operator.run("murmurate log export log.tar")
    assert "Everything holds" in operator.run("murmurate log verify log.tar")


def test_a_change_that_does_not_fit_changes_none(operator):
    """Another clock is refused; a zone that is not open is named."""
    open_zones(operator)
    operator.write("other.toml", re.sub("interval_minutes = 5", "interval_minutes = 10", small_zone()))
    operator.run("murmurate plan other.toml --out other.json")
    operator.run("murmurate step release --slot 0.02")
    before = plans_in_force(operator)
    assert "intervals_per_day" in operator.run("murmurate zone change other.json --zones zones.txt", status=2)
    operator.write("more.txt", "feeder-1\nnowhere\n")
    assert "zone is nowhere: is not open" in operator.run("murmurate zone change plan.json --zones more.txt", status=2)
    assert plans_in_force(operator) == before


@pytest.mark.parametrize(
    ("names", "message"),
    [("", "empty"), ("\n\n", "empty"), ("a\nb\na\n", "is a: must have the name of each zone once")],
)
def test_a_file_of_names_that_is_empty_or_repeats_one_is_refused(operator, names, message):
    operator.write("zones.txt", names)
    assert message in open_zones(operator, status=2)


def test_two_plans_cannot_share_a_file_of_names(operator):
    operator.run("cp plan.json other.json")
    shown = operator.run("murmurate zone open plan.json other.json --zones zones.txt", status=2)
    assert "plans is 2: must be one with --zones" in shown
