"""Faults and operator actions between the steps of the publishers. Each event is a function of the simulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from murmurate.public_log.chain import check_follows
from murmurate.public_log.record import Entry, sign_record
from tests.simulation import sample_plans_and_keys as samples
from tests.simulation.forged_records import UnknownSigner, altered_entry, make_next_entry, wrongly_signed_entry
from tests.simulation.memory_stores import MemoryState
from tests.simulation.simulator import START_INTERVAL, Publisher, Simulation

Event = Callable[[Simulation], None]


def end_interval(sim: Simulation) -> None:
    """End an interval. Each state receives its demand independently: now, late or never."""
    sim.log.now += 1
    sim.faults.trace("TIME", sim.log.now)
    for zone in sim.zones:
        for state in sim.states:
            if sim.faults.chance(0.8):
                state.demand[zone, sim.log.now - 1] = sim.new_demand(zone, sim.log.now - 1)
            else:
                sim.faults.record("demand missing", zone, "in", state.name)


def correct_demand(sim: Simulation) -> None:
    """Set another demand for an interval in one state, before or after the release of that interval."""
    zone, state = sim.pick(sim.zones), sim.pick(sim.states)
    interval = sim.log.now - sim.faults.below(4)  # including the current one, which is too early
    fault = "demand corrected" if (zone, interval) in state.demand else "demand early or late"
    state.demand[zone, interval] = sim.new_demand(zone, interval)
    sim.faults.record(fault, zone, interval, "in", state.name)


def take_backup(sim: Simulation) -> None:
    sim.backups.append(sim.pick(sim.states).snapshot())
    sim.faults.trace("BACKUP", len(sim.backups) - 1)


def restore_state(sim: Simulation) -> None:
    """Replace a state by an old backup. Newer demand is lost, or is entered again with errors."""
    state, number = sim.pick(sim.states), sim.faults.below(len(sim.backups))
    state.restore(sim.backups[number])
    sim.faults.record("state restored", state.name, "from backup", number)
    for zone in sim.zones if sim.faults.chance(0.5) else ():
        for interval in range(max(START_INTERVAL, sim.log.now - 3), sim.log.now):
            state.demand[zone, interval] = sim.new_demand(zone, interval)


def fail_over(sim: Simulation) -> None:
    """Replace the primary by its replica, which had not received the last commits."""
    state = sim.pick(sim.states)
    behind = sim.faults.below(len(state.history))
    state.restore(state.history[-1 - behind])
    sim.faults.record("failover", state.name, "loses", behind, "commits")


def split_state(sim: Simulation) -> None:
    """Split brain: two databases both act as the primary. Each publisher uses one of them."""
    if len(sim.states) > 2:
        return
    old = sim.pick(sim.states)
    new = MemoryState("ABCDEFGHIJKLMNOPQRSTUVWXYZ"[sim.states_created % 26], sim.pick(old.history))
    sim.states_created += 1
    sim.states.append(new)
    sim.faults.record("split brain", old.name, "and", new.name)
    for publisher in sim.publishers:
        if publisher.session.state is old and sim.faults.chance(0.5):
            move_publisher(sim, publisher, new)


def end_split(sim: Simulation) -> None:
    """Discard one side of a split, with all data that only this side had."""
    if len(sim.states) == 1:
        return
    lost = sim.states.pop(sim.faults.below(len(sim.states)))
    lost.epoch += 1
    sim.faults.record("split brain ends", lost.name, "is lost")
    sim.dead_sessions = [session for session in sim.dead_sessions if session.state is not lost]
    for publisher in sim.publishers:
        if publisher.session.state is lost:
            move_publisher(sim, publisher, sim.pick(sim.states))


def move_publisher(sim: Simulation, publisher: Publisher, state: MemoryState) -> None:
    """Run the next round on another state. A round that has committed may still send its entries."""
    session = publisher.session
    open_transaction = session.observed.saved_pending is None
    session.rollback()
    if open_transaction:
        publisher.abort_round()
    session.state = state
    sim.faults.trace("  ", publisher.name, "now on", state.name)


def shift_clock(sim: Simulation) -> None:
    """Set a publisher's clock wrong. A fast clock is harmless only where the log checks the time itself."""
    publisher = sim.pick(sim.publishers)
    publisher.clock_offset = sim.faults.below(7) - (3 if sim.log.strict else 6)
    sim.faults.record("clock jump", publisher.name, publisher.clock_offset)


def change_plan(sim: Simulation) -> None:
    """The operator publishes the next plan and gives it to some of the publishers."""
    zone = sim.pick(sim.zones)
    informed = [publisher for publisher in sim.publishers if sim.faults.chance(0.5)]
    sim.plan[zone] = number = min(sim.plan[zone] + 1, 2)
    if sim.faults.chance(0.7):
        sim.log.plans.add(samples.PLANS_BY_ZONE[zone][number].terms.plan_digest)
    for publisher in informed:
        publisher.plan[zone] = number
    sim.faults.record("plan change reaches some publishers", zone, number, *(publisher.name for publisher in informed))


def rotate_key(sim: Simulation) -> None:
    """Rotate the key of a zone. Some publishers are not informed, and some do not hold the new key."""
    zone = sim.pick(sim.zones)
    sim.key[zone] = number = min(sim.key[zone] + 1, samples.KEYS - 1)
    for publisher in sim.publishers:
        publisher.keys_held = samples.KEYS - sim.faults.chance(0.1)
        if sim.faults.chance(0.5):
            publisher.key[zone] = number
    sim.faults.record("key rotation reaches some publishers", zone, number)


def toggle_mismatched_plan(sim: Simulation) -> None:
    """Tell a publisher to change to a plan with other intervals, or take that back."""
    publisher = sim.pick(sim.publishers)
    publisher.mismatched_zone = None if publisher.mismatched_zone else sim.pick(sim.zones)
    sim.faults.record("plan with other intervals", publisher.name, publisher.mismatched_zone)


def toggle_test_only_noise(sim: Simulation) -> None:
    """A publisher uses test-only noise by mistake, or stops using it."""
    publisher = sim.pick(sim.publishers)
    publisher.test_only_noise = not publisher.test_only_noise
    sim.faults.record("test-only noise", publisher.name, publisher.test_only_noise)


def deliver_late(sim: Simulation) -> None:
    """Deliver a delayed append to the log."""
    if sim.delayed:
        entries = sim.delayed.pop(sim.faults.below(len(sim.delayed)))
        taken = sum(sim.log.append_if_next(entry) for entry in entries)
        sim.faults.record("late delivery", f"{taken} of {len(entries)} taken")


def free_dead_locks(sim: Simulation) -> None:
    """The server ends the session of a crashed publisher."""
    if sim.dead_sessions:
        sim.dead_sessions.pop().rollback()
        sim.faults.trace("LOCKS of a crashed publisher are released")


def offer_forged_entry(sim: Simulation) -> None:
    """Offer a forged entry with a valid signature. A log that checks must refuse it only if it breaks a rule."""
    zone = sim.pick(sim.zones)
    if zone in sim.oracle.corrupted or not sim.log.strict:
        return
    entry, broken = altered_entry(sim, zone)
    sim.faults.record("forged entry offered", zone, broken or "follows")
    if broken:
        sim.log.append_if_next(entry)
    else:
        check_follows(sim.log.heads[zone], entry)


def corrupt_zone(sim: Simulation) -> None:
    """Corrupt one zone permanently. This must not affect the other zones."""
    if sim.oracle.corrupted or len(sim.zones) == 1:
        return
    zone = sim.pick(sim.zones)
    how = sim.pick(_CORRUPTIONS if sim.log.strict else _WEAK_LOG_CORRUPTIONS)
    if how == "plan unknown":
        sim.unknown_plans |= {plan.terms.plan_digest for plan in samples.PLANS_BY_ZONE[zone]}
    elif how == "state unreadable":
        state = sim.pick(sim.states)
        state.rows[zone] = state.rows[zone]._replace(unreadable=True)
    elif how == "state damaged":
        if not _corrupt_state(sim, zone):
            return
    elif not _corrupt_log(sim, zone, how):
        return
    sim.oracle.corrupted[zone] = how
    sim.faults.record("zone corrupted", zone, how)


_CORRUPTIONS = ("plan unknown", "state unreadable", "state damaged", "line wrongly signed")
_WEAK_LOG_CORRUPTIONS = (
    "plan unknown",
    "state unreadable",
    "line wrongly signed",
    "line does not follow",
    "line does not follow",
    "line does not follow",
    "line not a record",
)


def _corrupt_state(sim: Simulation, zone: str) -> bool:
    state = sim.pick(sim.states)
    row = state.rows[zone]
    if row.head is None:
        return False
    record = row.head.record
    sim.oracle.damaged = sign_record(replace(record, applies=record.applies + 1), UnknownSigner())
    state.rows[zone] = row._replace(head=sim.oracle.damaged)
    return True


def _corrupt_log(sim: Simulation, zone: str, how: str) -> bool:
    """Put a line into the log that no publisher may accept."""
    entry: Entry | None
    if how == "line wrongly signed":
        entry = wrongly_signed_entry(sim, zone)
    elif how == "line does not follow":
        entry, broken = altered_entry(sim, zone)
        entry = entry if broken else None
    else:
        entry = replace(make_next_entry(sim, zone), line="{}")
    if entry is not None:
        sim.log.store_entry(zone, entry)
    return entry is not None


EVENTS: tuple[tuple[Event, int], ...] = (
    (end_interval, 9),
    (correct_demand, 11),
    (take_backup, 4),
    (restore_state, 5),
    (fail_over, 5),
    (split_state, 5),
    (end_split, 4),
    (shift_clock, 6),
    (change_plan, 4),
    (rotate_key, 4),
    (toggle_mismatched_plan, 1),
    (toggle_test_only_noise, 1),
    (deliver_late, 18),
    (free_dead_locks, 8),
    (offer_forged_entry, 4),
    (corrupt_zone, 2),
)
