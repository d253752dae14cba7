"""The rows of one zone in a log, from its tiles or from its lines. The log must have been verified."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from murmurate.planning.release_terms import parse_plan
from murmurate.public_log.noised_demand import LoggedRelease
from murmurate.public_log.tile import parse_tile
from murmurate.public_log.zone_line import parse_zone_line
from murmurate.public_log.zone_table import ZoneTable
from murmurate.verification.check_context import READ_ERRORS
from murmurate.verification.log_item import ItemKind, LogItem, LogSource, find_kind, read_items
from murmurate.verification.table_store import TableStore


class LoggedZone(NamedTuple):
    """What a log holds about one zone."""

    releases: list[LoggedRelease]  # ascending intervals
    plans: dict[str, str]  # text of each plan that a release names, by digest


def read_zone_history(source: LogSource, zone: str, plans: Iterable[str] = ()) -> LoggedZone:
    """Return the rows of a zone, each interval once, and their plans. `plans` are further documents."""
    tables, texts = TableStore(), [*plans]
    for item in read_items(source):
        kind = find_kind(item.data)
        if kind is ItemKind.ZONE_TABLE:
            tables.add_document(item.data.decode())
        elif kind is ItemKind.PLAN:
            texts.append(item.data.decode())
    found: dict[int, LoggedRelease] = {}
    for item in read_items(source):
        try:
            release = _read_release(item, zone, tables)
        except READ_ERRORS:  # of a shard without the zone: the others were verified
            continue
        if release is not None:
            found.setdefault(release.header.interval, release)
    releases = [found[interval] for interval in sorted(found)]
    named = {release.plan for release in releases}
    return LoggedZone(releases, {digest: text for digest, text in _plans_by_digest(texts) if digest in named})


def _plans_by_digest(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        try:
            yield parse_plan(text)[1], text
        except READ_ERRORS:  # not a plan: no row names it
            continue


def _read_release(item: LogItem, zone: str, tables: TableStore) -> LoggedRelease | None:
    """The row of the zone in an item, if it has one."""
    kind = find_kind(item.data)
    if kind is ItemKind.ZONE_LINE:
        line = parse_zone_line(item.data.decode())
        return None if line.zone != zone or line.row is None else LoggedRelease(line.header, line.plan, line.row)
    if kind is not ItemKind.TILE:
        return None
    tile = parse_tile(item.data)
    table = tables.find_table(tile.header.table)
    at = table.position.get(zone) if isinstance(table, ZoneTable) else None
    if at is None or isinstance(table, str) or not len(tile.rows):
        return None
    return LoggedRelease(
        tile.header, table.rows[at].plan, tile.rows[at : at + 1].copy()
    )  # not a view that keeps the tile
