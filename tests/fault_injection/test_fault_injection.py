"""Short runs of the fault scenarios, and tests that the checks find broken publishers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from murmurate.public_log.tile import parse_tile, sign_tile
from tests.fault_injection.checks import check_append_only, check_log
from tests.fault_injection.crashes import database_kills, sigkills
from tests.fault_injection.disk_full import disk_full
from tests.fault_injection.error_leaks import forced_errors, search_evidence
from tests.fault_injection.failover import restores
from tests.fault_injection.network_faults import lost_acknowledgements
from tests.fault_injection.scenarios import BEFORE, STATE, run_context
from tests.fault_injection.store_pair import RunContext, Violation


@pytest.fixture(scope="module")
def context() -> Iterator[RunContext]:
    with run_context(seed=4) as context:
        yield context


def test_publishers_may_be_killed_anywhere(context):
    assert sigkills(context, 20, seed=1)["releases"] > 0


def test_databases_may_be_killed(context):
    assert database_kills(context, 2, seed=1)["releases"] > 0


def test_the_state_may_be_restored(context):
    assert restores(context, 1, seed=1)["lost tiles"] > 0


def test_acknowledgements_may_be_lost(context):
    assert lost_acknowledgements(context, 10, seed=1)["lost acknowledgements"] >= 10


def test_the_disk_may_be_full(context):
    assert disk_full(context, 1)["disk errors"] > 0


def test_kills_cause_double_values_where_a_publisher_sends_before_its_commit(context):
    assert sigkills(context, 20, seed=1, protocol=BEFORE)["double values"] > 0


def test_a_restore_causes_double_values_where_only_the_state_is_used(context):
    assert restores(context, 1, seed=1, protocol=STATE)["double values"] > 0


def test_the_check_finds_a_changed_tile(context):
    stores = context.store_pair("changed tile")
    stores.extend_demand(3)
    until = stores.finish_work()
    check_log(stores, until)
    shard, tiles = next(iter(stores.earlier_tiles.items()))
    last = parse_tile(tiles[-1])
    rows = last.rows.copy()
    rows["price_ticks"][0] += 1
    other = sign_tile(last.header, context.sample.signer, rows).to_bytes()
    stores.log.execute("ALTER TABLE public_log.tile DISABLE TRIGGER append_only")
    query = "UPDATE public_log.tile SET body = %s WHERE shard = %s AND seq = %s"
    stores.log.execute(query, (other, shard, last.header.seq))
    with pytest.raises(Violation, match="has changed"):
        check_append_only(stores)
    stores.stop()


def test_no_demand_is_found_outside_its_table_and_the_controls_find_it(context):
    forced_errors(context)
    result, controls = search_evidence(context)
    assert result.files > 5
    assert result.hits == ()
    assert all(count > 0 for count in controls.values())
