"""What the world does to the publishers, between their steps: each event is a function of the stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from murmurate.publication.chain import refuse_misfit
from murmurate.publication.record import Entry, sign
from tests.simulation import cast
from tests.simulation.forgery import Stranger, altered, forge, unsigned
from tests.simulation.theatre import DAWN, Publisher, Stage
from tests.simulation.world import MemoryState

Event = Callable[[Stage], None]


def time_passes(stage: Stage) -> None:
    """An interval ends; its demand becomes known to each state by itself, or comes late, or never."""
    stage.log.now += 1
    stage.weather.tell("TIME", stage.log.now)
    for zone in stage.zones:
        for state in stage.states:
            if stage.weather.chance(0.8):
                state.demand[zone, stage.log.now - 1] = stage.new_demand(zone, stage.log.now - 1)
            else:
                stage.weather.count("demand missing", zone, "in", state.name)


def demand_corrected(stage: Stage) -> None:
    """Another demand for an interval, before or after its release; known to one state only."""
    zone, state = stage.pick(stage.zones), stage.pick(stage.states)
    interval = stage.log.now - stage.weather.below(4)  # also of the running one, too early
    fault = "demand corrected" if (zone, interval) in state.demand else "demand early or late"
    state.demand[zone, interval] = stage.new_demand(zone, interval)
    stage.weather.count(fault, zone, interval, "in", state.name)


def backup_taken(stage: Stage) -> None:
    stage.backups.append(stage.pick(stage.states).snapshot())
    stage.weather.tell("BACKUP", len(stage.backups) - 1)


def state_restored(stage: Stage) -> None:
    """An old backup takes the place of a state; demand that came since is forgotten, or entered again with errors."""
    state, number = stage.pick(stage.states), stage.weather.below(len(stage.backups))
    state.set_back(stage.backups[number])
    stage.weather.count("state restored", state.name, "from backup", number)
    for zone in stage.zones if stage.weather.chance(0.5) else ():
        for interval in range(max(DAWN, stage.log.now - 3), stage.log.now):
            state.demand[zone, interval] = stage.new_demand(zone, interval)


def failover(stage: Stage) -> None:
    """The primary is lost; its replica had not received the last commits."""
    state = stage.pick(stage.states)
    behind = stage.weather.below(len(state.history))
    state.set_back(state.history[-1 - behind])
    stage.weather.count("failover", state.name, "loses", behind, "commits")


def state_splits(stage: Stage) -> None:
    """Two databases believe that they are the one; each publisher talks to either."""
    if len(stage.states) > 2:
        return
    old = stage.pick(stage.states)
    new = MemoryState("ABCDEFGHIJKLMNOPQRSTUVWXYZ"[stage.named % 26], stage.pick(old.history))
    stage.named += 1
    stage.states.append(new)
    stage.weather.count("split brain", old.name, "and", new.name)
    for publisher in stage.publishers:
        if publisher.session.state is old and stage.weather.chance(0.5):
            move(stage, publisher, new)


def split_ends(stage: Stage) -> None:
    """One side is thrown away with everything that only it knew."""
    if len(stage.states) == 1:
        return
    lost = stage.states.pop(stage.weather.below(len(stage.states)))
    lost.epoch += 1
    stage.weather.count("split brain ends", lost.name, "is lost")
    stage.zombies = [zombie for zombie in stage.zombies if zombie.state is not lost]
    for publisher in stage.publishers:
        if publisher.session.state is lost:
            move(stage, publisher, stage.pick(stage.states))


def move(stage: Stage, publisher: Publisher, state: MemoryState) -> None:
    """The next turn is taken on another state; one that has committed may still send what it wrote."""
    session = publisher.session
    open_transaction = session.turn.saved is None
    session.rollback()
    if open_transaction:
        publisher.drop()
    session.state = state
    stage.weather.tell("  ", publisher.name, "now on", state.name)


def clock_jumps(stage: Stage) -> None:
    """A publisher's clock is wrong. Only a log with a clock of its own keeps one that is fast from publishing early."""
    publisher = stage.pick(stage.publishers)
    publisher.ahead = stage.weather.below(7) - (3 if stage.log.strict else 6)
    stage.weather.count("clock jump", publisher.name, publisher.ahead)


def plan_changes(stage: Stage) -> None:
    """The operator wants the next plan, shows it, and tells some of the publishers."""
    zone = stage.pick(stage.zones)
    told = [publisher for publisher in stage.publishers if stage.weather.chance(0.5)]
    stage.plan[zone] = number = min(stage.plan[zone] + 1, 2)
    if stage.weather.chance(0.7):
        stage.log.plans.add(cast.PLANS_OF[zone][number].terms.plan)
    for publisher in told:
        publisher.plan[zone] = number
    stage.weather.count("plan change told to some", zone, number, *(publisher.name for publisher in told))


def key_rotates(stage: Stage) -> None:
    """Another key; not everybody is told, and not everybody holds it."""
    zone = stage.pick(stage.zones)
    stage.key[zone] = number = min(stage.key[zone] + 1, cast.KEYS - 1)
    for publisher in stage.publishers:
        publisher.keys = cast.KEYS - stage.weather.chance(0.1)
        if stage.weather.chance(0.5):
            publisher.key[zone] = number
    stage.weather.count("key rotation told to some", zone, number)


def odd_plan(stage: Stage) -> None:
    """Somebody is told to change to a plan of other intervals, or no longer."""
    publisher = stage.pick(stage.publishers)
    publisher.odd = None if publisher.odd else stage.pick(stage.zones)
    stage.weather.count("plan of other intervals", publisher.name, publisher.odd)


def rehearsal(stage: Stage) -> None:
    """Somebody publishes with seeded noise by mistake, or stops doing so."""
    publisher = stage.pick(stage.publishers)
    publisher.rehearses = not publisher.rehearses
    stage.weather.count("rehearsal", publisher.name, publisher.rehearses)


def late_delivery(stage: Stage) -> None:
    if stage.post:
        entries = stage.post.pop(stage.weather.below(len(stage.post)))
        taken = sum(stage.log.take(entry) for entry in entries)
        stage.weather.count("late delivery", f"{taken} of {len(entries)} taken")


def locks_time_out(stage: Stage) -> None:
    if stage.zombies:
        stage.zombies.pop().rollback()
        stage.weather.tell("LOCKS of a dead publisher are freed")


def stranger_offers(stage: Stage) -> None:
    """Somebody offers a line, properly signed. A log that looks refuses it if it breaks a rule, and only then."""
    zone = stage.pick(stage.zones)
    if zone in stage.oracle.poisoned or not stage.log.strict:
        return
    entry, broken = altered(stage, zone)
    stage.weather.count("stranger's line offered", zone, broken or "fits")
    if broken:
        stage.log.take(entry)
    else:
        refuse_misfit(stage.log.heads[zone], entry)


def poison(stage: Stage) -> None:
    """One zone is spoilt for good. The others must not notice."""
    if stage.oracle.poisoned or len(stage.zones) == 1:
        return
    zone = stage.pick(stage.zones)
    how = stage.pick(_POISONS if stage.log.strict else _WEAK_POISONS)
    if how == "plan unknown":
        stage.forgotten |= {tariff.terms.plan for tariff in cast.PLANS_OF[zone]}
    elif how == "state unreadable":
        state = stage.pick(stage.states)
        state.rows[zone] = state.rows[zone]._replace(unreadable=True)
    elif how == "state damaged":
        if not _damage(stage, zone):
            return
    elif not _spoil(stage, zone, how):
        return
    stage.oracle.poisoned[zone] = how
    stage.weather.count("zone poisoned", zone, how)


_POISONS = ("plan unknown", "state unreadable", "state damaged", "line unsigned")
_WEAK_POISONS = (
    "plan unknown",
    "state unreadable",
    "line unsigned",
    "line misfit",
    "line misfit",
    "line misfit",
    "line garbage",
)


def _damage(stage: Stage, zone: str) -> bool:
    state = stage.pick(stage.states)
    row = state.rows[zone]
    if row.head is None:
        return False
    record = row.head.record
    stage.oracle.damaged = sign(replace(record, applies=record.applies + 1), Stranger())
    state.rows[zone] = row._replace(head=stage.oracle.damaged)
    return True


def _spoil(stage: Stage, zone: str, how: str) -> bool:
    """The log holds a line that no publisher may take for public."""
    entry: Entry | None
    if how == "line unsigned":
        entry = unsigned(stage, zone)
    elif how == "line misfit":
        entry, broken = altered(stage, zone)
        entry = entry if broken else None
    else:
        entry = replace(forge(stage, zone), line="{}")
    if entry is not None:
        stage.log.put(zone, entry)
    return entry is not None


EVENTS: tuple[tuple[Event, int], ...] = (
    (time_passes, 9),
    (demand_corrected, 11),
    (backup_taken, 4),
    (state_restored, 5),
    (failover, 5),
    (state_splits, 5),
    (split_ends, 4),
    (clock_jumps, 6),
    (plan_changes, 4),
    (key_rotates, 4),
    (odd_plan, 1),
    (rehearsal, 1),
    (late_delivery, 18),
    (locks_time_out, 8),
    (stranger_offers, 4),
    (poison, 2),
)
