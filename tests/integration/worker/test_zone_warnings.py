"""A zone whose prices are useless although releases go on is named in the log and in the report of the worker."""

from dataclasses import replace

import psycopg
from tests.support.interval_workers import FIRST_S, GRACE_S, HOMES
from tests.support.operator_cli import STEP_S, small_zone
from tests.support.postgres_stores import released_kinds

from murmurate.commands.close import close_zones
from murmurate.operations.publishing import compare_with_table, open_zones
from murmurate.planning.plan import make_plan
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.planning.zone_file import parse_zone
from murmurate.publisher.desired_state import ShardOpening
from murmurate.service.worker.zone_warnings import warn_of_household_counts, warn_of_short_leads


def write_meters(setup, homes, meters_each=1):
    rows = [f"{meter},harbour,500,100,h{meter // meters_each}" for meter in range(homes * meters_each)]
    (setup.root / "meters.csv").write_text("\n".join(["meter,zone,bound_wh,imputed_wh,household", *rows]) + "\n")


def said(setup, event):
    return [facts["reasons"] for name, facts in setup.logged if name == event]


def test_two_households_under_a_plan_for_many_are_said_in_log_and_report(worker_setup):
    write_meters(worker_setup, 2)
    for number in (0, 1):
        worker_setup.report(number, homes=2)
        worker_setup.at(number, GRACE_S)
    words = f"has 2 households in the meter table, and its plan is made for {HOMES}: its prices are off"
    report = worker_setup.release_report()
    assert report["zone_warnings"]["harbour"].startswith(words)
    assert report["warnings"]["harbour"].startswith(words)
    assert [list(reasons) for reasons in said(worker_setup, "households do not fit plans")] == [["harbour"]]


def test_a_grace_that_is_longer_than_the_lead_is_said_in_log_and_report(worker_setup):
    worker_setup.worker.grace_s = STEP_S
    worker_setup.report(0)
    worker_setup.at(0, STEP_S)
    (warning,) = worker_setup.release_report()["zone_warnings"].values()
    assert warning.endswith(f"lower grace_s below {STEP_S} s")
    assert len(said(worker_setup, "grace longer than lead")) == 1


def test_a_right_number_of_homes_and_a_short_grace_are_not_warned_of(worker_setup):
    worker_setup.release(0)
    assert worker_setup.release_report()["zone_warnings"] == {}
    assert warn_of_household_counts({"a": 100, "b": 100, "d": 5}, {"a": 75, "b": 125, "c": 5, "d": 2}) == {}
    assert warn_of_household_counts({"a": 100, "b": 100}, {"a": 74, "b": 126}).keys() == {"a", "b"}


def test_meters_of_one_household_are_counted_as_one_household(worker_setup):
    write_meters(worker_setup, HOMES, meters_each=2)
    worker_setup.report(0, homes=2 * HOMES)
    worker_setup.at(0, GRACE_S)
    assert worker_setup.release_report()["zone_warnings"] == {}
    write_meters(worker_setup, HOMES // 2, meters_each=2)  # as many meters as the plan has households
    for number in (1, 2):  # a table that loses meters is in force at the second deadline
        worker_setup.at(number, GRACE_S)
    assert worker_setup.release_report()["zone_warnings"]["harbour"].startswith("has 400 households")


def test_the_grace_must_end_before_the_interval_that_pays_begins():
    def names(lead, grace_s):
        return list(warn_of_short_leads({"s": ShardOpening(key="k", interval_s=900, lead=lead)}, grace_s))

    assert [names(2, 899), names(2, 900), names(1, 0), names(0, 0)] == [[], ["shard s"], ["shard s"], ["shard s"]]


def test_a_closed_zone_is_not_aggregated_released_or_warned_of_although_its_meters_stay_in_the_table(worker_setup):
    worker_setup.release(0)
    assert worker_setup.release_report()["share_reported"] == {"harbour": 1.0}
    close_zones(["harbour"], worker_setup.state_dsn, worker_setup.log_dsn, worker_setup.root / "keys")
    kinds = worker_setup.kinds()
    for number in (1, 2, 3):  # no reading comes any more
        worker_setup.at(number, GRACE_S)
    report = worker_setup.release_report()
    assert (report["share_reported"], report["feed"]["expected"], report["zones_without_meters"]) == ({}, 0, 0)
    assert report["zone_warnings"] == report["warnings"] == report["reasons"] == {}
    assert (report["unfinished"], report["blocked"]) == (0, 0)
    assert worker_setup.kinds() == kinds
    with psycopg.connect(worker_setup.state_dsn) as connection:
        (stored,) = connection.execute("SELECT array_agg(interval) FROM confidential.demand").fetchone()
        assert stored == [FIRST_S // STEP_S]
        worker_setup.worker.keep_days = 0.0
        assert worker_setup.worker.purge(worker_setup.clock.now())
        assert connection.execute("SELECT count(*) FROM confidential.demand").fetchone() == (0,)


def test_a_zone_whose_plan_reads_no_meter_misses_none_and_no_demand_of_it_is_stored(worker_setup):
    """Without meters, and with some that report: for another use, or from before a change of plan."""
    text = small_zone("hill") + '\n[forecast]\nfrom = "occupancy"\nread_meters = false\n'
    plan = worker_setup.root / "hill.json"
    plan.write_text(make_plan(parse_zone(text)).to_json())
    terms, meters = {"hill": ReleaseTerms.from_json(plan.read_text())}, worker_setup.root / "meters.csv"
    assert compare_with_table(terms, meters, worker_setup.worker.context.state) == []
    open_zones([plan], worker_setup.databases, worker_setup.root / "keys", lead_intervals=2, first="2026-11-14T00:00Z")
    worker_setup.release(0)
    rows = meters.read_text() + "".join(f"{HOMES + home},hill,90000,100\n" for home in range(3))
    meters.write_text(rows)
    for number, homes in ((1, HOMES), (2, HOMES + 3)):
        worker_setup.report(number, homes=homes)
        worker_setup.at(number, GRACE_S)
        report = worker_setup.release_report()
        assert (report["zone_warnings"], report["zones_without_meters"], report["blocked_zones"]) == ({}, 0, 0)
        assert report["share_reported"] == {"harbour": 1.0}
        assert report["feed"]["expected"] == HOMES
    assert [kind for _, kind in released_kinds(worker_setup.log_dsn, "hill")] == ["public"] * 3
    assert worker_setup.kinds() == ["measured"] * 3
    assert set(worker_setup.column("zone")) == {"harbour"}


def test_a_worker_without_a_meter_table_serves_zones_that_read_none_and_names_those_that_do(worker_setup):
    """`meters = ""` in the settings: nothing is closed, and a zone that reads meters does not go quiet."""
    text = small_zone("hill") + '\n[forecast]\nfrom = "occupancy"\nread_meters = false\n'
    plan = worker_setup.root / "hill.json"
    plan.write_text(make_plan(parse_zone(text)).to_json())
    open_zones([plan], worker_setup.databases, worker_setup.root / "keys", lead_intervals=2, first="2026-11-14T00:00Z")
    worker_setup.worker = replace(worker_setup.worker, meters=None)
    worker_setup.release(0, 1)
    report = worker_setup.release_report()
    assert list(report["zone_warnings"]) == ["harbour"]
    assert "has no meter in the meter table" in report["zone_warnings"]["harbour"]
    assert (report["zones_without_meters"], report["feed"]["expected"], report["meters"]) == (1, 0, "")
    assert [kind for _, kind in released_kinds(worker_setup.log_dsn, "hill")] == ["public"] * 2
    assert worker_setup.kinds() == ["fallback"] * 2
    assert "not aggregated" not in worker_setup.events()
    assert worker_setup.column("zone") == []
