"""Rules that a public log and its state must follow after any fault."""

from __future__ import annotations

from itertools import pairwise

from murmurate.planning.release_terms import ReleaseTerms
from murmurate.public_log.signing import verify_signature
from murmurate.public_log.tile import RowKind, TileKind, parse_tile, row_members
from murmurate.public_log.tile_chain import ShardHead, check_next
from murmurate.public_log.zone_table import ZoneTable
from tests.fault_injection.sample_zones import FIRST, NO_DEMAND_EVERY, sample_terms
from tests.fault_injection.store_pair import MURMURATE, StorePair, Violation


def check_append_only(stores: StorePair) -> int:
    """Check that every tile that was public before is unchanged. Return the number of tiles.

    The log of a broken publisher has none.
    """
    now = stores.tiles()
    for shard, before in stores.earlier_tiles.items():
        if now.get(shard, [])[: len(before)] != before:
            raise Violation(f"{stores.name}: {shard} has changed")
    stores.earlier_tiles = now
    return sum(map(len, now.values()))


def check_log(stores: StorePair, until: int) -> int:
    """Check all rules after the work is finished up to an interval. Return the number of releases of zones."""
    check_append_only(stores)
    sample = stores.context.sample
    if stores.earlier_tiles.keys() != sample.shards.keys():
        raise Violation(f"{stores.name}: tiles of {len(stores.earlier_tiles)} shards, not {len(sample.shards)}")
    known: dict[str, list[bytes]] = {}
    for shard, body in stores.state.execute("SELECT shard, body FROM curator.tile WHERE seen ORDER BY shard, seq"):
        known.setdefault(shard, []).append(bytes(body))
    if known != stores.earlier_tiles:
        raise Violation(f"{stores.name}: the state's copy differs from the log")
    if stores.state.execute("SELECT FROM curator.tile WHERE NOT seen"):
        raise Violation(f"{stores.name}: a draw is still pending")
    documents = dict(stores.log.execute("SELECT digest, body FROM public_log.document"))
    zones: set[str] = set()
    released = 0
    for shard, bodies in stores.earlier_tiles.items():
        heads = _follow(bodies, documents)
        names = set(heads[-1].table.zones)
        if names & zones:
            raise Violation(f"{shard}: {sorted(names & zones)} are in two shards")
        zones |= names
        released += _check_shard(shard, heads, until)
    if zones != set(sample.zones):
        raise Violation(f"{stores.name}: {len(zones)} zones are open, not {len(sample.zones)}")
    return released


def finish(stores: StorePair, counts: dict[str, int]) -> dict[str, int]:
    """Finish all work without faults, check the log, stop both servers. Return the counts with what was found."""
    until = stores.finish_work()
    if stores.protocol == MURMURATE:
        counts |= {"releases": check_log(stores, until), "competing tiles": stores.count_competing_tiles()}
    else:
        counts |= {"double values": stores.count_double_values()}
    stores.stop()
    return counts


def _follow(bodies: list[bytes], documents: dict[str, str]) -> list[ShardHead]:
    heads: list[ShardHead] = []
    for body in bodies:
        tile = parse_tile(body)
        table = ZoneTable.from_json(documents[tile.header.table])
        heads.append(check_next(heads[-1] if heads else None, tile, table, verify_signature))
    return heads


_NOT_MEASURED = {"noise": "none", "scale_wh": "0.0", "core_wh": 0, "epsilon_micro": 0, "rho_micro": 0}


def _noise_of_plan(terms: ReleaseTerms, slot: int) -> dict[str, object]:
    return {
        "noise": terms.distribution.value,
        "scale_wh": repr(float(terms.scale_wh[slot])),
        "core_wh": int(terms.core_wh[slot]),
        "epsilon_micro": int(terms.epsilon_micro[slot]),
        "rho_micro": int(terms.rho_micro[slot]),
    }


def _check_shard(shard: str, heads: list[ShardHead], until: int) -> int:
    terms = sample_terms()
    released = [head for head in heads if head.tile.header.kind is TileKind.RELEASE]
    if [head.interval for head in released] != list(range(FIRST, until + 1)):
        raise Violation(f"{shard}: not one release for each interval up to {until}")
    for before, after in pairwise(released):
        if (after.totals < before.totals).any():
            raise Violation(f"{shard}: a total cost falls")
    spent = 0
    for head in released:
        slot = terms.slot_of_day(head.interval)
        for at, zone in enumerate(head.table.zones):
            row = row_members(head.tile.rows[at : at + 1])
            measured = head.tile.rows["kind"][at] == RowKind.MEASURED
            expected = _noise_of_plan(terms, slot) if measured else _NOT_MEASURED
            if {name: row[name] for name in _NOT_MEASURED} != expected:
                raise Violation(f"{zone}: noise or cost of interval {head.interval} is not the plan's")
            if not measured and row["price_ticks"] != int(terms.forecast_ticks[slot]):
                raise Violation(f"{zone}: the forecast of interval {head.interval} is not the plan's")
            if measured and head.interval % NO_DEMAND_EVERY == 0:
                raise Violation(f"{zone}: interval {head.interval} has no demand that could be measured")
            spent += row["epsilon_micro"]
    if int(heads[-1].totals[0].sum()) != spent:
        raise Violation(f"{shard}: the total cost is not the sum")
    return len(released) * len(heads[-1].table)
