"""The stage of one run: states, log, clock, publishers and what each of them knows."""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import Any

from murmurate.curator.terms import Terms
from murmurate.publication.desk import Desk
from murmurate.publication.publisher import Step, turn
from murmurate.publication.record import Entry
from murmurate.publication.wish import Change, Opening, Wish
from tests.simulation import cast
from tests.simulation.oracle import Oracle
from tests.simulation.weather import Weather
from tests.simulation.world import Channel, MemoryLog, MemoryState, PutIfAbsentLog, Row, Session, Snapshot, Turn

REAL_SIGNATURES = 100  # every so many seeds
DAWN = 1000  # the interval in which a run begins


class Publisher:
    """One publisher: its connections, its clock, and what its operator has told it."""

    def __init__(self, name: str, stage: Stage, state: MemoryState) -> None:
        self.name = name
        self.session = Session(state, stage.weather, stage.oracle)
        self.channel = Channel(stage.log, stage.weather, stage.post)
        self.ahead = 0  # of the true clock [intervals]
        self.plan = dict.fromkeys(stage.zones, 0)  # the number of the plan that it is told to change to
        self.key = dict.fromkeys(stage.zones, 0)
        self.odd: str | None = None  # a zone for which it is told to change to a plan of other intervals
        self.keys = cast.KEYS  # it holds the first so many
        self.rehearses = False  # with noise from a seed: nothing of it may be public
        self.machine: Generator[Step, Any, Any] | None = None
        self.step: Step | None = None

    def begin(self, wishes: dict[str, Wish], stage: Stage) -> Generator[Step, Any, Any]:
        """A new turn, with nothing remembered from the last."""
        self.session.turn = self.channel.turn = Turn(
            wishes, self.keys < cast.KEYS or self.odd is not None or self.rehearses
        )
        return turn(wishes, stage.desk(self.keys, self.rehearses).write, stage.verify)

    def wait(self) -> None:
        self.session.turn.beaten = True

    def drop(self) -> None:
        """The turn ends here, whatever it was about."""
        if self.machine is not None:
            self.machine.close()
        self.machine = self.step = None
        self.session.rollback()


class Stage:
    """Everything that exists in one run."""

    def __init__(self, seed: int, story: list[str] | None = None) -> None:
        self.seed = seed
        self.rng = Random(seed)  # noqa: S311 - a seed must give the same run again
        self.weather = Weather(self.rng, story)
        below = self.weather.below
        self.zones = cast.ZONES[: 1 + below(len(cast.ZONES))]
        self.lead = 2 + below(5)
        self.signers, self.verify = cast.keyring(seed % REAL_SIGNATURES == 0)
        self.noise = cast.CountedNoise()
        self.oracle = Oracle(self.noise, self.verify)
        self.log = (PutIfAbsentLog if below(3) == 0 else MemoryLog)(self.zones, self.oracle)
        self.oracle.log = self.log
        self.log.now = DAWN
        self.post: list[list[Entry]] = []
        self.forgotten: set[str] = set()  # plans that no desk knows any more
        self.zombies: list[Session] = []  # dead publishers whose locks are still held
        self.states = [MemoryState("A", Snapshot(dict.fromkeys(self.zones, Row()), {}))]
        self.named = 1
        self.backups = [self.states[0].snapshot()]
        self.publishers = [Publisher(f"p{n}", self, self.states[0]) for n in range(1 + below(4))]
        self.energies = 0
        self.openings = {
            zone: Opening(
                plan=cast.PLANS_OF[zone][0].terms.plan,
                key=self.signers[0].public,
                first=DAWN - 1 - below(3),
                lead=self.lead,
            )
            for zone in self.zones
        }
        for zone in self.zones:
            for interval in range(DAWN - 3, DAWN):
                self.states[0].demand[zone, interval] = self.new_demand(zone, interval)
        self.log.plans |= {opening.plan for opening in self.openings.values()}
        self.plan = dict.fromkeys(self.zones, 0)  # the newest plan and key that the operator has spoken of
        self.key = dict.fromkeys(self.zones, 0)
        self._desks: dict[tuple[int, bool], Desk] = {}
        self.steps = 0
        self.haste = 1 - 0.6 * self.rng.random()  # how often a publisher takes two steps in a row
        self.at_work = self.publishers[0]

    def desk(self, keys: int, rehearses: bool) -> Desk:
        """A desk with the first so many keys."""
        if (keys, rehearses) not in self._desks:
            signers = {signer.public: signer for signer in self.signers[:keys]}
            noise = cast.Rehearsed(self.noise) if rehearses else self.noise
            desk = Desk(terms=self.terms, signers=signers, noise=noise)
            self._desks[keys, rehearses] = desk
        return self._desks[keys, rehearses]

    def terms(self, plan: str) -> Terms | None:
        return None if plan in self.forgotten else cast.TARIFFS[plan].terms

    def wish(self, publisher: Publisher, zone: str) -> Wish:
        """What this publisher believes should be public: by its own clock, and as far as it was told."""
        clock = self.log.now + publisher.ahead
        plans, number, keys = cast.PLANS_OF[zone], publisher.plan[zone], publisher.key[zone]
        change = Change(plans[number - 1].terms.plan, plans[number].terms.plan) if number else None
        if publisher.odd == zone:
            change = Change(plans[number].terms.plan, cast.ODD_PLAN_OF[zone].terms.plan)
        return Wish(
            until=clock - 1,
            in_time_from=clock - self.lead + 1,
            opening=self.openings[zone],
            plan=change,
            key=Change(self.signers[keys - 1].public, self.signers[keys].public) if keys else None,
        )

    def new_demand(self, zone: str, interval: int) -> int:
        """A demand that was never handed out before [Wh]."""
        self.energies += 1
        self.oracle.demand[self.energies] = (zone, interval)
        return self.energies

    def pick(self, things: Any) -> Any:
        return things[self.weather.below(len(things))]
