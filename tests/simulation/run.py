"""One run of a seed: publishers take steps in any order among faults; then all work must finish without faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from murmurate.publisher.desired_state import Change, DesiredState, ZoneOpening
from murmurate.publisher.protocol import Outcome
from murmurate.publisher.steps import drive_steps, perform_step
from tests.simulation import sample_plans_and_keys as samples
from tests.simulation.events import EVENTS, check_forged_tile, deliver_late, end_split, free_dead_locks, set_shard_aside
from tests.simulation.fault_schedule import ResponseLost, Violation
from tests.simulation.memory_stores import StateSession
from tests.simulation.simulator import Publisher, Simulation, plan_change

ACTIONS = 165  # steps and events in the part with faults
EVENT_SHARE = 0.25
_EVENTS = tuple(event for event, weight in EVENTS for _ in range(weight))


@dataclass(frozen=True, slots=True)
class RunCounts:
    """The counts of one run."""

    faults: Counter[str]
    steps: int
    published: int
    contested: int  # numbers of a shard for which restored or split states sent different tiles


class SimulationFailure(AssertionError):  # noqa: N818 - of the publisher or of the simulator
    """A run failed: its seed and the kind of violation."""

    def __init__(self, seed: int, kind: str, facts: str) -> None:
        super().__init__(f"seed {seed}: {facts}")
        self.kind = kind
        self.seed = seed


def simulate(seed: int, trace: list[str] | None = None) -> RunCounts:
    """Run one seed. Raises SimulationFailure for a violation and for any unexpected exception."""
    sim = Simulation(seed, trace)
    try:
        run_with_faults(sim)
        finish_without_faults(sim)
    except Violation as broken:
        raise SimulationFailure(seed, broken.kind, str(broken)) from broken
    except Exception as error:
        raise SimulationFailure(seed, "unexpected exception", f"unexpected {type(error).__name__}: {error}") from error
    return RunCounts(sim.faults.counts, sim.steps, sim.oracle.published, len(sim.oracle.contested))


def run_with_faults(sim: Simulation) -> None:
    """Run steps and events in random order, with faults."""
    chance, pick = sim.faults.chance, sim.pick
    if chance(0.3):
        check_forged_tile(sim)  # before any shard is open
    for _ in range(ACTIONS):
        if chance(EVENT_SHARE):
            pick(_EVENTS)(sim)
        else:
            if not chance(sim.repeat_probability):
                sim.active_publisher = pick(sim.publishers)
            advance_publisher(sim, sim.active_publisher)


def advance_publisher(sim: Simulation, publisher: Publisher) -> None:
    """Perform one step of a publisher, or crash it."""
    faults = sim.faults
    sim.steps += 1
    if publisher.machine is None:
        start_round(sim, publisher)
    if faults.occurs("crash before a step", publisher.name):
        crash_publisher(sim, publisher)
        return
    faults.trace(publisher.name, "on", publisher.session.state.name, type(publisher.step).__name__)
    try:
        answer = perform_step(publisher.step, publisher.session, publisher.channel, publisher.wait_for_slot)
    except ResponseLost:
        faults.trace("  no response")
        publisher.abort_round()
        return
    if answer == {} and faults.chance(0.9):  # others hold all locks: retry later instead of an empty round
        publisher.abort_round()
        return
    if faults.occurs("crash after a step", publisher.name):
        crash_publisher(sim, publisher)
        return
    try:
        publisher.step = publisher.machine.send(answer)
    except StopIteration as finished:
        publisher.machine = None
        faults.trace("  ends its round:", describe_outcome(finished.value))
        sim.oracle.on_round_end(publisher.session, finished.value)


def describe_outcome(outcome: Outcome) -> str:
    """Return an outcome for the trace, in the same order in every process."""
    blocked = sorted((name, its.text) for name, its in (outcome.blocked | outcome.blocked_zones).items())
    return f"up to date {sorted(outcome.up_to_date)}, unfinished {sorted(outcome.unfinished)}, blocked {blocked}"


def start_round(sim: Simulation, publisher: Publisher) -> None:
    shards = sim.shards
    if sim.faults.chance(0.3):
        shards = [shard for shard in shards if sim.faults.chance(0.6)]
    publisher.machine = publisher.start_round({shard: sim.desired_state(publisher, shard) for shard in shards}, sim)
    publisher.step = next(publisher.machine)


def crash_publisher(sim: Simulation, publisher: Publisher) -> None:
    """Crash and restart a publisher. The database may notice late and hold the locks until then."""
    old = publisher.session
    holds = any(holder is old for holder in old.state.locks.values())
    if holds and sim.faults.occurs("dead publisher holds locks", publisher.name):
        sim.dead_sessions.append(old)
        publisher.session = StateSession(old.state, sim.faults, sim.oracle)
    publisher.abort_round()


def finish_without_faults(sim: Simulation) -> None:
    """Disable the faults. A bounded number of rounds must then finish all work."""
    sim.faults.disabled = True
    sim.faults.trace("FAULTS DISABLED")
    while len(sim.states) > 1:
        end_split(sim)
    sim.log.now += 1
    for digest in samples.PLAN_BY_DIGEST:
        sim.publish_plan(digest)
    for publisher in sim.publishers:
        publisher.abort_round()
        publisher.clock_offset, publisher.keys_held = 0, samples.KEYS
        publisher.test_only_noise = publisher.faulty_writer = False
    if sim.faults.chance(0.5):
        for shard in [*sim.oracle.corrupted]:
            set_shard_aside(sim, shard, sim.states[0])
    check_failed_round(sim)
    held = set(sim.states[0].locks)
    if held:
        finish_shards(sim, [shard for shard in sim.shards if shard not in held])
        while sim.dead_sessions:
            free_dead_locks(sim)
    finish_shards(sim, sim.shards)
    sim.oracle.check_finished(sim.publishers[0].session)


def check_failed_round(sim: Simulation) -> None:
    """Check that a failed round leaves no lock behind."""
    publisher = sim.publishers[0]
    locks = dict(publisher.session.state.locks)
    publisher.channel.broken = True
    try:
        drive_steps(
            publisher.start_round(final_desired_states(sim), sim),
            publisher.session,
            publisher.channel,
            publisher.wait_for_slot,
        )
    except ResponseLost:
        pass
    else:
        raise Violation("error swallowed", "a round without a log ended without an error")
    publisher.channel.broken = False
    if publisher.session.state.locks != locks:
        raise Violation("locks left", f"{sorted(publisher.session.state.locks)} after a failed round")


def final_desired_states(sim: Simulation) -> dict[str, DesiredState]:
    """Return the operator's last settings as changes from the head of each shard."""
    return {shard: _final_desired_state(sim, shard) for shard in sim.shards}


def _final_desired_state(sim: Simulation, shard: str) -> DesiredState:
    head, now, key = sim.oracle.current.get(shard), sim.log.now, sim.signers[sim.key[shard]].public_key
    in_force = None if head is None else head.header["next_key"] or head.header["key"]
    plans = {} if head is None else {row["zone"]: row["plan"] for row in head.table["zones"]}
    return DesiredState(
        until=now - 1,
        priced_from=now - sim.lead + 1,
        opening=sim.opening,
        zones=_final_zones(sim, shard),
        closing=tuple(sorted(sim.closing)),
        plan_changes={
            zone: plan_change(plan, terms)
            for zone, plan in plans.items()
            if plan != (terms := samples.PLANS_BY_ZONE[zone][sim.plan[zone]].terms).plan_digest
        },
        key_change=None if in_force is None or in_force == key else Change(in_force, key),
    )


def _final_zones(sim: Simulation, shard: str) -> dict[str, ZoneOpening]:
    """Return the zones that should be in a shard: those that it has claimed, and those that nobody has."""
    return {
        zone: opening
        for zone, opening in sim.openings.items()
        if shard == sim.log.claims.get(zone, sim.zone_shard[zone])
    }


def finish_shards(sim: Simulation, shards: Iterable[str]) -> None:
    """Run rounds until every shard that is not corrupted is up to date. Each round must add a tile to each of them."""
    to_finish = {shard for shard in shards if shard not in sim.oracle.corrupted}
    max_rounds = 7 + max((_tiles_left(sim, shard) for shard in to_finish), default=0)
    for number in range(max_rounds):
        publisher = sim.publishers[number % len(sim.publishers)]
        desired = final_desired_states(sim)
        sim.steps += 6
        outcome = drive_steps(
            publisher.start_round(desired, sim), publisher.session, publisher.channel, publisher.wait_for_slot
        )
        sim.faults.trace(publisher.name, "finishes:", describe_outcome(outcome))
        sim.oracle.on_round_end(publisher.session, outcome)
        if number % 3 == 1:
            deliver_late(sim)
        if to_finish <= outcome.up_to_date and not _left_to_do(sim, to_finish):
            return
    left = _left_to_do(sim, to_finish)
    raise Violation("unfinished work", f"{left} after {max_rounds} rounds, interval {sim.log.now}")


def _left_to_do(sim: Simulation, shards: Iterable[str]) -> list[str]:
    """Return what the operator still waits for in these shards, by the log alone."""
    left: list[str] = []
    for shard in sorted(shards):
        head, desired = sim.oracle.current.get(shard), _final_desired_state(sim, shard)
        zones = sim.oracle.zones_of(shard)
        left += [f"{zone} is not closed" for zone in zones & sim.closing]
        if head is not None and not zones:  # it has ended
            continue
        left += [f"{zone} is not in {shard}" for zone in desired.zones if zone not in zones | sim.closing]
        if head is None:
            continue
        if head.header["interval"] < desired.until:
            left.append(f"{shard} is at {head.header['interval']}")
        if desired.key_change is not None:
            left.append(f"{shard} has another key")
        left += [f"{zone} has another plan" for zone in desired.plan_changes]
    return left


def _tiles_left(sim: Simulation, shard: str) -> int:
    """Return a bound on the tiles that a shard needs: one for each interval, and two for each zone that enters."""
    head, zones = sim.oracle.current.get(shard), _final_zones(sim, shard)
    first = min((opening.first for opening in zones.values()), default=sim.log.now)
    last = first - 1 if head is None else int(head.header["interval"])
    return sim.log.now - 1 - last + 2 * len(zones.keys() - sim.oracle.zones_of(shard)) + 2 * len(sim.closing)
