"""Short runs of some fault scenarios, and a check of the check."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from murmurate.public_log.tile import parse_tile, sign_tile
from tests.fault_injection.checks import check_append_only, check_log
from tests.fault_injection.sample_zones import SIGNER
from tests.fault_injection.scenarios import SCENARIOS, run_context
from tests.fault_injection.store_pair import RunContext, Violation

SHORT = {  # name: times
    "SIGKILLs": 20,
    "database kills": 2,
    "restores": 1,
    "lost acknowledgements": 10,
    "disks full": 1,
    "SIGKILLs, publish before commit": 20,
    "restores, state only": 1,
    "errors about demand": 6,
    "files": 6,  # files of the evidence of all others: no demand is in them
}
EFFECTS = {"releases", "disk errors", "double values", "in the demand itself", "in a verbose log"}


@pytest.fixture(scope="module")
def context() -> Iterator[RunContext]:
    with run_context(seed=4) as context:
        yield context


@pytest.mark.parametrize("scenario", [one for one in SCENARIOS if one.name in SHORT], ids=lambda one: one.name)
def test_a_short_run_finds_every_double_value_of_a_broken_publisher_and_none_of_ours(context, scenario):
    counts = scenario.run(context, SHORT[scenario.name], 1)
    assert counts[scenario.counted] >= SHORT[scenario.name]
    assert all(count > 0 for name, count in counts.items() if name in EFFECTS)


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
