"""What goes wrong around a publisher: one zone is blocked, the others go on, and nothing is sent twice."""

import time
from dataclasses import replace

import psycopg
import pytest
from tests.support.databases import SERVER, database
from tests.support.postgres_stores import ZONES, desired
from tests.support.sample_chains import FIRST, OLD_KEY, OPENING, chain, record_writer

from murmurate.errors import MurmurateError
from murmurate.privacy.noise import SeededNoise
from murmurate.public_log.record import RecordKind, sign_record
from murmurate.public_log.signing import verify_signature
from murmurate.publisher.desired_state import DesiredState
from murmurate.publisher.protocol import BlockedCode, LockZones, ReadLog, publish_round
from murmurate.publisher.stores import drive_steps, perform_step
from murmurate.service.clock import ReleaseSlotClock
from murmurate.service.storage import public_log_store
from murmurate.service.storage.migrate import migrate_database
from murmurate.service.storage.public_log_store import PostgresLogStore
from murmurate.service.storage.session import Session


def publish_patiently(publisher, states, expected):
    """Publish where one zone never becomes free, with the shortest time limit that suffices on this machine."""
    for timeout_s in (1.0, 4.0, 16.0, 64.0):
        outcome = publisher.publish(states, timeout_s=timeout_s)
        if outcome.up_to_date >= expected:
            break
    return outcome


def test_a_locked_zone_is_passed_over_and_does_not_hold_the_others(stores):
    other = stores.new_state()
    assert set(other.lock([ZONES[0]])) == {ZONES[0]}
    outcome = publish_patiently(stores.publisher(batch_size=100), desired(FIRST), set(ZONES[1:]))
    assert outcome.up_to_date == set(ZONES[1:])
    assert outcome.unfinished == {ZONES[0]}
    other.rollback()
    assert stores.publisher().publish(desired(FIRST), timeout_s=60).up_to_date == set(ZONES)


def test_a_zone_that_needs_an_operator_is_blocked_with_the_reason_and_the_others_go_on(stores):
    stores.publisher().publish(desired(FIRST), timeout_s=60)
    stray = sign_record(replace(stores.entries(ZONES[0])[-1].record, seq=2, price_ticks=1), OLD_KEY)
    with psycopg.connect(stores.log_dsn) as connection:
        query = "INSERT INTO public_log.entry (zone, seq, line) VALUES (%s, 2, %s)"
        connection.execute(query, (ZONES[0], stray.line))
        connection.execute("UPDATE public_log.head SET seq = 2, hash = %s WHERE zone = %s", (stray.hash, ZONES[0]))
    outcome = stores.publisher().publish(desired(FIRST + 1), timeout_s=60)
    assert outcome.up_to_date == set(ZONES[1:])
    assert outcome.blocked[ZONES[0]].code is BlockedCode.LOG_INVALID
    assert "must be" in outcome.blocked[ZONES[0]].text


def test_a_log_that_lost_entries_is_noticed(stores):
    stores.publisher().publish(desired(FIRST + 1), timeout_s=60)
    with psycopg.connect(stores.log_dsn) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("DELETE FROM public_log.entry WHERE seq > 1")
        connection.execute("UPDATE public_log.head SET seq = 1")
    outcome = stores.publisher().publish(desired(FIRST + 2), timeout_s=60)
    assert set(outcome.blocked) == set(ZONES)
    assert outcome.blocked[ZONES[0]].code is BlockedCode.LOG_LOST_ENTRIES
    assert "has lost entries up to 2: repair it first" in outcome.blocked[ZONES[0]].text


def test_a_long_absence_is_caught_up_piece_by_piece(stores, monkeypatch):
    """A state that knows nothing drafts nothing until it has read the whole log."""
    stores.store_demand(FIRST)
    stores.publisher().publish(desired(FIRST + 6), timeout_s=60)
    before = {zone: stores.lines(zone) for zone in ZONES}
    with psycopg.connect(stores.state_dsn) as connection:
        connection.execute("DELETE FROM curator.release")
        connection.execute("UPDATE curator.head SET seq = -1")
    monkeypatch.setattr(public_log_store, "MAX_LINES_PER_READ", 2)
    assert stores.publisher().publish(desired(FIRST + 6), timeout_s=60).up_to_date == set(ZONES)
    monkeypatch.undo()
    assert {zone: stores.lines(zone) for zone in ZONES} == before


def test_a_failing_log_is_waited_for(stores):
    """A failure is reported by its name alone and tried again."""

    class Moody:
        def __init__(self, log):
            self.log, self.calls = log, 0

        def _mood(self):
            self.calls += 1
            if self.calls % 3:
                raise psycopg.OperationalError("quotes a row")

        def read(self, after):
            self._mood()
            return self.log.read(after)

        def append(self, entries):
            self.log.append(entries)
            self._mood()

    failures = []
    publisher = stores.publisher(log=Moody(stores.log))
    assert publisher.publish(desired(FIRST + 1), timeout_s=60, on_failure=failures.append).up_to_date == set(ZONES)
    assert set(failures) == {"OperationalError"}


def test_what_was_saved_is_sent_again_and_never_drawn_again(stores):
    """The publisher dies between saving and sending; the next one sends the same line."""
    stores.store_demand(FIRST)
    publisher = stores.publisher()
    publisher.publish(desired(FIRST - 1), timeout_s=60)
    machine = publish_round(desired(FIRST), publisher.write_entries, verify_signature)
    step = next(machine)
    while type(step).__name__ != "WaitForSlot":
        step = machine.send(perform_step(step, publisher.state, publisher.log, lambda: None))
    with psycopg.connect(stores.state_dsn) as connection:
        saved = dict(connection.execute("SELECT zone, line FROM curator.pending").fetchall())
    assert set(saved) == set(ZONES)
    stores.store_demand(FIRST, 1)
    stores.publisher().publish(desired(FIRST), timeout_s=60)
    assert {zone: stores.lines(zone)[-1] for zone in ZONES} == saved
    with psycopg.connect(stores.state_dsn) as connection:
        assert connection.execute("SELECT count(*) FROM curator.pending").fetchone() == (0,)


def test_a_lock_shows_what_was_committed_just_before_it(stores):
    """Two states in turn: neither sees an older head than the other has saved."""
    one, two = stores.new_state(), stores.new_state()
    publishers = [stores.publisher(state=state) for state in (one, two)]
    for n in range(6):
        publishers[n % 2].publish(desired(FIRST + n), timeout_s=60)
    for zone in ZONES:
        assert len(stores.entries(zone)) == 7


def test_a_driver_that_fails_rolls_back(stores):
    class Broken(PostgresLogStore):
        def read(self, after):
            raise OSError(len(after))

    state = stores.new_state()
    with pytest.raises(OSError):
        drive_steps(
            publish_round(desired(FIRST), record_writer().write_entries, verify_signature),
            state,
            Broken(stores.log_dsn),
            lambda: None,
        )
    assert set(stores.new_state().lock(ZONES)) == set(ZONES)


def test_the_first_steps_are_lock_and_read():
    machine = publish_round(desired(FIRST), record_writer().write_entries, verify_signature)
    assert next(machine) == LockZones(tuple(ZONES))
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


def test_no_record_leaves_before_its_release_slot():
    clock = ReleaseSlotClock(release_slot_s=0.05)
    for pause in (0.0, 0.01, 0.03):
        time.sleep(pause)
        slot = time.time() // 0.05
        clock.wait_for_slot()
        assert time.time() // 0.05 > slot


def test_a_chain_of_the_record_writer_is_accepted_by_the_server_entry_by_entry(stores):
    """The rules in SQL take what the rules in Python take: every kind of record."""
    for entry in chain("harbour"):
        before = stores.log.read({"harbour": -1})["harbour"].last_seq
        stores.log.append([entry])
        assert stores.log.read({"harbour": -1})["harbour"].last_seq == before + 1, entry.line


def test_a_damaged_state_blocks_one_zone(stores):
    stores.publisher().publish(desired(FIRST), timeout_s=60)
    with psycopg.connect(stores.state_dsn) as connection:
        connection.execute("UPDATE curator.release SET line = '{}' WHERE zone = %s", (ZONES[0],))
        connection.execute("INSERT INTO curator.pending VALUES (%s, 'scribble')", (ZONES[1],))
    outcome = stores.publisher().publish(desired(FIRST + 1), timeout_s=60)
    assert outcome.up_to_date == set(ZONES[2:])
    assert set(outcome.blocked) == set(ZONES[:2])
    assert {reason.code for reason in outcome.blocked.values()} == {BlockedCode.STATE_DAMAGED}
    assert "state is damaged: must be restored from a backup" in outcome.blocked[ZONES[0]].text


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
    with psycopg.connect(stores.state_dsn) as connection:
        connection.execute("INSERT INTO confidential.demand VALUES (%s, %s, 500000, NULL, 0)", (ZONES[0], FIRST))
    stores.publisher().publish(desired(FIRST), timeout_s=60)
    assert stores.entries(ZONES[0])[-1].record.kind is RecordKind.FORECAST


def test_a_zone_whose_line_is_never_taken_does_not_hold_the_next_batch(stores):
    with psycopg.connect(stores.log_dsn) as connection:
        connection.execute("DELETE FROM public_log.plan WHERE digest = %s", ("b" * 64,))
    unseen = replace(OPENING, plan="b" * 64)
    asked = desired(FIRST) | {ZONES[0]: DesiredState(until=FIRST, opening=unseen)}
    outcome = publish_patiently(stores.publisher(batch_size=1), asked, set(ZONES[1:]))
    assert outcome.up_to_date == set(ZONES[1:])
    assert outcome.unfinished == {ZONES[0]}


def test_test_only_noise_is_blocked_before_anything_is_saved(stores):
    stores.publisher().publish(desired(FIRST - 1), timeout_s=60)
    stores.store_demand(FIRST)
    outcome = stores.publisher(write_entries=record_writer(SeededNoise(1)).write_entries).publish(
        desired(FIRST), timeout_s=60
    )
    assert set(outcome.blocked) == set(ZONES)
    assert outcome.blocked[ZONES[0]].code is BlockedCode.NO_RECORD
    assert "test-only noise is never published" in outcome.blocked[ZONES[0]].text
    with psycopg.connect(stores.state_dsn) as connection:
        assert connection.execute("SELECT count(*) FROM curator.pending").fetchone() == (0,)


def test_another_record_in_the_place_of_the_last_one_seen_is_noticed(stores):
    """Same number, other hash: nothing is drafted on a head that the log does not have."""
    stores.publisher().publish(desired(FIRST), timeout_s=60)
    zone = ZONES[0]
    other = sign_record(replace(stores.entries(zone)[-1].record, price_ticks=1), OLD_KEY)
    with psycopg.connect(stores.state_dsn) as connection:
        connection.execute("UPDATE curator.release SET line = %s WHERE zone = %s AND seq = 1", (other.line, zone))
    outcome = stores.publisher().publish(desired(FIRST + 1), timeout_s=60)
    assert outcome.up_to_date == set(ZONES[1:])
    assert outcome.blocked[zone].code is BlockedCode.LOG_CONFLICT
    assert "contradicts what was seen" in outcome.blocked[zone].text
