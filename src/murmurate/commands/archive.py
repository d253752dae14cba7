"""`murmurate log archive`: move old tiles from both databases to files.

Tiles are written to the archive, read back, compared with the log byte for byte and checked as a chain that continues
the archive. Only then are they deleted: in the log, with a row that says how far, and after that in the state's mirror.
Each step may be the last one: the next run begins with what is in the files and still in the log.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from murmurate.errors import ChainError, MurmurateError
from murmurate.operations.console import print_json, stderr, stdout
from murmurate.operations.options import AsJson, Log, State, optional_imports
from murmurate.units import SECONDS_PER_DAY

with optional_imports():
    from psycopg import Connection

    from murmurate.planning.promise_text import longest_window
    from murmurate.planning.release_terms import ReleaseTerms
    from murmurate.public_log.canonical import canonical_json
    from murmurate.public_log.signing import verify_signature
    from murmurate.public_log.tile import GENESIS_PREV, TileKind, parse_tile
    from murmurate.public_log.tile_chain import ShardHead, check_next, rebuild_head
    from murmurate.public_log.zone_table import ZoneTable
    from murmurate.service.storage.databases import Databases, mask_database_errors
    from murmurate.service.storage.migrate import migrate_database
    from murmurate.service.storage.session import UNLIMITED_OPTIONS, connect
    from murmurate.service.storage.tile_archive import TileArchive, TileRange, read_range

MAX_INTERVALS_PER_FILE = 256
_SELECT_SHARDS = """
    SELECT h.shard, h.interval, h.interval_s, h.lead, h.zones, coalesce(a.seq, -1), coalesce(a.hash, %s)
    FROM public_log.head AS h LEFT JOIN public_log.archived AS a USING (shard) WHERE h.seq >= 0 ORDER BY h.shard"""
_SELECT_NEXT_INTERVAL = "SELECT interval FROM public_log.tile WHERE shard = %s AND seq = %s"
_SELECT_TILES = """
    SELECT seq, extract(epoch FROM taken)::float8, body FROM public_log.tile
    WHERE shard = %s AND seq > %s AND interval <= %s ORDER BY seq"""
_SELECT_BODY = "SELECT body FROM public_log.tile WHERE shard = %s AND seq = %s"
_DROP = "SELECT public_log.drop_archived(%s, %s, %s)"
_DROP_SEEN = """
    DELETE FROM curator.tile WHERE shard = %(shard)s AND seen AND seq <= %(seq)s AND seq < (
        SELECT max(t.seq) FROM curator.tile AS t JOIN curator.shard AS s USING (shard)
        WHERE t.shard = %(shard)s AND t.releases AND t.seen AND t.seq <= s.seq)"""


class _Shard(NamedTuple):
    """A shard of the log."""

    name: str
    interval: int  # the last one
    interval_s: int
    lead: int
    zones: str  # digest of its zone table
    dropped_seq: int  # the last tile that was archived; -1: none
    dropped_hash: str


@dataclass(slots=True)
class ArchiveOutcome:
    """What a run has done."""

    tiles: int = 0  # written to files
    dropped: int = 0  # deleted from the log
    refused: dict[str, str] = field(default_factory=dict)  # shards that were left as they are, and why


def archive_log(
    folder: Annotated[Path, typer.Argument(help="Folder of the archive; it is made, or continued.", file_okay=False)],
    state: State = "",
    log: Log = "",
    days: Annotated[float, typer.Option(help="Keep the tiles of this many days in the databases.", min=370)] = 400,
    *,
    as_json: AsJson = False,
) -> int:
    """Archive old tiles. Returns 1 if a shard could not be archived."""
    databases = Databases.from_dsns(state=state, log=log)
    databases.check_reachable()
    with mask_database_errors():
        migrate_database(databases.log.dsn, "log")
        outcome = archive_tiles(databases, TileArchive(folder), time.time() - days * SECONDS_PER_DAY)
    if as_json:
        print_json(asdict(outcome))
    else:
        stdout.print(f"{outcome.tiles:,} tiles written to {folder}, {outcome.dropped:,} deleted from the log.")
        for shard, reason in outcome.refused.items():
            stderr.print(f"{shard}: not archived: {reason}")
    return int(bool(outcome.refused))


def archive_tiles(databases: Databases, archive: TileArchive, before_s: float) -> ArchiveOutcome:
    """Archive the tiles of all intervals that ended before a time [s of UTC], as far as plans let go of them."""
    outcome = ArchiveOutcome()
    with (
        archive.locked(),
        connect(databases.log.dsn, autocommit=True, options=UNLIMITED_OPTIONS) as log,
        connect(databases.state.dsn, autocommit=True, options=UNLIMITED_OPTIONS) as state,
    ):
        for row in log.execute(_SELECT_SHARDS, (GENESIS_PREV,)).fetchall():
            shard = _Shard(*row)
            try:
                last_seq = _ShardArchiver(log, archive, shard, outcome).archive(before_s)
                state.execute(_DROP_SEEN, {"shard": shard.name, "seq": last_seq})
            except MurmurateError as error:
                outcome.refused[shard.name] = str(error)
        if outcome.dropped:  # dead rows are used again; without it the tables would grow before they do not
            log.execute("VACUUM public_log.tile")
            state.execute("VACUUM curator.tile")
    return outcome


class _ShardArchiver:
    """Archives one shard."""

    def __init__(self, log: Connection, archive: TileArchive, shard: _Shard, outcome: ArchiveOutcome) -> None:
        self._log, self._archive, self._shard, self._outcome = log, archive, shard, outcome
        self._tables: dict[str, ZoneTable] = {}

    def archive(self, before_s: float) -> int:
        """Return the number of the last tile that is in the archive alone; -1: none."""
        shard, ranges = self._shard, self._archive.ranges(self._shard.name)
        written = ranges[-1].last if ranges else -1
        if written < shard.dropped_seq:
            allowed = f"ends with tile {written} of {shard.name}, and the log was archived up to {shard.dropped_seq}: "
            raise MurmurateError("archive", self._archive.folder, f"{allowed}give the folder that has them")
        dropped, head = shard.dropped_seq, self._archived_head(ranges)
        end = self._last_interval(before_s)
        unfinished = [each for each in ranges if each.first > dropped]
        for tiles in chain(unfinished, self._write_files(written, end)):
            head = self._check_file(tiles, head)
            if head.interval > end:  # written by a run that should keep less
                break
            row = self._log.execute(_DROP, (shard.name, tiles.last, head.tile.hash)).fetchone()
            self._outcome.dropped += row[0] if row else 0
            dropped = tiles.last
        return dropped

    def _last_interval(self, before_s: float) -> int:
        """Return the last interval to archive. What is shown, and what a change of plan must look at, stays."""
        shard = self._shard
        plans = {row.plan for row in self._table(shard.zones).rows}
        query = "SELECT body FROM public_log.document WHERE digest = ANY(%s)"
        texts = self._log.execute(query, (list(plans),)).fetchall()
        if len(texts) < len(plans):
            raise ChainError("log", f"of {shard.name}", "must have the plan of each zone")
        window = max((longest_window(ReleaseTerms.from_json(text)) for (text,) in texts), default=0)  # 0: it has ended
        return min(int(before_s // shard.interval_s) - 1, shard.interval - shard.lead - 2 - window)

    def _archived_head(self, ranges: list[TileRange]) -> ShardHead | None:
        """Return the head after the tiles that the log has no longer. A file begins with a release or with tile 0."""
        shard = self._shard
        if shard.dropped_seq < 0:
            return None
        its = next((each for each in ranges if each.last == shard.dropped_seq), None)
        tiles = [] if its is None else [parse_tile(each.read()) for each in read_range(its)]
        if not tiles or tiles[-1].hash != shard.dropped_hash:
            allowed = f"must end a file with tile {shard.dropped_seq} of {shard.name} as the log had it"
            raise MurmurateError("archive", self._archive.folder, f"{allowed}: give the folder that has it")
        releases = [at for at, tile in enumerate(tiles) if tile.header.kind is TileKind.RELEASE]
        recent = tiles[releases[-1] if releases else 0 :]
        return rebuild_head(recent, {tile.header.table: self._table(tile.header.table) for tile in recent})

    def _write_files(self, written: int, end: int) -> Iterator[TileRange]:
        """Write the next tiles up to an interval, with their documents. A release follows each file."""
        shard = self._shard.name
        while True:
            row = self._log.execute(_SELECT_NEXT_INTERVAL, (shard, written + 1)).fetchone()
            if row is None or row[0] > end:
                return
            last = min(end, row[0] + MAX_INTERVALS_PER_FILE - 1)
            tiles = [
                (seq, taken_s, bytes(body))
                for seq, taken_s, body in self._log.execute(_SELECT_TILES, (shard, written, last), binary=True)
            ]
            for digest in {parse_tile(body).header.table for _, _, body in tiles}:
                self._write_documents(digest)
            yield self._archive.write_tiles(shard, tiles)
            self._outcome.tiles += len(tiles)
            written = tiles[-1][0]

    def _write_documents(self, digest: str) -> None:
        """Write a zone table and its plans."""
        wanted = [digest, *{row.plan for row in self._table(digest).rows}]
        query = "SELECT digest, body FROM public_log.document WHERE digest = ANY(%s)"
        for name, text in self._log.execute(query, (wanted,)).fetchall():
            self._archive.write_document(name, canonical_json(json.loads(text)))

    def _check_file(self, tiles: TileRange, head: ShardHead | None) -> ShardHead:
        """Read a file back: each tile is the log's, byte for byte, and follows the one before. Returns the new head."""
        shard = self._shard.name
        tiles.path.chmod(0o644)
        for each in read_range(tiles):
            body = each.read()
            row = self._log.execute(_SELECT_BODY, (shard, each.seq), binary=True).fetchone()
            if row is None or bytes(row[0]) != body:
                allowed = f"differs from the log in tile {each.seq}: remove the file, the log still has its tiles"
                raise MurmurateError("archive", tiles.path, allowed)
            tile = parse_tile(body)
            head = check_next(head, tile, self._table(tile.header.table), verify_signature)
        if head is None or head.tile.header.seq != tiles.last:
            raise ChainError("archive", tiles.path, "must hold the tiles that its name says")
        return head

    def _table(self, digest: str) -> ZoneTable:
        if digest not in self._tables:
            query = "SELECT body FROM public_log.document WHERE digest = %s"
            row = self._log.execute(query, (digest,)).fetchone()
            if row is None:
                raise ChainError("zone table", digest, "is not in the log")
            self._tables[digest] = ZoneTable.from_json(row[0])
        return self._tables[digest]
