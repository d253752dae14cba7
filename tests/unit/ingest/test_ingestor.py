"""The ingestor: what is acknowledged counts, once, and what is refused was refused by a rule."""

from __future__ import annotations

import errno

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.cpu_time import work_of
from tests.support.ingestors import (
    BOUND_WH,
    GRACE_S,
    IMPUTED_WH,
    NOW_S,
    OPEN_S,
    STEP_S,
    ZONES,
    demand_of,
    new_ingestor,
)

from murmurate.errors import MeterError
from murmurate.readings.batch import ReadingBatch
from murmurate.service.ingest import ingestor as counter
from murmurate.service.ingest.ingestor import MAX_KEPT_REFUSALS, MAX_LISTED_REFUSALS
from murmurate.service.ingest.meter_registry import MeterRegistry
from murmurate.service.storage import durable

sent = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 2, 3, 5, 7, -1, 2**62]),
        st.sampled_from([OPEN_S, OPEN_S - STEP_S, OPEN_S + STEP_S, OPEN_S + 1, 0]),
        st.integers(-(2**63), 2**63 - 1),
    ),
    max_size=30,
)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(sent, min_size=1, max_size=4), st.sampled_from([None, frozenset({"quay"}), frozenset()]))
def test_what_counts_is_what_was_accepted_and_every_reading_has_one_outcome(tmp_path_factory, batches, zones):
    root = tmp_path_factory.mktemp("ingestor")
    ingestor = new_ingestor(root)
    best: dict[int, int] = {}
    for batch in batches:
        receipt = ingestor.ingest_batch(ReadingBatch.from_numbered_rows(batch), zones)
        assert receipt.accepted + receipt.late + len(receipt.refused) == len(batch)
        for line, (meter, start_s, energy_wh) in enumerate(batch, 1):
            known = meter in ZONES and (zones is None or ZONES[meter] in zones)
            fine = known and start_s % STEP_S == 0 and start_s + STEP_S <= NOW_S + counter.MAX_CLOCK_SKEW_S
            assert (line in receipt.refused) == (not fine)
            if fine and start_s == OPEN_S:
                best[meter] = max(best.get(meter, 0), min(max(energy_wh, 0), BOUND_WH))
    expected = {
        zone: (
            sum(best.get(meter, IMPUTED_WH) for meter, its in ZONES.items() if its == zone),
            sum(ZONES[meter] == zone for meter in best),
        )
        for zone in ("harbour", "quay")
    }
    assert demand_of(ingestor, root) == expected


def test_after_the_deadline_a_reading_is_late_whether_or_not_anybody_has_closed(tmp_path):
    early = new_ingestor(tmp_path, OPEN_S + STEP_S + GRACE_S - 1)
    assert early.ingest_batch(ReadingBatch.from_numbered_rows([(0, OPEN_S, 5)]), None).accepted == 1
    late = new_ingestor(tmp_path, OPEN_S + STEP_S + GRACE_S)
    receipt = late.ingest_batch(ReadingBatch.from_numbered_rows([(1, OPEN_S, 5)]), None)
    assert (receipt.accepted, receipt.late, receipt.refused) == (0, 1, {})
    assert demand_of(late, tmp_path)["harbour"] == (5 + 2 * IMPUTED_WH, 1)


def test_once_the_interval_is_closed_a_reading_is_late_and_changes_nothing(tmp_path):
    ingestor = new_ingestor(tmp_path)
    ingestor.ingest_batch(ReadingBatch.from_numbered_rows([(0, OPEN_S, 5)]), None)
    before = demand_of(ingestor, tmp_path)
    receipt = ingestor.ingest_batch(ReadingBatch.from_numbered_rows([(1, OPEN_S, 5)]), None)
    assert (receipt.accepted, receipt.late) == (0, 1)
    assert demand_of(ingestor, tmp_path) == before
    assert ingestor.counts == {"accepted": 1, "late": 1, "refused": 0}


def test_what_cannot_be_written_is_not_acknowledged(tmp_path, monkeypatch):
    ingestor = new_ingestor(tmp_path)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(durable, "write_once", full)
    with pytest.raises(OSError, match="no space"):
        ingestor.ingest_batch(ReadingBatch.from_numbered_rows([(0, OPEN_S, 5)]), None)
    assert ingestor.counts["accepted"] == 0


def test_a_refusal_says_where_and_why_and_never_how_much(tmp_path):
    receipt = new_ingestor(tmp_path).ingest_batch(
        ReadingBatch.from_numbered_rows([(0, OPEN_S + 1, -8675309), (3, OPEN_S, 8675309)]), None
    )
    document = receipt.to_document()
    assert document["refused"] == 2
    assert "8675309" not in str(document)


@given(st.dictionaries(st.integers(0, 2**40), st.sampled_from(["a", "b"]), min_size=1, max_size=30), st.data())
def test_a_meter_is_found_by_number_and_by_name(tmp_path_factory, table, data):
    path = tmp_path_factory.mktemp("registry") / "meters.csv"
    rows = [f"{meter},{zone},1000,x{meter}x" for meter, zone in table.items()]
    path.write_text("\n".join(["meter,zone,bound_wh,id", *rows]) + "\n")
    registry = MeterRegistry.from_meter_table(path)
    asked = data.draw(st.lists(st.one_of(st.sampled_from(sorted(table)), st.integers(0, 2**62)), max_size=20))
    by_number = registry.find_rows(np.array(asked, np.int64))
    by_name = registry.find_rows([f"x{meter}x" for meter in asked])
    assert by_number.tolist() == by_name.tolist()
    for meter, row in zip(asked, by_number.tolist(), strict=True):
        assert (row >= 0) == (meter in table)
        if row >= 0:
            assert registry.number[row] == meter
            assert registry.zones[registry.zone_index[row]] == table[meter]
            assert registry.is_in_zones(np.array([row]), {table[meter]}).all()
            assert not registry.is_in_zones(np.array([row]), {"a", "b"} - {table[meter]}).any()


@pytest.mark.parametrize("name", ["007", " 7", "7 ", "+7", "7.0", "٧", "", "9" * 30, "-1"])
def test_a_number_has_one_name(tmp_path, name):
    assert new_ingestor(tmp_path).registry.find_rows([name]).tolist() == [-1]


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ("meter,zone,bound_wh\n1,a,5\n1,a,5\n", "once"),
        ("meter,zone,bound_wh,id\n1,a,5,x\n2,a,5,x\n", "once"),
        ("meter,zone,bound_wh,id\n1,a,5,\n2,a,5,x\n", "text throughout"),
        ("meter,zone,bound_wh,key\n1,a,5,abc\n", "64 hexadecimal"),
    ],
)
def test_a_table_that_does_not_say_who_is_who_is_refused(tmp_path, rows, why):
    (tmp_path / "meters.csv").write_text(rows)
    with pytest.raises(MeterError if "64" not in why else Exception, match=why):
        MeterRegistry.from_meter_table(tmp_path / "meters.csv")


def test_the_cost_of_one_reading_does_not_grow_with_the_meters_that_sign(tmp_path):
    def work(meters):
        ingestor = new_ingestor(tmp_path)
        rows = np.arange(meters)
        ingestor.registry = MeterRegistry(
            number=rows,
            zones=("harbour",),
            zone_index=np.zeros(meters, np.int64),
            row_by_name=None,
            key_by_row=dict.fromkeys(rows.tolist(), "key"),
        )
        batch = ReadingBatch.from_numbered_rows([(meters - 1, OPEN_S, 5)])

        def send_some():
            for _ in range(20):
                assert ingestor.ingest_batch(batch, None).refused  # without a signature

        send_some()
        return min(work_of(send_some) for _ in range(3))

    assert work(500_000) < 20 * work(10)


def test_a_receipt_of_a_million_unknown_meters_stays_small(tmp_path):
    ingestor, count = new_ingestor(tmp_path), 50_000
    batch = ReadingBatch.from_numbered_rows([(9, OPEN_S, 5)] * count)
    receipt = ingestor.ingest_batch(batch, None)
    assert (receipt.refused_count, len(receipt.refused)) == (count, MAX_KEPT_REFUSALS)
    document = receipt.to_document()
    assert document["refused"] == ingestor.counts["refused"] == count
    assert len(document["refusals"]) == MAX_LISTED_REFUSALS == 100


def test_a_meter_table_that_is_loaded_while_a_batch_is_checked_changes_no_meter(tmp_path, monkeypatch):
    ingestor = new_ingestor(tmp_path)
    rows = [f"{meter},harbour,{BOUND_WH},{IMPUTED_WH}" for meter in (0, 1, 2, 3, 4, 5, 7)]
    (tmp_path / "later.csv").write_text("\n".join(["meter,zone,bound_wh,imputed_wh", *rows]) + "\n")
    later, find_rows = MeterRegistry.from_meter_table(tmp_path / "later.csv"), MeterRegistry.find_rows

    def find_and_load(registry, meter):
        found = find_rows(registry, meter)
        ingestor.registry = later
        return found

    monkeypatch.setattr(MeterRegistry, "find_rows", find_and_load)
    assert ingestor.ingest_batch(ReadingBatch.from_numbered_rows([(5, OPEN_S, 77)]), {"quay"}).accepted == 1
    assert demand_of(ingestor, tmp_path)["quay"] == (77 + IMPUTED_WH, 1)
