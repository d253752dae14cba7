"""A landing in a bucket, while its gateway is killed and processes are cut off from it; 40 faults: .ci/long."""

import pytest
from tests.support.sample_landings import HONEST, METERS, SHARD_METERS, START_S, by_hand, lines, meter_csv, readings

pytest.importorskip("obstore")
from tests.chaos.bucket_faults import ACKNOWLEDGE_FIRST, run_faults

from murmurate.errors import ReadingError
from murmurate.service.aggregation.job import aggregate_landing, close_intervals
from murmurate.service.aggregation.spark_driver import SparkEngine
from murmurate.service.landing.append import append_readings
from murmurate.service.landing.interval_manifest import late_files, manifest_of
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.maintenance import DamageScan, purge_landing
from murmurate.service.landing.meter_table import load_shards, load_table, pin_table
from murmurate.service.landing.table_in_force import TableInForce


@pytest.mark.namespaces
@pytest.mark.usefixtures("bucket_address")
def test_nothing_acknowledged_is_missing_and_the_demand_is_that_of_a_folder(ceph, tmp_path):
    outcome = run_faults(ceph, tmp_path, kills=1, cuts=1)
    assert outcome.is_right(), outcome
    assert outcome.acknowledged


@pytest.mark.namespaces
@pytest.mark.usefixtures("bucket_address")
def test_readings_that_are_acknowledged_before_they_are_stored_are_found(ceph, tmp_path):
    assert run_faults(ceph, tmp_path, kills=1, cuts=0, bug=ACKNOWLEDGE_FIRST).missing


def test_an_interval_goes_through_a_bucket_as_through_a_folder(bucket_address, tmp_path):
    landing = Landing.create(bucket_address, shard_meters=SHARD_METERS)
    assert Landing.create(bucket_address, shard_meters=SHARD_METERS) == landing
    source = meter_csv(tmp_path / "meters.csv", METERS)
    table = TableInForce(landing, source).choose(0)
    for row in HONEST:
        assert append_readings(landing, START_S, readings([row]))
    (manifest,) = close_intervals(landing, [START_S], table)
    assert not append_readings(landing, START_S, readings(HONEST))
    assert manifest_of(landing, START_S) == manifest
    assert len(late_files(landing, manifest)) == 0
    assert lines(aggregate_landing(landing, table, [manifest])[START_S]) == by_hand(METERS, HONEST)
    assert TableInForce(landing, source).choose(1) == table, "as after a restart"
    load_table.cache_clear()
    load_shards.cache_clear()
    assert pin_table(landing, source, rewrite=True) == table
    assert DamageScan(landing).find_damage() == {}

    assert landing.list_intervals() == ([START_S], [])
    assert purge_landing(landing, START_S + 1).intervals == 1
    assert landing.list_intervals() == ([], [])
    left = [found.name for found in landing.store.list_objects("") if not found.name.startswith("_meters/")]
    assert [name.rpartition(".")[2] for name in left] == ["closing", "purged", "json"], left
    with pytest.raises(ReadingError, match="purged"):
        close_intervals(landing, [START_S], table)


def test_spark_reads_a_bucket_with_the_variables_of_its_machine(bucket_address, tmp_path):
    def fail(_):
        raise AssertionError("was to be run by Spark")

    landing = Landing.create(bucket_address, shard_meters=SHARD_METERS)
    table = pin_table(landing, meter_csv(tmp_path / "meters.csv", METERS))
    append_readings(landing, START_S, readings(HONEST))
    manifests = close_intervals(landing, [START_S], table)
    engine = SparkEngine("local[2]")
    try:
        run, slices = engine.task_runner(fail, limit_s=400, on_progress=lambda: None)
        demands = aggregate_landing(landing, table, manifests, run, slices)
    finally:
        engine.close()
    assert lines(demands[START_S]) == by_hand(METERS, HONEST)
