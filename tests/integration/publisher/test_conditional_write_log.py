"""A log needs no more than a conditional write: here a folder in which a file is created only where none exists."""

import os
import threading
from pathlib import Path
from secrets import token_hex
from urllib.parse import quote

from tests.support.sample_shards import FIRST, OPENING, PLANS, desire, make_demand, make_writer, open_zone

from murmurate.errors import ChainError
from murmurate.public_log.signing import verify_signature
from murmurate.public_log.tile import GENESIS_PREV, RowKind, TileKind, parse_tile
from murmurate.public_log.tile_chain import check_header, check_next
from murmurate.public_log.zone_table import ZoneTable
from murmurate.publisher.steps import LogTail, Offer
from murmurate.service.storage.state_store import PostgresStateStore
from murmurate.service.worker.publisher_context import Publisher

SHARDS = {"quay": ("harbour", "hill/mill"), "a/b": ("island",)}
ZONES = [zone for zones in SHARDS.values() for zone in zones]


class FolderStore:
    """Keys that are created once (`If-None-Match: *`): what an object store with conditional writes offers."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def _place(self, key):
        return self.folder / quote(key, safe="/%")

    def get(self, key):
        try:
            return self._place(key).read_bytes()
        except FileNotFoundError:
            return None

    def create(self, key, data):
        """Create an object unless the key exists. Return whether it was created."""
        place = self._place(key)
        place.parent.mkdir(parents=True, exist_ok=True)
        fresh = place.parent / f".{token_hex(8)}"
        fresh.write_bytes(data)
        try:
            os.link(fresh, place)
        except FileExistsError:
            return False
        finally:
            fresh.unlink()
        return True


class ObjectLog:
    """`documents/<digest>`, `claims/<zone>/<number>` and `tiles/<shard>/<seq>`, each created once."""

    def __init__(self, objects):
        self.objects = objects
        self.taken = []  # what each append has created

    @staticmethod
    def _key(kind, name, number):
        return f"{kind}/{quote(name, safe='')}/{number:012d}"

    def _offer(self, shard, seq):
        body = self.objects.get(self._key("tiles", shard, seq))
        if body is None:
            return None
        tile = parse_tile(body)
        return Offer(tile, ZoneTable.from_json(self.objects.get(f"documents/{tile.header.table}").decode()))

    def read(self, after_seq):
        found = {}
        for shard, seq in after_seq.items():
            tiles = []
            while (offer := self._offer(shard, seq + 1 + len(tiles))) is not None:
                tiles.append(offer)
            last = tiles[-1] if tiles else self._offer(shard, seq)
            last_hash = GENESIS_PREV if last is None else last.tile.hash
            found[shard] = LogTail(seq + len(tiles), tuple(tiles), last_hash)
        return found

    def _holder(self, zone):
        return self.objects.get(f"claims/{quote(zone, safe='')}").decode()

    def claim(self, claims):
        for zone, shard in claims.items():
            self.objects.create(f"claims/{quote(zone, safe='')}", shard.encode())
        return {zone: self._holder(zone) for zone in claims}

    def append(self, offers):
        for shard, (tile, table) in offers.items():
            self.objects.create(f"documents/{table.digest}", table.text.encode())
            try:
                self._check(shard, tile, table)
            except ChainError:
                continue
            if self.objects.create(self._key("tiles", shard, tile.header.seq), tile.to_bytes()):
                self.taken.append((shard, tile.header.seq))

    def _check(self, shard, tile, table):
        """What PostgreSQL checks: the header follows, and each zone is claimed."""
        before = self._offer(shard, tile.header.seq - 1)
        check_header(before, tile, table)
        if tile.header.kind in {TileKind.OPEN, TileKind.ZONES}:
            for row in table.rows:
                if self._holder(row.zone) != shard:
                    raise ChainError("zone", row.zone, "is claimed by another shard")


def publish_together(publishers, desired):
    """Publish with each publisher in a thread of its own. Return the outcomes."""
    outcomes = [None] * len(publishers)

    def publish(number):
        outcomes[number] = publishers[number].publish(desired[number], timeout_s=60)

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(len(publishers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def make_publisher(state, log):
    write = make_writer().write_tiles
    return Publisher(state=state, log=log, write_tiles=write, wait_for_slot=lambda: None, pause_s=0.01)


def check_chain(log, shard):
    """Every link and signature of a shard; its heads."""
    head, heads = None, []
    for offer in log.read({shard: -1})[shard].tiles:
        head = check_next(head, *offer, verify_signature)
        heads.append(head)
    return heads


def test_publishers_on_an_object_store_make_one_chain(state_dsn, tmp_path):
    logs = [ObjectLog(FolderStore(tmp_path)) for _ in range(3)]
    for plan in PLANS:
        logs[0].objects.create(f"documents/{plan}", b"{}")
    states = [PostgresStateStore(state_dsn) for _ in range(3)]
    zones = {zone: (shard, open_zone()) for shard, names in SHARDS.items() for zone in names}
    states[0].store_openings(dict.fromkeys(SHARDS, OPENING), zones)
    for n in range(20):
        states[0].store_demand(FIRST + n, make_demand(**dict.fromkeys(ZONES, 500_000)))
    desired = {shard: desire(FIRST + 19, names) for shard, names in SHARDS.items()}
    outcomes = publish_together([make_publisher(*pair) for pair in zip(states, logs, strict=True)], [desired] * 3)
    for state in states:
        state.rollback()
    assert all(outcome.up_to_date == set(SHARDS) for outcome in outcomes)
    taken = [each for log in logs for each in log.taken]
    assert sorted(taken) == sorted((shard, seq) for shard in SHARDS for seq in range(21))
    for shard in SHARDS:
        heads = check_chain(logs[0], shard)
        assert [head.interval for head in heads] == list(range(FIRST - 1, FIRST + 20))
        assert all((head.tile.rows["kind"] == RowKind.MEASURED).all() for head in heads[1:])


def test_two_states_cannot_open_one_zone_in_two_shards(state_dsn, tmp_path):
    """The claim is the only thing that two shards share: it is created once."""
    states = [PostgresStateStore(state_dsn) for _ in range(2)]
    names = ("one", "two")
    states[0].store_openings(dict.fromkeys(names, OPENING), {})
    log = ObjectLog(FolderStore(tmp_path))
    for n in range(20):
        zone = f"zone {n}"
        desired = [{name: desire(FIRST - 1, (zone, f"{name} {n}"))} for name in names]
        publish_together([make_publisher(state, ObjectLog(log.objects)) for state in states], desired)
        holders = [name for name in names if zone in check_chain(log, name)[-1].table.zones]
        assert holders == [log.claim({zone: "nobody"})[zone]]
    for state in states:
        state.rollback()
