"""On a real cluster a job gives what one process gives, bit for bit, or the same refusal in one line."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.sample_landings import parquet_of
from tests.support.spark_cluster import TIMEOUT_S

from murmurate.aggregation import Tally
from murmurate.errors import ReadingError
from murmurate.service.aggregation.job import aggregate_landing, close_intervals, shard_tasks
from murmurate.service.aggregation.spark import aggregate_table, decode_tally, encode_tally, spark_task_runner
from murmurate.service.landing.append import append_readings
from murmurate.service.landing.interval_manifest import IntervalManifest
from murmurate.service.landing.layout import Landing, interval_name, parse_interval_name
from murmurate.service.landing.meter_table import MeterTable, pin_table
from murmurate.types import Readings

on_a_cluster = pytest.mark.spark

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "landing.md"
FIRST_S, STEP_S = parse_interval_name("20250615T1200Z"), 900
INTERVALS = 10  # more than a task takes
SPAN = "2025-06-15T12:00Z/2025-06-15T14:30Z"
METERS, SHARD_METERS = 60, 8
ZONES = ("harbour", "hill", "mill")
INT64 = st.integers(-(2**63), 2**63 - 1)
HEAVY = ["cryptography", "dp_accounting", "matplotlib", "opendp", "pandas"]
HEAVY += ["psycopg", "pyspark", "rich", "scipy", "typer"]


class SampleLanding:
    """A landing with everything that can be wrong with readings, and its meter table."""

    def __init__(self, folder: Path, *, wrong_clocks: bool = True) -> None:
        self.meters = folder / "meters.csv"
        self.landing = Landing.create(folder / "landing", interval_s=STEP_S, shard_meters=SHARD_METERS)
        rng = np.random.default_rng(7)
        numbers = np.flatnonzero(np.arange(METERS) % 7 != 3)  # gaps within a shard; the next gap is a whole one
        numbers = numbers[numbers // SHARD_METERS != 4]
        rows = (f"{m},{ZONES[m % 3]},{500 + 37 * m},{m % 11},{str(m % 5 > 0).lower()}\n" for m in numbers)
        self.meters.write_text("".join(["meter,zone,bound_wh,imputed_wh,protected\n", *rows]))
        for number in range(INTERVALS - 1):  # no meter reports the last interval
            self._interval(rng, FIRST_S + number * STEP_S, wrong_clocks=wrong_clocks)

    def _interval(self, rng: np.random.Generator, start_s: int, *, wrong_clocks: bool) -> None:
        for shard in (*range(METERS // SHARD_METERS), 999):
            if rng.random() < 0.2:
                continue  # a shard that is silent
            for name in ("a", "b"):  # two files, with other values for the same meters; unknown meters in the gaps
                meter = rng.integers(shard * SHARD_METERS, (shard + 1) * SHARD_METERS, 12)
                self.leave(start_s, shard, name, start_s, meter, rng.integers(-50, 4000, 12))
            if wrong_clocks:
                meter = np.arange(shard * SHARD_METERS, (shard + 1) * SHARD_METERS)
                self.leave(start_s, shard, "early", start_s - STEP_S, meter, np.full(len(meter), 2**62))
        if wrong_clocks and start_s // STEP_S % 3 == 0:  # a commit of meters of any shard
            meter = rng.permutation(METERS)[:10]
            append_readings(self.landing, start_s, Readings(meter=meter, energy_wh=rng.integers(-50, 5000, len(meter))))

    def leave(self, start_s, shard, name, says_s, meter, energy_wh) -> Path:
        path = self.landing.shard_folder(start_s, shard) / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(parquet_of(says_s, meter, energy_wh))
        return path

    def closed(self) -> tuple[Landing, MeterTable, list[IntervalManifest]]:
        table = pin_table(self.landing, self.meters)
        starts_s = range(FIRST_S, FIRST_S + INTERVALS * STEP_S, STEP_S)
        return self.landing, table, close_intervals(self.landing, starts_s, table)


def numbers_of(demands):
    """Everything that a job returns, to the last bit."""
    numbers = []
    for start_s, one in demands.items():
        columns = (one.energy_wh, one.reported, one.imputed)
        bits = [*((column.dtype, column.tobytes()) for column in columns), one.bounds]
        numbers.append((start_s, one.zones, one.readings, one.wrong_interval, one.unknown_meter, bits))
    return numbers


def murmurate(*arguments):
    command = [str(Path(sys.executable).with_name("murmurate")), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)


SEVERAL = """
import sys
from murmurate.cli import main
for line in sys.stdin.read().splitlines():
    sys.argv = ["murmurate", *line.split("\t")]
    try:
        main()
    except SystemExit as end:
        print(f"exit status {end.code}", file=sys.stderr, flush=True)
"""


def on_one_session(environment, *commands):
    """The stderr of each of these commands, and its status. They share a process, so that its JVM is started once."""
    lines = "\n".join("\t".join(map(str, words)) for words in commands)
    done = subprocess.run(
        [sys.executable, "-c", SEVERAL],
        env=environment,
        input=lines,
        capture_output=True,
        text=True,
        check=True,
        timeout=2 * TIMEOUT_S,
    )
    return re.findall(r"(?s)(.*?)exit status (\w+)\n", done.stderr)


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    return SampleLanding(tmp_path_factory.mktemp("sample"))


@on_a_cluster
class TestTheSameDemand:
    def test_the_sample_has_every_kind_of_reading(self, sample):
        demands = aggregate_landing(*sample.closed())
        for count in ("wrong_interval", "unknown_meter", "readings"):
            assert sum(getattr(one, count) for one in demands.values()) > 100
        assert sum(int(one.reported.sum()) for one in demands.values()) > 100
        assert sum(int(one.imputed.sum()) for one in demands.values()) > 100
        assert len(shard_tasks(*sample.closed(), min_tasks=8)) > INTERVALS
        assert any(len(task.shards) > 1 for task in shard_tasks(*sample.closed(), min_tasks=1))

    @pytest.mark.parametrize("slices", [None, 1, 7, 30])
    def test_a_cluster_gives_what_one_process_gives(self, sample, spark, slices):
        runner = spark_task_runner(spark, slices=slices)
        on_a_cluster = aggregate_landing(*sample.closed(), runner, min_tasks=slices or 8)
        assert numbers_of(on_a_cluster) == numbers_of(aggregate_landing(*sample.closed()))

    def test_every_worker_took_part(self, sample, it, spark):
        aggregate_landing(*sample.closed(), spark_task_runner(spark))
        for worker in it.workers:
            assert any(one.finished for one in worker.attempts(spark.sparkContext.applicationId))
            assert worker.processes("pyspark.daemon")

    def test_a_session_that_another_program_has_set_up_will_do(self, sample, spark):
        odd = {"spark.sql.execution.arrow.maxRecordsPerBatch": "1", "spark.sql.session.timeZone": "Asia/Kathmandu"}
        kept = {name: spark.conf.get(name) for name in odd}
        try:
            for name, value in odd.items():
                spark.conf.set(name, value)
            assert numbers_of(aggregate_landing(*sample.closed(), spark_task_runner(spark))) == numbers_of(
                aggregate_landing(*sample.closed())
            )
        finally:
            for name, value in kept.items():
                spark.conf.set(name, value)


@on_a_cluster
class TestALake:
    def test_a_table_gives_what_a_landing_gives(self, spark, tmp_path):
        landing, table, closings = SampleLanding(tmp_path, wrong_clocks=False).closed()
        files = [str(landing.root / file.path) for closing in closings for file in closing.files]
        from_table = aggregate_table(spark.read.parquet(*files), table, [closing.start_s for closing in closings])
        uncounted = {"readings": 0, "unknown_meter": 0}  # a table passes over unknown meters that a landing counts
        found = (from_table, aggregate_landing(landing, table, closings))
        first, second = ({at: replace(one, **uncounted) for at, one in demands.items()} for demands in found)
        assert numbers_of(first) == numbers_of(second)

    def test_spark_fills_a_landing_as_the_page_says(self, spark, tmp_path):
        (code,) = re.findall(r"```python\n([^`]*\.write\.[^`]*)```", PAGE.read_text())
        sample = SampleLanding(tmp_path / "first", wrong_clocks=False)
        files = sorted(str(path) for path in sample.landing.root.glob("interval=*/shard=*/*.parquet"))
        other = Landing.create(tmp_path / "second", interval_s=STEP_S)
        zone = spark.conf.get("spark.sql.session.timeZone")
        try:
            spark.conf.set("spark.sql.session.timeZone", "UTC")
            exec(code.replace('"landing"', repr(str(other.root))), {"table": spark.read.parquet(*files)})  # noqa: S102
        finally:
            spark.conf.set("spark.sql.session.timeZone", zone)
        first, sample.landing = aggregate_landing(*sample.closed()), other
        assert numbers_of(aggregate_landing(*sample.closed())) == numbers_of(first)


@on_a_cluster
class TestTheSameRefusal:
    def test_a_file_that_was_changed_or_is_gone_is_named(self, spark, tmp_path):
        sample = SampleLanding(tmp_path)
        job = sample.closed()
        victim = sample.landing.shard_folder(FIRST_S + STEP_S, 2) / "a.parquet"
        assert victim.exists()
        name = victim.relative_to(sample.landing.root).as_posix()
        other = parquet_of(FIRST_S + STEP_S, np.array([17]), np.array([1]))  # as good a file, of other readings
        for state, damage in (("changed", lambda: victim.write_bytes(other)), ("gone", victim.unlink)):
            damage()
            with pytest.raises(ReadingError) as alone:
                aggregate_landing(*job)
            with pytest.raises(ReadingError) as together:
                aggregate_landing(*job, spark_task_runner(spark))
            assert str(together.value) == str(alone.value)
            assert str(alone.value).startswith(f"{name} is {state}: ")


@on_a_cluster
class TestTheCommand:
    def test_it_writes_the_same_bytes_and_refuses_in_the_same_line(self, sample, it, tmp_path):
        broken = SampleLanding(tmp_path)
        broken.closed()
        (broken.landing.shard_folder(FIRST_S, 1) / "b.parquet").unlink()
        of_sample = f"--landing {sample.landing.root} --meters {sample.meters}"
        fine = f"step aggregate {of_sample} --interval {SPAN} --out".split()
        out = tmp_path / "none.parquet"
        wrong = f"step aggregate --landing {broken.landing.root} --interval {SPAN} --out {out}".split()
        spark = ["--engine", "spark", "--master", it.url]
        printed = on_one_session(it.environment, [*fine, tmp_path / "spark.parquet", *spark], [*wrong, *spark])
        assert [status for _, status in printed] == ["0", "2"]
        noise = printed[0][0].splitlines()
        assert [line for line in noise if not line.startswith("WARNING: Using incubator modules")] == []
        assert murmurate(*fine, tmp_path / "alone.parquet").returncode == 0
        assert (tmp_path / "spark.parquet").read_bytes() == (tmp_path / "alone.parquet").read_bytes()
        alone = murmurate(*wrong)
        assert alone.stderr.startswith(f"murmurate: interval={interval_name(FIRST_S)}/shard=1/b.parquet is gone: ")
        assert printed[1] == (alone.stderr, str(alone.returncode))
        assert not out.exists()


class TestWhatTravels:
    @given(st.data(), INT64, INT64, st.integers(0, 12))
    def test_a_tally_comes_back_as_it_left(self, data, start_s, shard, zones):
        column = st.lists(INT64, min_size=zones, max_size=zones).map(lambda values: np.array(values, np.int64))
        names = ("zones", "energy_wh", "reported", "imputed", "silent_bound_wh", "silent_export_bound_wh")
        columns = {name: data.draw(column) for name in names}
        counts = {name: data.draw(INT64) for name in ("readings", "wrong_interval", "unknown_meter")}
        sent = Tally(shards=frozenset({shard}), **columns, **counts)
        back_s, back = decode_tally(encode_tally(start_s, sent))
        assert (back_s, back.shards) == (start_s, sent.shards)
        assert {name: getattr(back, name) for name in counts} == counts
        for name in names:
            assert getattr(back, name).dtype == np.int64
            np.testing.assert_array_equal(getattr(back, name), columns[name])

    def test_a_worker_loads_nothing_heavy(self):
        code = "import sys, murmurate.service.aggregation.spark; print(*(sys.modules.keys() & set(sys.argv[1:])))"
        done = subprocess.run([sys.executable, "-c", code, *HEAVY], capture_output=True, text=True, check=True)
        assert done.stdout.split() == []
