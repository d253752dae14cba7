"""Every batch of readings comes here: it is checked, stored in the landing, and acknowledged when it is on disk.

A reading is refused for its sender, its meter, its interval or its form. How much a meter measured decides nothing
here: a value out of range is clipped, so that no value makes a meter silent (docs/decisions/0004).

Readings of many requests that arrive at the same time are stored together, in few files (group commit): a commit begins
at once when none is running, and what arrives meanwhile is the next group. Each request learns the outcome of its own
readings, after they are on disk.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np

from murmurate.readings.batch import ReadingBatch
from murmurate.readings.field_values import MAX_WH
from murmurate.service.ingest.batch import MAX_CLOCK_SKEW_S, Receipt
from murmurate.service.ingest.meter_registry import MeterRegistry, is_signature_valid
from murmurate.service.landing.append import AppendReadings, append_readings, join_readings
from murmurate.service.landing.interval_manifest import is_closing
from murmurate.service.landing.layout import Landing
from murmurate.types import Readings
from murmurate.units import BoolArray, IntArray

MAX_WAITING_READINGS = 4_000_000  # readings that wait for the commit that is running
MAX_GROUP_READINGS = 2_000_000

UNKNOWN_METER = "is not a meter of your zones"
NOT_ON_BOUNDARY = "must begin on an interval boundary"
INTERVAL_NOT_OVER = "its interval is not over"
SIGNATURE_REQUIRED = "must be signed by the key of its meter"
DUPLICATE_READING = "is a duplicate: a reading for this meter and interval was already accepted"

_Waiting = tuple[int, Readings, Future[bool]]  # begin of the interval [s of UTC], its readings, whether they will count


class IngestBusyError(Exception):
    """The queue of readings to store is full. The client must send the batch again later."""


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
        receipt = self.receipt
        while self.commits:
            count, stored = self.commits.pop()
            if stored.result():
                receipt.accepted += count
            else:
                receipt.late += count
        self.counts.update(accepted=receipt.accepted, late=receipt.late, refused=receipt.refused_count)
        return receipt


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

        Each refused reading is on the receipt with the first rule that it breaks. Raises IngestBusyError if too many
        readings wait: then some of the batch may be stored, send all of it again. Raises ClockDifferenceError while
        the time is not known: then nothing is stored.
        """
        now_s = self.now()
        receipt = receipt or Receipt()
        pending = PendingReceipt(receipt=receipt, counts=self.counts)
        registry = self.registry  # one for the whole batch: another thread may load a new table meanwhile
        meter_row = registry.find_rows(batch.meter)
        end_s = batch.start_s + self.landing.interval_s
        accepted = np.ones(len(batch), np.bool_)
        for reason, holds in (
            (UNKNOWN_METER, registry.is_in_zones(meter_row, zones)),
            (NOT_ON_BOUNDARY, batch.start_s % self.landing.interval_s == 0),
            (INTERVAL_NOT_OVER, end_s <= now_s + MAX_CLOCK_SKEW_S),
        ):
            receipt.refuse(batch.line[accepted & ~holds], reason)
            accepted &= holds
        signed = registry.must_sign(meter_row) & accepted
        for row in np.flatnonzero(signed).tolist():
            signature = None if batch.signature is None else batch.signature[row]
            reading = (str(batch.meter[row]), int(batch.start_s[row]), int(batch.energy_wh[row]))
            if not is_signature_valid(registry.key_by_row[int(meter_row[row])], *reading, signature):
                accepted[row] = False
                receipt.refuse(batch.line[row : row + 1], SIGNATURE_REQUIRED)
        late = accepted & (end_s + self.grace_s <= now_s)
        receipt.late += int(late.sum())
        accepted &= ~late
        registry.note_accepted(meter_row[accepted])
        number = registry.number[meter_row] if len(registry) else meter_row
        pending.commits += self._submit_readings(batch, number, accepted & ~signed)
        self._store_once(batch, number, accepted & signed, pending)
        return pending

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

    def _store_once(self, batch: ReadingBatch, number: IntArray, selected: BoolArray, pending: PendingReceipt) -> None:
        """Signed readings are taken once. They are claimed before they are stored, and given back if storing fails.

        A claim says that the reading is here. So readings whose interval was closed before its deadline are not
        claimed: they are late.
        """
        if self.claims is None or not selected.any():
            pending.commits += self._submit_readings(batch, number, selected)
            return
        starts_s = np.unique(batch.start_s[selected]).tolist()
        closed = [start_s for start_s in starts_s if is_closing(self.landing, start_s)]
        at = np.flatnonzero(selected & ~np.isin(batch.start_s, closed))
        pending.receipt.late += int(selected.sum()) - len(at)
        with self.claims.claim(number[at], batch.start_s[at]) as first:
            pending.receipt.refuse(batch.line[at[~first]], DUPLICATE_READING)
            is_first = np.zeros(len(batch), np.bool_)
            is_first[at[first]] = True
            commits = self._submit_readings(batch, number, is_first)
            wait([stored for _, stored in commits])
            for _, stored in commits:
                stored.result()  # raises inside of the claim what has failed
        pending.commits += commits


class GroupCommit:
    """Stores readings with `append`, which is called by one thread at a time. Any number of threads may submit."""

    def __init__(self, append: AppendReadings, *, max_waiting_readings: int = MAX_WAITING_READINGS) -> None:
        self._append = append
        self._max_waiting_readings = max_waiting_readings
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._waiting_readings = 0
        self._running = False
        self._thread = ThreadPoolExecutor(1, "commit")

    def submit(self, start_s: int, readings: Readings) -> Future[bool]:
        """Have readings of one interval stored. The result, when they are on disk, is that of `append_readings`.

        Raises IngestBusyError if too many readings wait; a submission of any size is taken when none waits.
        """
        stored = Future[bool]()
        with self._lock:
            if self._waiting and self._waiting_readings + len(readings) > self._max_waiting_readings:
                raise IngestBusyError
            self._waiting.append((start_s, readings, stored))
            self._waiting_readings += len(readings)
            if not self._running:
                self._running = True
                self._thread.submit(self._commit_waiting)
        return stored

    def _commit_waiting(self) -> None:
        while group := self._take_group():
            by_interval: dict[int, list[_Waiting]] = {}
            for item in group:
                if item[2].set_running_or_notify_cancel():  # from here on it cannot be cancelled
                    by_interval.setdefault(item[0], []).append(item)
            for items in by_interval.values():
                self._commit_interval(items)

    def _take_group(self) -> list[_Waiting]:
        """Return the next group, oldest first; empty if nothing is queued."""
        with self._lock:
            count = total = 0
            for _, readings, _ in self._waiting:
                if count and total + len(readings) > MAX_GROUP_READINGS:
                    break
                count, total = count + 1, total + len(readings)
            group, self._waiting = self._waiting[:count], self._waiting[count:]
            self._waiting_readings -= total
            self._running = bool(group)
        return group

    def _commit_interval(self, items: Sequence[_Waiting]) -> None:
        """Store items of one interval together. If that fails, each is tried alone: one cannot make another fail."""
        try:
            is_counted = self._append(items[0][0], join_readings([readings for _, readings, _ in items]))
        except BaseException as error:  # noqa: BLE001  it is raised where the outcome is awaited
            if len(items) == 1:
                items[0][2].set_exception(error)
                return
            for item in items:
                self._commit_interval([item])
        else:
            for _, _, stored in items:
                stored.set_result(is_counted)
