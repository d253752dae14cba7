"""Thousands of zones with a plan each, without a zone file and a proof for each."""

from __future__ import annotations

from benchmarks.deep_log import own_plans

from murmurate.planning.release_terms import compact_plan
from murmurate.public_log.zone_table import MAX_ZONES
from murmurate.publisher.desired_state import ZoneOpening
from tests.support.interval_workers import FIRST_S, WorkerSetup
from tests.support.operator_cli import STEP_S


def open_many_zones(setup: WorkerSetup, count: int, zones_per_shard: int = MAX_ZONES) -> None:
    """Open so many more zones, in shards like the one that is open."""
    state, plan = setup.worker.context.state, compact_plan((setup.root / "plan.json").read_text())
    (opening,) = state.shards().values()
    ((_, like),) = state.zones().values()
    for begin in range(0, count, zones_per_shard):
        names = [f"zone-{n:06d}" for n in range(begin, min(count, begin + zones_per_shard))]
        documents = dict(own_plans(names, plan=plan))
        state.register_plans(documents)
        setup.worker.context.log.publish_documents(documents)
        shard, first = f"many-{begin:07d}", FIRST_S // STEP_S
        openings = (
            ZoneOpening(plan=digest, currency=like.currency, tick=like.tick, first=first) for digest in documents
        )
        state.store_openings({shard: opening}, {z: (shard, o) for z, o in zip(names, openings, strict=True)})
