"""The one counter that all doors lead to: readings are checked, kept in the landing, and acknowledged when safe.

A reading is refused for its sender, its meter, its interval or its form. How much a meter measured decides nothing
here: a value out of range is clipped, so that no value makes a meter silent (docs/decisions/0004).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from murmurate.quantities import BoolArray, IntArray, Readings
from murmurate.service.doors.roster import Roster
from murmurate.service.doors.signed import is_signed
from murmurate.service.doors.slip import Receipt, Slip
from murmurate.service.doors.values import MAX_WH
from murmurate.service.gathering.append import append
from murmurate.service.gathering.layout import Landing

EARLY_S = 30  # how far the clock of a sender may be ahead

STRANGER = "is not a meter of your zones"
OFF_GRID = "must begin on an interval boundary"
NOT_OVER = "its interval is not over"
UNSIGNED = "must be signed by the key of its meter"
REPEATED = "was sent before: the reading of this meter and interval is here"


class Seen(Protocol):
    """Remembers which signed readings were taken."""

    @contextmanager
    def claim(self, meter: IntArray, start_s: IntArray) -> Iterator[BoolArray]:
        """Whether each (meter, interval) is claimed for the first time; it stays claimed if the block ends well."""


@dataclass(slots=True, kw_only=True)
class Intake:
    """Checks and keeps readings. Any number of them may work on one landing."""

    landing: Landing
    roster: Roster
    now: Callable[[], float]
    grace_s: int
    seen: Seen | None = None
    counts: Counter[str] = field(default_factory=Counter)  # accepted, late, refused since it began

    def take(self, slip: Slip, zones: Collection[str] | None, receipt: Receipt | None = None) -> Receipt:
        """Keep what may be kept, for meters of these zones (none: of all). What is accepted is on disk on return.

        `receipt` carries what the format has refused before.
        """
        receipt = receipt or Receipt()
        place = self.roster.find(slip.meter)
        fine = self._check(slip, place, zones, receipt)
        signed = np.isin(place, list(self.roster.keys)) & fine if self.roster.keys else np.zeros(len(slip), np.bool_)
        self._check_signatures(slip, place, signed, fine, receipt)
        late = fine & (slip.start_s + self.landing.interval_s + self.grace_s <= self.now())
        receipt.late += int(late.sum())
        fine &= ~late
        self._keep(slip, place, fine & ~signed, receipt)
        self._keep_once(slip, place, fine & signed, receipt)
        self.counts.update(accepted=receipt.accepted, late=receipt.late, refused=len(receipt.refused))
        return receipt

    def _check(self, slip: Slip, place: IntArray, zones: Collection[str] | None, receipt: Receipt) -> BoolArray:
        """Which readings may go on; the others are on the receipt, each with the first rule that it breaks."""
        rules = (
            (STRANGER, self.roster.within(place, zones)),
            (OFF_GRID, slip.start_s % self.landing.interval_s == 0),
            (NOT_OVER, slip.start_s + self.landing.interval_s <= self.now() + EARLY_S),
        )
        fine = np.ones(len(slip), np.bool_)
        for why, holds in rules:
            _refuse(slip, fine & ~holds, why, receipt)
            fine &= holds
        return fine

    def _check_signatures(
        self, slip: Slip, place: IntArray, signed: BoolArray, fine: BoolArray, receipt: Receipt
    ) -> None:
        for row in np.flatnonzero(signed).tolist():
            given = None if slip.signature is None else slip.signature[row]
            reading = (str(slip.meter[row]), int(slip.start_s[row]), int(slip.energy_wh[row]))
            if not is_signed(self.roster.keys[int(place[row])], *reading, given):
                fine[row] = False
                receipt.refused[int(slip.line[row])] = UNSIGNED

    def _keep(self, slip: Slip, place: IntArray, rows: BoolArray, receipt: Receipt) -> None:
        """Append interval by interval. Energy below zero counts as 0, above `MAX_WH` as `MAX_WH`."""
        energy_wh = slip.energy_wh.clip(0, MAX_WH)
        for start_s in np.unique(slip.start_s[rows]).tolist():
            some = rows & (slip.start_s == start_s)
            readings = Readings(meter=self.roster.number[place[some]], energy_wh=energy_wh[some])
            if append(self.landing, start_s, readings):
                receipt.accepted += int(some.sum())
            else:
                receipt.late += int(some.sum())

    def _keep_once(self, slip: Slip, place: IntArray, rows: BoolArray, receipt: Receipt) -> None:
        """Signed readings are taken once. They are claimed before they are kept, and given back if keeping fails."""
        if self.seen is None or not rows.any():
            self._keep(slip, place, rows, receipt)
            return
        at = np.flatnonzero(rows)
        with self.seen.claim(self.roster.number[place[at]], slip.start_s[at]) as first:
            _refuse(slip, _mask(len(slip), at[~first]), REPEATED, receipt)
            self._keep(slip, place, _mask(len(slip), at[first]), receipt)


def _mask(length: int, rows: IntArray) -> BoolArray:
    mask = np.zeros(length, np.bool_)
    mask[rows] = True
    return mask


def _refuse(slip: Slip, rows: BoolArray, why: str, receipt: Receipt) -> None:
    receipt.refused |= dict.fromkeys(slip.line[rows].tolist(), why)
