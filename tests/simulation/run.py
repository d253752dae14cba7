"""One seed, one run: publishers step by step in any order, faults between and within the steps, then healing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from murmurate.publication.publisher import Outcome
from murmurate.publication.stores import drive, perform
from murmurate.publication.wish import Change, Wish
from tests.simulation import cast
from tests.simulation.events import EVENTS, late_delivery, locks_time_out, split_ends, stranger_offers
from tests.simulation.oracle import fulfilled
from tests.simulation.theatre import Publisher, Stage
from tests.simulation.weather import Lost, Violation
from tests.simulation.world import Session, brief

TICKS = 165  # steps and events of the stormy part
EVENT_SHARE = 0.25
_EVENTS = tuple(event for event, weight in EVENTS for _ in range(weight))


@dataclass(frozen=True, slots=True)
class Figures:
    """What a run came to."""

    faults: Counter[str]
    steps: int
    published: int
    contested: int  # numbers of a chain for which different lines were sent, by states that had forgotten or split


class Failure(AssertionError):  # noqa: N818 - the end of a run, whoever is at fault
    """A run that went wrong: which seed, what kind of violation, and the story when it is told again."""

    def __init__(self, seed: int, kind: str, facts: str) -> None:
        super().__init__(f"seed {seed}: {facts}")
        self.kind = kind
        self.seed = seed


def simulate(seed: int, story: list[str] | None = None) -> Figures:
    """Play one seed. Raises Failure when anything happens that must not, an unforeseen exception included."""
    stage = Stage(seed, story)
    try:
        storm(stage)
        heal(stage)
    except Violation as broken:
        raise Failure(seed, broken.kind, str(broken)) from broken
    except Exception as error:
        raise Failure(seed, "unforeseen exception", f"unforeseen {type(error).__name__}: {error}") from error
    return Figures(stage.weather.counts, stage.steps, stage.oracle.published, len(stage.oracle.contested))


def storm(stage: Stage) -> None:
    """Everything goes wrong, in any order."""
    chance, pick = stage.weather.chance, stage.pick
    if chance(0.3):
        stranger_offers(stage)  # while no chain is open
    for _ in range(TICKS):
        if chance(EVENT_SHARE):
            pick(_EVENTS)(stage)
        else:
            if not chance(stage.haste):
                stage.at_work = pick(stage.publishers)
            advance(stage, stage.at_work)


def advance(stage: Stage, publisher: Publisher) -> None:
    """One step of a publisher, or its death."""
    weather = stage.weather
    stage.steps += 1
    if publisher.machine is None:
        begin(stage, publisher)
    if weather.strikes("crash before a step", publisher.name):
        crash(stage, publisher)
        return
    weather.tell(publisher.name, "on", publisher.session.state.name, type(publisher.step).__name__)
    try:
        answer = perform(publisher.step, publisher.session, publisher.channel, publisher.wait)
    except Lost:
        weather.tell("  no answer")
        publisher.drop()
        return
    if answer == {} and weather.chance(0.9):  # others hold everything: wait, rather than go through an empty turn
        publisher.drop()
        return
    if weather.strikes("crash after a step", publisher.name):
        crash(stage, publisher)
        return
    try:
        publisher.step = publisher.machine.send(answer)
    except StopIteration as finished:
        publisher.machine = None
        weather.tell("  ends its turn:", told(finished.value))
        stage.oracle.ended(publisher.session, finished.value)


def told(outcome: Outcome) -> str:
    """An outcome in a story, the same in every process."""
    return f"done {sorted(outcome.done)}, moved {sorted(outcome.moved)}, aside {sorted(outcome.aside.items())}"


def begin(stage: Stage, publisher: Publisher) -> None:
    zones = stage.zones
    if stage.weather.chance(0.3):
        zones = [zone for zone in zones if stage.weather.chance(0.6)]
    publisher.machine = publisher.begin({zone: stage.wish(publisher, zone) for zone in zones}, stage)
    publisher.step = next(publisher.machine)


def crash(stage: Stage, publisher: Publisher) -> None:
    """A publisher dies and is started again. Its server may notice late, and hold the locks until then."""
    old = publisher.session
    holds = any(holder is old for holder in old.state.locks.values())
    if holds and stage.weather.strikes("dead publisher holds locks", publisher.name):
        stage.zombies.append(old)
        publisher.session = Session(old.state, stage.weather, stage.oracle)
    publisher.drop()


def heal(stage: Stage) -> None:
    """No more faults: whatever happened, a bounded number of turns must finish all work."""
    stage.weather.calm = True
    stage.weather.tell("CALM")
    while len(stage.states) > 1:
        split_ends(stage)
    stage.log.now += 1
    for zone in stage.zones:
        stage.log.plans |= {tariff.terms.plan for tariff in cast.PLANS_OF[zone]}
    for publisher in stage.publishers:
        publisher.drop()
        publisher.ahead, publisher.keys, publisher.odd, publisher.rehearses = 0, cast.KEYS, None, False
    broken_turn(stage)
    held = set(stage.states[0].locks)
    if held:
        finish(stage, [zone for zone in stage.zones if zone not in held])
        while stage.zombies:
            locks_time_out(stage)
    finish(stage, stage.zones)
    stage.oracle.settled(stage.publishers[0].session)


def broken_turn(stage: Stage) -> None:
    """A turn that fails must leave no lock behind."""
    publisher = stage.publishers[0]
    locks = dict(publisher.session.state.locks)
    publisher.channel.broken = True
    try:
        drive(publisher.begin(last_wishes(stage), stage), publisher.session, publisher.channel, publisher.wait)
    except Lost:
        pass
    else:
        raise Violation("error swallowed", "a turn without a log ended as if nothing had happened")
    publisher.channel.broken = False
    if publisher.session.state.locks != locks:
        raise Violation("locks left", f"{sorted(publisher.session.state.locks)} after a failed turn")


def last_wishes(stage: Stage) -> dict[str, Wish]:
    """What the operator wants in the end, seen from where the chain stands."""
    return {zone: _last_wish(stage, zone) for zone in stage.zones}


def _last_wish(stage: Stage, zone: str) -> Wish:
    head = stage.log.heads[zone]
    plan, key = cast.PLANS_OF[zone][stage.plan[zone]].terms.plan, stage.signers[stage.key[zone]].public
    now = stage.log.now
    return Wish(
        until=now - 1,
        in_time_from=now - stage.lead + 1,
        opening=stage.openings[zone],
        plan=None if head is None or head.record.plan == plan else Change(head.record.plan, plan),
        key=None if head is None or head.key == key else Change(head.key, key),
    )


def finish(stage: Stage, zones: Iterable[str]) -> None:
    """Turn after turn until every healthy zone of these is done; each turn must bring each of them one record on."""
    healthy = {zone for zone in zones if zone not in stage.oracle.poisoned}
    work = 6 + max((_records_left(stage, zone) for zone in healthy), default=0)
    for number in range(work):
        publisher = stage.publishers[number % len(stage.publishers)]
        wishes = last_wishes(stage)
        stage.steps += 6
        outcome = drive(publisher.begin(wishes, stage), publisher.session, publisher.channel, publisher.wait)
        stage.weather.tell(publisher.name, "heals:", told(outcome))
        stage.oracle.ended(publisher.session, outcome)
        if number % 3 == 1:
            late_delivery(stage)
        if healthy <= outcome.done and all(fulfilled(stage.log.heads[z], _last_wish(stage, z)) for z in healthy):
            return
    stands = {zone: brief(stage.log.heads[zone]) for zone in healthy}
    raise Violation("unfinished work", f"{stands} after {work} turns, interval {stage.log.now}")


def _records_left(stage: Stage, zone: str) -> int:
    head = stage.log.heads[zone]
    last = stage.openings[zone].first - 1 if head is None else head.record.interval
    return stage.log.now - 1 - last
