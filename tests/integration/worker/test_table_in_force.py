"""The meter table of an interval: the last good one while the newest is unreadable, half-written or unconfirmed."""

from tests.support.interval_workers import GRACE_S, HOMES
from tests.support.operator_cli import STEP_S


def write_meters(setup, homes, zone="harbour"):
    rows = [f"{home},{zone},1000,100" for home in range(homes)]
    (setup.root / "meters.csv").write_text("\n".join(["meter,zone,bound_wh,imputed_wh", *rows]) + "\n")


def cause(setup):
    problem = setup.worker.figures.table_problem
    return None if problem is None else problem[0]


def test_while_the_table_is_unreadable_the_one_before_is_in_force_also_after_a_restart(worker_setup):
    worker_setup.release(0)
    (worker_setup.root / "meters.csv").write_text("meter,zone\n1,harbour\n")
    worker_setup.release(1)
    assert cause(worker_setup) == "unreadable"
    (worker_setup.root / "meters.csv").unlink()
    worker_setup.worker = worker_setup.new_worker()
    worker_setup.release(2)
    worker_setup.write_meters()
    worker_setup.release(3)
    assert worker_setup.kinds() == ["measured"] * 4
    assert cause(worker_setup) is None
    assert worker_setup.events().count("meter table not in force") == 2


def test_a_table_that_loses_many_meters_waits_for_the_next_interval(worker_setup):
    worker_setup.release(0)
    write_meters(worker_setup, int(0.6 * HOMES))  # half-written at the deadline
    worker_setup.release(1)
    assert cause(worker_setup) == "loses meters"
    assert reported(worker_setup) == [HOMES, HOMES]
    worker_setup.write_meters()
    worker_setup.release(2)
    assert cause(worker_setup) is None
    assert reported(worker_setup) == [HOMES] * 3
    write_meters(worker_setup, int(0.95 * HOMES))  # these homes have left
    worker_setup.release(3, 4)
    assert reported(worker_setup) == [HOMES] * 4 + [int(0.95 * HOMES)]
    assert worker_setup.kinds() == ["measured"] * 5
    assert cause(worker_setup) is None


def test_a_table_that_loses_a_meter_in_a_hundred_is_in_force_at_once(worker_setup):
    worker_setup.release(0)
    write_meters(worker_setup, HOMES - 8)
    worker_setup.release(1)
    assert reported(worker_setup) == [HOMES, HOMES - 8]


def test_a_zone_without_meters_is_said_in_log_and_report(worker_setup):
    worker_setup.release(0)
    assert worker_setup.release_report()["zones_without_meters"] == 0
    write_meters(worker_setup, HOMES, zone="elsewhere")
    worker_setup.release(1, 2)
    assert worker_setup.kinds() == ["measured", "measured", "fallback"]
    said = [facts["zones"] for event, facts in worker_setup.logged if event == "zones without meters"]
    assert said == [["harbour"]]
    report = worker_setup.release_report()
    assert report["zones_without_meters"] == 1
    assert "no meter in the meter table" in report["warnings"]["harbour"]
    assert worker_setup.clock.now_s % STEP_S == GRACE_S


def reported(setup):
    return setup.column("reported")
