"""The oracle finds what it is for: a lost, a doubled, a wrong reading, a gap and a second record."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from murmurate.service.landing.layout import interval_name
from tests.chaos.meters import BATCHED, FILES, HTTP, REGISTERS, SIGNED, STEP_S, ZONES, TrueEnergy
from tests.chaos.oracle import Evidence, judge
from tests.support.ingestors import demand_of, new_ingestor

TRUTH = TrueEnergy(seed=1, first=2_000_000)
LAST = TRUTH.first + 2
SOURCES = (HTTP, SIGNED, BATCHED, REGISTERS, FILES)


def write_readings(path: Path, interval: int, meters, energy) -> None:
    start = pa.array(np.full(len(meters), interval * STEP_S * 10**6), pa.timestamp("us", "UTC"))
    sink = io.BytesIO()
    pq.write_table(pa.table({"meter": np.array(meters), "interval_start": start, "energy_wh": energy}), sink)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(sink.getvalue())


def shard_folder(landing: Path, interval: int) -> Path:
    return landing / f"interval={interval_name(interval * STEP_S)}" / "shard=0"


def close_interval(landing: Path, interval: int) -> None:
    files = [
        {"path": path.relative_to(landing).as_posix(), "bytes": 0, "sha256": sha256(path.read_bytes()).hexdigest()}
        for path in sorted(shard_folder(landing, interval).glob("*.parquet"))
    ]
    manifest = landing / "_closed" / f"{interval_name(interval * STEP_S)}.json"
    manifest.parent.mkdir(exist_ok=True)
    manifest.write_text(json.dumps({"files": files}))


def whole_demand(interval: int) -> dict[tuple[int, str], tuple[int, int, int]]:
    """The demand of each zone if every meter but the fence has reported: the fence is imputed."""
    counted = TRUTH.counted_wh(interval)
    return {
        (interval, zone): (int(counted[number::2][:50].sum()) + 200 * number, 50 - number, number)
        for number, zone in enumerate(ZONES)
    }


@pytest.fixture
def evidence(tmp_path) -> Evidence:
    demand = {}
    for interval in range(TRUTH.first, LAST + 1):
        for source in SOURCES:
            path = shard_folder(tmp_path, interval) / f"{source.start}.parquet"
            write_readings(path, interval, source, TRUTH.stored_wh(interval)[source])
        close_interval(tmp_path, interval)
        demand |= whole_demand(interval)
    released = {zone: [(interval, "measured") for interval in range(TRUTH.first, LAST + 1)] for zone in ZONES}
    everyone = frozenset(meter for source in SOURCES for meter in source)
    return Evidence(
        landing=tmp_path, truth=TRUTH, last=LAST, acknowledged=lambda _: everyone, demand=demand, released=released
    )


def rules(evidence: Evidence) -> set[str]:
    return {text.partition(":")[0] for text in judge(evidence).violations}


def test_nothing_is_wrong_where_nothing_was_changed(evidence):
    verdict = judge(evidence)
    assert verdict.violations == []
    assert verdict.counts["measured"] == 6


def test_a_file_of_acknowledged_readings_that_is_dropped_is_found(evidence):
    (shard_folder(evidence.landing, LAST) / f"{HTTP.start}.parquet").unlink()
    close_interval(evidence.landing, LAST)
    assert rules(evidence) == {"lost", "wrong"}  # and the demand is not what the others give


def test_a_dropped_reading_is_found_even_if_the_demand_agrees_with_what_is_left(evidence):
    (shard_folder(evidence.landing, LAST) / f"{HTTP.start}.parquet").unlink()
    close_interval(evidence.landing, LAST)
    unmeasured = {zone: [*rows[:-1], (LAST, "fallback")] for zone, rows in evidence.released.items()}
    without = {key: demand for key, demand in evidence.demand.items() if key[0] != LAST}
    assert rules(replace(evidence, released=unmeasured, demand=without)) == {"lost"}


def test_a_reading_that_counts_twice_is_found(evidence):
    path = shard_folder(evidence.landing, LAST) / "doubled.parquet"
    write_readings(path, LAST, [HTTP[5]], [2 * int(TRUTH.energy_wh(LAST)[HTTP[5]])])
    close_interval(evidence.landing, LAST)
    assert rules(evidence) == {"wrong"}


def test_a_demand_that_is_wrong_by_one_wh_is_found(evidence):
    energy, *rest = evidence.demand[LAST, "quay"]
    assert rules(replace(evidence, demand=evidence.demand | {(LAST, "quay"): (energy + 1, *rest)})) == {"wrong"}


def test_a_missing_record_and_a_second_one_are_found(evidence):
    first, *others = evidence.released["quay"]
    assert rules(replace(evidence, released=evidence.released | {"quay": others})) == {"gap"}
    assert rules(replace(evidence, released=evidence.released | {"quay": [first, first, *others]})) == {"doubled"}


def test_a_measured_interval_without_a_demand_is_found(evidence):
    without = {key: demand for key, demand in evidence.demand.items() if key != (LAST, "quay")}
    assert rules(replace(evidence, demand=without)) == {"wrong"}


def test_a_reading_that_is_only_in_an_open_landing_is_not_lost(evidence):
    (evidence.landing / "_closed" / f"{interval_name(LAST * STEP_S)}.json").unlink()
    unmeasured = {zone: [*rows[:-1], (LAST, "withheld")] for zone, rows in evidence.released.items()}
    without = {key: demand for key, demand in evidence.demand.items() if key[0] != LAST}
    assert rules(replace(evidence, released=unmeasured, demand=without)) == set()


def test_the_product_computes_the_same_demand(tmp_path):
    """The oracle's arithmetic beside the product's: both clip, both impute."""
    zones = {meter: ZONES[meter % 2] for meter in range(100)}
    ingestor = new_ingestor(tmp_path, now_s=(LAST + 1) * STEP_S + 30, zones=zones)
    for source in SOURCES:
        path = shard_folder(ingestor.landing.root, LAST) / f"{source.start}.parquet"
        write_readings(path, LAST, source, TRUTH.stored_wh(LAST)[source])
    found = demand_of(ingestor, tmp_path, LAST * STEP_S)
    assert found == {zone: demand[:2] for (_, zone), demand in whole_demand(LAST).items()}
