"""An ingestor that reloads the meter table when the file changes."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from pathlib import Path

from murmurate.errors import MurmurateError
from murmurate.service.clock import ServiceClock
from murmurate.service.clock_comparison import ClockComparison
from murmurate.service.ingest.ingestor import ClaimStore, ReadingIngestor
from murmurate.service.ingest.meter_registry import MeterRegistry
from murmurate.service.landing.append import MergingAppender
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.table_in_force import describe_losses

logger = logging.getLogger(__name__)


RELOAD_CHECK_S = 2.0  # how often to look whether the table has changed
SECOND_LOOK_S = 60.0  # a table that loses many meters is used once it has not changed for this long [s]
_TABLE_REMEDY = "put it back, or correct it; until then the table before it is in force"


class ReloadingIngestor:
    """Call it for the current ingestor.

    If a new table cannot be read, the one before stays in use; and for a minute if a new one has lost many meters, as
    one that is still being written. A reading too many does no harm: aggregation has its own table.
    """

    def __init__(
        self,
        landing: Landing,
        meters: Path,
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


def _file_identity(path: Path) -> tuple[int, ...]:
    """What changes when a file does; of a folder, when a file in it does."""
    paths = [path, *sorted(path.glob("*.parquet")), *sorted(path.glob("*.csv"))] if path.is_dir() else [path]
    stats = [file.stat() for file in paths]
    return tuple(number for stat in stats for number in (stat.st_mtime_ns, stat.st_size, stat.st_ino))
