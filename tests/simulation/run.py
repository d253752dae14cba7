"""One run of a seed: publishers take steps in any order among faults; then all work must finish without faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from murmurate.publisher.desired_state import Change, DesiredState
from murmurate.publisher.protocol import Outcome
from murmurate.publisher.stores import drive_steps, perform_step
from tests.simulation import sample_plans_and_keys as samples
from tests.simulation.events import EVENTS, deliver_late, end_split, free_dead_locks, offer_forged_entry
from tests.simulation.fault_schedule import ResponseLost, Violation
from tests.simulation.memory_stores import StateSession, describe_entry
from tests.simulation.oracle import is_up_to_date
from tests.simulation.simulator import Publisher, Simulation

ACTIONS = 165  # steps and events in the part with faults
EVENT_SHARE = 0.25
_EVENTS = tuple(event for event, weight in EVENTS for _ in range(weight))


@dataclass(frozen=True, slots=True)
class RunCounts:
    """The counts of one run."""

    faults: Counter[str]
    steps: int
    published: int
    contested: int  # numbers of a chain for which restored or split states sent different lines


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
        offer_forged_entry(sim)  # before any chain is open
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
    blocked = sorted((zone, reason.text) for zone, reason in outcome.blocked.items())
    return f"up to date {sorted(outcome.up_to_date)}, unfinished {sorted(outcome.unfinished)}, blocked {blocked}"


def start_round(sim: Simulation, publisher: Publisher) -> None:
    zones = sim.zones
    if sim.faults.chance(0.3):
        zones = [zone for zone in zones if sim.faults.chance(0.6)]
    publisher.machine = publisher.start_round({zone: sim.desired_state(publisher, zone) for zone in zones}, sim)
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
    for zone in sim.zones:
        sim.log.plans |= {plan.terms.plan_digest for plan in samples.PLANS_BY_ZONE[zone]}
    for publisher in sim.publishers:
        publisher.abort_round()
        publisher.clock_offset, publisher.keys_held, publisher.mismatched_zone, publisher.test_only_noise = (
            0,
            samples.KEYS,
            None,
            False,
        )
    check_failed_round(sim)
    held = set(sim.states[0].locks)
    if held:
        finish_zones(sim, [zone for zone in sim.zones if zone not in held])
        while sim.dead_sessions:
            free_dead_locks(sim)
    finish_zones(sim, sim.zones)
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
    """Return the operator's last settings as changes from the head of each chain."""
    return {zone: _final_desired_state(sim, zone) for zone in sim.zones}


def _final_desired_state(sim: Simulation, zone: str) -> DesiredState:
    head = sim.log.heads[zone]
    plan, key = (
        samples.PLANS_BY_ZONE[zone][sim.plan[zone]].terms.plan_digest,
        sim.signers[sim.key[zone]].public_key,
    )
    now = sim.log.now
    return DesiredState(
        until=now - 1,
        priced_from=now - sim.lead + 1,
        opening=sim.openings[zone],
        plan_change=None if head is None or head.record.plan == plan else Change(head.record.plan, plan),
        key_change=None if head is None or head.key_in_force == key else Change(head.key_in_force, key),
    )


def finish_zones(sim: Simulation, zones: Iterable[str]) -> None:
    """Run rounds until every zone that is not corrupted is up to date. Each round must add a record to each of them."""
    zones_to_finish = {zone for zone in zones if zone not in sim.oracle.corrupted}
    max_rounds = 6 + max((_records_left(sim, zone) for zone in zones_to_finish), default=0)
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
        if zones_to_finish <= outcome.up_to_date and all(
            is_up_to_date(sim.log.heads[z], _final_desired_state(sim, z)) for z in zones_to_finish
        ):
            return
    heads = {zone: describe_entry(sim.log.heads[zone]) for zone in zones_to_finish}
    raise Violation("unfinished work", f"{heads} after {max_rounds} rounds, interval {sim.log.now}")


def _records_left(sim: Simulation, zone: str) -> int:
    head = sim.log.heads[zone]
    last = sim.openings[zone].first - 1 if head is None else head.record.interval
    return sim.log.now - 1 - last
