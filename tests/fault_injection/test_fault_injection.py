"""Checks of the check. The scenarios are played by `python -m tests.fault_injection --quick`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from murmurate.public_log.tile import parse_tile, sign_tile
from tests.fault_injection.checks import check_append_only, check_log
from tests.fault_injection.sample_zones import SIGNER
from tests.fault_injection.scenarios import SCENARIOS, run_context
from tests.fault_injection.store_pair import RunContext, Violation


@pytest.fixture(scope="module")
def context() -> Iterator[RunContext]:
    with run_context(seed=4) as context:
        yield context


@pytest.mark.parametrize("scenario", [one for one in SCENARIOS if one.protocol], ids=lambda one: one.name)
def test_a_broken_publisher_must_publish_double_values_in_a_quick_run_too(scenario):
    counts = {scenario.counted: scenario.quick, "double values": 1}
    assert scenario.missing(counts, quick=True) == []
    assert scenario.missing(counts | {"double values": 0}, quick=True) == ["double values 0 < 1"]


def test_the_check_finds_a_changed_tile(context):
    stores = context.store_pair("changed tile")
    stores.extend_demand(3)
    until = stores.finish_work()
    check_log(stores, until)
    shard, tiles = next(iter(stores.earlier_tiles.items()))
    last = parse_tile(tiles[-1])
    rows = last.rows.copy()
    rows["price_ticks"][0] += 1
    other = sign_tile(last.header, SIGNER, rows).to_bytes()
    stores.log.execute("ALTER TABLE public_log.tile DISABLE TRIGGER append_only")
    query = "UPDATE public_log.tile SET body = %s WHERE shard = %s AND seq = %s"
    stores.log.execute(query, (other, shard, last.header.seq))
    with pytest.raises(Violation, match="has changed"):
        check_append_only(stores)
    stores.stop()
