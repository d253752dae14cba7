"""Machines and drivers die, files are copied and cut off: the demand stays the same, or is refused."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.sample_landings import parquet_of
from tests.support.spark_cluster import TIMEOUT_S
from tests.support.waiting import wait_until

from murmurate.errors import MeterError
from murmurate.service.aggregation.job import aggregate_landing, close_intervals, demand_table, write_demand
from murmurate.service.aggregation.spark import spark_task_runner
from murmurate.service.landing.interval_manifest import IntervalManifest, manifest_of
from murmurate.service.landing.layout import Landing, parse_interval_name
from murmurate.service.landing.meter_table import MeterTable, pin_table

STARTS_S = (parse_interval_name("20250615T1200Z"), parse_interval_name("20250615T1215Z"))
SPAN = "2025-06-15T12:00Z/2025-06-15T12:30Z"
SHARDS, SHARD_METERS = 16, 4096
READINGS = 200_000  # in a file: many for each meter, of which the largest counts
COPIES = 4  # of each file: enough that a job can be hit while it runs


class SampleLanding:
    """A landing and its meter table; the same files each time, under any names and any number of times."""

    def __init__(self, folder: Path, files: dict[tuple[int, int], bytes], *, copies: int = 1) -> None:
        self.meters = folder / "meters.parquet"
        self.landing = Landing.create(folder / "landing", shard_meters=SHARD_METERS)
        number = np.arange(SHARDS * SHARD_METERS)
        zone = pa.array([f"zone {m % 5}" for m in number])
        columns = {"meter": number, "zone": zone, "bound_wh": 900 + number % 700, "imputed_wh": number % 90}
        pq.write_table(pa.table(columns), self.meters)
        for (start_s, shard), data in files.items():
            shard_folder = self.landing.shard_folder(start_s, shard)
            shard_folder.mkdir(parents=True)
            first = shard_folder / f"{os.urandom(4).hex()}.parquet"
            first.write_bytes(data)
            for _ in range(copies - 1):
                (shard_folder / f"{os.urandom(4).hex()}.parquet").hardlink_to(first)

    def closed(self) -> tuple[Landing, MeterTable, list[IntervalManifest]]:
        table = pin_table(self.landing, self.meters)
        return self.landing, table, close_intervals(self.landing, STARTS_S, table)

    def command(self, *arguments: object) -> list[str]:
        words = ["step", "aggregate", "--landing", self.landing.root, "--interval", SPAN, *arguments]
        return [str(Path(sys.executable).with_name("murmurate")), *map(str, words)]


@pytest.fixture(scope="module")
def files():
    """The readings of each interval and shard; some meters are silent."""
    rng = np.random.default_rng(11)
    found = {}
    for start_s in STARTS_S:
        for shard in range(SHARDS):
            meter = shard * SHARD_METERS + np.sort(rng.integers(0, SHARD_METERS - 100, READINGS))
            energy_wh = rng.integers(-9, 10 + 7919 * meter % 3000)  # some never reach their bound, some always do
            found[start_s, shard] = parquet_of(start_s, meter, energy_wh)
    return found


@pytest.fixture(scope="module")
def alone(files, tmp_path_factory):
    """What one process makes of each file, once."""
    return aggregate_landing(*SampleLanding(tmp_path_factory.mktemp("alone"), files).closed())


def same(demands, alone):
    return demand_table(demands).equals(demand_table(alone))


def run(command, environment):
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=2 * TIMEOUT_S)


def test_a_worker_may_be_killed_while_it_works_on_files_that_were_copied_and_renamed(files, alone, it, spark, tmp_path):
    job = SampleLanding(tmp_path, files, copies=COPIES).closed()
    application, victim = spark.sparkContext.applicationId, it.workers[0]
    aggregate_landing(
        *SampleLanding(tmp_path / "first", {}).closed(), spark_task_runner(spark)
    )  # both workers have their Pythons up
    before = len(victim.attempts(application))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(aggregate_landing, *job, spark_task_runner(spark, slices=SHARDS))
        assert wait_until(lambda: len(victim.attempts(application)) > before + 1, TIMEOUT_S)  # at its second task
        assert victim.executors()
        assert victim.processes("pyspark.daemon")
        victim.kill()
        assert not running.done()
        it.workers.remove(victim)
        demands = running.result(2 * TIMEOUT_S)
    assert any(one.attempt for one in it.attempts(application)), "no task was lost: this proves nothing"
    assert not victim.processes()
    assert same(demands, alone)
    assert sum(one.readings for one in demands.values()) == COPIES * len(files) * READINGS


@pytest.mark.long
def test_a_driver_may_be_killed_and_run_again(files, alone, it, tmp_path):
    sample, out = SampleLanding(tmp_path, files, copies=COPIES), tmp_path / "out" / "demand.parquet"
    out.parent.mkdir()
    known = it.applications()
    command = sample.command("--out", out, "--engine", "spark", "--master", it.url)
    first = subprocess.Popen(
        [*command, "--meters", str(sample.meters)],
        env=it.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        working = lambda: any(it.attempts(name) for name in it.applications() - known)  # noqa: E731
        assert wait_until(lambda: first.poll() is not None or working(), TIMEOUT_S)  # an executor has begun a task
        assert first.poll() is None
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait(TIMEOUT_S)
    assert all(manifest_of(sample.landing, start_s) is not None for start_s in STARTS_S)
    assert list(out.parent.iterdir()) == []
    done = run(command, it.environment)
    assert done.returncode == 0, done.stderr
    write_demand(tmp_path / "alone.parquet", alone)
    assert out.read_bytes() == (tmp_path / "alone.parquet").read_bytes()
    assert [path.name for path in out.parent.iterdir()] == [out.name]


def test_a_meter_table_that_changes_between_two_runs_is_refused_by_both_engines(files, it, tmp_path):
    sample = SampleLanding(tmp_path, {key: data for key, data in files.items() if key[1] == 0})
    sample.closed()
    table = pq.read_table(sample.meters)
    half = pa.array(table["bound_wh"].to_numpy() // 2)
    pq.write_table(table.set_column(2, "bound_wh", half).drop(["imputed_wh"]), sample.meters)
    with pytest.raises(MeterError, match="version of the meter table"):
        sample.closed()
    command = sample.command("--meters", sample.meters, "--out", tmp_path / "demand.parquet", "--engine")
    refusals = [run([*command, *engine], it.environment) for engine in (["process"], ["spark", "--master", it.url])]
    assert [done.returncode for done in refusals] == [2, 2]
    assert refusals[0].stderr == refusals[1].stderr
    assert refusals[0].stderr.startswith("murmurate: version of the meter table is")
    assert not (tmp_path / "demand.parquet").exists()
