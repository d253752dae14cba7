"""What an operator wants of a shard, and the next tile that brings it closer.

A desired state is a target ("every interval up to 5 is decided, these zones are open, these are closed, this key
signs"), not a command.
Two publishers, or one after a crash, may have the same: the shard itself shows what is left to do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from murmurate.public_log.tile import TileKind
from murmurate.public_log.tile_chain import ShardHead, close_zones
from murmurate.public_log.zone_table import MAX_ZONES, ZoneRow, ZoneTable

UNTIL_NO_INTERVAL = -(2**62)  # decides no interval


class Change(NamedTuple):
    """From one plan or key to another. It is made once: where `before` no longer stands, nothing is left to change.

    Two publishers must not desire opposite changes: the shard would change back and forth.
    """

    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOpening:
    """How a shard begins."""

    key: str
    interval_s: int
    lead: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneOpening:
    """How a zone enters a shard."""

    plan: str  # digest
    currency: str
    tick: str  # one price step [currency/kWh], as a fraction
    first: int  # the first interval that gets a price; a later one where the shard has passed it


class PlanChange(NamedTuple):
    """Another plan for a zone, with the currency and price step of its prices."""

    before: str
    after: str
    currency: str
    tick: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredState:
    """What should stand in the public log about one shard."""

    until: int  # every interval up to and with this one is decided
    priced_from: int = 0  # earlier ones come too late for a price and are withheld
    opening: ShardOpening | None = None
    zones: Mapping[str, ZoneOpening] = field(default_factory=dict)  # to be in the shard, unless they were closed
    closing: Collection[str] = ()  # zones to be closed for good, after the last interval that is decided
    plan_changes: Mapping[str, PlanChange] = field(default_factory=dict)  # by zone
    key_change: Change | None = None


class NextTile(NamedTuple):
    """The next tile of a shard, not yet written."""

    head: ShardHead | None  # that it follows; None: it opens the shard
    kind: TileKind
    interval: int  # that is released; the last decided one where nothing is
    table: ZoneTable  # in force from this tile on
    desired: DesiredState

    @property
    def withheld(self) -> bool:
        """Whether its prices come too late."""
        return self.interval < self.desired.priced_from


def zones_to_enter(head: ShardHead | None, desired: DesiredState) -> dict[str, ZoneOpening]:
    """Return the zones that can enter the shard now, or open it: they must be claimed in the log first."""
    due = {zone: opening for zone, opening in desired.zones.items() if zone not in desired.closing}
    if head is None:
        due = {} if desired.opening is None else due
        room = MAX_ZONES
    else:
        due = {
            zone: opening
            for zone, opening in due.items()
            if zone not in head.table.column and opening.first <= head.interval + 1
        }
        room = MAX_ZONES - len(head.table.zones_ever) if head.table.rows else 0
    return {zone: due[zone] for zone in sorted(due)[:room]}


def find_next_tile(head: ShardHead | None, desired: DesiredState, claimed: Collection[str]) -> NextTile | None:
    """Return what to append after `head`, or None where the shard is as desired. Only `claimed` zones may enter.

    Raises ChainError where the zones would break a rule of zone tables.
    """
    entering = {zone: opening for zone, opening in zones_to_enter(head, desired).items() if zone in claimed}
    if head is None:
        if not entering:
            return None
        # A shard begins with the zones that can be decided first. Later ones enter when it comes to them.
        first = min(opening.first for opening in entering.values())
        due = {zone: opening for zone, opening in entering.items() if opening.first == first}
        return NextTile(None, TileKind.OPEN, first - 1, ZoneTable.from_rows(_enter(due, first)), desired)
    if not head.table.rows:  # the shard has ended
        return None
    last = head.interval
    change = desired.key_change
    if change is not None and head.tile.key_in_force == change.before != change.after:
        return NextTile(head, TileKind.KEY, last, head.table, desired)
    table = _next_table(head, desired, entering)
    if table.digest != head.table.digest:
        return NextTile(head, TileKind.ZONES, last, table, desired)
    return None if last >= desired.until else NextTile(head, TileKind.RELEASE, last + 1, table, desired)


def _next_table(head: ShardHead, desired: DesiredState, entering: Mapping[str, ZoneOpening]) -> ZoneTable:
    changes = {
        zone: change
        for zone, change in desired.plan_changes.items()
        if (row := head.table.find_row(zone)) is not None and row.plan == change.before != change.after
    }
    closing = close_zones(head, head.table.position.keys() & set(desired.closing))
    if not changes and not entering and not closing:
        return head.table
    leaving = {zone.zone for zone in closing}
    rows = [
        row._replace(plan=changes[row.zone].after, currency=changes[row.zone].currency, tick=changes[row.zone].tick)
        if row.zone in changes
        else row
        for row in head.table.rows
        if row.zone not in leaving
    ]
    entered = _enter(entering, head.interval + 1)
    return ZoneTable.from_rows([*rows, *entered], [*head.table.closed, *closing])


def _enter(entering: Mapping[str, ZoneOpening], since: int) -> list[ZoneRow]:
    return [ZoneRow(zone, opening.plan, opening.currency, opening.tick, since) for zone, opening in entering.items()]
