"""A zone whose prices are useless although releases go on is named in the log and in the report of the worker."""

from tests.support.interval_workers import GRACE_S, HOMES
from tests.support.operator_cli import STEP_S

from murmurate.publisher.desired_state import ShardOpening
from murmurate.service.worker.zone_warnings import warn_of_home_counts, warn_of_short_leads


def write_meters(setup, homes):
    rows = [f"{home},harbour,1000,100" for home in range(homes)]
    (setup.root / "meters.csv").write_text("\n".join(["meter,zone,bound_wh,imputed_wh", *rows]) + "\n")


def said(setup, event):
    return [facts["reasons"] for name, facts in setup.logged if name == event]


def test_two_meters_under_a_plan_for_many_homes_are_said_in_log_and_report(worker_setup):
    write_meters(worker_setup, 2)
    for number in (0, 1):
        worker_setup.report(number, homes=2)
        worker_setup.at(number, GRACE_S)
    words = f"has 2 meters, and its plan is made for {HOMES} homes"
    report = worker_setup.release_report()
    assert report["zone_warnings"]["harbour"].startswith(words)
    assert report["warnings"]["harbour"].startswith(words)
    assert [list(reasons) for reasons in said(worker_setup, "meters do not fit plans")] == [["harbour"]]


def test_a_grace_that_is_longer_than_the_lead_is_said_in_log_and_report(worker_setup):
    worker_setup.worker.grace_s = STEP_S
    worker_setup.report(0)
    worker_setup.at(0, STEP_S)
    (warning,) = worker_setup.release_report()["zone_warnings"].values()
    assert warning.endswith(f"lower grace_s below {STEP_S} s")
    assert len(said(worker_setup, "grace longer than lead")) == 1


def test_a_right_number_of_homes_and_a_short_grace_are_not_warned_of(worker_setup):
    worker_setup.report(0)
    worker_setup.at(0, GRACE_S)
    assert worker_setup.release_report()["zone_warnings"] == {}
    assert warn_of_home_counts({"a": 100, "b": 100}, {"a": 80, "b": 200, "c": 5}) == {}
    assert warn_of_home_counts({"a": 100, "b": 100}, {"a": 79, "b": 201}).keys() == {"a", "b"}


def test_the_grace_must_end_before_the_interval_that_pays_begins():
    def names(lead, grace_s):
        return list(warn_of_short_leads({"s": ShardOpening(key="k", interval_s=900, lead=lead)}, grace_s))

    assert [names(2, 899), names(2, 900), names(1, 0), names(0, 0)] == [[], ["shard s"], ["shard s"], ["shard s"]]
