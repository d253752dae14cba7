"""What goes wrong around a publisher: one zone is set aside, the others go on, and nothing is sent twice."""

import time
from dataclasses import replace

import psycopg
import pytest

from murmurate.errors import MurmurateError
from murmurate.privacy.noise import RehearsalNoise
from murmurate.publication.publisher import Lock, Read, turn
from murmurate.publication.record import Kind, sign
from murmurate.publication.signing import verify
from murmurate.publication.stores import drive, perform
from murmurate.publication.wish import Wish
from murmurate.service import publiclog
from murmurate.service.clock import BeatClock
from murmurate.service.connection import Session
from murmurate.service.migrate import migrate
from murmurate.service.publiclog import PostgresLog
from tests.publication.chains import FIRST, OLD_KEY, OPENING, chain, desk
from tests.service.conftest import SERVER, database
from tests.service.stores import ZONES, wishes


def test_a_locked_zone_is_passed_over_and_does_not_hold_the_others(stores):
    other = stores.new_state()
    assert set(other.lock([ZONES[0]])) == {ZONES[0]}
    begin = time.monotonic()
    outcome = stores.publisher(batch=100).publish(wishes(FIRST), patience_s=1.0)
    assert time.monotonic() - begin < 10
    assert outcome.done == set(ZONES[1:])
    assert outcome.moved == {ZONES[0]}
    other.rollback()
    assert stores.publisher().publish(wishes(FIRST), patience_s=60).done == set(ZONES)


def test_a_zone_that_needs_a_person_is_set_aside_with_the_reason_and_the_others_go_on(stores):
    stores.publisher().publish(wishes(FIRST), patience_s=60)
    stray = sign(replace(stores.entries(ZONES[0])[-1].record, seq=2, price_ticks=1), OLD_KEY)
    with psycopg.connect(stores.log_dsn) as connection:
        query = "INSERT INTO public_log.entry (zone, seq, line) VALUES (%s, 2, %s)"
        connection.execute(query, (ZONES[0], stray.line))
        connection.execute("UPDATE public_log.head SET seq = 2, hash = %s WHERE zone = %s", (stray.hash, ZONES[0]))
    outcome = stores.publisher().publish(wishes(FIRST + 1), patience_s=60)
    assert outcome.done == set(ZONES[1:])
    assert "must be" in outcome.aside[ZONES[0]]


def test_a_log_that_lost_entries_is_noticed(stores):
    stores.publisher().publish(wishes(FIRST + 1), patience_s=60)
    with psycopg.connect(stores.log_dsn) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("DELETE FROM public_log.entry WHERE seq > 1")
        connection.execute("UPDATE public_log.head SET seq = 1")
    outcome = stores.publisher().publish(wishes(FIRST + 2), patience_s=60)
    assert set(outcome.aside) == set(ZONES)
    assert "has lost entries up to 2: mend it first" in outcome.aside[ZONES[0]]


def test_a_long_absence_is_caught_up_piece_by_piece(stores, monkeypatch):
    """A state that knows nothing drafts nothing until it has read the whole log."""
    stores.remember(FIRST)
    stores.publisher().publish(wishes(FIRST + 6), patience_s=60)
    before = {zone: stores.lines(zone) for zone in ZONES}
    with psycopg.connect(stores.state_dsn) as connection:
        connection.execute("DELETE FROM curator.release")
        connection.execute("UPDATE curator.head SET seq = -1")
    monkeypatch.setattr(publiclog, "AT_ONCE", 2)
    assert stores.publisher().publish(wishes(FIRST + 6), patience_s=60).done == set(ZONES)
    monkeypatch.undo()
    assert {zone: stores.lines(zone) for zone in ZONES} == before


def test_a_failing_log_is_waited_for(stores):
    """Whatever fails is told by its name alone, and tried again."""

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

    told = []
    publisher = stores.publisher(log=Moody(stores.log))
    assert publisher.publish(wishes(FIRST + 1), patience_s=60, failed=told.append).done == set(ZONES)
    assert set(told) == {"OperationalError"}


def test_what_was_saved_is_sent_again_and_never_drawn_again(stores):
    """The publisher dies between saving and sending; the next one sends the same line."""
    stores.remember(FIRST)
    publisher = stores.publisher()
    publisher.publish(wishes(FIRST - 1), patience_s=60)
    machine = turn(wishes(FIRST), publisher.write, verify)
    step = next(machine)
    while type(step).__name__ != "Beat":
        step = machine.send(perform(step, publisher.state, publisher.log, lambda: None))
    with psycopg.connect(stores.state_dsn) as connection:
        saved = dict(connection.execute("SELECT zone, line FROM curator.pending").fetchall())
    assert set(saved) == set(ZONES)
    stores.remember(FIRST, 1)
    stores.publisher().publish(wishes(FIRST), patience_s=60)
    assert {zone: stores.lines(zone)[-1] for zone in ZONES} == saved
    with psycopg.connect(stores.state_dsn) as connection:
        assert connection.execute("SELECT count(*) FROM curator.pending").fetchone() == (0,)


def test_a_lock_shows_what_was_committed_just_before_it(stores):
    """Two states in turn: neither sees an older head than the other has saved."""
    one, two = stores.new_state(), stores.new_state()
    publishers = [stores.publisher(state=state) for state in (one, two)]
    for n in range(6):
        publishers[n % 2].publish(wishes(FIRST + n), patience_s=60)
    for zone in ZONES:
        assert len(stores.entries(zone)) == 7


def test_a_driver_that_fails_rolls_back(stores):
    class Broken(PostgresLog):
        def read(self, after):
            raise OSError(len(after))

    state = stores.new_state()
    with pytest.raises(OSError):
        drive(turn(wishes(FIRST), desk().write, verify), state, Broken(stores.log_dsn), lambda: None)
    assert set(stores.new_state().lock(ZONES)) == set(ZONES)


def test_the_first_steps_are_lock_and_read():
    machine = turn(wishes(FIRST), desk().write, verify)
    assert next(machine) == Lock(tuple(ZONES))
    assert machine.send({}) == Read({})


def test_the_beat_is_the_same_for_everybody():
    clock = BeatClock(beat_s=0.05)
    for pause in (0.0, 0.01, 0.03):
        time.sleep(pause)
        clock.wait()
        assert time.time() % 0.05 < 0.03


def test_a_chain_written_at_the_desk_is_taken_by_the_server_entry_by_entry(stores):
    """The rules in SQL take what the rules in Python take: every kind of record."""
    for entry in chain("harbour"):
        before = stores.log.read({"harbour": -1})["harbour"].last_seq
        stores.log.append([entry])
        assert stores.log.read({"harbour": -1})["harbour"].last_seq == before + 1, entry.line


def test_a_damaged_state_sets_one_zone_aside(stores):
    stores.publisher().publish(wishes(FIRST), patience_s=60)
    with psycopg.connect(stores.state_dsn) as connection:
        connection.execute("UPDATE curator.release SET line = '{}' WHERE zone = %s", (ZONES[0],))
        connection.execute("INSERT INTO curator.pending VALUES (%s, 'scribble')", (ZONES[1],))
    outcome = stores.publisher().publish(wishes(FIRST + 1), patience_s=60)
    assert outcome.done == set(ZONES[2:])
    assert set(outcome.aside) == set(ZONES[:2])
    assert "state is damaged: must be restored from a backup" in outcome.aside[ZONES[0]]


def test_a_server_that_does_not_answer_is_hung_up_on():
    """A peer whose machine still acknowledges but whose server has stopped: no timeout of TCP or PostgreSQL sees it."""
    session = Session(f"{SERVER}/postgres", patience_s=0.5)
    begin = time.monotonic()
    with pytest.raises(psycopg.OperationalError), session.transaction() as connection:
        connection.execute("SELECT pg_sleep(20)")
    assert time.monotonic() - begin < 10
    with session.transaction() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    session.drop()


def test_a_database_in_another_encoding_is_refused():
    options = "ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    with database("state", options) as dsn, pytest.raises(MurmurateError, match="must be made with ENCODING"):
        migrate(dsn, "state")


def test_a_demand_with_a_hole_in_it_counts_as_none(stores):
    with psycopg.connect(stores.state_dsn) as connection:
        connection.execute("INSERT INTO confidential.demand VALUES (%s, %s, 500000, NULL, 0)", (ZONES[0], FIRST))
    stores.publisher().publish(wishes(FIRST), patience_s=60)
    assert stores.entries(ZONES[0])[-1].record.kind is Kind.FORECAST


def test_a_zone_whose_line_is_never_taken_does_not_hold_the_next_batch(stores):
    with psycopg.connect(stores.log_dsn) as connection:
        connection.execute("DELETE FROM public_log.plan WHERE digest = %s", ("b" * 64,))
    unseen = replace(OPENING, plan="b" * 64)
    asked = wishes(FIRST) | {ZONES[0]: Wish(until=FIRST, opening=unseen)}
    outcome = stores.publisher(batch=1).publish(asked, patience_s=5)
    assert outcome.done == set(ZONES[1:])
    assert outcome.moved == {ZONES[0]}


def test_a_rehearsal_is_set_aside_before_anything_is_saved(stores):
    stores.publisher().publish(wishes(FIRST - 1), patience_s=60)
    stores.remember(FIRST)
    outcome = stores.publisher(write=desk(RehearsalNoise(1)).write).publish(wishes(FIRST), patience_s=5)
    assert set(outcome.aside) == set(ZONES)
    assert "a rehearsal is never published" in outcome.aside[ZONES[0]]
    with psycopg.connect(stores.state_dsn) as connection:
        assert connection.execute("SELECT count(*) FROM curator.pending").fetchone() == (0,)


def test_another_record_in_the_place_of_the_last_one_seen_is_noticed(stores):
    """Same number, other hash: nothing is drafted on a head that the log does not have."""
    stores.publisher().publish(wishes(FIRST), patience_s=60)
    zone = ZONES[0]
    other = sign(replace(stores.entries(zone)[-1].record, price_ticks=1), OLD_KEY)
    with psycopg.connect(stores.state_dsn) as connection:
        connection.execute("UPDATE curator.release SET line = %s WHERE zone = %s AND seq = 1", (other.line, zone))
    outcome = stores.publisher().publish(wishes(FIRST + 1), patience_s=60)
    assert outcome.done == set(ZONES[1:])
    assert "contradicts what was seen" in outcome.aside[zone]
