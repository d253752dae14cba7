"""The public log in an object store: a folder, or a bucket.

    tiles/<shard>/<number>.tile       the number in twelve digits
    documents/<SHA-256>.json          plans and zone tables
    claims/<zone>.json                the shard that a zone is in, for ever
    over/<seconds>/<interval>/<n>     empty: its time shows that the interval was over by the store's clock

A name is created once, and nothing else is asked of the store. So the rules of a log are checked by who creates a tile,
before it does: each fact that is looked at there never changes again (the tile before, a claim, a document, a time that
has passed), so a create that arrives late is as right as one that arrives at once. Every reader checks them again, but
for the time.

It is also a copy of the log that `murmurate log verify` takes. See docs/decisions/0031-log-in-a-bucket.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from math import inf
from typing import TypeVar
from urllib.parse import quote, unquote

from murmurate.errors import ChainError
from murmurate.public_log.canonical import canonical_json, compute_digest, parse_canonical, require_types
from murmurate.public_log.signing import verify_signature
from murmurate.public_log.tile import GENESIS_PREV, Tile, TileKind, parse_header, parse_tile
from murmurate.public_log.tile_chain import ShardHead, VerifySignature, begin_with_release, check_next
from murmurate.public_log.zone_table import ZoneTable
from murmurate.publisher.steps import LogTail, Offer
from murmurate.service.storage.object_store import ObjectStore
from murmurate.service.storage.session import ClockReading

_MAX_TILES = 16  # of one shard in one answer
MAX_OBJECT_BYTES = 1 << 24  # a tile of 1,000 zones has about 90,000
UNREADABLE_CLAIM = "that its claim does not name"
_MAX_PART = 128  # characters of a part of a name: a file name has 255 bytes at most
_HEADER_BYTES = 4096  # where the header of a tile usually ends
_MAX_TABLES_KEPT = 256
_CLOCK_STEP_S = 1.0  # a store shows its times in whole seconds, rounded down
_CHANGES_TABLE = frozenset({TileKind.OPEN, TileKind.ZONES})

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


def quote_part(name: str) -> str:
    """Return any name as a part of an object's name, no two alike: quoted as in a URL, a long one with its hash.

    >>> quote_part("east/1"), quote_part(".."), quote_part("a~b")
    ('east%2F1', '%2E.', 'a%7Eb')
    """
    quoted = quote(name, safe="").replace("~", "%7E")
    if len(quoted) > _MAX_PART:
        quoted = f"{quoted[:60]}~{sha256(name.encode()).hexdigest()}"
    return f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted


def tile_name(shard: str, seq: int) -> str:
    return f"tiles/{quote_part(shard)}/{seq:012}.tile"


def document_name(digest: str) -> str:
    return f"documents/{digest}.json"


def claim_name(zone: str) -> str:
    return f"claims/{quote_part(zone)}.json"


def _is_under(digest: str, text: str) -> bool:
    """Whether a document has this digest. That of a plan is of the text without the member that names it."""
    return compute_digest(text.replace(f'"digest":"{digest}",', "")) == digest


class ObjectLogStore:
    """See `publisher.steps.LogStore`. Threads may share one to read.

    Args:
        store: A folder or a bucket, for this log alone.
        verify: Checks signatures.
        monotonic_s: A clock of this process.
        threads: Requests at the same time.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        verify: VerifySignature = verify_signature,
        monotonic_s: Callable[[], float] = time.monotonic,
        threads: int = 8,
    ) -> None:
        self._store, self._verify, self._monotonic_s, self._threads = store, verify, monotonic_s, threads
        self._claims: dict[str, str] = {}  # as far as they were read
        self._published: set[str] = set()  # digests of documents that are there
        self._tables: dict[str, ZoneTable] = {}
        self._appended: dict[str, ShardHead] = {}  # after the last tile of a shard that this object has created
        self._shown_s = -inf  # the latest time that the store has shown [s of UTC]
        self.clock_reading: ClockReading | None = None  # of the last interval that was shown to be over, or not
        self.refused: dict[str, str] = {}  # why the tile of a shard was not created by the last `append`

    def heads(self) -> dict[str, tuple[int, str]]:
        """The number and the hash of the last tile of each shard."""
        tails = self.read(dict.fromkeys(self.shard_names(), -1), max_tiles=0)
        return {shard: (tail.last_seq, tail.last_hash) for shard, tail in tails.items() if tail.last_seq >= 0}

    def read(self, after_seq: Mapping[str, int], max_tiles: int = _MAX_TILES) -> dict[str, LogTail]:
        tails = self._at_once(lambda shard: self._read_tail(shard, after_seq[shard], max_tiles), after_seq)
        return dict(zip(after_seq, tails, strict=True))

    def _read_tail(self, shard: str, after: int, max_tiles: int) -> LogTail:
        last = self._find_last(shard, after)
        if last < 0:
            return LogTail(-1, (), GENESIS_PREV)
        tiles: list[Offer | str] = []
        for seq in range(after + 1, min(last, after + max_tiles) + 1):
            try:
                tiles.append(self.read_offer(shard, seq))
            except ChainError as error:
                tiles.append(str(error))
        newest = tiles[-1] if tiles and after + len(tiles) == last else ""
        last_hash = (
            sha256(self.read_header_line(shard, last)).hexdigest() if isinstance(newest, str) else newest.tile.hash
        )
        return LogTail(last, tuple(tiles), last_hash)

    def find_last(self, known: Mapping[str, int]) -> dict[str, int]:
        """The number of the last tile of each of some shards; -1: none. `known` are numbers that were there before."""
        return dict(zip(known, self._at_once(lambda shard: self._find_last(shard, known[shard]), known), strict=True))

    def _find_last(self, shard: str, known: int) -> int:
        """The number of the last tile of a shard; -1: none. `known` was there before; it takes few steps from there."""

        def is_there(seq: int) -> bool:
            return self._store.exists(tile_name(shard, seq))

        if known >= 0 and not is_there(known):  # the store has lost tiles
            low, high = -1, known
        else:
            low, step = known, 1
            while is_there(low + step):
                low, step = low + step, 2 * step
            high = low + step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if is_there(middle) else (low, middle)
        return low

    def read_header_line(self, shard: str, seq: int) -> bytes:
        """The first line of a tile, without its end, readable or not. Raises FileNotFoundError."""
        name = tile_name(shard, seq)
        line, end, _ = self._store.read(name, 0, _HEADER_BYTES).partition(b"\n")
        return line if end else self._store.read(name, 0, MAX_OBJECT_BYTES).partition(b"\n")[0]

    def created_s(self, shard: str, seq: int) -> float:
        """When a tile was created, by the clock of the store [s of UTC]. Raises FileNotFoundError."""
        return self._store.changed_s(tile_name(shard, seq))

    def read_body(self, shard: str, seq: int) -> bytes:
        """A tile as it was created, readable or not. Raises ChainError where it is missing."""
        try:
            return self._read_object(tile_name(shard, seq))
        except FileNotFoundError:
            raise ChainError("log", f"tile {seq} of {shard}", "is missing") from None

    def _read_object(self, name: str) -> bytes:
        data = self._store.read(name, 0, MAX_OBJECT_BYTES + 1)
        if len(data) > MAX_OBJECT_BYTES:
            raise ChainError("object", name, f"must have {MAX_OBJECT_BYTES:,} bytes at most")
        return data

    def read_offer(self, shard: str, seq: int) -> Offer:
        """A tile with its table. Raises ChainError where it is missing, cannot be read, or its zones may not enter."""
        tile = parse_tile(self.read_body(shard, seq))
        if (tile.header.shard, tile.header.seq) != (shard, seq):
            allowed = f"must be tile {seq} of {shard}, as its name says"
            raise ChainError("tile", f"{tile.header.seq} of {tile.header.shard}", allowed)
        offer = Offer(tile, self.table(tile.header.table))
        if tile.header.kind in _CHANGES_TABLE:
            self.check_zones(shard, offer.table)
        return offer

    def read_heads(self, shards: Iterable[str]) -> dict[str, Offer]:
        """The last tile of each of these shards that has one. Raises ChainError where it cannot be read."""
        last = self.find_last(dict.fromkeys(shards, -1))
        return {shard: self.read_offer(shard, seq) for shard, seq in last.items() if seq >= 0}

    def read_bodies(self, shard: str, after_seq: int) -> Iterator[bytes]:
        """The tiles of a shard after a number, as they were created, readable or not."""
        for seq in range(after_seq + 1, self._find_last(shard, after_seq) + 1):
            yield self.read_body(shard, seq)

    def shard_names(self) -> set[str]:
        """Every shard that has a tile."""
        names = {}
        for part in self._store.list_folders("tiles"):
            names[part] = unquote(part)
            if "~" in part:  # its name is too long for that of an object
                with suppress(FileNotFoundError, ValueError, ChainError):
                    line = self._read_object(f"tiles/{part}/{0:012}.tile").partition(b"\n")[0]
                    names[part] = parse_header(line.decode())[0].shard
        return {name for part, name in names.items() if quote_part(name) == part}

    def claim(self, claims: Mapping[str, str]) -> dict[str, str]:
        def claim_zone(zone: str) -> str:
            body = canonical_json({"shard": claims[zone], "zone": zone})
            if zone not in self._claims and self._store.create(claim_name(zone), body.encode()):
                self._claims[zone] = claims[zone]
            return self._read_claim(zone) or UNREADABLE_CLAIM

        return dict(zip(claims, self._at_once(claim_zone, claims), strict=True))

    def _read_claim(self, zone: str) -> str | None:
        """The shard that has claimed a zone; None: no shard has."""
        if zone not in self._claims:
            try:
                members = parse_canonical(self._read_object(claim_name(zone)).decode(errors="replace"), "claim")
                require_types(members, {"shard": (str,), "zone": (str,)}, "claim")
            except FileNotFoundError:
                return None
            except ChainError:
                return UNREADABLE_CLAIM
            if members["zone"] != zone:  # a file system that does not tell capitals from small letters
                return UNREADABLE_CLAIM
            self._claims[zone] = members["shard"]
        return self._claims[zone]

    def shards_of(self, zones: Iterable[str]) -> dict[str, str]:
        """The shard that has claimed each zone; zones without a claim are left out."""
        zones = list(zones)
        found = zip(zones, self._at_once(self._read_claim, zones), strict=True)
        return {zone: shard for zone, shard in found if shard is not None}

    def publish_documents(self, documents: Mapping[str, str]) -> None:
        """Show plans, by digest, before anything is released under them."""

        def publish(digest: str) -> None:
            if not _is_under(digest, documents[digest]):
                raise ChainError("document", digest, "must be under its own digest")
            if not self._store.create(document_name(digest), documents[digest].encode()):
                self._require_document(digest)
            self._published.add(digest)

        self._at_once(publish, documents.keys() - self._published)

    def documents(self, digests: Iterable[str]) -> dict[str, str]:
        """The documents with these digests, as far as the log has them."""
        digests = list(digests)
        found = zip(digests, self._at_once(self._read_document, digests), strict=True)
        return {digest: text for digest, text in found if text is not None}

    def _read_document(self, digest: str) -> str | None:
        """A document; None where there is none, or another one has its name."""
        try:
            text = self._read_object(document_name(digest)).decode()
        except (FileNotFoundError, UnicodeDecodeError, ChainError):
            return None
        return text if _is_under(digest, text) else None

    def _require_document(self, digest: str) -> str:
        text = self._read_document(digest)
        if text is None:
            raise ChainError("document", digest, "is not in the log, or another one has its name")
        self._published.add(digest)
        return text

    def table(self, digest: str) -> ZoneTable:
        """A zone table of the log. Raises ChainError where it is missing or cannot be read."""
        table = self._tables.get(digest)
        if table is None:
            if len(self._tables) >= _MAX_TABLES_KEPT:
                self._tables.clear()
            table = self._tables[digest] = ZoneTable.from_json(self._require_document(digest))
        return table

    def append(self, offers: Mapping[str, Offer]) -> None:
        self.refused = {}
        releases = {
            (offer.tile.header.interval, offer.tile.header.interval_s)
            for offer in offers.values()
            if offer.tile.header.kind is TileKind.RELEASE
        }
        not_over = {release for release in sorted(releases) if not self._is_over(*release)}

        def append_tile(shard: str) -> None:
            header = offers[shard].tile.header
            try:
                if header.kind is TileKind.RELEASE and (header.interval, header.interval_s) in not_over:
                    self.refused[shard] = f"interval {header.interval} is not over by the clock of the store"
                else:
                    self._append(shard, *offers[shard])
            except ChainError as error:
                self.refused[shard] = str(error)

        self._at_once(append_tile, offers)

    def _append(self, shard: str, tile: Tile, table: ZoneTable) -> None:
        """Create a tile, unless its number exists. Raises ChainError where it breaks a rule of the log."""
        head = check_next(self._head_before(shard, tile.header.seq), tile, table, self._verify)
        if tile.header.kind in _CHANGES_TABLE:
            self.check_zones(shard, table)
        self.publish_documents({table.digest: table.text})
        if self._store.create(tile_name(shard, tile.header.seq), tile.to_bytes()):
            self._appended[shard] = head

    def _head_before(self, shard: str, seq: int) -> ShardHead | None:
        """The head that a tile with this number must follow; None: it is the first. Raises ChainError without one."""
        appended = self._appended.get(shard)
        if appended is not None and appended.tile.header.seq == seq - 1:
            return appended
        begins = seq - 1
        while begins > 0 and self.read_offer(shard, begins).tile.header.kind is not TileKind.RELEASE:
            begins -= 1
        head: ShardHead | None = None
        for at in range(max(begins, 0), seq):
            tile, table = self.read_offer(shard, at)
            if at and at == begins:
                head = begin_with_release(tile, table, self._verify)
            else:
                head = check_next(head, tile, table, self._verify)
        return head

    def check_zones(self, shard: str, table: ZoneTable) -> None:
        """Raise ChainError unless each open zone of a table is claimed for its shard, and the log has its plan."""
        holders = self.shards_of(table.zones)
        for zone in table.zones:
            if holders.get(zone) != shard:
                found = f"claimed for shard {holders[zone]}" if zone in holders else "claimed for no shard"
                raise ChainError("zone", f"{zone}, {found}", f"must be claimed for {shard}")
        plans = {row.plan for row in table.rows} - self._published
        self._at_once(self._require_document, plans)

    def _is_over(self, interval: int, interval_s: int) -> bool:
        """Whether an interval is over by the clock of the store, which shows its time in what is created."""
        end_s = (interval + 1) * interval_s
        if self._shown_s < end_s:
            reading = self.clock_reading
            if reading is not None and reading.shown_s + self._monotonic_s() - reading.asked_s + _CLOCK_STEP_S < end_s:
                return False  # an object that is created now would show that as well
            folder = f"over/{interval_s}/{interval}"
            found = [*self._store.list_objects(folder)]
            if not any(each.changed_s >= end_s for each in found):
                name, asked_s = f"{folder}/{len(found)}", self._monotonic_s()
                is_new, answered_s = self._store.create(name, b""), self._monotonic_s()
                found = [*self._store.list_objects(folder)]
                times = {each.name: each.changed_s for each in found}
                if is_new and name in times:
                    self.clock_reading = ClockReading(times[name], asked_s, answered_s)
            self._shown_s = max((self._shown_s, *(each.changed_s for each in found)))
        return self._shown_s >= end_s

    def _at_once(self, function: Callable[[_Item], _Answer], items: Iterable[_Item]) -> list[_Answer]:
        """The results of a function that waits for the store, in order."""
        todo = list(items)
        if min(len(todo), self._threads) < 2:
            return [*map(function, todo)]
        with ThreadPoolExecutor(min(self._threads, len(todo))) as pool:
            return [*pool.map(function, todo)]

    def close(self) -> None:
        """Nothing is open."""
