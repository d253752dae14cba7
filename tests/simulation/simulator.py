"""Everything that exists in one simulated run: states, log, clock, publishers and their settings."""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import Any

from murmurate.planning.release_terms import ReleaseTerms
from murmurate.public_log.record import Entry
from murmurate.publisher.desired_state import Change, DesiredState, Opening
from murmurate.publisher.protocol import Step, publish_round
from murmurate.publisher.record_writer import RecordWriter
from tests.simulation import sample_plans_and_keys as samples
from tests.simulation.fault_schedule import FaultSchedule
from tests.simulation.memory_stores import (
    LogConnection,
    MemoryLog,
    MemoryState,
    ObservedRound,
    PutIfAbsentLog,
    Snapshot,
    StateSession,
    ZoneRow,
)
from tests.simulation.oracle import Oracle

REAL_SIGNATURES_EVERY = 100  # seeds
START_INTERVAL = 1000  # the current interval when a run begins


class Publisher:
    """One publisher: its connections, its clock, and the settings that its operator gave it."""

    def __init__(self, name: str, sim: Simulation, state: MemoryState) -> None:
        self.name = name
        self.session = StateSession(state, sim.faults, sim.oracle)
        self.channel = LogConnection(sim.log, sim.faults, sim.delayed)
        self.clock_offset = 0  # relative to the true clock [intervals]
        self.plan = dict.fromkeys(sim.zones, 0)  # the number of the plan that it must change to
        self.key = dict.fromkeys(sim.zones, 0)
        self.mismatched_zone: str | None = None  # it must change this zone to a plan with other intervals
        self.keys_held = samples.KEYS  # it holds the first keys_held keys
        self.test_only_noise = False  # its noise is marked test_only: the log must take none of it
        self.machine: Generator[Step, Any, Any] | None = None
        self.step: Step | None = None

    def start_round(self, desired: dict[str, DesiredState], sim: Simulation) -> Generator[Step, Any, Any]:
        """Start a new round without any memory of the last one."""
        self.session.observed = self.channel.observed = ObservedRound(
            desired,
            self.keys_held < samples.KEYS or self.mismatched_zone is not None or self.test_only_noise,
        )
        return publish_round(desired, sim.record_writer(self.keys_held, self.test_only_noise).write_entries, sim.verify)

    def wait_for_slot(self) -> None:
        self.session.observed.slot_reached = True

    def abort_round(self) -> None:
        """End the round at its current step and release the locks."""
        if self.machine is not None:
            self.machine.close()
        self.machine = self.step = None
        self.session.rollback()


class Simulation:
    """One run: all stores, publishers, plans, keys and the oracle."""

    def __init__(self, seed: int, trace: list[str] | None = None) -> None:
        self.seed = seed
        self.rng = Random(seed)  # noqa: S311 - a seed must give the same run again
        self.faults = FaultSchedule(self.rng, trace)
        below = self.faults.below
        self.zones = samples.ZONES[: 1 + below(len(samples.ZONES))]
        self.lead = 2 + below(5)
        self.signers, self.verify = samples.sample_keyring(seed % REAL_SIGNATURES_EVERY == 0)
        self.noise = samples.CountedNoise()
        self.oracle = Oracle(self.noise, self.verify)
        self.log = (PutIfAbsentLog if below(3) == 0 else MemoryLog)(self.zones, self.oracle)
        self.oracle.log = self.log
        self.log.now = START_INTERVAL
        self.delayed: list[list[Entry]] = []
        self.unknown_plans: set[str] = set()  # plans that no record writer can load
        self.dead_sessions: list[StateSession] = []  # of crashed publishers; their locks are still held
        self.states = [MemoryState("A", Snapshot(dict.fromkeys(self.zones, ZoneRow()), {}))]
        self.states_created = 1
        self.backups = [self.states[0].snapshot()]
        self.publishers = [Publisher(f"p{n}", self, self.states[0]) for n in range(1 + below(4))]
        self.demands_created = 0
        self.openings = {
            zone: Opening(
                plan=samples.PLANS_BY_ZONE[zone][0].terms.plan_digest,
                key=self.signers[0].public_key,
                first=START_INTERVAL - 1 - below(3),
                lead=self.lead,
            )
            for zone in self.zones
        }
        for zone in self.zones:
            for interval in range(START_INTERVAL - 3, START_INTERVAL):
                self.states[0].demand[zone, interval] = self.new_demand(zone, interval)
        self.log.plans |= {opening.plan for opening in self.openings.values()}
        self.plan = dict.fromkeys(self.zones, 0)  # the newest plan and key that the operator has set
        self.key = dict.fromkeys(self.zones, 0)
        self._writers: dict[tuple[int, bool], RecordWriter] = {}
        self.steps = 0
        self.repeat_probability = 1 - 0.6 * self.rng.random()  # that the same publisher takes the next step
        self.active_publisher = self.publishers[0]

    def record_writer(self, keys: int, test_only: bool) -> RecordWriter:
        """Return a record writer that holds the first `keys` keys."""
        if (keys, test_only) not in self._writers:
            signers = {signer.public_key: signer for signer in self.signers[:keys]}
            noise = samples.TestOnlyCountedNoise(self.noise) if test_only else self.noise
            writer = RecordWriter(terms_for_plan=self.terms, signers=signers, noise=noise)
            self._writers[keys, test_only] = writer
        return self._writers[keys, test_only]

    def terms(self, plan: str) -> ReleaseTerms | None:
        return None if plan in self.unknown_plans else samples.PLAN_BY_DIGEST[plan].terms

    def desired_state(self, publisher: Publisher, zone: str) -> DesiredState:
        """Return the desired state of a zone by this publisher's own clock and settings."""
        clock = self.log.now + publisher.clock_offset
        plans, number, keys = samples.PLANS_BY_ZONE[zone], publisher.plan[zone], publisher.key[zone]
        change = Change(plans[number - 1].terms.plan_digest, plans[number].terms.plan_digest) if number else None
        if publisher.mismatched_zone == zone:
            change = Change(plans[number].terms.plan_digest, samples.MISMATCHED_PLAN_BY_ZONE[zone].terms.plan_digest)
        return DesiredState(
            until=clock - 1,
            priced_from=clock - self.lead + 1,
            opening=self.openings[zone],
            plan_change=change,
            key_change=Change(self.signers[keys - 1].public_key, self.signers[keys].public_key) if keys else None,
        )

    def new_demand(self, zone: str, interval: int) -> int:
        """Return a demand that no zone and interval had before [Wh]."""
        self.demands_created += 1
        self.oracle.demand[self.demands_created] = (zone, interval)
        return self.demands_created

    def pick(self, things: Any) -> Any:
        """Return one of the things by chance."""
        return things[self.faults.below(len(things))]
