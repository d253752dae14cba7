"""A log in an object store is read as the same log in PostgreSQL is."""

import json
import os

import pytest
from tests.integration.log_reader.test_follower import FIRST, OTHER, ZONE, Reader
from tests.support.api_servers import plan_of
from tests.support.postgres_stores import ShardWriter
from tests.support.sample_shards import NEW_KEY, OLD_KEY

from murmurate.planning.release_terms import ReleaseTerms, compact_plan
from murmurate.publisher.desired_state import Change, PlanChange, ZoneOpening
from murmurate.service.log_reader import tile_source
from murmurate.service.log_reader.follower import Follower
from murmurate.service.log_reader.log_queries import LogReader
from murmurate.service.log_reader.object_log_reader import ObjectLogReader
from murmurate.service.log_reader.tile_source import ObjectTiles
from murmurate.service.storage.object_log import claim_name, document_name, tile_name
from murmurate.service.storage.object_store import FolderStore
from murmurate.service.storage.session import Session

RECENT_S = 20 * 900


def copy_log(dsn, store):
    """Put every row of a log in PostgreSQL into an object store, each tile with its time."""
    session = Session(dsn)
    with session.transaction() as connection:
        for digest, body in connection.execute("SELECT digest, body FROM public_log.document"):
            store.create(document_name(digest), body.encode())
        for zone, shard in connection.execute("SELECT zone, shard FROM public_log.claim"):
            body = json.dumps({"shard": shard, "zone": zone}, separators=(",", ":"), ensure_ascii=False)
            store.create(claim_name(zone), body.encode())
        query = "SELECT shard, seq, body, extract(epoch FROM taken)::float8 FROM public_log.tile"
        for shard, seq, body, taken_s in connection.execute(query):
            store.create(tile_name(shard, seq), bytes(body))
            os.utime(store.root / tile_name(shard, seq), (taken_s, taken_s))
    session.close()


class ObjectReader(Reader):
    """The same reader of a log in an object store."""

    def __init__(self, store):
        tables = Reader("postgresql://nobody@127.0.0.1:1/none")
        self.views = tables.views
        tables.close()
        self.follower, self.archive = Follower(ObjectTiles(store), RECENT_S), ObjectLogReader(store)
        self.views._load_terms = None


@pytest.fixture
def readers(log_dsn, tmp_path, monkeypatch):
    """Of one log with two zones, changes of plans, a rotation, a zone that came late and one that was closed."""
    monkeypatch.setattr(tile_source, "_POLL_S", 0.0)
    plans = {zone: plan_of(zone) for zone in (ZONE, OTHER)}
    writer, other_plan = ShardWriter(log_dsn, plans, first=FIRST), plan_of(ZONE, "EUR")
    writer.write(8, 400_000)
    before, after = writer.terms[ZONE], ReleaseTerms.from_json(other_plan)
    writer.log.publish_documents({after.plan_digest: compact_plan(other_plan)})
    writer._by_digest[after.plan_digest] = after
    there = PlanChange(before.plan_digest, after.plan_digest, after.currency, after.tick)
    back = PlanChange(after.plan_digest, before.plan_digest, before.currency, before.tick)
    writer.write(plan_changes={ZONE: there})
    writer.write(5)
    writer.write(key_change=Change(OLD_KEY.public_key, NEW_KEY.public_key))
    writer.write(plan_changes={ZONE: back})
    writer.write(6, 300_000)
    its = writer.terms[OTHER]
    writer.log.claim({"late": "quay"})
    writer.take(
        "late", plans[OTHER], ZoneOpening(plan=its.plan_digest, currency=its.currency, tick=its.tick, first=FIRST)
    )
    writer.write(40, 350_000)
    del writer.zones[OTHER]
    writer.write(closing=(OTHER,))
    writer.write(3, 300_000)
    store = FolderStore(tmp_path)
    copy_log(log_dsn, store)
    tables, objects = Reader(log_dsn), ObjectReader(store)
    tables.follower.close()
    tables.follower = Follower(log_dsn, RECENT_S)
    for reader in (tables, objects):
        reader.refresh()
        reader.backfill()
        assert not reader.follower.broken
    yield tables, objects
    for each in (*(tables, objects), writer):
        each.close()


def test_views_and_old_prices_are_the_same(readers):
    tables, objects = readers
    assert list(tables.views) == list(objects.views) == sorted([ZONE, OTHER, "late"])
    last = tables.views[ZONE].shard.last
    for zone in tables.views:
        ours, theirs = (reader.views[zone] for reader in (objects, tables))
        assert (ours.shard.first, ours.shard.last, ours.key) == (theirs.shard.first, theirs.shard.last, theirs.key)
        assert ours.shard.head.tile.hash == theirs.shard.head.tile.hash
        assert dict(ours.prices) == dict(theirs.prices)
        for begin, end in (
            (FIRST, last + 9),
            (FIRST - 50, FIRST + 3),
            (FIRST + 9, FIRST + 30),
            (last, last),
            (last + 9, last + 20),
        ):
            expected = tables.archive.read_prices(theirs, begin, end)
            assert objects.archive.read_prices(ours, begin, end) == expected
        assert zone == "late" or objects.archive.read_prices(ours, FIRST, FIRST + 20)


def test_keys_plans_tiles_and_lines_are_the_same(readers):
    tables, objects = readers
    assert isinstance(tables.archive, LogReader)
    ended = 0
    for zone in tables.views:
        ours, theirs = (reader.views[zone] for reader in (objects, tables))
        assert objects.archive.read_opening_key(ours) == tables.archive.read_opening_key(theirs)
        for first in range(FIRST - 2, FIRST + 40):
            expected = tables.archive.read_older_plans(theirs, first)
            assert objects.archive.read_older_plans(ours, first) == expected, first
            ended += len(expected)
        lines = [b"".join(reader.archive.read_log_chunks(reader.views[zone])) for reader in (objects, tables)]
        assert lines[0] == lines[1]
    assert ended > 10
    shard, seq = ours.shard.name, ours.shard.head.tile.header.seq
    for number in (0, 9, seq, seq + 1):
        assert objects.archive.read_tile(shard, number) == tables.archive.read_tile(shard, number)
    for digest in (ours.row.plan, ours.shard.table.digest, "f" * 64):
        assert objects.archive.read_document(digest) == tables.archive.read_document(digest)
    assert objects.archive.read_tile("nowhere", 0) is None
    objects.archive.require_whole_log(shard)
