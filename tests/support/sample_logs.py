"""Small public logs with real plans, and functions that change them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from murmurate.errors import ChainError
from murmurate.operations.log_files import document_name, open_tar_writer, tile_name
from murmurate.planning.plan import make_plan
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.public_log.make_tile import change_key, change_zones, open_shard, release_interval
from murmurate.public_log.merkle import compute_root
from murmurate.public_log.signing import Ed25519Signer
from murmurate.public_log.tile import NoiseCode, RowKind, Rows, Tile, hash_leaves, is_closed_by, row_dtype, sign_tile
from murmurate.public_log.tile_chain import ShardHead, check_follows, close_zones
from murmurate.public_log.zone_line import line_table, make_zone_line, parse_zone_line
from murmurate.public_log.zone_table import ZoneRow, ZoneTable
from murmurate.verification.verifier import check_log

DOCS = Path(__file__).parents[2] / "docs"
OLD, NEW, UNKNOWN_SIGNER = (Ed25519Signer(bytes([n]) * 32) for n in (1, 2, 3))
SIGNERS = {signer.public_key: signer for signer in (OLD, NEW, UNKNOWN_SIGNER)}
FIRST = 480_000
ZONES = ("harbour", "hill", "ünder the hill")
M, F, W = RowKind.MEASURED, RowKind.FALLBACK, RowKind.WITHHELD


@cache
def plan(promise: str = "any 24 h: epsilon 1", name: str = "harbour", old: str = "", new: str = "") -> str:
    """The text of a plan with an hour as its interval, in one line as a log has it."""
    text = EXAMPLE_ZONE_FILE.replace("interval_minutes = 15", "interval_minutes = 60").replace(
        '"harbour"', json.dumps(name)
    )
    text = text.replace('["any 24 h: epsilon 1, delta 1e-6", "any moment: 1"]', json.dumps([promise]))
    text = text.replace("Europe/Lisbon", "UTC").replace(old, new) if old else text.replace("Europe/Lisbon", "UTC")
    made = make_plan(parse_zone(text))
    return json.dumps(json.loads(made.to_json()), separators=(",", ":"))


PLAN, OTHER = plan(), plan("any 24 h: epsilon 1/2")
DIGEST, OTHER_DIGEST = (json.loads(text)["digest"] for text in (PLAN, OTHER))
TERMS = {ReleaseTerms.from_json(text).plan_digest: ReleaseTerms.from_json(text) for text in (PLAN, OTHER)}


def zone_row(
    zone: str, plan_digest: str = DIGEST, since: int = FIRST, terms: Mapping[str, ReleaseTerms] | None = None
) -> ZoneRow:
    at = (terms or TERMS)[plan_digest]
    return ZoneRow(zone, plan_digest, at.currency, at.tick, since)


def fill_rows(
    table: ZoneTable, interval: int, kinds: Any, terms: Mapping[str, ReleaseTerms], price_ticks: int = 20_000
) -> Rows:
    """The rows of a release, as the plans say. `kinds`: of each zone, or of all."""
    rows = np.zeros(len(table), row_dtype())
    rows["kind"] = kinds
    for at, zone in enumerate(table.rows):
        its, kind = terms[zone.plan], rows["kind"][at]
        slot = its.slot_of_day(interval)
        if kind == M:
            rows["noise"][at] = NoiseCode[its.distribution.name]
            rows["price_ticks"][at] = price_ticks + at
            for column in ("scale_wh", "core_wh", "epsilon_micro", "rho_micro"):
                rows[column][at] = getattr(its, column)[slot]
        elif kind == F:
            rows["price_ticks"][at] = its.forecast_ticks[slot]
    return rows


class ShardLog:
    """The tiles of one shard. Every method returns another one with a tile more."""

    def __init__(
        self,
        shard: str = "east",
        zones: Sequence[str] = ZONES,
        *,
        signer: Ed25519Signer = OLD,
        terms: Mapping[str, ReleaseTerms] = TERMS,
        plan_digest: str = DIGEST,
        first: int = FIRST,
        rows: Any = None,
        lead: int = 2,
    ) -> None:
        self.shard, self.terms = shard, terms
        table = ZoneTable.from_rows(rows or [zone_row(zone, plan_digest, first, terms=terms) for zone in zones])
        tile = open_shard(shard, table, interval=first - 1, interval_s=3600, lead=lead, signer=signer)
        self.tiles: tuple[Tile, ...] = (tile,)
        self.tables, self.head = {table.digest: table}, check_follows(None, tile, table)

    def add(self, tile: Tile, table: ZoneTable | None = None) -> ShardLog:
        """Append a tile, right or wrong."""
        longer, table = copy(self), self.head.table if table is None else table
        longer.tiles, longer.tables = (*self.tiles, tile), self.tables | {table.digest: table}
        try:
            longer.head = check_follows(self.head, tile, table)
        except (ChainError, ValueError):  # what is wrong may be appended as well; the next tile follows it
            longer.head = head_alone(tile, table)
        return longer

    @property
    def signer(self) -> Ed25519Signer:
        return SIGNERS[self.head.tile.key_in_force]

    @property
    def table(self) -> ZoneTable:
        return self.head.table

    def release(
        self, kinds: Any = M, times: int = 1, edit: Callable[[Rows], None] | None = None, **more: Any
    ) -> ShardLog:
        """Release intervals. `edit` changes the rows, or some of their columns after the totals were filled in."""
        log = self
        for _ in range(times):
            rows = fill_rows(log.table, log.head.interval + 1, kinds, log.terms, **more)
            tile = release_interval(log.head, rows, log.signer)
            log = log.add(tile if edit is None else edit_rows(tile, log.table, edit, log.signer))
        return log

    def enter(self, rows: Any) -> ShardLog:
        """Put another zone table in force."""
        table = ZoneTable.from_rows(rows, self.table.closed)
        return self.add(change_zones(self.head, table, self.signer), table)

    def close(self, *zones: str) -> ShardLog:
        """Close zones."""
        rows = [row for row in self.table.rows if row.zone not in zones]
        table = ZoneTable.from_rows(rows, [*self.table.closed, *close_zones(self.head, zones)])
        return self.add(change_zones(self.head, table, self.signer), table)

    def change_plan(self, after: str = OTHER_DIGEST, zones: Sequence[str] | None = None) -> ShardLog:
        """Put zones under another plan."""
        its = self.terms[after]
        rows = [
            row._replace(plan=after, currency=its.currency, tick=its.tick)
            if zones is None or row.zone in zones
            else row
            for row in self.table.rows
        ]
        return self.enter(rows)

    def rotate(self, signer: Ed25519Signer = NEW) -> ShardLog:
        return self.add(change_key(self.head, signer.public_key, self.signer))

    def cut(self, length: int) -> ShardLog:
        """The same shard before its last tiles."""
        log = copy(self)
        log.tiles, head = self.tiles[:length], None
        for tile in log.tiles:
            head = check_follows(head, tile, self.tables[tile.header.table])
        assert head is not None
        log.head = head
        return log

    def table_of(self, tile: Tile) -> ZoneTable:
        return self.tables[tile.header.table]

    def lines(self, zone: str) -> list[str]:
        """The lines of a zone, as `log.jsonl` has them."""
        with_zone = (
            tile for tile in self.tiles if zone in self.table_of(tile).position or is_closed_by(tile.header, zone)
        )
        return [make_zone_line(tile, self.table_of(tile), zone).to_json() for tile in with_zone]

    def items(self) -> list[bytes | str]:
        """What a source has: zone tables and tiles."""
        return [*(table.text for table in self.tables.values()), *(tile.to_bytes() for tile in self.tiles)]


def follow_line(head: ShardHead | None, line: str | Tile) -> ShardHead:
    """The head after a line, as a reader of one zone alone follows it. Raises ChainError where it may not follow."""
    line = parse_zone_line(line) if isinstance(line, str) else line
    return check_follows(head, line, line_table(line, head.table.rows[0].since if head and head.table.rows else None))


def head_alone(tile: Tile, table: ZoneTable) -> ShardHead:
    """The head after a tile that is wrong. Where it has no rows, its zones begin anew."""
    if not len(tile.rows):
        return ShardHead(tile, table, np.zeros((len(table), 32), np.uint8), np.zeros((2, len(table)), np.int64))
    hashes = [np.frombuffer(each, np.uint8) for each in hash_leaves(table, tile.header.interval, tile.rows)]
    totals = np.stack([tile.rows["total_epsilon_micro"], tile.rows["total_rho_micro"]])
    return ShardHead(tile, table, np.stack(hashes), totals)


def edit_rows(tile: Tile, table: ZoneTable, edit: Callable[[Rows], None], signer: Ed25519Signer) -> Tile:
    """The tile with other rows, signed again: `edit` gets a copy of the rows and changes it."""
    rows = tile.rows.copy()
    edit(rows)
    root = compute_root(hash_leaves(table, tile.header.interval, rows)).hex()
    return sign_tile(replace(tile.header, root=root), signer, rows)


def resign(tile: Tile, signer: Ed25519Signer = OLD, **changes: Any) -> Tile:
    """The tile with another header, signed again."""
    return sign_tile(replace(tile.header, **changes), signer, tile.rows)


@cache
def log(shard: str = "east", measured: int = 5, zones: Sequence[str] = ZONES) -> ShardLog:
    """Every kind of tile and row, a plan change and a key rotation: 12 tiles, 9 intervals."""
    made = ShardLog(shard, zones).release(times=measured).release(F).release(W)
    return made.change_plan().release(price_ticks=19_000).rotate().release([M, F, M][: len(zones)])


def copied_files(*shards: ShardLog, plans: Sequence[str] = (PLAN, OTHER)) -> dict[str, bytes]:
    """The files of a copy, by name."""
    found = {document_name(json.loads(text)["digest"]): text.encode() for text in plans}
    for shard in shards or (log(),):
        found |= {document_name(digest): table.text.encode() for digest, table in shard.tables.items()}
        found |= {tile_name(shard.shard, tile.header.seq): tile.to_bytes() for tile in shard.tiles}
    return dict(sorted(found.items()))


def write_tar(path: Path, found: Mapping[str, bytes]) -> Path:
    with path.open("wb") as file, open_tar_writer(file) as writer:
        for name, data in found.items():
            writer.add_file(name, data)
    return path


def check(*sources: Sequence[bytes | str], plans: Sequence[str] = (PLAN, OTHER), **more: Any) -> Any:
    """The report on lists of items."""
    read = {f"source {n}": partial(iter, kept) for n, kept in enumerate(sources)}
    return check_log(read, plans=plans, **more)


def rules(report: Any) -> set[str]:
    return {finding.rule for finding in report.findings}
