"""Faults and operator actions between the steps of the publishers. Each event is a function of the simulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from murmurate.errors import ChainError
from murmurate.public_log.tile import sign_tile
from murmurate.publisher.invalid_tail import find_invalid_tail
from murmurate.publisher.steps import Offer
from tests.simulation import sample_plans_and_keys as samples
from tests.simulation.fault_schedule import Violation
from tests.simulation.forged_tiles import UnknownSigner, forge_tile, make_next_tile, wrongly_signed_tile
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


def receive_inputs(sim: Simulation) -> None:
    """Make public values known that were late. A tile that was written before, and is written again, states others."""
    oracle = sim.oracle
    oracle.inputs_until = max(oracle.inputs_until, sim.log.now - 2 + sim.faults.below(sim.lead + 3))
    sim.faults.record("public inputs late", "known until", oracle.inputs_until)


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
    """Run the next round on another state. A round that has committed may still send its tiles."""
    session = publisher.session
    open_transaction = session.observed.saved_pending is None
    session.rollback()
    if open_transaction:
        publisher.abort_round()
    session.state = state
    sim.faults.trace("  ", publisher.name, "now on", state.name)


def shift_clock(sim: Simulation) -> None:
    """Set a publisher's clock wrong. A fast clock is harmless, because a log has its own."""
    publisher = sim.pick(sim.publishers)
    publisher.clock_offset = sim.faults.below(7) - 3
    sim.faults.record("clock jump", publisher.name, publisher.clock_offset)


def open_zone(sim: Simulation) -> None:
    """The operator opens a zone. Some publishers are not informed, and by mistake two shards may be named."""
    closed = [zone for zone in sim.zones if zone not in sim.openings]
    zone = sim.pick(closed or sim.zones)
    if closed:
        sim.open_zone(zone, sim.log.now - 2 + sim.faults.below(4))
    two = sim.faults.chance(0.4)
    for publisher in sim.publishers:
        if sim.faults.chance(0.6):
            shard = sim.pick(sim.shards) if two else sim.zone_shard[zone]
            publisher.zones[shard].setdefault(zone, sim.openings[zone])
    sim.faults.record("zone opened in two shards" if two else "opening of a zone reaches some publishers", zone)


def change_plan(sim: Simulation) -> None:
    """The operator publishes the next plan of a zone and gives it to some of the publishers."""
    zone = sim.pick(sim.zones)
    informed = [publisher for publisher in sim.publishers if sim.faults.chance(0.5)]
    sim.plan[zone] = number = min(sim.plan[zone] + 1, 2)
    if sim.faults.chance(0.9):
        sim.publish_plan(samples.PLANS_BY_ZONE[zone][number].terms.plan_digest)
    for publisher in informed:
        publisher.plan[zone] = number
    sim.faults.record("plan change reaches some publishers", zone, number, *(publisher.name for publisher in informed))


def close_zone(sim: Simulation) -> None:
    """The operator closes a zone. Publishers that are not informed still want it open."""
    zone = sim.pick(tuple(sim.openings))
    sim.closing.add(zone)
    informed = [publisher for publisher in sim.publishers if sim.faults.chance(0.5)]
    for publisher in informed:
        publisher.closing.add(zone)
    sim.faults.record("closing of a zone reaches some publishers", zone, *(publisher.name for publisher in informed))


def rotate_key(sim: Simulation) -> None:
    """Rotate the key of a shard. Some publishers are not informed, and some do not hold the new key."""
    shard = sim.pick(sim.shards)
    sim.key[shard] = number = min(sim.key[shard] + 1, samples.KEYS - 1)
    for publisher in sim.publishers:
        publisher.keys_held = samples.KEYS - sim.faults.chance(0.1)
        if sim.faults.chance(0.5):
            publisher.key[shard] = number
    sim.faults.record("key rotation reaches some publishers", shard, number)


def toggle_mismatched_plan(sim: Simulation) -> None:
    """Tell a publisher to change to a plan with other intervals, or take that back."""
    publisher = sim.pick(sim.publishers)
    publisher.mismatched_zone = zone = None if publisher.mismatched_zone else sim.pick(sim.zones)
    if zone is not None:
        sim.publish_plan(samples.MISMATCHED_PLAN_BY_ZONE[zone].terms.plan_digest)
    sim.faults.record("plan with other intervals", publisher.name, zone)


def toggle_test_only_noise(sim: Simulation) -> None:
    """A publisher uses test-only noise by mistake, or stops using it."""
    publisher = sim.pick(sim.publishers)
    publisher.test_only_noise = not publisher.test_only_noise
    sim.faults.record("test-only noise", publisher.name, publisher.test_only_noise)


def toggle_faulty_writer(sim: Simulation) -> None:
    """A publisher writes tiles that break a rule, or stops doing so."""
    publisher = sim.pick(sim.publishers)
    publisher.faulty_writer = not publisher.faulty_writer
    sim.faults.record("faulty writer", publisher.name, publisher.faulty_writer)


def deliver_late(sim: Simulation) -> None:
    """Deliver a delayed request to the log."""
    if sim.delayed:
        taken = sim.delayed.pop(sim.faults.below(len(sim.delayed)))()
        sim.faults.record("late delivery", f"{taken} taken")


def free_dead_locks(sim: Simulation) -> None:
    """The server ends the session of a crashed publisher."""
    if sim.dead_sessions:
        sim.dead_sessions.pop().rollback()
        sim.faults.trace("LOCKS of a crashed publisher are released")


def check_forged_tile(sim: Simulation) -> None:
    """Forge a tile with a valid signature. Readers must refuse it if it breaks a rule, and only then."""
    shard = sim.pick(sim.shards)
    if shard not in sim.oracle.corrupted:
        sim.faults.record("forged tile checked", shard, forge_tile(sim, shard).broken or "follows")


def corrupt_zone(sim: Simulation) -> None:
    """Make the plans of one zone unreadable for good. The other zones of its shard must get their rows."""
    zone = sim.pick(sim.zones)
    if sim.unknown_plans or len(sim.zones) == 1:
        return
    sim.unknown_plans |= {plan.terms.plan_digest for plan in samples.PLANS_BY_ZONE[zone]}
    sim.faults.record("plan unknown", zone)


def corrupt_shard(sim: Simulation) -> None:
    """Corrupt one shard permanently. This must not affect the other shards."""
    if sim.oracle.corrupted or len(sim.shards) == 1:
        return
    shard = sim.pick(sim.shards)
    how = sim.pick(_CORRUPTIONS if sim.log.strict else _WEAK_LOG_CORRUPTIONS)
    if how == "state unreadable":
        state = sim.pick(sim.states)
        state.rows[shard] = state.rows[shard]._replace(unreadable=True)
    elif how == "state damaged":
        if not _corrupt_state(sim, shard):
            return
    elif not _corrupt_log(sim, shard, how):
        return
    sim.oracle.corrupted[shard] = how
    sim.faults.record("shard corrupted", shard, how)


def append_without_key(sim: Simulation) -> None:
    """A role that may append, and has no key, adds tiles that no reader accepts."""
    shard = sim.pick(sim.shards)
    if shard in sim.oracle.corrupted:
        return
    how = sim.pick(("tile wrongly signed", "tile wrongly signed", "tile with other rows"))
    if not (_append_other_rows(sim, shard) if how == "tile with other rows" else _corrupt_log(sim, shard, how)):
        return
    if sim.faults.chance(0.4):
        _append_thief_tile(sim, shard)
    sim.oracle.corrupted[shard] = how
    sim.faults.record("tile appended without the key", shard, how)


def _append_other_rows(sim: Simulation, shard: str) -> bool:
    """Append the header of a state's pending tile, as if it had been seen somewhere, with rows that are not its own."""
    pending = sim.pick(sim.states).rows[shard].pending
    if pending is None or not len(pending.tile.rows) or pending.tile.header.seq != len(sim.log.bodies[shard]):
        return False
    sim.log.store_tile(pending.tile, pending.tile.header_line + b"\n" + bytes(pending.tile.rows.nbytes))
    return True


def _append_thief_tile(sim: Simulation, shard: str) -> None:
    """Append a tile after a forged one, signed by a key of the thief."""
    last = sim.log.last[shard]
    in_force = sim.oracle.key_in_force(shard)
    thief = next(signer for signer in reversed(sim.signers) if signer.public_key not in {in_force, sim.opening.key})
    header = replace(last.header, seq=last.header.seq + 1, prev=last.hash, key=thief.public_key)
    tile = sign_tile(header, thief, last.rows)
    sim.log.store_tile(tile, tile.to_bytes())


def set_tail_aside(sim: Simulation) -> None:
    """The owner of the log sets aside what no reader accepts at the end of a shard, by what one of the states holds."""
    shard = sim.pick([*sim.oracle.corrupted, *sim.shards])
    set_shard_aside(sim, shard, sim.pick(sim.states))


def set_shard_aside(sim: Simulation, shard: str, state: MemoryState) -> None:
    how, row = sim.oracle.corrupted.get(shard, ""), state.rows[shard]
    if how.startswith("state"):
        return
    bodies = sim.log.bodies[shard][len(row.mirror) :]
    _, tail = find_invalid_tail(row.head, bodies, sim.log.table, sim.verify, sim.opening.key)
    if (tail is None) != (how == ""):
        raise Violation("false report", f"{shard} is {how or 'valid'}: {tail and tail.reason}")
    if tail is None:
        return
    held = set() if row.pending is None else {row.pending.tile.hash}
    try:
        tail.check_set_aside(held)
    except ChainError:
        if how in {"tile wrongly signed", "tile not readable"}:
            raise Violation("unfinished work", f"{shard} is {how} and is not set aside") from None
        sim.faults.record("signed tail kept", shard, how)
        return
    removed = sim.log.set_aside(shard, tail.first_seq, tail.head and tail.head.tile)
    sim.oracle.on_set_aside(shard, tail.first_seq, removed, held)
    for publisher in sim.publishers:
        publisher.session.observed.set_aside.add(shard)
    sim.faults.record("invalid tail set aside", shard, how)


_CORRUPTIONS = ("state unreadable", "state damaged", "tile wrongly signed", "tile does not follow")
_WEAK_LOG_CORRUPTIONS = (
    "state unreadable",
    "tile wrongly signed",
    "tile does not follow",
    "tile does not follow",
    "tile does not follow",
    "tile not readable",
)


def _corrupt_state(sim: Simulation, shard: str) -> bool:
    state = sim.pick(sim.states)
    row = state.rows[shard]
    if row.head is None:
        return False
    header = row.head.tile.header
    tile = sign_tile(replace(header, lead=header.lead + 1), UnknownSigner(), row.head.tile.rows)
    sim.oracle.damaged = replace(row.head, tile=tile)
    state.rows[shard] = row._replace(head=sim.oracle.damaged)
    return True


def _corrupt_log(sim: Simulation, shard: str, how: str) -> bool:
    """Put a tile into the log that no publisher may accept."""
    offer: Offer | None
    if how == "tile wrongly signed":
        offer = wrongly_signed_tile(sim, shard)
    elif how == "tile does not follow":
        forged = forge_tile(sim, shard)
        offer = forged.offer if forged.broken and forged.offer.tile.header.shard == shard else None
    else:
        _, offer = make_next_tile(sim, shard)
    if offer is None:
        return False
    body = offer.tile.to_bytes()
    sim.log.documents.setdefault(offer.tile.header.table, offer.table.text)
    sim.log.store_tile(offer.tile, b"{}\n" if how == "tile not readable" else body)
    return True


EVENTS: tuple[tuple[Event, int], ...] = (
    (end_interval, 9),
    (correct_demand, 11),
    (receive_inputs, 6),
    (take_backup, 4),
    (restore_state, 5),
    (fail_over, 5),
    (split_state, 5),
    (end_split, 4),
    (shift_clock, 6),
    (open_zone, 9),
    (change_plan, 4),
    (close_zone, 2),
    (rotate_key, 4),
    (toggle_mismatched_plan, 1),
    (toggle_test_only_noise, 1),
    (toggle_faulty_writer, 1),
    (deliver_late, 18),
    (free_dead_locks, 8),
    (check_forged_tile, 4),
    (corrupt_zone, 1),
    (corrupt_shard, 2),
    (append_without_key, 3),
    (set_tail_aside, 6),
)
