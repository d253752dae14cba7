"""What an operator wants of a chain, and the next record that brings it closer.

A wish states an end ("every interval up to 5 is decided, under this plan, signed by this key"), not an act. Stating it
twice, or by two publishers, or again after a crash, asks for nothing more: the chain itself says what is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from murmurate.publication.record import Entry, Kind


class Change(NamedTuple):
    """From one plan or key to another. It is made once: where `before` no longer stands, nothing is left to change.

    Whoever asks for a change back while another still asks for the change will have both, for ever: ask one thing.
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
class Wish:
    """What should stand in the public log about one zone."""

    until: int  # every interval up to and with this one is decided
    in_time_from: int = 0  # earlier ones come too late for a price and are withheld
    opening: Opening | None = None
    plan: Change | None = None
    key: Change | None = None


class Task(NamedTuple):
    """The next record of a chain, not yet written."""

    kind: Kind | None  # none: measured or forecast, whichever the demand allows
    interval: int
    wish: Wish


def next_task(head: Entry | None, wish: Wish) -> Task | None:
    """What to append after `head`, or None where the wish is fulfilled."""
    if head is None:
        return None if wish.opening is None else Task(Kind.OPEN, wish.opening.first - 1, wish)
    last = head.record.interval
    if wish.key is not None and head.key == wish.key.before != wish.key.after:
        return Task(Kind.KEY, last, wish)
    if wish.plan is not None and head.record.plan == wish.plan.before != wish.plan.after:
        return Task(Kind.PLAN, last, wish)
    if last >= wish.until:
        return None
    return Task(Kind.WITHHELD if last + 1 < wish.in_time_from else None, last + 1, wish)
