"""Delete what is old: readings, demand, which signed readings were taken, and the last points of silent registers.

One failure stops no other deletion.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from murmurate.errors import MurmurateError
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.purge import purge_landing
from murmurate.service.storage.state_store import PostgresStateStore
from murmurate.service.worker.failures import error_reason
from murmurate.service.worker.figures import WorkerFigures
from murmurate.units import SECONDS_PER_DAY

logger = logging.getLogger(__name__)

PURGE_EVERY_S = 1800  # nothing is kept longer than keep_days and an hour, also if one purge fails
RETRY_AFTER_S = 300  # a purge that left something
_NEVER_S = float("-inf")


@dataclass(slots=True, kw_only=True)
class Retention:
    """Purges the landing and the state of one worker."""

    landing: Landing
    state: PostgresStateStore
    ingest_store: IngestStore
    keep_days: float
    figures: WorkerFigures
    on_progress: Callable[[float], None] = lambda _: None
    _next_purge_s: float = field(default=_NEVER_S, init=False)

    def purge_if_due(self, now: float) -> None:
        """Purge every half hour; what failed is tried again sooner."""
        if now < self._next_purge_s:
            return
        is_complete = self.purge(now)
        self._next_purge_s = now + (PURGE_EVERY_S if is_complete else RETRY_AFTER_S)

    def follow_clock(self, now: float) -> None:
        """A purge that is planned for later than the next one can be was planned by a clock that was ahead."""
        if self._next_purge_s > now + PURGE_EVERY_S:
            self._next_purge_s = _NEVER_S

    def purge(self, now: float) -> bool:
        """Delete what began more than `keep_days` ago. Returns whether nothing has failed."""
        before_s = int(now - self.keep_days * SECONDS_PER_DAY)
        steps = {
            "landing": lambda: self._purge_landing(before_s),
            "demand": lambda: self.state.purge_demand(self.landing.interval_s, before_s // self.landing.interval_s),
            "claims": lambda: self.ingest_store.purge_claims(before_s),
            "registers": lambda: self.ingest_store.purge_registers(before_s),
        }
        results = [self._run_step(name, step) for name, step in steps.items()]
        self.note_oldest(now)
        return all(results)

    def note_oldest(self, now: float) -> None:
        """Note how old the oldest interval with readings is."""
        try:
            landed = self.landing.list_intervals()[0]
        except OSError:
            return
        self.figures.oldest_readings_age_s = max(0.0, now - landed[0]) if landed else 0.0

    def _run_step(self, name: str, step: Callable[[], None]) -> bool:
        self.on_progress(0.0)
        try:
            step()
        except Exception as error:  # noqa: BLE001  whatever it is, the other steps must be done
            self.figures.retention_failed[name] += 1
            logger.warning("not purged", extra={"step": name, "reason": error_reason(error)})
            return False
        return True

    def _purge_landing(self, before_s: int) -> None:
        result = purge_landing(self.landing, before_s, lambda: self.on_progress(0.0))
        if result.intervals:
            logger.info("purged", extra={"intervals": result.intervals})
        for name, reason in result.failures.items():
            raise MurmurateError(name, f"not deleted ({reason})", "must be deleted by hand; the rest was purged")
