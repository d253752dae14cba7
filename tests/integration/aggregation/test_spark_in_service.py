"""A service that sums on Spark: the same demand, and a price in time whatever happens to the cluster."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.interval_workers import FIRST_S, GRACE_S, worker_setup  # noqa: F401
from tests.support.operator_cli import STEP_S
from tests.support.ports import free_port
from tests.support.sample_landings import parquet_of
from tests.support.spark_cluster import TIMEOUT_S, cluster
from tests.support.waiting import wait_until

from murmurate.errors import ReadingError
from murmurate.service.aggregation.job import aggregate_landing, close_intervals, demand_table, run_in_process
from murmurate.service.aggregation.spark_driver import SparkEngine
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.meter_table import pin_table

SECOND_S = FIRST_S + STEP_S
SHARDS, SHARD_METERS = 16, 4096
READINGS, COPIES = 200_000, 4  # of a shard, in each of so many files: a job that can be hit while it runs


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    """A cluster of its own: its machines are killed."""
    with cluster(tmp_path_factory.mktemp("spark") / "cluster", cores=2, memory="2g") as it:
        yield it


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """A landing with many readings of the first interval and some of the second, and its meter table."""
    folder = tmp_path_factory.mktemp("sample")
    number = np.arange(SHARDS * SHARD_METERS)
    zone = pa.array(["harbour"] * len(number))
    columns = {"meter": number, "zone": zone, "bound_wh": 1000 - number % 700, "imputed_wh": number % 90}
    pq.write_table(pa.table(columns), folder / "meters.parquet")
    landing = Landing.create(folder / "landing", interval_s=STEP_S, shard_meters=SHARD_METERS)
    rng = np.random.default_rng(12)
    for start_s, readings, copies in ((FIRST_S, READINGS, COPIES), (SECOND_S, SHARD_METERS, 1)):
        for shard in range(SHARDS):
            meter = shard * SHARD_METERS + np.sort(rng.integers(0, SHARD_METERS, readings))
            data = parquet_of(start_s, meter, rng.integers(-9, 1200, readings))
            shard_folder = landing.shard_folder(start_s, shard)
            shard_folder.mkdir(parents=True)
            for copy in range(copies):
                (shard_folder / f"{copy}.parquet").write_bytes(data)
    return folder, landing


def closed(sample, start_s):
    folder, landing = sample
    table = pin_table(landing, folder / "meters.parquet")
    return landing, table, close_intervals(landing, [start_s], table)


@pytest.fixture(scope="module")
def job(sample):
    """Few readings, for tests of what happens around a job."""
    return closed(sample, SECOND_S)


@pytest.fixture(scope="module")
def engine(machines):
    """One engine, since Java and a session take long to start."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in machines.environment.items():
            patch.setenv(name, value)
        found = SparkEngine(machines.url, stall_s=TIMEOUT_S)
        yield found
        found.close()


def sum_with(engine, job, run_here=run_in_process, on_progress=lambda: None):
    return aggregate_landing(*job, *engine.task_runner(run_here, limit_s=TIMEOUT_S, on_progress=on_progress))


def never(_):
    raise AssertionError("it is summed on the cluster")


@contextmanager
def running_worker(setup, folder, engine, environment):
    """A worker whose first interval is due, with what it logs."""
    settings, log = setup.root / "service.toml", setup.root / "worker.log"
    settings.write_text(
        f'landing = "{folder}/landing"\nmeters = "{folder}/meters.parquet"\nrelease_slot_s = 0.05\n'
        f'public = "127.0.0.1:{free_port()}"\nprivate = "127.0.0.1:{free_port()}"\n'
        f'[aggregation]\nengine = "{engine}"\n'
        f"[clock]\nsimulated_s = {FIRST_S + STEP_S + GRACE_S}\nwall_s = {time.time()}\nspeed = 0.5\n"
    )
    stores = {"MURMURATE_STATE": setup.state_dsn, "MURMURATE_LOG": setup.log_dsn}
    command = [sys.executable, "-m", "murmurate", "serve", str(settings), "--only", "worker"]
    with log.open("wb") as stderr:
        process = subprocess.Popen(command, env=environment | stores, stderr=stderr)
    try:
        yield log
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


def assert_priced_in_time(setup, sample, log):
    alone = aggregate_landing(*closed(sample, FIRST_S))
    assert wait_until(setup.kinds, 2 * TIMEOUT_S), log.read_text()
    assert setup.kinds() == ["measured"], log.read_text()  # one that is too late is withheld
    for name in ("energy_wh", "reported", "imputed"):
        assert setup.column(name) == getattr(alone[FIRST_S], name).tolist()


def test_a_machine_of_the_cluster_may_be_killed_while_a_service_sums_there(worker_setup, sample, machines):  # noqa: F811
    known, victim = machines.applications(), machines.workers[0]

    def begun():
        return next((app for app in machines.applications() - known if victim.attempts(app)), None)

    with running_worker(worker_setup, sample[0], machines.url, machines.environment) as log:
        application = wait_until(begun, TIMEOUT_S)
        assert application, log.read_text()
        victim.kill()
        machines.workers.remove(victim)
        assert worker_setup.kinds() == []
        assert_priced_in_time(worker_setup, sample, log)
        assert "Spark failed" not in log.read_text()
        attempts = machines.attempts(application)
    assert any(attempt.attempt for attempt in attempts), "no task was lost: this proves nothing"
    machines.add_workers()
    assert wait_until(lambda: not any(worker.executors() for worker in machines.workers), TIMEOUT_S)


def test_a_service_whose_cluster_does_not_answer_sums_by_itself(worker_setup, sample):  # noqa: F811
    engine = f"spark://127.0.0.1:{free_port()}"
    with running_worker(worker_setup, sample[0], engine, dict(os.environ)) as log:
        assert_priced_in_time(worker_setup, sample, log)
    assert f"Spark master is {engine}: does not answer" in log.read_text()


def test_a_refusal_is_that_of_the_process_and_costs_no_session(sample, job, engine):
    signs: list[float] = []
    sum_with(engine, job, never, lambda: signs.append(time.monotonic()))
    assert len(signs) > 1
    file = sample[1].shard_folder(SECOND_S, 3) / "0.parquet"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + b"x")
    try:
        with pytest.raises(ReadingError):
            sum_with(engine, job)
    finally:
        file.write_bytes(whole)
    assert demand_table(sum_with(engine, job, never)).equals(demand_table(aggregate_landing(*job)))


@pytest.mark.long
def test_progress_that_fails_leaves_no_answer_for_the_next_job(sample, job, engine):
    """Such as a heartbeat that a lost database does not take: the interval is tried again."""
    failing: list[int] = []

    def fail():
        if failing:
            raise ConnectionError

    run, slices = engine.task_runner(run_in_process, limit_s=TIMEOUT_S, on_progress=fail)
    failing.append(0)
    with pytest.raises(ConnectionError):
        aggregate_landing(*closed(sample, FIRST_S), run, slices)
    failing.clear()
    assert demand_table(sum_with(engine, job, never)).equals(demand_table(aggregate_landing(*job)))


def test_a_cluster_that_is_lost_is_replaced_at_once_and_used_again_when_it_is_back(job, engine, machines):
    expected, here = demand_table(aggregate_landing(*job)), []

    def run_here(tasks):
        here.append(len(tasks))
        return run_in_process(tasks)

    while machines.workers:
        machines.workers.pop().kill()
    engine.stall_s = 3.0
    assert demand_table(sum_with(engine, job, run_here)).equals(expected)
    assert here == [SHARDS]
    machines.add_workers(2)
    engine.stall_s = TIMEOUT_S

    def is_on_cluster_again():
        here.clear()
        assert demand_table(sum_with(engine, job, run_here)).equals(expected)
        return not here

    assert wait_until(is_on_cluster_again, TIMEOUT_S, pause_s=1.0)
