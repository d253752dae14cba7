"""A worker reads every plan after a start: it shows that it lives meanwhile, and its supervisor leaves it alone."""

import os
import sys
import time

import psycopg
import pytest
from tests.support.interval_workers import FIRST_S, GRACE_S
from tests.support.many_plans import open_many_zones
from tests.support.operator_cli import STEP_S
from tests.support.ports import free_port
from tests.support.waiting import wait_until

from murmurate.planning.release_terms import ReleaseTerms
from murmurate.service.storage.state_store import PLANS_PER_PROGRESS
from murmurate.service.supervisor import SupervisedProcess
from murmurate.service.watchdog import PIPE_VARIABLE, read_progress, report_progress
from murmurate.service.worker import interval_worker

PLANS = 1200
SLOW_PLANS, SLOW_PLAN_S, WATCHDOG_S = 2500, 0.01, 5.0
SLOW_WORKER = f"""
import os, runpy, sys, time
os.write(int(os.environ["{PIPE_VARIABLE}"]), b"600\\n")  # the start of a process is not what is tested
from murmurate.planning.release_terms import ReleaseTerms
read = ReleaseTerms.from_json
ReleaseTerms.from_json = lambda text: (time.sleep({SLOW_PLAN_S}), read(text))[1]
sys.argv = ["murmurate", "serve", sys.argv[1], "--only", "worker"]
runpy.run_module("murmurate", run_name="__main__")
"""


class PlansBetweenSigns:
    """Counts the plans that this process reads between two signs of life, as its supervisor would see them."""

    def __init__(self, monkeypatch):
        self.count = self.most = self.all = 0
        self._pipe, write_end = os.pipe()
        for end in (self._pipe, write_end):
            os.set_blocking(end, False)
        monkeypatch.setenv(PIPE_VARIABLE, str(write_end))
        self._read = ReleaseTerms.from_json
        monkeypatch.setattr(ReleaseTerms, "from_json", self._count_plan)

    def _count_plan(self, text):
        if read_progress(self._pipe) is not None:
            self.count = 0
        self.count, self.all = self.count + 1, self.all + 1
        self.most = max(self.most, self.count)
        return self._read(text)


def release_after_start(setup, _):
    setup.release(0)
    assert setup.kinds() == ["measured"]


def release_without_aggregation(setup, monkeypatch):
    def fail(*_):
        raise ValueError

    monkeypatch.setattr(interval_worker, "aggregate_landing", fail)
    monkeypatch.setattr(interval_worker.IntervalWorker, "_note_zones", fail)
    setup.release(0)
    assert setup.kinds() == ["fallback"]


def look_for_damaged_plans(setup, _):
    context = setup.worker.context
    context.state.load_terms(context.state.plan_by_zone().values(), report_progress)
    with psycopg.connect(setup.state_dsn) as connection:
        connection.execute("UPDATE curator.document SET body = replace(body, 'zone-', 'gone-')")
    assert len(context.state.find_damaged_plans(report_progress)) == PLANS


@pytest.mark.parametrize("read", [release_after_start, release_without_aggregation, look_for_damaged_plans])
def test_a_worker_shows_that_it_lives_each_hundred_plans_that_it_reads(worker_setup, monkeypatch, read):
    open_many_zones(worker_setup, PLANS)
    worker_setup.worker = worker_setup.new_worker()
    plans = PlansBetweenSigns(monkeypatch)
    read(worker_setup, monkeypatch)
    assert plans.all > PLANS
    assert plans.most <= PLANS_PER_PROGRESS


def test_a_worker_that_reads_plans_for_five_times_the_watchdog_is_not_restarted(worker_setup, tmp_path):
    open_many_zones(worker_setup, SLOW_PLANS)
    worker_setup.report(0)
    settings, log = tmp_path / "service.toml", tmp_path / "worker.log"
    settings.write_text(
        f'public = "127.0.0.1:{free_port()}"\nprivate = "127.0.0.1:{free_port()}"\nrelease_slot_s = 0.05\n'
        f"[clock]\nsimulated_s = {FIRST_S + STEP_S + GRACE_S}\nwall_s = {time.time()}\n"
    )
    code = f"import os\nos.dup2(os.open({str(log)!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2){SLOW_WORKER}"
    part = SupervisedProcess(
        name="worker",
        command=[sys.executable, "-c", code, str(settings)],
        environment=os.environ | {"MURMURATE_STATE": worker_setup.state_dsn, "MURMURATE_LOG": worker_setup.log_dsn},
        watchdog_s=WATCHDOG_S,
    )
    begun_s = time.monotonic()
    try:
        assert wait_until(lambda: part.check() or worker_setup.kinds(), timeout_s=600, pause_s=0.2)
    finally:
        if part.process is not None:
            part.process.kill()
            part.process.wait()
        part.clear_process()
    assert part.restarts == 0, log.read_text()
    assert worker_setup.kinds() == ["measured"]
    assert time.monotonic() - begun_s > 4 * WATCHDOG_S  # or it was not a test of a long reading
