"""Every batch of readings comes here: it is checked, stored in the landing, and acknowledged when it is on disk.

A reading is refused for its sender, its meter, its interval or its form. How much a meter measured decides nothing
here: a value out of range is clipped, so that no value makes a meter silent (docs/decisions/0004).

Readings of many requests that arrive at the same time are stored together, in few files (group commit): a commit begins
at once when none is running, and what arrives meanwhile is the next group. Each request learns the outcome of its own
readings, after they are on disk.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np

from murmurate.errors import MurmurateError
from murmurate.readings.batch import ReadingBatch, Refusals
from murmurate.readings.field_values import MAX_WH
from murmurate.service.clock import ServiceClock
from murmurate.service.clock_comparison import ClockComparison
from murmurate.service.ingest.meter_registry import MeterRegistry, is_signature_valid
from murmurate.service.landing.append import AppendReadings, MergingAppender, append_readings, join_readings
from murmurate.service.landing.interval_manifest import is_closing
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.table_in_force import describe_losses
from murmurate.types import Readings
from murmurate.units import BoolArray, IntArray

logger = logging.getLogger(__name__)

MAX_CLOCK_SKEW_S = 30  # how far the clock of a sender may be ahead
MAX_LISTED_REFUSALS = 100
MAX_KEPT_REFUSALS = 10_000  # lines of a receipt; what is refused beyond them is only counted
MAX_WAITING_READINGS = 4_000_000  # readings that wait for the commit that is running
MAX_GROUP_READINGS = 2_000_000
RELOAD_CHECK_S = 2.0  # how often to look whether the table has changed
SECOND_LOOK_S = 60.0  # a table that loses many meters is used once it has not changed for this long [s]
_TABLE_REMEDY = "put it back, or correct it; until then the table before it is in force"

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


@dataclass(slots=True)
class Receipt:
    """Result of a batch: how many readings were accepted, late or refused. What is accepted is on disk."""

    accepted: int = 0
    late: int = 0  # their interval is closed: kept out, counted
    refused: Refusals = field(default_factory=dict)
    unlisted: int = 0  # refused beyond `MAX_KEPT_REFUSALS`
    commits: list[tuple[int, Future[bool]]] = field(default_factory=list)  # of readings that are being stored: how many

    @property
    def refused_count(self) -> int:
        return len(self.refused) + self.unlisted

    def refuse(self, lines: IntArray, reason: str) -> None:
        """Note that these lines are refused. A body of millions of unknown meters must not become a large receipt."""
        kept = lines[: max(0, MAX_KEPT_REFUSALS - len(self.refused))]
        self.refused |= dict.fromkeys(kept.tolist(), reason)
        self.unlisted += len(lines) - len(kept)

    def to_document(self) -> dict[str, object]:
        """The receipt as JSON: counts, lines and reasons, never a value."""
        listed = [
            {"line": line, "reason": reason} for line, reason in sorted(self.refused.items())[:MAX_LISTED_REFUSALS]
        ]
        return {"accepted": self.accepted, "late": self.late, "refused": self.refused_count, "refusals": listed}


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
        return self.finish_batch(self.start_batch(batch, zones, receipt))

    def start_batch(
        self, batch: ReadingBatch, zones: Collection[str] | None, receipt: Receipt | None = None
    ) -> Receipt:
        """As `ingest_batch`, but on return `commits` of the receipt may still store readings: see `finish_batch`.

        Each refused reading is on the receipt with the first rule that it breaks. Raises IngestBusyError if too many
        readings wait: then some of the batch may be stored, send all of it again. Raises ClockDifferenceError while
        the time is not known: then nothing is stored.
        """
        now_s = self.now()
        receipt = receipt or Receipt()
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
        receipt.commits += self._submit_readings(batch, number, accepted & ~signed)
        self._store_once(batch, number, accepted & signed, receipt)
        return receipt

    def finish_batch(self, receipt: Receipt) -> Receipt:
        """Wait until what the receipt calls accepted is on disk. Raises what has kept a reading from being stored."""
        while receipt.commits:
            count, stored = receipt.commits.pop()
            if stored.result():
                receipt.accepted += count
            else:
                receipt.late += count
        self.counts.update(accepted=receipt.accepted, late=receipt.late, refused=receipt.refused_count)
        return receipt

    def _submit_readings(
        self, batch: ReadingBatch, number: IntArray, selected: BoolArray
    ) -> list[tuple[int, Future[bool]]]:
        """Have readings stored, interval by interval, with their sign. Energy is clipped to ±`MAX_WH`."""
        energy_wh = batch.energy_wh.clip(-MAX_WH, MAX_WH)
        commits = []
        for start_s in np.unique(batch.start_s[selected]).tolist():
            in_interval = selected & (batch.start_s == start_s)
            readings = Readings(meter=number[in_interval], energy_wh=energy_wh[in_interval])
            commits.append((len(readings), self._commits.submit(start_s, readings)))
        return commits

    def _store_once(self, batch: ReadingBatch, number: IntArray, selected: BoolArray, receipt: Receipt) -> None:
        """Signed readings are taken once. They are claimed before they are stored, and given back if storing fails.

        A claim says that the reading is here. So readings whose interval was closed before its deadline are not
        claimed: they are late.
        """
        if self.claims is None or not selected.any():
            receipt.commits += self._submit_readings(batch, number, selected)
            return
        starts_s = np.unique(batch.start_s[selected]).tolist()
        closed = [start_s for start_s in starts_s if is_closing(self.landing, start_s)]
        at = np.flatnonzero(selected & ~np.isin(batch.start_s, closed))
        receipt.late += int(selected.sum()) - len(at)
        with self.claims.claim(number[at], batch.start_s[at]) as first:
            receipt.refuse(batch.line[at[~first]], DUPLICATE_READING)
            is_first = np.zeros(len(batch), np.bool_)
            is_first[at[first]] = True
            commits = self._submit_readings(batch, number, is_first)
            wait([stored for _, stored in commits])
            for _, stored in commits:
                stored.result()  # raises inside of the claim what has failed
        receipt.commits += commits


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
        """Commit group after group, oldest first, until nothing is queued."""
        while True:
            with self._lock:
                count = total = 0
                for _, readings, _ in self._waiting:
                    if count and total + len(readings) > MAX_GROUP_READINGS:
                        break
                    count, total = count + 1, total + len(readings)
                group, self._waiting = self._waiting[:count], self._waiting[count:]
                self._waiting_readings -= total
                self._running = bool(group)
            if not group:
                return
            by_interval: dict[int, list[_Waiting]] = {}
            for item in group:
                if item[2].set_running_or_notify_cancel():  # from here on it cannot be cancelled
                    by_interval.setdefault(item[0], []).append(item)
            for items in by_interval.values():
                self._commit_interval(items)

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


class ReloadingIngestor:
    """Call it for the current ingestor.

    If a new table cannot be read, the one before stays in use; and for a minute if a new one has lost many meters, as
    one that is still being written. A reading too many does no harm: aggregation has its own table.
    """

    def __init__(
        self,
        landing: Landing,
        meters: Path | None,
        clock: ServiceClock,
        grace_s: int,
        claims: ClaimStore,
    ) -> None:
        self._meters = meters
        self._lock = threading.Lock()
        self._file_identity = _file_identity(meters)
        self._doubted: tuple[int, ...] | None = None  # identity of a file that loses meters
        self._doubted_s = 0.0  # when it was first seen
        self._checked_s = self._confirmed_s = time.monotonic()
        self.state_clock = ClockComparison("state database", clock)
        self.problem: str | None = None  # why the newest table is not in force; without its path
        self._ingestor = ReadingIngestor(
            landing=landing,
            registry=MeterRegistry.from_meter_table(meters),
            now=self.state_clock.agreed_now,
            grace_s=grace_s,
            claims=claims,
            counts=Counter(),
            append=MergingAppender(landing, self.state_clock.bounded_now, grace_s).append,
        )

    @property
    def counts(self) -> Counter[str]:
        return self._ingestor.counts

    @property
    def table_age_s(self) -> float:
        """Since the table in force was last found to be that of the file; it grows while the file cannot be read."""
        return time.monotonic() - self._confirmed_s

    def __call__(self) -> ReadingIngestor:
        if time.monotonic() - self._checked_s > RELOAD_CHECK_S and self._lock.acquire(blocking=False):
            try:
                self._reload_if_changed()
            finally:
                self._checked_s = time.monotonic()
                self._lock.release()
        return self._ingestor

    def _reload_if_changed(self) -> None:
        try:
            if (identity := _file_identity(self._meters)) == self._file_identity:
                self._confirmed_s, self.problem = time.monotonic(), None
                return
            is_second_look = self._doubted == identity
            if is_second_look and time.monotonic() - self._doubted_s < SECOND_LOOK_S:
                return
            registry = MeterRegistry.from_meter_table(self._meters)
            losses = describe_losses(self._ingestor.registry.count_by_zone(), registry.count_by_zone())
            if losses and not is_second_look:
                self._doubted, self._doubted_s = identity, time.monotonic()
                self.problem = "has lost meters: it is used if it is still the same in a minute"
                reason = f"has {losses}: it is used if it is still the same in {SECOND_LOOK_S:.0f} s"
                logger.warning("meter table not read", extra={"reason": reason})
                return
            self._ingestor.registry = registry.follow(self._ingestor.registry)
            self._file_identity, self._confirmed_s, self._doubted = identity, time.monotonic(), None
            self.problem = None
            logger.info("meter table read", extra={"meters": len(self._ingestor.registry)})
        except (MurmurateError, OSError) as error:
            is_gone = isinstance(error, FileNotFoundError)
            self.problem = f"{'is not there' if is_gone else 'cannot be read'}: {_TABLE_REMEDY}"
            reason = str(error) if isinstance(error, MurmurateError) else type(error).__name__
            logger.warning("meter table not read", extra={"reason": reason, "remedy": _TABLE_REMEDY})


def _file_identity(path: Path | None) -> tuple[int, ...]:
    """What changes when a file does; of a folder, when a file in it does."""
    if path is None:
        return ()
    paths = [path, *sorted(path.glob("*.parquet")), *sorted(path.glob("*.csv"))] if path.is_dir() else [path]
    stats = [file.stat() for file in paths]
    return tuple(number for stat in stats for number in (stat.st_mtime_ns, stat.st_size, stat.st_ino))
