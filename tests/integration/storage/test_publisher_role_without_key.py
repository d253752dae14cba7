"""What the publisher's database role can do without a signing key: nothing that lasts. The owner has a remedy."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from hashlib import sha256

import numpy as np
import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from tests.support.postgres_cluster import clusters
from tests.support.postgres_stores import SHARDS, Stores
from tests.support.sample_shards import FIRST, KEY_CHANGE, OLD_KEY, digest_of

from murmurate.commands.init import prepare_databases
from murmurate.commands.repair import repair_log
from murmurate.errors import MurmurateError
from murmurate.public_log.make_tile import change_key, change_zones, open_shard, release_interval
from murmurate.public_log.signing import Ed25519Signer
from murmurate.public_log.tile import GENESIS_PREV, row_dtype
from murmurate.public_log.tile_chain import check_follows
from murmurate.public_log.zone_table import ZoneRow, ZoneTable
from murmurate.publisher.desired_state import Change
from murmurate.publisher.protocol import BlockedCode
from murmurate.service.log_reader import follower
from murmurate.service.log_reader.follower import Follower
from murmurate.service.storage.databases import Databases
from murmurate.service.storage.migrate import migrate_database
from murmurate.service.storage.public_log_store import PostgresLogStore

pytestmark = [pytest.mark.postgres_programs, pytest.mark.slow]

SHARD, OTHER = "shard 0", "shard 1"
THIEF_KEY = Ed25519Signer(bytes([7]) * 32)


class NoKey:
    """Signs with nothing."""

    public_key = OLD_KEY.public_key

    @staticmethod
    def sign(_):
        return "00" * 64


@pytest.fixture(scope="module")
def dsns():
    """A state and a log on servers of their own, with the roles of a service and a login that may publish."""
    with clusters() as room:
        found = {store: room.new(store).start().dsn for store in ("state", "log")}
        prepare_databases(Databases.from_dsns(**found), with_roles=True)
        with psycopg.connect(found["log"]) as connection:
            connection.execute("CREATE ROLE thief LOGIN IN ROLE murmurate_publisher")
        yield found


@pytest.fixture
def stores(dsns):
    """Shards that have released an interval."""
    for store, schemas in (("state", "curator, confidential, access"), ("log", "public_log")):
        with psycopg.connect(dsns[store]) as connection:
            for schema in ("murmurate", *schemas.split(", ")):
                connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        migrate_database(dsns[store], store)
    made = Stores(dsns["state"], dsns["log"])
    made.store_demand(FIRST)
    assert made.publish(FIRST).blocked == {}
    yield made
    made.close()


def as_thief(stores):
    return psycopg.connect(stores.log_dsn, user="thief", autocommit=True)


def append(stores, *tiles):
    """Append tiles with the role of the publisher. Returns the shards whose tiles were taken."""
    with as_thief(stores) as connection:
        bodies = [tile if isinstance(tile, bytes) else tile.to_bytes() for tile in tiles]
        return [shard for (shard,) in connection.execute("SELECT public_log.append(%s::bytea[])", (bodies,))]


def claim(stores, **claims):
    with closing(PostgresLogStore(make_conninfo(stores.log_dsn, user="thief"))) as log:
        return log.claim(claims)


def repair(stores, **options):
    return repair_log(stores.state_dsn, stores.log_dsn, **options)


def query(dsn, text, *parameters):
    with psycopg.connect(dsn) as connection:
        return connection.execute(text, parameters).fetchall()


def some_rows(count):
    rows = np.zeros(count, row_dtype())
    rows["kind"] = 3
    return rows


def unsigned_tile(head, kind):
    """A tile that the log takes after a head, without a signature of the key."""
    if kind == "key":
        return change_key(head, THIEF_KEY.public_key, NoKey)
    if kind == "zones":
        return change_zones(head, head.table, NoKey)
    if kind == "release":
        return release_interval(head, some_rows(len(head.table)), NoKey)
    return release_interval(head, some_rows(len(head.table)), NoKey).to_bytes()[:-1]  # unreadable


def mirrored(stores, shard):
    return query(stores.state_dsn, "SELECT seq FROM curator.tile WHERE shard = %s AND seen ORDER BY seq", shard)


def test_a_document_is_taken_only_under_its_own_digest(stores):
    insert = "INSERT INTO public_log.document VALUES (%s, %s)"
    with as_thief(stores) as connection:
        for digest, body in (("a" * 64, "garbage"), ("a" * 64, f'{{"digest":"{"a" * 64}","x":1}}'), ("", "")):
            with pytest.raises(psycopg.errors.CheckViolation):
                connection.execute(insert, (digest, body))
        long = "x" * (2**24 + 1)
        with pytest.raises(psycopg.errors.CheckViolation):
            connection.execute(insert, (sha256(long.encode()).hexdigest(), long))
        connection.execute(insert, (sha256("Zürich".encode()).hexdigest(), "Zürich"))
        bare = sha256(b'{"x":1}').hexdigest()
        connection.execute(insert, (bare, f'{{"digest":"{bare}","x":1}}'))  # as a plan names its own digest


def test_documents_of_an_earlier_version_that_are_not_what_they_say_are_set_aside_and_published_again(stores, capsys):
    right = query(stores.log_dsn, "SELECT body FROM public_log.document WHERE digest = %s", digest_of("a"))
    stores.state.register_plans({digest_of("a"): right[0][0]})
    with psycopg.connect(stores.log_dsn) as connection:
        connection.execute("ALTER TABLE public_log.document DROP CONSTRAINT is_digest, DROP CONSTRAINT is_small")
        connection.execute("DROP TABLE public_log.evidence")
        connection.execute("DELETE FROM murmurate.migration WHERE name LIKE '0002%'")
        connection.execute("ALTER TABLE public_log.document DISABLE TRIGGER append_only")
        connection.execute("UPDATE public_log.document SET body = 'garbage' WHERE digest = %s", (digest_of("a"),))
        connection.execute("ALTER TABLE public_log.document ENABLE TRIGGER append_only")
    assert repair(stores) == 0
    assert "1 documents were not what their digest says" in capsys.readouterr().out
    found = query(stores.log_dsn, "SELECT body FROM public_log.document WHERE digest = %s", digest_of("a"))
    assert found == right
    assert query(stores.log_dsn, "SELECT kind, name, body FROM public_log.evidence") == [
        ("document", digest_of("a"), b"garbage")
    ]


@pytest.mark.parametrize("kind", ["key", "zones", "release", "unreadable"])
def test_tiles_without_a_signature_are_named_and_set_aside_and_the_shard_goes_on(stores, kind, capsys, monkeypatch):
    monkeypatch.setattr(follower, "BROKEN_RETRY_S", 0.0)
    with ExitStack() as stack:
        reader = stack.enter_context(closing(Follower(stores.log_dsn)))
        list(reader.refresh())
        before = stores.bodies()
        forged = unsigned_tile(stores.heads(SHARD)[-1], kind)
        assert append(stores, forged) == [SHARD]
        list(reader.refresh())
        assert list(reader.broken) == [SHARD]
        assert "tile 2" in reader.broken[SHARD]

        stores.store_demand(FIRST + 1)
        outcome = stores.publish(FIRST + 1)
        assert outcome.blocked[SHARD].code is BlockedCode.LOG_INVALID
        assert "log is not valid from tile 2 on" in outcome.blocked[SHARD].text
        assert outcome.up_to_date == set(SHARDS) - {SHARD}
        assert mirrored(stores, SHARD) == [(0,), (1,)]

        capsys.readouterr()
        assert repair(stores) == 1
        printed = capsys.readouterr().out
        assert f"{SHARD}: no reader accepts tile 2: " in printed
        assert "murmurate log repair --set-aside" in printed
        with pytest.raises(MurmurateError, match="run the command as the owner"):
            repair_log(stores.state_dsn, make_conninfo(stores.log_dsn, user="thief"), set_aside=True)
        assert query(stores.log_dsn, "SELECT count(*) FROM public_log.evidence") == [(0,)]

        assert repair(stores, set_aside=True) == 0
        assert f"{SHARD}: tile 2 set aside as evidence. The shard continues after tile 1." in capsys.readouterr().out
        kept = query(stores.log_dsn, "SELECT kind, shard, seq, body, taken < set_aside FROM public_log.evidence")
        body = forged if isinstance(forged, bytes) else forged.to_bytes()
        assert kept == [("tile", SHARD, 2, body, True)]
        assert stores.bodies()[SHARD] == before[SHARD]
        with pytest.raises(psycopg.errors.RaiseException, match="append-only"):
            query(stores.log_dsn, "DELETE FROM public_log.tile")

        assert stores.publish(FIRST + 2).blocked == {}
        assert stores.intervals(SHARD) == [FIRST, FIRST + 1, FIRST + 2]
        list(reader.refresh())
        assert reader.broken == {}
        assert {view.name: view.last for view in reader.views()}[SHARD] == FIRST + 2
        assert repair(stores) == 0


def test_an_unsigned_opening_is_set_aside_and_the_shard_can_be_opened(stores):
    table = ZoneTable.from_rows([ZoneRow("quay", digest_of("a"), "EUR", "1/100000", FIRST)])
    stores.log.publish_documents({table.digest: table.text})
    claim(stores, quay="new")
    forged = open_shard("new", table, interval=FIRST - 1, interval_s=900, lead=5, signer=NoKey)
    assert append(stores, forged) == ["new"]
    assert repair(stores) == 1
    assert repair(stores, set_aside=True, unclaim=None) == 1  # the claim is left
    assert query(stores.log_dsn, "SELECT seq, hash FROM public_log.head WHERE shard = 'new'") == [(-1, GENESIS_PREV)]
    honest = open_shard("new", table, interval=FIRST - 1, interval_s=21_600, lead=2, signer=OLD_KEY)
    assert append(stores, honest) == ["new"]
    assert repair(stores) == 0


def test_what_a_refused_opening_leaves_behind_does_not_keep_a_shard_from_opening(stores):
    table = ZoneTable.from_rows([ZoneRow("quay", digest_of("a"), "EUR", "1/100000", FIRST)])
    forged = open_shard("new", table, interval=5, interval_s=60, lead=1, signer=THIEF_KEY)
    assert append(stores, forged) == []  # its zone is not claimed, its table not published
    stores.log.publish_documents({table.digest: table.text})
    stores.log.claim({"quay": "new"})
    honest = open_shard("new", table, interval=FIRST - 1, interval_s=21_600, lead=2, signer=OLD_KEY)
    assert append(stores, honest) == ["new"]
    members = query(stores.log_dsn, "SELECT key, interval_s, lead FROM public_log.head WHERE shard = 'new'")
    assert members == [(OLD_KEY.public_key, 21_600, 2)]


def test_a_chain_that_goes_on_after_a_forged_key_is_set_aside_as_a_whole(stores):
    """The thief's tiles follow each other and are signed, by a key that the key in force has not named."""
    forge_chain(stores, releases=2)
    assert repair(stores, set_aside=True) == 0
    assert query(stores.log_dsn, "SELECT seq FROM public_log.evidence ORDER BY seq") == [(2,), (3,), (4,)]
    assert stores.publish(FIRST + 1).blocked == {}


def test_a_reader_that_starts_late_does_not_accept_a_key_that_the_key_before_has_not_named(stores):
    """It reads the last tiles alone. They follow each other, and the key that they name has signed them."""
    forge_chain(stores, releases=6)
    with closing(Follower(stores.log_dsn)) as reader:
        assert SHARD not in {change.view.name for change in reader.refresh()}
        assert "signature is of tile 2" in reader.broken[SHARD]


def test_a_reader_that_starts_late_follows_the_rotations_of_a_shard(stores):
    for number, change in enumerate((KEY_CHANGE, Change(KEY_CHANGE.after, KEY_CHANGE.before), KEY_CHANGE), 1):
        assert stores.publish(FIRST + 5 * number, key_change=change).blocked == {}
    with closing(Follower(stores.log_dsn)) as reader:
        views = {change.view.name: change.view for change in reader.refresh()}
    assert set(views) == set(SHARDS)
    assert views[SHARD].opening_key == KEY_CHANGE.before
    assert views[SHARD].head.tile.key_in_force == KEY_CHANGE.after


def damaged(tile):
    """The header that the key has signed, with other rows."""
    rows = tile.rows.copy()
    rows["price_ticks"] += 1
    return replace(tile, rows=rows)


def test_a_header_that_the_key_has_signed_is_not_set_aside_unless_the_state_holds_its_tile(stores, capsys):
    """Its price may be public: another draw in its place would be a second value."""
    head = stores.heads(SHARD)[-1]
    honest = release_interval(head, some_rows(len(head.table)), OLD_KEY)
    assert append(stores, damaged(honest)) == [SHARD]
    assert repair(stores, set_aside=True) == 1
    assert "not set aside: tile is 2: has a header that the key has signed" in capsys.readouterr().out
    assert query(stores.log_dsn, "SELECT count(*) FROM public_log.evidence") == [(0,)]
    with psycopg.connect(stores.state_dsn) as connection:
        insert = "INSERT INTO curator.tile (shard, seq, releases, seen, body) VALUES (%s, 2, true, false, %s)"
        connection.execute(insert, (SHARD, honest.to_bytes()))
    assert repair(stores, set_aside=True) == 0
    assert stores.publish(FIRST + 1).blocked == {}
    assert stores.heads(SHARD)[2].tile.to_bytes() == honest.to_bytes()  # the pending one, and no other draw


def test_a_valid_tile_is_never_set_aside(stores, capsys):
    """Another state has published in the place of a tile that was seen. Both are signed."""
    tile = stores.heads(SHARD)[1].tile
    set_log_back(stores, 0)
    other = release_interval(stores.heads(SHARD)[0], some_rows(len(tile.rows)), OLD_KEY)
    assert append(stores, other) == [SHARD]
    assert append(stores, release_interval(stores.heads(SHARD)[-1], some_rows(len(tile.rows)), NoKey)) == [SHARD]
    assert repair(stores, set_aside=True) == 1
    assert "the two headers prove that two values were published" in capsys.readouterr().out
    assert query(stores.log_dsn, "SELECT count(*) FROM public_log.evidence") == [(0,)]


def test_a_forged_tile_in_the_place_of_one_that_was_lost_is_set_aside_and_the_lost_ones_are_restored(stores, capsys):
    stores.publish(FIRST + 3)
    before = stores.bodies()[SHARD]
    set_log_back(stores, 1)
    assert append(stores, unsigned_tile(stores.heads(SHARD)[-1], "release")) == [SHARD]
    assert repair(stores, set_aside=True) == 0
    assert "3 tiles restored to the log." in capsys.readouterr().out
    assert stores.bodies()[SHARD] == before


def test_a_claim_without_a_zone_is_named_and_set_aside(stores, capsys):
    assert claim(stores, quay="nowhere", mole=SHARD) == {"quay": "nowhere", "mole": SHARD}
    assert repair(stores) == 1
    printed = capsys.readouterr().out
    assert "zone quay is claimed for shard nowhere, which has never had it." in printed
    assert "murmurate log repair --unclaim ZONE" in printed
    with pytest.raises(MurmurateError, match="run the command as the owner"):
        repair_log(stores.state_dsn, make_conninfo(stores.log_dsn, user="thief"), unclaim="quay")
    for zone in ("quay", "mole"):
        repair(stores, unclaim=zone)
    assert repair(stores) == 0
    assert claim(stores, quay=SHARD) == {"quay": SHARD}
    kept = query(stores.log_dsn, "SELECT kind, name, shard FROM public_log.evidence ORDER BY name")
    assert kept == [("claim", "mole", SHARD), ("claim", "quay", "nowhere")]


def test_the_claim_of_a_zone_that_has_a_shard_stays(stores):
    with pytest.raises(MurmurateError, match="its claim is right"):
        repair(stores, unclaim="zone 0a")
    with psycopg.connect(stores.state_dsn) as connection:
        connection.execute("DELETE FROM curator.zone")
    with pytest.raises(MurmurateError, match="is in the shard that has claimed it"):
        repair(stores, unclaim="zone 0a")


def set_log_back(stores, seq):
    """Restore an old backup of the log: the tiles of a shard after a number are lost."""
    stores.log.close()
    head = stores.heads(SHARD)[seq]
    with psycopg.connect(stores.log_dsn) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("DELETE FROM public_log.tile WHERE shard = %s AND seq > %s", (SHARD, seq))
        set_head = "UPDATE public_log.head SET seq = %s, hash = %s, interval = %s WHERE shard = %s"
        connection.execute(set_head, (seq, head.tile.hash, head.interval, SHARD))


def forge_chain(stores, releases):
    """Append a key tile without a signature, and releases that are signed by the key that it names."""
    head = stores.heads(SHARD)[-1]
    tile = change_key(head, THIEF_KEY.public_key, NoKey)
    assert append(stores, tile) == [SHARD]
    for _ in range(releases):
        head = check_follows(head, tile, head.table)
        tile = release_interval(head, some_rows(len(head.table)), THIEF_KEY)
        assert append(stores, tile) == [SHARD]
