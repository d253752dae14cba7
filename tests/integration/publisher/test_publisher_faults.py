"""What goes wrong around a publisher: one shard is blocked, the others go on, and nothing is sent twice."""

import random
import time
from dataclasses import replace

import psycopg
import pytest
from tests.support.databases import SERVER, database
from tests.support.postgres_stores import SHARDS, ZONES, desired
from tests.support.sample_shards import (
    FIRST,
    OLD_KEY,
    PLANS,
    change_plan,
    desire,
    digest_of,
    make_writer,
    next_offer,
    open_zone,
    sample_heads,
)

from murmurate.errors import MurmurateError
from murmurate.privacy.noise import SeededNoise
from murmurate.public_log.signing import verify_signature
from murmurate.public_log.tile import RowKind, parse_tile, sign_tile
from murmurate.publisher.protocol import BlockedCode, publish_round
from murmurate.publisher.steps import LockShards, Offer, ReadLog, drive_steps, perform_step
from murmurate.service.clock import ReleaseSlotClock
from murmurate.service.storage import public_log_store
from murmurate.service.storage.migrate import migrate_database
from murmurate.service.storage.public_log_store import PostgresLogStore
from murmurate.service.storage.session import Session

SHARD, *OTHERS = SHARDS
PENDING = "SELECT shard, body FROM curator.tile WHERE NOT seen"


def write_over(dsn, statement, *parameters):
    """Write into a log as only a superuser can."""
    with psycopg.connect(dsn) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(statement, parameters)


def forged_release(head, price_ticks):
    """A signed tile with another price than the one that was released, in its place."""
    rows = head.tile.rows.copy()
    rows["price_ticks"] = price_ticks
    return sign_tile(replace(head.tile.header, root="f" * 64), OLD_KEY, rows)


def publish_patiently(publisher, states, expected):
    """Publish where one shard never becomes free, with the shortest time limit that suffices on this machine."""
    for timeout_s in (1.0, 4.0, 16.0, 64.0):
        outcome = publisher.publish(states, timeout_s=timeout_s)
        if outcome.up_to_date >= expected:
            break
    return outcome


def run_until(machine, publisher, step_name):
    """Perform the steps of a round up to, and without, the one of this name."""
    step = next(machine)
    while type(step).__name__ != step_name:
        step = machine.send(perform_step(step, publisher.state, publisher.log, lambda: None))
    return step


def test_a_locked_shard_is_passed_over_and_does_not_hold_the_others(stores):
    other = stores.new_state()
    assert set(other.lock([SHARD])) == {SHARD}
    outcome = publish_patiently(stores.publisher(batch_size=100), desired(FIRST), set(OTHERS))
    assert outcome.up_to_date == set(OTHERS)
    assert outcome.unfinished == {SHARD}
    other.rollback()
    assert stores.publish(FIRST).up_to_date == set(SHARDS)


def test_a_shard_that_needs_an_operator_is_blocked_with_the_reason_and_the_others_go_on(stores):
    stores.publish(FIRST)
    stray = forged_release(stores.heads(SHARD)[-1], 1)
    stray = sign_tile(replace(stray.header, seq=2, interval=FIRST), OLD_KEY, stray.rows)
    write_over(
        stores.log_dsn,
        "INSERT INTO public_log.tile (shard, seq, interval, body) VALUES (%s, 2, %s, %s)",
        SHARD,
        FIRST,
        stray.to_bytes(),
    )
    write_over(stores.log_dsn, "UPDATE public_log.head SET seq = 2, hash = %s WHERE shard = %s", stray.hash, SHARD)
    outcome = stores.publish(FIRST + 1)
    assert outcome.up_to_date == set(OTHERS)
    assert outcome.blocked[SHARD].code is BlockedCode.LOG_INVALID
    assert "must be" in outcome.blocked[SHARD].text


@pytest.mark.parametrize("body", [b"scribble", b"{}\n", b"\xff\n"])
def test_a_tile_of_the_log_that_cannot_be_read_blocks_its_shard(stores, body):
    stores.publish(FIRST + 1)
    with psycopg.connect(stores.state_dsn) as connection:
        connection.execute("DELETE FROM curator.tile WHERE seq = 2")
        connection.execute("UPDATE curator.shard SET seq = 1")
    write_over(stores.log_dsn, "UPDATE public_log.tile SET body = %s WHERE shard = %s AND seq = 2", body, SHARD)
    outcome = stores.publish(FIRST + 2)
    assert outcome.up_to_date == set(OTHERS)
    assert outcome.blocked[SHARD].code is BlockedCode.LOG_INVALID


def test_a_zone_table_that_the_log_has_lost_blocks_the_shards_that_need_it(stores):
    stores.publish(FIRST)
    with psycopg.connect(stores.state_dsn) as connection:
        connection.execute("DELETE FROM curator.tile")
        connection.execute("UPDATE curator.shard SET seq = -1")
    digest = stores.heads(SHARD)[-1].table.digest
    write_over(stores.log_dsn, "DELETE FROM public_log.document WHERE digest = %s", digest)
    outcome = stores.publish(FIRST + 1)
    assert outcome.up_to_date == set(OTHERS)
    assert outcome.blocked[SHARD].code is BlockedCode.LOG_INVALID
    assert "is not in the log" in outcome.blocked[SHARD].text


def test_a_log_that_lost_entries_is_noticed(stores):
    stores.publish(FIRST + 1)
    write_over(stores.log_dsn, "DELETE FROM public_log.tile WHERE seq > 1")
    write_over(stores.log_dsn, "UPDATE public_log.head SET seq = 1")
    outcome = stores.publish(FIRST + 2)
    assert set(outcome.blocked) == set(SHARDS)
    assert outcome.blocked[SHARD].code is BlockedCode.LOG_LOST_ENTRIES
    assert "has lost tiles up to 2: repair it first" in outcome.blocked[SHARD].text


def test_a_long_absence_is_caught_up_piece_by_piece(stores, monkeypatch):
    """A state that knows nothing drafts nothing until it has read the whole log."""
    stores.store_demand(FIRST)
    stores.publish(FIRST + 6)
    before = stores.bodies()
    with psycopg.connect(stores.state_dsn) as connection:
        connection.execute("DELETE FROM curator.tile")
        connection.execute("UPDATE curator.shard SET seq = -1")
    read_all = PostgresLogStore.read
    monkeypatch.setattr(PostgresLogStore, "read", lambda self, after_seq: read_all(self, after_seq, 2))
    assert stores.publish(FIRST + 6).up_to_date == set(SHARDS)
    monkeypatch.undo()
    assert stores.bodies() == before
    assert public_log_store.MAX_TILES_PER_READ > 2


def test_a_failing_log_is_waited_for(stores):
    """A failure is reported by its name alone and tried again."""

    class Moody:
        def __init__(self, log):
            self.log, self.rng = log, random.Random(1)  # noqa: S311

        def _mood(self):
            if self.rng.random() < 0.5:
                raise psycopg.OperationalError("quotes a row")

        def read(self, after_seq):
            self._mood()
            return self.log.read(after_seq)

        def claim(self, claims):
            newest = self.log.claim(claims)
            self._mood()
            return newest

        def append(self, offers):
            self.log.append(offers)
            self._mood()

    failures = []
    publisher = stores.publisher(log=Moody(stores.log))
    assert publisher.publish(desired(FIRST + 1), timeout_s=60, on_failure=failures.append).up_to_date == set(SHARDS)
    assert set(failures) == {"OperationalError"}


def test_what_was_saved_is_sent_again_and_never_drawn_again(stores):
    """The publisher dies between saving and sending; the next one sends the same bytes."""
    stores.store_demand(FIRST)
    publisher = stores.publisher()
    publisher.publish(desired(FIRST - 1), timeout_s=60)
    run_until(publish_round(desired(FIRST), publisher.write_tiles, verify_signature), publisher, "WaitForSlot")
    with psycopg.connect(stores.state_dsn) as connection:
        saved = dict(connection.execute(PENDING).fetchall())
    assert set(saved) == set(SHARDS)
    stores.store_demand(FIRST, 1)
    stores.publish(FIRST)
    assert {shard: bodies[-1] for shard, bodies in stores.bodies().items()} == saved
    with psycopg.connect(stores.state_dsn) as connection:
        assert connection.execute(PENDING).fetchall() == []


def test_a_pending_tile_that_another_publisher_has_replaced_is_read_again(stores):
    """A publisher keeps its pending tile in memory. While it was away the tile was dropped, and another was sent."""
    stores.store_demand(FIRST + 1)
    one, two = stores.publisher(), stores.publisher()
    one.publish(desired(FIRST - 1), timeout_s=60)
    run_until(publish_round(desired(FIRST), one.write_tiles, verify_signature), one, "WaitForSlot")
    foreign = next_offer(stores.heads(SHARD)[-1], desire(FIRST, SHARDS[SHARD], priced_from=FIRST + 1), shard=SHARD)
    stores.log.append({SHARD: foreign})
    just = {SHARD: desire(FIRST + 1, SHARDS[SHARD])}
    run_until(publish_round(just, two.write_tiles, verify_signature), two, "WaitForSlot")
    with psycopg.connect(stores.state_dsn) as connection:
        saved = dict(connection.execute(PENDING).fetchall())[SHARD]
    assert parse_tile(saved).header.interval == FIRST + 1
    assert one.publish(just, timeout_s=60).up_to_date == {SHARD}
    assert stores.bodies()[SHARD][-1] == saved


def test_a_pending_tile_of_the_same_number_is_read_again(stores):
    """A backup was restored while a publisher went on: what the state says now counts, not what was kept in memory."""
    stores.store_demand(FIRST)
    publisher = stores.publisher()
    publisher.publish(desired(FIRST - 1), timeout_s=60)
    run_until(publish_round(desired(FIRST), publisher.write_tiles, verify_signature), publisher, "WaitForSlot")
    other = next_offer(stores.heads(SHARD)[-1], desire(FIRST, SHARDS[SHARD]), shard=SHARD).tile.to_bytes()
    with psycopg.connect(stores.state_dsn) as connection:
        connection.execute("UPDATE curator.tile SET body = %s WHERE shard = %s AND NOT seen", (other, SHARD))
    publisher.publish(desired(FIRST), timeout_s=60)
    assert stores.bodies()[SHARD][-1] == other


def test_a_lock_shows_what_was_committed_just_before_it(stores):
    """Two states in turn: neither sees an older head than the other has saved."""
    one, two = stores.new_state(), stores.new_state()
    publishers = [stores.publisher(state=state) for state in (one, two)]
    for n in range(6):
        publishers[n % 2].publish(desired(FIRST + n), timeout_s=60)
    for shard in SHARDS:
        assert stores.intervals(shard) == list(range(FIRST, FIRST + 6))


def test_a_driver_that_fails_rolls_back(stores):
    class Broken(PostgresLogStore):
        def read(self, after_seq):
            raise OSError(len(after_seq))

    state = stores.new_state()
    with pytest.raises(OSError):
        drive_steps(
            publish_round(desired(FIRST), make_writer().write_tiles, verify_signature),
            state,
            Broken(stores.log_dsn),
            lambda: None,
        )
    assert set(stores.new_state().lock(SHARDS)) == set(SHARDS)


def test_the_first_steps_are_lock_and_read():
    machine = publish_round(desired(FIRST), make_writer().write_tiles, verify_signature)
    assert next(machine) == LockShards(tuple(SHARDS))
    assert machine.send({}) == ReadLog({})


@pytest.mark.parametrize("since_slot_s", [0.001, 0.01, 0.03, 0.0374, 0.04, 0.0499])
def test_a_release_waits_for_a_slot_and_its_last_sleep_has_always_the_same_length(since_slot_s, monkeypatch):
    clock = [1_794_658_500 + since_slot_s]
    slept = []

    def sleep(duration_s):
        slept.append(duration_s)
        clock[0] += duration_s

    monkeypatch.setattr(time, "time", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", sleep)
    ReleaseSlotClock(release_slot_s=0.05).wait_for_slot()
    slot = 1 if since_slot_s + 0.0125 < 0.05 else 2
    assert clock[0] == pytest.approx(1_794_658_500 + 0.05 * slot, abs=1e-6)
    assert slept[-1] == pytest.approx(0.0125, abs=1e-6)


def test_no_tile_leaves_before_its_release_slot():
    clock = ReleaseSlotClock(release_slot_s=0.05)
    for pause in (0.0, 0.01, 0.03):
        time.sleep(pause)
        slot = time.time() // 0.05
        clock.wait_for_slot()
        assert time.time() // 0.05 > slot


def test_a_chain_with_every_kind_of_tile_is_taken_by_the_server_tile_by_tile(stores):
    """The rules in SQL take what the rules in Python take: every kind of tile and row."""
    heads = sample_heads()
    stores.log.claim(dict.fromkeys(heads[-1].table.zones, "north"))
    for head in heads:
        before = stores.log.read({"north": -1})["north"].last_seq
        stores.log.append({"north": Offer(head.tile, head.table)})
        assert stores.log.read({"north": -1})["north"].last_seq == before + 1, head.tile.header
    kinds = {int(kind) for head in heads for kind in head.tile.rows["kind"]}
    assert kinds == {RowKind.MEASURED, RowKind.FALLBACK, RowKind.WITHHELD}


def test_a_damaged_state_blocks_one_shard(stores):
    stores.publish(FIRST)
    one, two, three, *rest = SHARDS
    with psycopg.connect(stores.state_dsn) as connection:
        connection.execute("UPDATE curator.tile SET body = '{}' WHERE shard = %s", (one,))
        connection.execute("INSERT INTO curator.tile VALUES (%s, 2, true, false, 'scribble')", (two,))
        digest = stores.heads(three)[-1].table.digest
        connection.execute("DELETE FROM curator.document WHERE digest = %s", (digest,))
    outcome = stores.publish(FIRST + 1)
    assert outcome.up_to_date == set(rest)
    assert set(outcome.blocked) == {one, two, three}
    assert {reason.code for reason in outcome.blocked.values()} == {BlockedCode.STATE_DAMAGED}
    assert "state is damaged: must be restored from a backup" in outcome.blocked[one].text


def test_the_connection_to_a_server_that_does_not_answer_is_closed():
    """A peer whose machine still acknowledges but whose server has stopped: no timeout of TCP or PostgreSQL sees it."""
    session = Session(f"{SERVER}/postgres", timeout_s=0.5)
    begin = time.monotonic()
    with pytest.raises(psycopg.OperationalError), session.transaction() as connection:
        connection.execute("SELECT pg_sleep(60)")
    assert time.monotonic() - begin < 55
    with session.transaction() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    session.close()


def test_a_database_in_another_encoding_is_refused():
    options = "ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    with database("state", options) as dsn, pytest.raises(MurmurateError, match="must be made with ENCODING"):
        migrate_database(dsn, "state")


def test_a_demand_with_a_hole_in_it_counts_as_none(stores):
    stores.store_demand(FIRST)
    with psycopg.connect(stores.state_dsn) as connection:
        connection.execute("UPDATE confidential.demand SET reported = NULL WHERE zone = %s", (ZONES[0],))
    stores.publish(FIRST)
    assert stores.row_kinds(ZONES[0]) == [RowKind.FALLBACK]
    assert {stores.row_kinds(zone)[0] for zone in ZONES[1:]} == {RowKind.MEASURED}


def test_a_shard_whose_tile_is_never_taken_does_not_hold_the_next_batch(stores):
    write_over(stores.log_dsn, "DELETE FROM public_log.document WHERE digest = %s", digest_of("b"))
    asked = desired(FIRST) | {SHARD: desire(FIRST, SHARDS[SHARD], open_zone("b"))}
    outcome = publish_patiently(stores.publisher(batch_size=1), asked, set(OTHERS))
    assert outcome.up_to_date == set(OTHERS)
    assert outcome.unfinished == {SHARD}


def test_a_zone_in_another_shard_is_blocked_and_its_neighbours_are_opened(stores):
    zone, neighbour = SHARDS[SHARD]
    assert stores.log.claim({zone: "elsewhere"}) == {zone: "elsewhere"}
    outcome = stores.publish(FIRST)
    assert outcome.up_to_date == set(SHARDS)
    assert set(outcome.blocked_zones) == {zone}
    assert outcome.blocked_zones[zone].code is BlockedCode.OTHER_SHARD
    assert f"is in shard elsewhere: it cannot enter shard {SHARD}" in outcome.blocked_zones[zone].text
    assert stores.heads(SHARD)[-1].table.zones == (neighbour,)


def test_a_zone_whose_plan_cannot_be_read_is_withheld_and_its_neighbours_get_their_price(stores):
    zone, neighbour = SHARDS[SHARD]
    stores.publish(FIRST - 1)
    stores.store_demand(FIRST)
    stores.publish(FIRST - 1, plan_changes={zone: change_plan()})
    known = make_writer(plans={digest_of("a"): PLANS[digest_of("a")]})
    outcome = stores.publisher(write_tiles=known.write_tiles).publish(desired(FIRST), timeout_s=60)
    assert outcome.up_to_date == set(SHARDS)
    assert outcome.blocked_zones[zone].code is BlockedCode.NO_RECORD
    assert "must be registered" in outcome.blocked_zones[zone].text
    assert (stores.row_kinds(zone), stores.row_kinds(neighbour)) == ([RowKind.WITHHELD], [RowKind.MEASURED])


def test_test_only_noise_is_blocked_before_anything_is_saved(stores):
    stores.publish(FIRST - 1)
    stores.store_demand(FIRST)
    write = make_writer(SeededNoise(1)).write_tiles
    outcome = stores.publisher(write_tiles=write).publish(desired(FIRST), timeout_s=60)
    assert set(outcome.blocked) == set(SHARDS)
    assert outcome.blocked[SHARD].code is BlockedCode.NO_RECORD
    assert "test-only noise is never published" in outcome.blocked[SHARD].text
    with psycopg.connect(stores.state_dsn) as connection:
        assert connection.execute(PENDING).fetchall() == []


def test_another_tile_in_the_place_of_the_last_one_seen_is_noticed(stores):
    """Same number, other hash: nothing is drafted on a head that the log does not have."""
    stores.publish(FIRST)
    other = forged_release(stores.heads(SHARD)[-1], 1)
    with psycopg.connect(stores.state_dsn) as connection:
        query = "UPDATE curator.tile SET body = %s WHERE shard = %s AND seq = 1"
        connection.execute(query, (other.to_bytes(), SHARD))
    outcome = stores.publish(FIRST + 1)
    assert outcome.up_to_date == set(OTHERS)
    assert outcome.blocked[SHARD].code is BlockedCode.LOG_CONFLICT
    assert "contradicts what was seen" in outcome.blocked[SHARD].text
