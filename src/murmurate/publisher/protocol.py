"""One round of a publisher, as a generator of steps that the caller performs.

    lock the zones ─ read the log ─ load the demand ─ write, save as pending, COMMIT ─ wait for the slot ─ append

The generator yields each step and is sent the result. It keeps nothing between rounds and catches no error: whatever
goes wrong, whatever the result of an append was, even none, the caller rolls back and begins a new round. All that it
needs is in the state (pending draws, what it has seen of the log) and in the log (what is public).

Why at most one draw leaves for a zone and interval: an entry is sent only after it was saved as the zone's pending one;
while it may still be appended (it follows the head) no other is written; the log takes at most one entry after each
head; intervals only grow along a chain. A state that was set back has lost its pending draw, and may send a second one;
the log takes one of the two. Proof and assumptions: `protocol.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from murmurate.errors import ChainError
from murmurate.public_log.chain import VerifySignature, check_follows, check_next
from murmurate.public_log.record import Entry, parse_entry
from murmurate.publisher.desired_state import DesiredState, NextRecord, find_next_record
from murmurate.publisher.record_writer import Drafts
from murmurate.types import Demand


class BlockedCode(Enum):
    """Why a zone is blocked. Code decides by it; the text of a reason is for the operator."""

    STATE_DAMAGED = "state damaged"
    LOG_LOST_ENTRIES = "log lost entries"
    LOG_CONFLICT = "log conflict"  # the log holds another entry than the state has seen
    LOG_INVALID = "log invalid"  # the log holds an entry that does not follow the one before
    NO_RECORD = "no record"  # the next record cannot be written, or must not be published
    PLAN_NOT_REGISTERED = "plan not registered"


class BlockedReason(NamedTuple):
    """Why a zone is blocked."""

    code: BlockedCode
    text: str


class ZoneBlockedError(ChainError):
    """State and log of a zone do not fit together, for a reason that has a code."""

    def __init__(self, code: BlockedCode, field: str, value: object, allowed: str) -> None:
        super().__init__(field, value, allowed)
        self.code = code


class SeenState(NamedTuple):
    """What the state holds about a zone: the last entry it has seen in the log, and a draw that may have been sent."""

    head: Entry | None
    pending: Entry | None
    damage: str | None = None  # why neither can be read


class LogTail(NamedTuple):
    """What the log holds about a zone beyond a number: some of the next lines in order, and where its chain ends."""

    last_seq: int  # -1: it has no chain
    lines: tuple[str, ...]
    last_hash: str  # of the line with the number last_seq


@dataclass(frozen=True, slots=True)
class LockZones:
    """Lock these zones in the state; the result is the SeenState of each. A zone with another lock is left out."""

    zones: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadLog:
    """Read the log after these numbers; the result is the LogTail of each zone."""

    after_seq: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LoadDemand:
    """Load the demand of an interval for each zone; the result is a Demand of the zones that have one."""

    intervals: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SaveState:
    """Store what was seen in the log and the pending entries (None: drop it), unlock, and commit."""

    new_entries: Mapping[str, list[Entry]]
    pending: Mapping[str, Entry | None]


@dataclass(frozen=True, slots=True)
class WaitForSlot:
    """Wait for the next release slot, so that the time of a publication shows nothing about its noise."""


@dataclass(frozen=True, slots=True)
class AppendToLog:
    """Offer these entries to the log, which takes each that follows its zone's head. No answer is needed."""

    entries: Mapping[str, Entry]


Step = LockZones | ReadLog | LoadDemand | SaveState | WaitForSlot | AppendToLog
WriteEntries = Callable[[Mapping[str, tuple[Entry | None, NextRecord]], Demand], Drafts]


@dataclass(slots=True)
class Outcome:
    """Where the zones stand after a round. A zone in none of the sets was locked by another publisher."""

    up_to_date: set[str] = field(default_factory=set)  # as desired, and the state has seen it
    unfinished: set[str] = field(default_factory=set)  # need another round
    with_new_entries: set[str] = field(default_factory=set)  # entries that the state has not seen before
    blocked: dict[str, BlockedReason] = field(default_factory=dict)  # need an operator


class Reconciliation(NamedTuple):
    """What is new in the log of a zone, and its next step: send the pending entry, write a record, or neither."""

    new_entries: list[Entry]  # new in the log
    head: Entry | None  # the last of them, or the last one seen before
    stale_pending: bool  # the pending entry can never be appended
    behind: bool  # the log holds more than was read
    offer: Entry | None  # the pending entry, which may have been sent before
    next_record: NextRecord | None  # what to write, where nothing is pending


def reconcile_zone(
    seen_state: SeenState, log_tail: LogTail, desired: DesiredState, verify: VerifySignature
) -> Reconciliation:
    """Compare what is known of a zone with the log. Raises ChainError where the two cannot both be right."""
    new_entries = catch_up(seen_state, log_tail, verify)
    head = new_entries[-1] if new_entries else seen_state.head
    stale = seen_state.pending is not None and not _can_follow(head, seen_state.pending)
    behind = _last_seq(head) < log_tail.last_seq
    offer = None if behind or stale else seen_state.pending
    next_record = None if behind or offer is not None else find_next_record(head, desired)
    return Reconciliation(new_entries, head, stale, behind, offer, next_record)


def publish_round(
    desired: Mapping[str, DesiredState], write_entries: WriteEntries, verify: VerifySignature
) -> Generator[Step, Any, Outcome]:
    """Bring each zone one record closer to its desired state."""
    outcome = Outcome()
    seen: Mapping[str, SeenState] = yield LockZones(tuple(desired))
    tails: Mapping[str, LogTail] = yield ReadLog({zone: _last_seq(state.head) for zone, state in seen.items()})
    reconciled: dict[str, Reconciliation] = {}
    for zone, state in seen.items():
        try:
            reconciled[zone] = reconcile_zone(state, tails[zone], desired[zone], verify)
        except ChainError as error:
            outcome.blocked[zone] = _blocked_reason(error)
    next_records = {zone: (at.head, at.next_record) for zone, at in reconciled.items() if at.next_record is not None}
    demand: Demand = yield LoadDemand(
        {zone: new.interval for zone, (_, new) in next_records.items() if new.kind is None}
    )
    drafts, refused = write_entries(next_records, demand)
    no_record = refused | _invalid_drafts(reconciled, drafts)
    outcome.blocked |= {zone: BlockedReason(BlockedCode.NO_RECORD, text) for zone, text in no_record.items()}
    drafts = {zone: draft for zone, draft in drafts.items() if zone not in outcome.blocked}
    outcome.with_new_entries = {zone for zone, at in reconciled.items() if at.new_entries}
    dropped: dict[str, Entry | None] = {zone: None for zone, at in reconciled.items() if at.stale_pending}
    yield SaveState({zone: reconciled[zone].new_entries for zone in outcome.with_new_entries}, dropped | drafts)
    offers = {zone: at.offer for zone, at in reconciled.items() if at.offer is not None} | drafts
    if offers:
        yield WaitForSlot()
        yield AppendToLog(offers)
    outcome.unfinished = {zone for zone, at in reconciled.items() if at.behind} | offers.keys()
    outcome.up_to_date = reconciled.keys() - outcome.unfinished - outcome.blocked.keys()
    return outcome


def _blocked_reason(error: ChainError) -> BlockedReason:
    code = error.code if isinstance(error, ZoneBlockedError) else BlockedCode.LOG_INVALID
    return BlockedReason(code, str(error))


def _invalid_drafts(reconciled: Mapping[str, Reconciliation], drafts: Mapping[str, Entry]) -> dict[str, str]:
    """Drafts that must not be sent, with the reason: they do not follow the head, or have test noise."""
    reasons: dict[str, str] = {}
    for zone, draft in drafts.items():
        try:
            check_follows(reconciled[zone].head, draft)
        except ChainError as error:
            reasons[zone] = str(error)
    return reasons


def catch_up(seen_state: SeenState, log_tail: LogTail, verify: VerifySignature) -> list[Entry]:
    """Entries of the log that the state has not seen, each checked to follow the one before.

    The signature of the state's own pending entry is not checked again.
    """
    if seen_state.damage is not None:
        allowed = f"must be restored from a backup: {seen_state.damage}"
        raise ZoneBlockedError(BlockedCode.STATE_DAMAGED, "state", "damaged", allowed)
    if log_tail.last_seq < _last_seq(seen_state.head):
        allowed = f"has lost entries up to {_last_seq(seen_state.head)}: repair it first"
        raise ZoneBlockedError(BlockedCode.LOG_LOST_ENTRIES, "log", f"at {log_tail.last_seq}", allowed)
    if (
        seen_state.head is not None
        and seen_state.head.record.seq == log_tail.last_seq
        and seen_state.head.hash != log_tail.last_hash
    ):
        allowed = "contradicts what was seen of it: do not repair the log, keep both entries"
        raise ZoneBlockedError(BlockedCode.LOG_CONFLICT, "head of the log", "another one", allowed)
    new_entries: list[Entry] = []
    head = seen_state.head
    for line in log_tail.lines:
        if seen_state.pending is not None and line == seen_state.pending.line:
            check_follows(head, seen_state.pending)
            head = seen_state.pending
        else:
            head = check_next(head, parse_entry(line), verify)
        new_entries.append(head)
    return new_entries


def _last_seq(head: Entry | None) -> int:
    return -1 if head is None else head.record.seq


def _can_follow(head: Entry | None, entry: Entry) -> bool:
    """Whether the entry can still be appended, so that no other may be written in its place."""
    try:
        check_follows(head, entry)
    except ChainError:
        return False
    return True
