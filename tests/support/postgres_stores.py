"""A state and a log on a real PostgreSQL server, publishers that use them, and a writer of single shards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import psycopg

from murmurate.planning.release_terms import ReleaseTerms, compact_plan
from murmurate.public_log.canonical import canonical_json
from murmurate.public_log.signing import verify_signature
from murmurate.public_log.tile import RowKind, Tile, TileKind
from murmurate.public_log.tile_chain import ShardHead, check_follows, check_next
from murmurate.publisher.desired_state import DesiredState, ShardOpening, ZoneOpening
from murmurate.publisher.steps import Offer
from murmurate.service.storage.public_log_store import PostgresLogStore
from murmurate.service.storage.state_store import PostgresStateStore
from murmurate.service.worker.publisher_context import Publisher
from tests.support.sample_shards import (
    NO_DEMAND,
    OLD_KEY,
    OPENING,
    ZONE_OPENING,
    desire,
    digest_of,
    make_demand,
    make_writer,
    next_offer,
    plan_document,
)

ODD_NAME = 'Zürich "1"\n\\'
SHARDS = {f"shard {n}": (f"zone {n}a", f"zone {n}b") for n in range(4)} | {ODD_NAME: (ODD_NAME, "zone 4b", "zone 4c")}
ZONES = [zone for zones in SHARDS.values() for zone in zones]
SHARD_OF = {zone: shard for shard, zones in SHARDS.items() for zone in zones}


class Stores:
    """A state, a log, and any number of publishers that use them."""

    def __init__(self, state_dsn: str, log_dsn: str) -> None:
        self.state_dsn, self.log_dsn = state_dsn, log_dsn
        self.log = PostgresLogStore(log_dsn)
        self.opened: list[PostgresStateStore | PostgresLogStore] = []
        self.log.publish_documents({digest_of(plan): plan_document(plan) for plan in "abc"})
        self.state = self.new_state()
        zones = {zone: (shard, ZONE_OPENING) for zone, shard in SHARD_OF.items()}
        self.state.store_openings(dict.fromkeys(SHARDS, OPENING), zones)

    def new_state(self) -> PostgresStateStore:
        state = PostgresStateStore(self.state_dsn)
        self.opened.append(state)
        return state

    def new_log(self) -> PostgresLogStore:
        log = PostgresLogStore(self.log_dsn)
        self.opened.append(log)
        return log

    def publisher(self, **options: Any) -> Publisher:
        defaults: dict[str, Any] = {
            "state": self.new_state(),
            "log": self.new_log(),
            "write_tiles": make_writer().write_tiles,
        }
        defaults |= {"wait_for_slot": lambda: None, "batch_size": 2, "pause_s": 0.01}
        return Publisher(**defaults | options)

    def publish(self, until: int, **more: Any) -> Any:
        """Publish everything up to an interval, with a publisher that knows nothing."""
        return self.publisher().publish(desired(until, **more), timeout_s=60)

    def store_demand(self, interval: int, energy_wh: int = 500_000) -> None:
        self.state.store_demand(interval, make_demand(**dict.fromkeys(ZONES, energy_wh)))

    def heads(self, shard: str) -> list[ShardHead]:
        """The chain of a shard, every link and every signature checked."""
        return checked_heads(self.log, shard)

    def bodies(self) -> dict[str, list[bytes]]:
        """Every byte of the log, by shard."""
        return {shard: [head.tile.to_bytes() for head in self.heads(shard)] for shard in SHARDS}

    def tile_kinds(self, shard: str) -> list[TileKind]:
        return [head.tile.header.kind for head in self.heads(shard)]

    def intervals(self, shard: str) -> list[int]:
        """The intervals that were released, in order."""
        tiles = [head.tile for head in self.heads(shard)]
        return [tile.header.interval for tile in tiles if tile.header.kind is TileKind.RELEASE]

    def row_kinds(self, zone: str) -> list[RowKind]:
        """What was decided for a zone, in order."""
        kinds = []
        for head in self.heads(SHARD_OF[zone]):
            at = head.table.position.get(zone)
            if head.tile.header.kind is TileKind.RELEASE and at is not None:
                kinds.append(RowKind(head.tile.rows["kind"][at]))
        return kinds

    def close(self) -> None:
        for store in (*self.opened, self.log):
            store.close()


def desired(until: int, shards: Iterable[str] = SHARDS, **more: Any) -> dict[str, DesiredState]:
    return {shard: desire(until, SHARDS[shard], **more) for shard in shards}


class ShardWriter:
    """Writes the tiles of one shard into a log, honestly or not. `plans` are texts of real plans by zone."""

    def __init__(self, dsn: str, plans: Mapping[str, str], *, shard: str = "quay", first: int, lead: int = 2) -> None:
        self.dsn, self.shard, self.log = dsn, shard, PostgresLogStore(dsn)
        self.head: ShardHead | None = None
        self.heads: list[ShardHead] = []
        self.terms = {zone: ReleaseTerms.from_json(text) for zone, text in plans.items()}
        self.log.publish_documents({self.terms[zone].plan_digest: compact_plan(text) for zone, text in plans.items()})
        self._by_digest = {terms.plan_digest: terms for terms in self.terms.values()}
        self._writer = make_writer(plans=self._by_digest)
        interval_s = next(iter(self.terms.values())).interval_s
        self._opening = ShardOpening(key=OLD_KEY.public_key, interval_s=interval_s, lead=lead)
        self.zones = {
            zone: ZoneOpening(plan=its.plan_digest, currency=its.currency, tick=its.tick, first=first)
            for zone, its in self.terms.items()
        }
        self.log.claim(dict.fromkeys(self.zones, shard))

    def take(self, zone: str, plan: str, opening: ZoneOpening) -> None:
        """Have a zone enter the shard with the next tile."""
        self.terms[zone] = ReleaseTerms.from_json(plan)
        self._by_digest[opening.plan] = self.terms[zone]
        self.zones[zone] = opening

    def draft(self, energy_wh: int | None = None, **desired: Any) -> Offer:
        """The next tile: of an interval, or what is desired."""
        usual: dict[str, Any] = {"until": 2**62, "opening": self._opening, "zones": self.zones}
        wanted = DesiredState(**usual | desired)
        demand = NO_DEMAND if energy_wh is None else make_demand(**dict.fromkeys(self.zones, energy_wh))
        return next_offer(self.head, wanted, demand, shard=self.shard, writer=self._writer)

    def write(self, count: int = 1, energy_wh: int | None = None, **desired: Any) -> None:
        for _ in range(count):
            offer = self.draft(energy_wh, **desired)
            self.log.append({self.shard: offer})
            self.head = check_follows(self.head, *offer)
            self.heads.append(self.head)

    def smuggle(self, tile: Tile) -> None:
        """Past the rules of the log, as whoever owns its database could."""
        with psycopg.connect(self.dsn) as connection:
            query = "INSERT INTO public_log.tile (shard, seq, interval, body) VALUES (%s, %s, %s, %s)"
            header = tile.header
            connection.execute(query, (self.shard, header.seq, header.interval, tile.to_bytes()))
            connection.execute(
                "UPDATE public_log.head SET seq = %s, interval = %s WHERE shard = %s",
                (header.seq, header.interval, self.shard),
            )

    def prices(self, zone: str) -> dict[int, int | None]:
        """Price [ticks] by the interval that pays; None: withheld."""
        found = {}
        for head in self.heads:
            header, rows = head.tile.header, head.tile.rows
            if len(rows) and zone in head.table.position:
                row = rows[head.table.position[zone]]
                found[header.interval + header.lead] = None if row["kind"] == 3 else int(row["price_ticks"])
        return found

    def close(self) -> None:
        self.log.close()


def mirror_shard(state_dsn: str, writer: ShardWriter, plans: Mapping[str, str] | None = None) -> None:
    """Put into a state what a publisher would have seen of a shard. `plans` are texts of real plans by digest."""
    first, last = writer.heads[0].tile.header, writer.heads[-1].tile.header
    opening = canonical_json({"key": first.key, "interval_s": first.interval_s, "lead": first.lead})
    with psycopg.connect(state_dsn) as state:
        state.execute("INSERT INTO curator.shard VALUES (%s, %s, %s)", (writer.shard, last.seq, opening))
        for head in writer.heads:
            header = head.tile.header
            row = (writer.shard, header.seq, header.count > 0, head.tile.to_bytes())
            state.execute("INSERT INTO curator.tile VALUES (%s, %s, %s, true, %s)", row)
        documents = {head.table.digest: head.table.text for head in writer.heads}
        documents |= {digest: compact_plan(text) for digest, text in (plans or {}).items()}
        for document in documents.items():
            state.execute("INSERT INTO curator.document VALUES (%s, %s)", document)


def checked_heads(log: PostgresLogStore, shard: str) -> list[ShardHead]:
    """The chain of a shard, every link and every signature checked."""
    heads: list[ShardHead] = []
    while tiles := log.read({shard: len(heads) - 1})[shard].tiles:
        for offer in tiles:
            assert isinstance(offer, Offer)
            heads.append(check_next(heads[-1] if heads else None, offer.tile, offer.table, verify_signature))
    return heads


def released_kinds(dsn: str, zone: str) -> list[tuple[int, str]]:
    """What was released for a zone, in the order of the log: interval and kind of its row."""
    log = PostgresLogStore(dsn)
    try:
        heads = checked_heads(log, log.shards_of([zone])[zone])
    finally:
        log.close()
    releases = [head for head in heads if head.tile.header.kind is TileKind.RELEASE]
    rows = ((head.interval, head.tile.rows[head.table.position[zone]]) for head in releases)
    return [(interval, RowKind(row["kind"]).name.lower()) for interval, row in rows]
