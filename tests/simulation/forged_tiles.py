"""Tiles that an honest publisher does not write: the next one of a shard, with something changed."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from murmurate.errors import ChainError
from murmurate.public_log.make_tile import change_key, change_zones, open_shard, release_interval
from murmurate.public_log.merkle import compute_root, hash_leaf
from murmurate.public_log.signing import Signer
from murmurate.public_log.tile import Rows, Tile, TileKind, hash_leaves, parse_tile, row_dtype, sign_tile
from murmurate.public_log.tile_chain import ShardHead, check_follows, close_zones
from murmurate.public_log.zone_table import ZoneRow, ZoneTable
from murmurate.publisher.steps import Offer
from murmurate.units import IntArray
from tests.simulation import reference_chain_rules as reference
from tests.simulation import sample_plans_and_keys as samples
from tests.simulation.fault_schedule import Violation
from tests.simulation.memory_stores import describe_tile, head_after
from tests.simulation.simulator import Simulation

_ROW_VALUES: dict[str, tuple[float, ...]] = {
    "kind": (0, 1, 2, 3, 4, 5),
    "noise": (0, 1, 2, 3, 4, 255),
    "price_ticks": (0, 5, -5),
    "scale_wh": (0.0, 2.0, -1.0, float("nan"), float("inf")),
    "core_wh": (-1, 0, 1, 7),
    "epsilon_micro": (-3, 0, 3, 2**63 - 1),
    "rho_micro": (-3, 0, 3),
}


class UnknownSigner:
    """Signs without a key of the chain."""

    public_key = "f" * 64

    @staticmethod
    def sign(message: bytes) -> str:
        return sha256(message).hexdigest()


class ForgedTile(NamedTuple):
    """A tile with its zone table, and the rule that it breaks, if any."""

    offer: Offer
    broken: str | None


def make_next_tile(sim: Simulation, shard: str) -> tuple[ShardHead | None, Offer]:
    """Return the head of a shard in the log, and a valid next tile, signed by the right key."""
    offers = tuple(sim.log.read_offer(shard, seq) for seq in range(len(sim.log.bodies[shard])))
    head = head_after(offers) if offers else None  # type: ignore[arg-type]
    if head is None:
        first = sim.log.now - 2
        table = ZoneTable.from_rows([_new_row(zone, first) for zone in _some_zones(sim)])
        signer = sim.signers[0]
        tile = open_shard(shard, table, interval=first - 1, interval_s=samples.INTERVAL_S, lead=sim.lead, signer=signer)
        return None, Offer(tile, table)
    signer = _signer(sim, head)
    if not head.table.rows:  # the shard has ended: nothing follows
        return head, Offer(change_key(head, sim.signers[1].public_key, signer), head.table)
    kind = sim.pick(
        (TileKind.RELEASE, TileKind.RELEASE, TileKind.RELEASE, TileKind.ZONES, TileKind.ZONES, TileKind.KEY)
    )
    if kind is TileKind.KEY:
        return head, Offer(change_key(head, sim.signers[1].public_key, signer), head.table)
    if kind is TileKind.ZONES:
        table = _next_table(sim, head)
        return head, Offer(change_zones(head, table, signer), table)
    return head, Offer(release_interval(head, _some_rows(sim, len(head.table)), signer), head.table)


def _some_zones(sim: Simulation) -> list[str]:
    return [zone for zone in sim.zones if sim.faults.chance(0.5)] or [sim.zones[0]]


def _new_row(zone: str, since: int) -> ZoneRow:
    terms = samples.PLANS_BY_ZONE[zone][0].terms
    return ZoneRow(zone, terms.plan_digest, terms.currency, terms.tick, since)


def _next_table(sim: Simulation, head: ShardHead) -> ZoneTable:
    rows = list(head.table.rows)
    new = [zone for zone in sim.zones if zone not in head.table.zones_ever]
    if new and sim.faults.chance(0.5):
        rows.append(_new_row(new[0], head.interval + 1))
    if sim.faults.chance(0.4):
        place = sim.faults.below(len(rows))
        terms = samples.PLANS_BY_ZONE[rows[place].zone][2].terms
        rows[place] = rows[place]._replace(plan=terms.plan_digest, currency=terms.currency, tick=terms.tick)
    leaving = []
    if sim.faults.chance(0.3):
        leaving = close_zones(head, [sim.pick(head.table.zones)])
    left = {zone.zone for zone in leaving}
    return ZoneTable.from_rows([row for row in rows if row.zone not in left], [*head.table.closed, *leaving])


def _some_rows(sim: Simulation, count: int) -> Rows:
    rows = np.zeros(count, row_dtype())
    for row in rows:
        kind = row["kind"] = 1 + sim.faults.below(4)
        row["price_ticks"] = 0 if kind == reference.WITHHELD else 5
        if kind == reference.MEASURED:
            noise = row["noise"] = 1 + sim.faults.below(3)
            row["scale_wh"], row["core_wh"] = 2.0, 7 if noise == reference.HUBER else 0
            row["rho_micro" if noise == reference.GAUSSIAN else "epsilon_micro"] = 3
    return rows


def _signer(sim: Simulation, head: ShardHead | None) -> Signer:
    key = sim.signers[0].public_key if head is None else head.tile.key_in_force
    return next(signer for signer in sim.signers if signer.public_key == key)


def wrongly_signed_tile(sim: Simulation, shard: str) -> Offer | None:
    """Return a tile that follows but has a wrong signature; None before its interval has ended."""
    _, (tile, table) = make_next_tile(sim, shard)
    if tile.header.interval >= sim.log.now:
        return None
    return Offer(sign_tile(tile.header, UnknownSigner(), tile.rows), table)


def forge_tile(sim: Simulation, shard: str) -> ForgedTile:
    """Return an altered tile and the rule that it breaks. Both implementations of the rules must agree about it."""
    head, (tile, table) = make_next_tile(sim, shard)
    signer = _signer(sim, head)
    how = sim.faults.below(10)
    if tile.header.kind is TileKind.RELEASE and how < 6:
        tile = _alter_rows(sim, head, tile, table, signer)
    elif tile.header.kind in {TileKind.OPEN, TileKind.ZONES} and how < 6:
        table, closing = _alter_table(sim, table, head), tile.header.extensions
        if head is not None and sim.faults.chance(0.5):  # the header states what the altered table says
            closing = change_zones(head, table, signer).header.extensions
        tile = sign_tile(replace(tile.header, table=table.digest, extensions=closing), signer)
    else:
        tile = sign_tile(replace(tile.header, **_altered_member(sim, tile)), signer, tile.rows)
    last = sim.oracle.current.get(shard)
    return ForgedTile(Offer(tile, table), _compare_rules(head, last, tile, table))


def _compare_rules(head: ShardHead | None, last: reference.Head | None, tile: Tile, table: ZoneTable) -> str | None:
    broken = reference.broken_rule(last, tile.to_bytes(), table.text)
    try:
        after = check_follows(head, parse_tile(tile.to_bytes()), ZoneTable.from_json(table.text))
    except ChainError as error:
        if broken is None:
            raise Violation("rule without need", f"{describe_tile(tile)}: {error}") from None
        return broken
    if broken is not None:
        raise Violation("broken rule accepted", f"{describe_tile(tile)}: {broken}")
    places = reference.follow(last, tile.to_bytes(), table.text).places
    for zone, leaf, totals in zip(after.table.zones, after.leaf_hashes, after.totals.T.tolist(), strict=True):
        if places[zone] != (leaf.tobytes(), *totals):
            raise Violation("false head", f"{zone} after {describe_tile(tile)}: {places[zone]}")
    return None


def _alter_rows(sim: Simulation, head: ShardHead | None, tile: Tile, table: ZoneTable, signer: Signer) -> Tile:
    """Alter one row and make the rest fit it, or leave out a leaf of the tree, or hash other leaves."""
    rows, header, at = tile.rows.copy(), tile.header, sim.faults.below(len(tile.rows))
    how = sim.faults.below(10)
    if head is not None and how < 8:
        _alter_row(sim, head, rows, at, how)
    leaves = hash_leaves(table, header.interval, rows)
    if how == 8:
        leaves = leaves[:at] + leaves[at + 1 :] or [hash_leaf(b"")]
    elif how == 9:
        leaves = hash_leaves(table, header.interval + 1, rows)
    return sign_tile(replace(header, root=compute_root(leaves).hex()), signer, rows)


def _alter_row(sim: Simulation, head: ShardHead, rows: Rows, at: int, how: int) -> None:
    if how == 0:  # where another zone stands
        rows["prev"] = head.leaf_hashes[::-1]
    elif how == 1:
        _add_totals(rows, head.totals[:, ::-1])
    elif how == 2:
        name = sim.pick(("total_epsilon_micro", "total_rho_micro"))
        rows[name][at] += sim.pick((-1, 1, -1000))
    elif how == 3:
        rows["prev"][at][sim.faults.below(32)] ^= 1
    else:
        name = sim.pick(tuple(_ROW_VALUES))
        rows[name][at] = sim.pick(_ROW_VALUES[name])
        _add_totals(rows, head.totals)


def _add_totals(rows: Rows, before: IntArray) -> None:
    for number, cost in enumerate(("epsilon_micro", "rho_micro")):
        rows[f"total_{cost}"] = before[number] + rows[cost]


def _alter_table(sim: Simulation, table: ZoneTable, head: ShardHead | None) -> ZoneTable:
    rows = list(table.rows)
    if table.closed and (not rows or sim.faults.chance(0.7)):
        return _alter_closed(sim, table, head)
    at = sim.faults.below(len(rows))
    row, how = rows[at], sim.faults.below(5)
    if how == 0:
        rows[at] = row._replace(since=row.since + sim.pick((-1, 1)))
    elif how == 1:
        rows[at] = row._replace(tick="1/7")
    elif how == 2:
        rows[at] = row._replace(currency="XXX")
    elif how == 3:
        del rows[at]
    elif how == 4:
        rows[at] = row._replace(plan="not a digest")
    return ZoneTable(tuple(sorted(rows)), table.closed)


def _alter_closed(sim: Simulation, table: ZoneTable, head: ShardHead | None) -> ZoneTable:
    """Forget, open again or change a zone that was closed, or close one that never was open."""
    rows, closed = list(table.rows), list(table.closed)
    zone, how = closed.pop(sim.faults.below(len(closed))), sim.faults.below(6)
    if how == 0:
        rows.append(zone.row)
    elif how == 1:
        rows.append(zone.row._replace(since=zone.last + 1 if head is None else head.interval + 1))
    elif how in {2, 3}:
        name = sim.pick(("last", "since", "total_epsilon_micro", "total_rho_micro"))
        closed.append(zone._replace(**{name: getattr(zone, name) + sim.pick((-1, 1))}))
    elif how == 4:
        closed += [zone, zone._replace(zone="never open")]
    return ZoneTable(tuple(sorted(rows)), tuple(sorted(closed)))


def _altered_member(sim: Simulation, tile: Tile) -> dict[str, Any]:
    name = sim.pick(_CHANGED)
    value = getattr(tile.header, name)
    if name == "extensions":
        return {name: {"closed": sim.pick(({}, {sim.zones[0]: {"total_epsilon_micro": 0, "total_rho_micro": 0}}))}}
    if name == "kind":
        return {"kind": sim.pick(tuple(TileKind))}
    if name in {"interval_s", "lead"} and sim.faults.chance(0.5):
        return {name: sim.pick((0, -1, 10**6 + 1))}
    if name == "next_key":
        return {name: None if value is not None else "f" * 64}
    if isinstance(value, int):
        return {name: value + sim.pick((-1, 1, -1000))}
    return {name: sim.pick(("f" * 64, "0" * 64, sim.signers[2].public_key))}


_CHANGED = (
    "shard",
    "seq",
    "interval",
    "interval_s",
    "lead",
    "table",
    "count",
    "root",
    "prev",
    "key",
    "next_key",
    "kind",
    "kind",
    "extensions",
)
