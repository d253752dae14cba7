"""What an operator wants of a chain, and the next record that brings it closer.

A desired state is a target ("every interval up to 5 is decided, under this plan, signed by this key"), not a command.
Two publishers, or one after a crash, may have the same: the chain itself shows what is left to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from murmurate.public_log.record import Entry, RecordKind


class Change(NamedTuple):
    """From one plan or key to another. It is made once: where `before` no longer stands, nothing is left to change.

    Two publishers must not desire opposite changes: the chain would change back and forth.
    """

    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """How the chain of a zone begins."""

    plan: str  # digest
    key: str
    first: int  # the first interval that gets a price
    lead: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredState:
    """What should stand in the public log about one zone."""

    until: int  # every interval up to and with this one is decided
    priced_from: int = 0  # earlier ones come too late for a price and are withheld
    opening: Opening | None = None
    plan_change: Change | None = None
    key_change: Change | None = None


class NextRecord(NamedTuple):
    """The next record of a chain, not yet written."""

    kind: RecordKind | None  # none: measured or forecast, whichever the demand allows
    interval: int
    desired: DesiredState


def find_next_record(head: Entry | None, desired: DesiredState) -> NextRecord | None:
    """What to append after `head`, or None where the chain is as desired."""
    if head is None:
        return None if desired.opening is None else NextRecord(RecordKind.OPEN, desired.opening.first - 1, desired)
    last = head.record.interval
    if desired.key_change is not None and head.key_in_force == desired.key_change.before != desired.key_change.after:
        return NextRecord(RecordKind.KEY, last, desired)
    if desired.plan_change is not None and head.record.plan == desired.plan_change.before != desired.plan_change.after:
        return NextRecord(RecordKind.PLAN, last, desired)
    if last >= desired.until:
        return None
    return NextRecord(RecordKind.WITHHELD if last + 1 < desired.priced_from else None, last + 1, desired)


UNTIL_NO_INTERVAL = -(2**62)  # decides no interval
