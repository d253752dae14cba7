"""Short runs of the fault scenarios, and tests that the checks find broken publishers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from murmurate.public_log.record import parse_entry, sign_record
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
    assert restores(context, 1, seed=1)["lost lines"] > 0


def test_acknowledgements_may_be_lost(context):
    assert lost_acknowledgements(context, 10, seed=1)["lost acknowledgements"] >= 10


def test_the_disk_may_be_full(context):
    assert disk_full(context, 1)["disk errors"] > 0


def test_kills_cause_double_values_where_a_publisher_sends_before_its_commit(context):
    assert sigkills(context, 20, seed=1, protocol=BEFORE)["double values"] > 0


def test_a_restore_causes_double_values_where_only_the_state_is_used(context):
    assert restores(context, 1, seed=1, protocol=STATE)["double values"] > 0


def test_the_check_finds_a_changed_line(context):
    stores = context.store_pair("changed line")
    stores.extend_demand(3)
    until = stores.finish_work()
    check_log(stores, until)
    zone = context.sample.zones[0]
    last = parse_entry(stores.earlier_lines[zone][-1]).record
    other = replace(last, price_ticks=(last.price_ticks or 0) + 1)
    line = sign_record(other, context.sample.signer).line
    stores.log.execute("ALTER TABLE public_log.entry DISABLE TRIGGER append_only")
    stores.log.execute("UPDATE public_log.entry SET line = %s WHERE zone = %s AND seq = %s", (line, zone, last.seq))
    with pytest.raises(Violation, match="has changed"):
        check_append_only(stores)
    stores.stop()


def test_no_demand_is_found_outside_its_table_and_the_controls_find_it(context):
    forced_errors(context)
    result, controls = search_evidence(context)
    assert result.files > 5
    assert result.hits == ()
    assert all(count > 0 for count in controls.values())
