"""An ingestor that reloads the meter table when the file changes."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from pathlib import Path

from murmurate.errors import MurmurateError
from murmurate.service.clock import ServiceClock
from murmurate.service.ingest.ingestor import ClaimStore, ReadingIngestor
from murmurate.service.ingest.meter_registry import MeterRegistry
from murmurate.service.landing.layout import Landing

logger = logging.getLogger(__name__)


RELOAD_CHECK_S = 2.0  # how often to look whether the table has changed


class ReloadingIngestor:
    """Call it for the current ingestor. If a new table cannot be read, the one before stays in use."""

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
        self._checked_s = time.monotonic()
        self._ingestor = ReadingIngestor(
            landing=landing,
            registry=MeterRegistry.from_meter_table(meters),
            now=clock.now,
            grace_s=grace_s,
            claims=claims,
            counts=Counter(),
        )

    @property
    def counts(self) -> Counter[str]:
        return self._ingestor.counts

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
                return
            self._ingestor.registry = MeterRegistry.from_meter_table(self._meters)
            self._file_identity = identity
            logger.info("meter table read", extra={"meters": len(self._ingestor.registry)})
        except (MurmurateError, OSError) as error:
            reason = str(error) if isinstance(error, MurmurateError) else type(error).__name__
            logger.warning("meter table not read", extra={"reason": reason})


def _file_identity(path: Path) -> tuple[int, ...]:
    """What changes when a file does; of a folder, when a file in it does."""
    paths = [path, *sorted(path.glob("*.parquet"))] if path.is_dir() else [path]
    stats = [file.stat() for file in paths]
    return tuple(number for stat in stats for number in (stat.st_mtime_ns, stat.st_size, stat.st_ino))
