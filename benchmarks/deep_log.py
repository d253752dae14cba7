"""Plans of many zones, and days of a log at once: real signed tiles, copied into both stores as a publisher does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from hashlib import sha256
from typing import Any

import numpy as np
import psycopg

from murmurate.planning.plan import make_plan
from murmurate.planning.release_terms import compact_plan
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.public_log.make_tile import open_shard, release_interval
from murmurate.public_log.signing import Signer
from murmurate.public_log.tile import NoiseCode, RowKind, Rows, row_dtype
from murmurate.public_log.tile_chain import ShardHead, check_follows
from murmurate.public_log.zone_table import ZoneTable
from murmurate.publisher.steps import Offer

BATCH = 20  # shards
INTERVAL_S = 900
_COPY_LOG = "COPY public_log.tile (shard, seq, interval, body) FROM STDIN BINARY"
_COPY_STATE = "COPY curator.tile (shard, seq, releases, seen, body) FROM STDIN BINARY"
_INSERT_DOCUMENT = "INSERT INTO {}.document VALUES (%s, %s) ON CONFLICT DO NOTHING"


@cache
def sample_plan(forecast: str = "") -> str:
    """Return the plan of the example zone. With a table [forecast] its prices are predicted."""
    return compact_plan(make_plan(parse_zone(EXAMPLE_ZONE_FILE + forecast)).to_json())


def own_plans(zones: list[str], forecast: str = "", plan: str = "") -> Iterator[tuple[str, str]]:
    """Yield a digest and a document for each zone: one proven plan with another name and scales of its own.

    The proven plan is `plan`, or that of the example zone.
    """
    document: dict[str, Any] = json.loads(plan or sample_plan(forecast))
    least = np.array(document["scale_wh"])
    rng = np.random.default_rng(1)
    pattern = document | {"zone": "@zone", "scale_wh": "@scales", "digest": "@digest"}
    before, member, after = compact_plan(json.dumps(pattern)).partition('"digest":"@digest",')
    for zone in zones:
        scales = json.dumps((least * rng.uniform(1, 2, len(least))).tolist(), separators=(",", ":"))
        start, end = (text.replace('"@scales"', scales).replace("@zone", zone) for text in (before, after))
        digest = sha256((start + end).encode()).hexdigest()
        yield digest, start + member.replace("@digest", digest) + end


class DeepLog:
    """A log that grows by whole intervals."""

    def __init__(
        self, tables: Mapping[str, ZoneTable], *, first: int, interval_s: int, lead: int, signer: Signer
    ) -> None:
        self._signer, self._rng = signer, np.random.default_rng(1)
        self.heads: dict[str, ShardHead] = {}
        self._opened = True
        for shard, table in tables.items():
            tile = open_shard(shard, table, interval=first - 1, interval_s=interval_s, lead=lead, signer=signer)
            self.heads[shard] = check_follows(None, tile, table)

    def fill(self, log_dsn: str, state_dsn: str | None, intervals: int) -> None:
        """Write the first tile of each shard, if it is not written yet, and the next intervals."""
        with psycopg.connect(log_dsn) as log, psycopg.connect(state_dsn or log_dsn) as state:
            stores = {"log": log} if state_dsn is None else {"log": log, "state": state}
            for head in self.heads.values():
                for store, schema in (("log", "public_log"), ("state", "curator")):
                    if store in stores:
                        document = (head.table.digest, head.table.text)
                        stores[store].execute(_INSERT_DOCUMENT.format(schema), document)
            if self._opened:
                _copy_tiles(stores, self.heads.values())
                self._opened = False
            for _ in range(intervals):
                self.next_offers()
                _copy_tiles(stores, self.heads.values())
            self._save_heads(stores)

    def next_offers(self) -> dict[str, Offer]:
        """The tile of the next interval of each shard. It must be written now."""
        for shard, head in self.heads.items():
            tile = release_interval(head, self._make_rows(len(head.table)), self._signer)
            self.heads[shard] = check_follows(head, tile, head.table)
        return {shard: Offer(head.tile, head.table) for shard, head in self.heads.items()}

    def _make_rows(self, count: int) -> Rows:
        rows = np.zeros(count, row_dtype())
        rows["kind"], rows["noise"], rows["scale_wh"], rows["core_wh"] = RowKind.MEASURED, NoiseCode.HUBER, 5e4, 50_000
        rows["epsilon_micro"], rows["price_ticks"] = 1000, self._rng.integers(5000, 20_000, count)
        return rows

    def _save_heads(self, stores: Mapping[str, psycopg.Connection]) -> None:
        for shard, head in self.heads.items():
            header = head.tile.header
            length = (header.interval, header.interval_s, header.lead)
            stores["log"].execute(
                """INSERT INTO public_log.head VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
                ON CONFLICT (shard) DO UPDATE SET seq = excluded.seq, hash = excluded.hash, interval = excluded.interval
                """,
                (shard, header.seq, head.tile.hash, header.key, header.table, *length),
            )
            if "state" in stores:
                stores["state"].execute("UPDATE curator.shard SET seq = %s WHERE shard = %s", (header.seq, shard))


def _copy_tiles(stores: Mapping[str, psycopg.Connection], heads: Iterable[ShardHead]) -> None:
    """Copy the last tile of each shard, and commit, as at each interval of a real log."""
    heads = list(heads)
    with stores["log"].cursor().copy(_COPY_LOG) as copy:
        copy.set_types(("text", "int8", "int8", "bytea"))
        for head in heads:
            header = head.tile.header
            copy.write_row((header.shard, header.seq, header.interval, head.tile.to_bytes()))
    stores["log"].commit()
    if "state" in stores:
        with stores["state"].cursor().copy(_COPY_STATE) as copy:
            copy.set_types(("text", "int8", "bool", "bool", "bytea"))
            for head in heads:
                header = head.tile.header
                copy.write_row((header.shard, header.seq, header.count > 0, True, head.tile.to_bytes()))
        stores["state"].commit()
