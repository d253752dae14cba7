"""One turn of a publisher, as a machine of steps that somebody else performs.

    lock the zones ─ read the log ─ recall the demand ─ write, save as pending, COMMIT ─ wait for the beat ─ append

The machine yields each step and is sent the answer. It remembers nothing between turns and catches nothing: whatever
goes wrong, whatever the answer to an append was, even none, whoever drives it rolls back and begins a new turn. All
that it must know is in the state (pending draws, what it has seen of the log) and in the log (what is public).

Why at most one draw leaves for a zone and interval: an entry is sent only after it was saved as the zone's pending one;
while it may still be appended (it follows the head) no other is written; the log takes at most one entry after each
head; intervals only grow along a chain. A state that was set back forgets its pending draw, and may send a second one;
the log takes one of the two. Proof and assumptions: `publisher.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from murmurate.errors import ChainError
from murmurate.publication.chain import Verify, follow, refuse_misfit
from murmurate.publication.desk import Drafts
from murmurate.publication.record import Entry, read
from murmurate.publication.wish import Task, Wish, next_task
from murmurate.quantities import Demand


class Known(NamedTuple):
    """What the state holds about a zone: the last entry it has seen in the log, and a draw that may have been sent."""

    head: Entry | None
    pending: Entry | None
    damage: str | None = None  # why neither can be read


class Beyond(NamedTuple):
    """What the log holds about a zone beyond a number: some of the next lines in order, and where its chain ends."""

    last_seq: int  # -1: it has no chain
    lines: tuple[str, ...]
    last_hash: str  # of the line with the number last_seq


@dataclass(frozen=True, slots=True)
class Lock:
    """Lock these zones in the state; answered by what is Known of each. A zone locked by another is left out."""

    zones: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Read:
    """Read the log after these numbers; answered by what lies Beyond for each zone."""

    after: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Recall:
    """Recall the demand of an interval for each zone; answered by a Demand of the zones that have one."""

    interval: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Save:
    """Store what was seen in the log and the pending entries (None: drop it), unlock, and commit."""

    seen: Mapping[str, list[Entry]]
    pending: Mapping[str, Entry | None]


@dataclass(frozen=True, slots=True)
class Beat:
    """Wait for the next beat of the clock, so that the time of a publication tells nothing about its noise."""


@dataclass(frozen=True, slots=True)
class Append:
    """Offer these entries to the log, which takes each that follows its zone's head. No answer is needed."""

    entries: Mapping[str, Entry]


Step = Lock | Read | Recall | Save | Beat | Append
Write = Callable[[Mapping[str, tuple[Entry | None, Task]], Demand], Drafts]


@dataclass(slots=True)
class Outcome:
    """Where the zones stand after a turn; those neither done, moved nor aside were locked by somebody else."""

    done: set[str] = field(default_factory=set)  # the wish is fulfilled and the state knows it
    moved: set[str] = field(default_factory=set)  # take another turn
    seen: set[str] = field(default_factory=set)  # the state has learned something from the log
    aside: dict[str, str] = field(default_factory=dict)  # need a person, and why


class Stand(NamedTuple):
    """Where a zone stands, and what its next step is: an offer, a task, neither."""

    seen: list[Entry]  # new in the log
    head: Entry | None  # the last of them, or what was known before
    stale: bool  # the pending entry can never be appended
    behind: bool  # the log holds more than was read
    offer: Entry | None  # the pending entry, which may have been sent before
    task: Task | None  # what to write, where nothing is pending


def stand(mine: Known, beyond: Beyond, wish: Wish, verify: Verify) -> Stand:
    """Compare what is known of a zone with the log. Raises ChainError where the two cannot both be right."""
    seen = catch_up(mine, beyond, verify)
    head = seen[-1] if seen else mine.head
    stale = mine.pending is not None and not _fits(head, mine.pending)
    behind = _seq(head) < beyond.last_seq
    offer = None if behind or stale else mine.pending
    task = None if behind or offer is not None else next_task(head, wish)
    return Stand(seen, head, stale, behind, offer, task)


def turn(wishes: Mapping[str, Wish], write: Write, verify: Verify) -> Generator[Step, Any, Outcome]:
    """Bring each zone one record closer to its wish."""
    outcome = Outcome()
    known: Mapping[str, Known] = yield Lock(tuple(wishes))
    beyond: Mapping[str, Beyond] = yield Read({zone: _seq(mine.head) for zone, mine in known.items()})
    stands: dict[str, Stand] = {}
    for zone, mine in known.items():
        try:
            stands[zone] = stand(mine, beyond[zone], wishes[zone], verify)
        except ChainError as error:
            outcome.aside[zone] = str(error)
    tasks = {zone: (at.head, at.task) for zone, at in stands.items() if at.task is not None}
    demand: Demand = yield Recall({zone: task.interval for zone, (_, task) in tasks.items() if task.kind is None})
    drafts, refused = write(tasks, demand)
    outcome.aside |= refused | _misfits(stands, drafts)
    drafts = {zone: draft for zone, draft in drafts.items() if zone not in outcome.aside}
    outcome.seen = {zone for zone, at in stands.items() if at.seen}
    dropped: dict[str, Entry | None] = {zone: None for zone, at in stands.items() if at.stale}
    yield Save({zone: stands[zone].seen for zone in outcome.seen}, dropped | drafts)
    offers = {zone: at.offer for zone, at in stands.items() if at.offer is not None} | drafts
    if offers:
        yield Beat()
        yield Append(offers)
    outcome.moved = {zone for zone, at in stands.items() if at.behind} | offers.keys()
    outcome.done = stands.keys() - outcome.moved - outcome.aside.keys()
    return outcome


def _misfits(stands: Mapping[str, Stand], drafts: Mapping[str, Entry]) -> dict[str, str]:
    """Drafts that no log should take, with the reason: a faulty desk, or a rehearsal, ends here."""
    wrong: dict[str, str] = {}
    for zone, draft in drafts.items():
        try:
            refuse_misfit(stands[zone].head, draft)
        except ChainError as error:
            wrong[zone] = str(error)
    return wrong


def catch_up(mine: Known, beyond: Beyond, verify: Verify) -> list[Entry]:
    """The entries of the log beyond mine, each checked to follow the one before. My own pending one needs no proof."""
    if mine.damage is not None:
        raise ChainError("state", "damaged", f"must be restored from a backup: {mine.damage}")
    if beyond.last_seq < _seq(mine.head):
        raise ChainError("log", f"at {beyond.last_seq}", f"has lost entries up to {_seq(mine.head)}: mend it first")
    if mine.head is not None and mine.head.record.seq == beyond.last_seq and mine.head.hash != beyond.last_hash:
        raise ChainError("head of the log", "another one", "contradicts what was seen of it: mend nothing, show both")
    seen: list[Entry] = []
    head = mine.head
    for line in beyond.lines:
        if mine.pending is not None and line == mine.pending.line:
            refuse_misfit(head, mine.pending)
            head = mine.pending
        else:
            head = follow(head, read(line), verify)
        seen.append(head)
    return seen


def _seq(head: Entry | None) -> int:
    return -1 if head is None else head.record.seq


def _fits(head: Entry | None, entry: Entry) -> bool:
    """Whether the entry can still be appended, so that no other may be written in its place."""
    try:
        refuse_misfit(head, entry)
    except ChainError:
        return False
    return True
