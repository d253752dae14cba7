"""Every batch of readings comes here: it is checked, stored in the landing, and acknowledged when it is on disk.

A reading is refused for its sender, its meter, its interval or its form. How much a meter measured decides nothing
here: a value out of range is clipped, so that no value makes a meter silent (docs/decisions/0004).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np

from murmurate.service.ingest.batch import ReadingBatch, Receipt
from murmurate.service.ingest.field_values import MAX_WH
from murmurate.service.ingest.group_commit import AppendReadings, GroupCommit
from murmurate.service.ingest.meter_registry import MeterRegistry
from murmurate.service.ingest.meter_signature import is_signature_valid
from murmurate.service.landing.append import append_readings
from murmurate.service.landing.interval_manifest import is_closing
from murmurate.service.landing.layout import Landing
from murmurate.types import Readings
from murmurate.units import BoolArray, IntArray

MAX_CLOCK_SKEW_S = 30  # how far the clock of a sender may be ahead

UNKNOWN_METER = "is not a meter of your zones"
NOT_ON_BOUNDARY = "must begin on an interval boundary"
INTERVAL_NOT_OVER = "its interval is not over"
SIGNATURE_REQUIRED = "must be signed by the key of its meter"
DUPLICATE_READING = "is a duplicate: a reading for this meter and interval was already accepted"


class ClaimStore(Protocol):
    """Remembers which signed readings were taken."""

    @contextmanager
    def claim(self, meter: IntArray, start_s: IntArray) -> Iterator[BoolArray]:
        """Whether each (meter, interval) is claimed for the first time; it stays claimed if the block ends well."""


@dataclass(slots=True, kw_only=True, eq=False)
class PendingReceipt:
    """The receipt of a batch whose readings are being stored."""

    receipt: Receipt
    counts: Counter[str]
    commits: list[tuple[int, Future[bool]]] = field(default_factory=list)  # number of readings, and their commit

    def wait_until_stored(self) -> Receipt:
        """The receipt, when all that it calls accepted is on disk. Raises what has kept a reading from being stored."""
        self._count_stored()
        receipt = self.receipt
        self.counts.update(accepted=receipt.accepted, late=receipt.late, refused=receipt.refused_count)
        return receipt

    def _count_stored(self) -> None:
        while self.commits:
            count, stored = self.commits.pop()
            if stored.result():
                self.receipt.accepted += count
            else:
                self.receipt.late += count


@dataclass(slots=True, kw_only=True)
class ReadingIngestor:
    """Checks and keeps readings. Any number of them may work on one landing, and any number of threads on one."""

    landing: Landing
    registry: MeterRegistry
    now: Callable[[], float]  # the time of the service [s of UTC]
    grace_s: int
    claims: ClaimStore | None = None
    counts: Counter[str] = field(default_factory=Counter)  # accepted, late, refused since it began
    append: AppendReadings | None = None  # how readings are stored; otherwise by `append_readings`
    _commits: GroupCommit = field(init=False)

    def __post_init__(self) -> None:
        self._commits = GroupCommit(self.append or partial(append_readings, self.landing))

    def ingest_batch(
        self, batch: ReadingBatch, zones: Collection[str] | None, receipt: Receipt | None = None
    ) -> Receipt:
        """Keep what may be kept, for meters of these zones (none: of all). What is accepted is on disk on return.

        `receipt` carries what the format has refused before.
        """
        return self.start_batch(batch, zones, receipt).wait_until_stored()

    def start_batch(
        self, batch: ReadingBatch, zones: Collection[str] | None, receipt: Receipt | None = None
    ) -> PendingReceipt:
        """As `ingest_batch`, but unsigned readings may still be on their way to the disk on return.

        Raises IngestBusyError if too many readings wait: then some of the batch may be stored, send all of it again.
        Raises ClockDifferenceError while the time is not known: then nothing is stored.
        """
        now_s = self.now()
        pending = PendingReceipt(receipt=receipt or Receipt(), counts=self.counts)
        registry = self.registry  # one for the whole batch: another thread may load a new table meanwhile
        meter_row = registry.find_rows(batch.meter)
        accepted = self._check_batch(batch, registry.is_in_zones(meter_row, zones), now_s, pending.receipt)
        signed = registry.must_sign(meter_row) & accepted
        _check_signatures(batch, registry, meter_row, signed, accepted, pending.receipt)
        late = accepted & (batch.start_s + self.landing.interval_s + self.grace_s <= now_s)
        pending.receipt.late += int(late.sum())
        accepted &= ~late
        registry.note_accepted(meter_row[accepted])
        number = registry.number[meter_row] if len(registry) else meter_row
        pending.commits += self._submit_readings(batch, number, accepted & ~signed)
        self._store_once(batch, number, accepted & signed, pending)
        return pending

    def _check_batch(self, batch: ReadingBatch, in_zones: BoolArray, now_s: float, receipt: Receipt) -> BoolArray:
        """Which readings may go on; the others are on the receipt, each with the first rule that it breaks."""
        rules = (
            (UNKNOWN_METER, in_zones),
            (NOT_ON_BOUNDARY, batch.start_s % self.landing.interval_s == 0),
            (INTERVAL_NOT_OVER, batch.start_s + self.landing.interval_s <= now_s + MAX_CLOCK_SKEW_S),
        )
        accepted = np.ones(len(batch), np.bool_)
        for reason, holds in rules:
            _add_refusals(batch, accepted & ~holds, reason, receipt)
            accepted &= holds
        return accepted

    def _submit_readings(
        self, batch: ReadingBatch, number: IntArray, selected: BoolArray
    ) -> list[tuple[int, Future[bool]]]:
        """Have readings stored, interval by interval. Energy below zero counts as 0, above `MAX_WH` as `MAX_WH`."""
        energy_wh = batch.energy_wh.clip(0, MAX_WH)
        commits = []
        for start_s in np.unique(batch.start_s[selected]).tolist():
            in_interval = selected & (batch.start_s == start_s)
            readings = Readings(meter=number[in_interval], energy_wh=energy_wh[in_interval])
            commits.append((len(readings), self._commits.submit(start_s, readings)))
        return commits

    def _in_closed_intervals(self, batch: ReadingBatch, selected: BoolArray) -> BoolArray:
        """Which readings are too late because their interval was closed before its deadline.

        They are not claimed: a claim says that the reading is here.
        """
        starts_s = np.unique(batch.start_s[selected]).tolist()
        closed = [start_s for start_s in starts_s if is_closing(self.landing, start_s)]
        return np.isin(batch.start_s, closed)

    def _store_once(self, batch: ReadingBatch, number: IntArray, selected: BoolArray, pending: PendingReceipt) -> None:
        """Signed readings are taken once. They are claimed before they are stored, and given back if storing fails."""
        if self.claims is None or not selected.any():
            pending.commits += self._submit_readings(batch, number, selected)
            return
        at = np.flatnonzero(selected & ~self._in_closed_intervals(batch, selected))
        pending.receipt.late += int(selected.sum()) - len(at)
        with self.claims.claim(number[at], batch.start_s[at]) as first:
            _add_refusals(batch, _mask_from_rows(len(batch), at[~first]), DUPLICATE_READING, pending.receipt)
            commits = self._submit_readings(batch, number, _mask_from_rows(len(batch), at[first]))
            wait([stored for _, stored in commits])
            for _, stored in commits:
                stored.result()  # raises inside of the claim what has failed
        pending.commits += commits


def _check_signatures(
    batch: ReadingBatch,
    registry: MeterRegistry,
    meter_row: IntArray,
    signed: BoolArray,
    accepted: BoolArray,
    receipt: Receipt,
) -> None:
    for row in np.flatnonzero(signed).tolist():
        signature = None if batch.signature is None else batch.signature[row]
        reading = (str(batch.meter[row]), int(batch.start_s[row]), int(batch.energy_wh[row]))
        if not is_signature_valid(registry.key_by_row[int(meter_row[row])], *reading, signature):
            accepted[row] = False
            receipt.refuse(batch.line[row : row + 1], SIGNATURE_REQUIRED)


def _mask_from_rows(length: int, rows: IntArray) -> BoolArray:
    mask = np.zeros(length, np.bool_)
    mask[rows] = True
    return mask


def _add_refusals(batch: ReadingBatch, selected: BoolArray, reason: str, receipt: Receipt) -> None:
    receipt.refuse(batch.line[selected], reason)
