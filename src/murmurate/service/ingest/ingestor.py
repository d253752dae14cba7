"""Every batch of readings comes here: it is checked, stored in the landing, and acknowledged when it is on disk.

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

from murmurate.service.ingest.batch import ReadingBatch, Receipt
from murmurate.service.ingest.field_values import MAX_WH
from murmurate.service.ingest.meter_registry import MeterRegistry
from murmurate.service.ingest.meter_signature import is_signature_valid
from murmurate.service.landing.append import append_readings
from murmurate.service.landing.layout import Landing
from murmurate.types import Readings
from murmurate.units import BoolArray, IntArray

MAX_CLOCK_SKEW_S = 30  # how far the clock of a sender may be ahead

UNKNOWN_METER = "is not a meter of your zones"
NOT_ON_BOUNDARY = "must begin on an interval boundary"
INTERVAL_NOT_OVER = "its interval is not over"
SIGNATURE_REQUIRED = "must be signed by the key of its meter"
DUPLICATE_READING = "was sent before: the reading of this meter and interval is here"


class ClaimStore(Protocol):
    """Remembers which signed readings were taken."""

    @contextmanager
    def claim(self, meter: IntArray, start_s: IntArray) -> Iterator[BoolArray]:
        """Whether each (meter, interval) is claimed for the first time; it stays claimed if the block ends well."""


@dataclass(slots=True, kw_only=True)
class ReadingIngestor:
    """Checks and keeps readings. Any number of them may work on one landing."""

    landing: Landing
    registry: MeterRegistry
    now: Callable[[], float]
    grace_s: int
    claims: ClaimStore | None = None
    counts: Counter[str] = field(default_factory=Counter)  # accepted, late, refused since it began

    def ingest_batch(
        self, batch: ReadingBatch, zones: Collection[str] | None, receipt: Receipt | None = None
    ) -> Receipt:
        """Keep what may be kept, for meters of these zones (none: of all). What is accepted is on disk on return.

        `receipt` carries what the format has refused before.
        """
        receipt = receipt or Receipt()
        meter_row = self.registry.find_rows(batch.meter)
        accepted = self._check_batch(batch, meter_row, zones, receipt)
        signed = (
            np.isin(meter_row, list(self.registry.key_by_row)) & accepted
            if self.registry.key_by_row
            else np.zeros(len(batch), np.bool_)
        )
        self._check_signatures(batch, meter_row, signed, accepted, receipt)
        late = accepted & (batch.start_s + self.landing.interval_s + self.grace_s <= self.now())
        receipt.late += int(late.sum())
        accepted &= ~late
        self._append_readings(batch, meter_row, accepted & ~signed, receipt)
        self._append_once(batch, meter_row, accepted & signed, receipt)
        self.counts.update(accepted=receipt.accepted, late=receipt.late, refused=len(receipt.refused))
        return receipt

    def _check_batch(
        self, batch: ReadingBatch, meter_row: IntArray, zones: Collection[str] | None, receipt: Receipt
    ) -> BoolArray:
        """Which readings may go on; the others are on the receipt, each with the first rule that it breaks."""
        rules = (
            (UNKNOWN_METER, self.registry.is_in_zones(meter_row, zones)),
            (NOT_ON_BOUNDARY, batch.start_s % self.landing.interval_s == 0),
            (INTERVAL_NOT_OVER, batch.start_s + self.landing.interval_s <= self.now() + MAX_CLOCK_SKEW_S),
        )
        accepted = np.ones(len(batch), np.bool_)
        for reason, holds in rules:
            _add_refusals(batch, accepted & ~holds, reason, receipt)
            accepted &= holds
        return accepted

    def _check_signatures(
        self, batch: ReadingBatch, meter_row: IntArray, signed: BoolArray, accepted: BoolArray, receipt: Receipt
    ) -> None:
        for row in np.flatnonzero(signed).tolist():
            signature = None if batch.signature is None else batch.signature[row]
            reading = (str(batch.meter[row]), int(batch.start_s[row]), int(batch.energy_wh[row]))
            if not is_signature_valid(self.registry.key_by_row[int(meter_row[row])], *reading, signature):
                accepted[row] = False
                receipt.refused[int(batch.line[row])] = SIGNATURE_REQUIRED

    def _append_readings(self, batch: ReadingBatch, meter_row: IntArray, selected: BoolArray, receipt: Receipt) -> None:
        """Append interval by interval. Energy below zero counts as 0, above `MAX_WH` as `MAX_WH`."""
        energy_wh = batch.energy_wh.clip(0, MAX_WH)
        for start_s in np.unique(batch.start_s[selected]).tolist():
            in_interval = selected & (batch.start_s == start_s)
            readings = Readings(meter=self.registry.number[meter_row[in_interval]], energy_wh=energy_wh[in_interval])
            if append_readings(self.landing, start_s, readings):
                receipt.accepted += int(in_interval.sum())
            else:
                receipt.late += int(in_interval.sum())

    def _append_once(self, batch: ReadingBatch, meter_row: IntArray, selected: BoolArray, receipt: Receipt) -> None:
        """Signed readings are taken once. They are claimed before they are kept, and given back if keeping fails."""
        if self.claims is None or not selected.any():
            self._append_readings(batch, meter_row, selected, receipt)
            return
        at = np.flatnonzero(selected)
        with self.claims.claim(self.registry.number[meter_row[at]], batch.start_s[at]) as first:
            _add_refusals(batch, _mask_from_rows(len(batch), at[~first]), DUPLICATE_READING, receipt)
            self._append_readings(batch, meter_row, _mask_from_rows(len(batch), at[first]), receipt)


def _mask_from_rows(length: int, rows: IntArray) -> BoolArray:
    mask = np.zeros(length, np.bool_)
    mask[rows] = True
    return mask


def _add_refusals(batch: ReadingBatch, selected: BoolArray, reason: str, receipt: Receipt) -> None:
    receipt.refused |= dict.fromkeys(batch.line[selected].tolist(), reason)
