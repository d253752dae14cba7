"""Everything that exists in one simulated run: states, log, clock, publishers and their settings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from murmurate.planning.release_terms import ReleaseTerms
from murmurate.prediction.public_inputs import Inputs
from murmurate.public_log.tile import TileHeader, sign_tile
from murmurate.publisher.desired_state import Change, DesiredState, NextTile, PlanChange, ShardOpening, ZoneOpening
from murmurate.publisher.protocol import publish_round
from murmurate.publisher.steps import Drafts, Step, WriteTiles
from murmurate.publisher.tile_writer import TileWriter
from murmurate.types import Demand
from tests.simulation import sample_plans_and_keys as samples
from tests.simulation.fault_schedule import FaultSchedule
from tests.simulation.memory_objects import MemoryObjects, ObjectLogConnection
from tests.simulation.memory_stores import (
    LogConnection,
    MemoryLog,
    MemoryState,
    ObservedRound,
    ShardRow,
    Snapshot,
    StateSession,
)
from tests.simulation.oracle import Oracle

REAL_SIGNATURES_EVERY = 100  # seeds
START_INTERVAL = 1000  # the current interval when a run begins


class Publisher:
    """One publisher: its connections, its clock, and the settings that its operator gave it."""

    def __init__(self, name: str, sim: Simulation, state: MemoryState) -> None:
        self.name = name
        self.session = StateSession(state, sim.faults, sim.oracle)
        self.channel = sim.new_connection()
        self.clock_offset = 0  # relative to the true clock [intervals]
        self.zones: dict[str, dict[str, ZoneOpening]] = {shard: {} for shard in sim.shards}
        self.plan = dict.fromkeys(sim.zones, 0)  # the number of the plan that it must change to
        self.key = dict.fromkeys(sim.shards, 0)
        self.closing: set[str] = set()  # zones that it must close
        self.mismatched_zone: str | None = None  # it must change this zone to a plan with other intervals
        self.keys_held = samples.KEYS  # it holds the first keys_held keys
        self.test_only_noise = False  # its noise is marked test_only: the log must take none of it
        self.faulty_writer = False  # its tiles break a rule: it must send none of them
        self.machine: Generator[Step, Any, Any] | None = None
        self.step: Step | None = None

    def start_round(self, desired: dict[str, DesiredState], sim: Simulation) -> Generator[Step, Any, Any]:
        """Start a new round without any memory of the last one."""
        may_block = self.keys_held < samples.KEYS or self.test_only_noise or self.faulty_writer
        self.session.observed = self.channel.observed = ObservedRound(desired, may_block)
        write_tiles = sim.tile_writer(self.keys_held, self.test_only_noise).write_tiles
        if self.faulty_writer:
            write_tiles = partial(sim.write_faulty_tiles, write_tiles)
        return publish_round(desired, write_tiles, sim.verify)

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
        self.shards = samples.SHARDS[: 1 + below(len(samples.SHARDS))]
        names = iter(samples.ZONES)
        self.zone_shard = {  # where the operator wants each zone
            next(names): shard for shard in self.shards for _ in range(1 + below(samples.MAX_ZONES_OF_A_SHARD))
        }
        self.zones = tuple(self.zone_shard)
        self.lead = 2 + below(5)
        self.signers, self.verify = samples.sample_keyring(seed % REAL_SIGNATURES_EVERY == 0)
        self.noise = samples.CountedNoise()
        self.unknown_plans: set[str] = set()  # plans that no tile writer can load
        self.oracle = Oracle(self.faults, self.noise, self.verify, self.unknown_plans)
        self.log = (MemoryObjects if below(3) == 0 else MemoryLog)(self.shards, self.oracle)
        self.oracle.log = self.log
        self.log.now = START_INTERVAL
        self.oracle.inputs_until = START_INTERVAL - 1
        self.delayed: list[Callable[[], int]] = []
        self.dead_sessions: list[StateSession] = []  # of crashed publishers; their locks are still held
        self.states = [MemoryState("A", Snapshot(dict.fromkeys(self.shards, ShardRow()), {}))]
        self.states_created = 1
        self.backups = [self.states[0].snapshot()]
        self.publishers = [Publisher(f"p{n}", self, self.states[0]) for n in range(1 + below(4))]
        self.demands_created = 0
        for zone in self.zones:
            for interval in range(START_INTERVAL - 3, START_INTERVAL):
                self.states[0].demand[zone, interval] = self.new_demand(zone, interval)
        key = self.signers[0].public_key
        self.opening = ShardOpening(key=key, interval_s=samples.INTERVAL_S, lead=self.lead)
        self.openings: dict[str, ZoneOpening] = {}  # of zones that the operator has opened
        self.plan = dict.fromkeys(self.zones, 0)  # the newest plan of each zone that the operator has set
        self.key = dict.fromkeys(self.shards, 0)  # and the newest key of each shard
        self.closing: set[str] = set()  # zones that the operator has closed
        for number, zone in enumerate(self.zones):
            if number == 0 or self.zone_shard[zone] != self.zone_shard[self.zones[number - 1]] or below(3):
                self.open_zone(zone, START_INTERVAL - 1 - below(3))
        for zone, opening in self.openings.items():
            for publisher in self.publishers:
                publisher.zones[self.zone_shard[zone]][zone] = opening
        self._writers: dict[tuple[int, bool], TileWriter] = {}
        self.steps = 0
        self.repeat_probability = 1 - 0.6 * self.rng.random()  # that the same publisher takes the next step
        self.active_publisher = self.publishers[0]

    def new_connection(self) -> LogConnection:
        """Return the connection of another publisher to the log."""
        if isinstance(self.log, MemoryObjects):
            return ObjectLogConnection(self.log, self.faults, self.delayed, self.verify)
        return LogConnection(self.log, self.faults, self.delayed)

    def publish_plan(self, digest: str) -> None:
        """The operator publishes a plan."""
        self.log.documents.setdefault(digest, samples.PLAN_TEXTS[digest])

    def open_zone(self, zone: str, first: int) -> None:
        """The operator publishes the first plan of a zone and decides where it begins."""
        terms = samples.PLANS_BY_ZONE[zone][0].terms
        self.publish_plan(terms.plan_digest)
        self.openings[zone] = ZoneOpening(plan=terms.plan_digest, currency=terms.currency, tick=terms.tick, first=first)

    def tile_writer(self, keys: int, test_only: bool) -> TileWriter:
        """Return a tile writer that holds the first `keys` keys."""
        if (keys, test_only) not in self._writers:
            signers = {signer.public_key: signer for signer in self.signers[:keys]}
            noise = samples.TestOnlyCountedNoise(self.noise) if test_only else self.noise
            self._writers[keys, test_only] = TileWriter(
                terms_for_plan=self.terms, signers=signers, noise=noise, find_inputs=self.find_inputs
            )
        return self._writers[keys, test_only]

    def write_faulty_tiles(self, write_tiles: WriteTiles, next_tiles: Mapping[str, NextTile], demand: Demand) -> Drafts:
        """Return tiles that do not follow the head of their shard."""
        drafts = write_tiles(next_tiles, demand)
        for shard, tile in drafts.written.items():
            signer = next(signer for signer in self.signers if signer.public_key == tile.header.key)
            if len(tile.rows) and self.faults.chance(0.5):
                rows = tile.rows.copy()
                rows["total_epsilon_micro"] += 1
                drafts.written[shard] = sign_tile(tile.header, signer, rows)
            else:
                drafts.written[shard] = sign_tile(replace(tile.header, prev="f" * 64), signer, tile.rows)
        return drafts

    def terms(self, plan: str) -> ReleaseTerms | None:
        return None if plan in self.unknown_plans else samples.PLAN_BY_DIGEST[plan].terms

    def desired_state(self, publisher: Publisher, shard: str) -> DesiredState:
        """Return the desired state of a shard by this publisher's own clock and settings."""
        clock, keys = self.log.now + publisher.clock_offset, publisher.key[shard]
        changes = {
            zone: plan_change(plans[number - 1].terms.plan_digest, plans[number].terms)
            for zone, number in publisher.plan.items()
            if number and (plans := samples.PLANS_BY_ZONE[zone])
        }
        zone = publisher.mismatched_zone
        if zone is not None:
            now = samples.PLANS_BY_ZONE[zone][publisher.plan[zone]].terms.plan_digest
            changes[zone] = plan_change(now, samples.MISMATCHED_PLAN_BY_ZONE[zone].terms)
        return DesiredState(
            until=clock - 1,
            priced_from=clock - self.lead + 1,
            opening=self.opening,
            zones=dict(publisher.zones[shard]),
            closing=tuple(sorted(publisher.closing)),
            plan_changes=changes,
            key_change=Change(self.signers[keys - 1].public_key, self.signers[keys].public_key) if keys else None,
        )

    def find_inputs(self, series: Collection[str], header: TileHeader, interval: int) -> Inputs:
        """Return the public values of a tile that are known now."""
        return samples.find_inputs(series, header, interval, self.oracle.inputs_until)

    def new_demand(self, zone: str, interval: int) -> int:
        """Return a demand that no zone and interval had before [Wh]. One of five is below zero: homes feed in."""
        self.demands_created += 1
        energy_wh = self.demands_created if self.demands_created % 5 else -self.demands_created
        self.oracle.demand[energy_wh] = (zone, interval)
        return energy_wh

    def pick(self, things: Any) -> Any:
        """Return one of the things by chance."""
        return things[self.faults.below(len(things))]


def plan_change(before: str, terms: ReleaseTerms) -> PlanChange:
    """Return the change from one plan to another."""
    return PlanChange(before, terms.plan_digest, terms.currency, terms.tick)
