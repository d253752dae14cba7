"""The interval worker: at its deadline an interval is closed and aggregated, then every zone gets its release.

Any number of workers may run for the same zones: the manifest of an interval is written once, the demand is the same
for all, and the log takes one record. If a step before the release fails, the plan's forecast is released.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from murmurate.errors import MurmurateError
from murmurate.publisher.protocol import Outcome
from murmurate.service.aggregation.job import IntervalDemand, aggregate_landing
from murmurate.service.aggregation.submit_demand import submit_demand
from murmurate.service.clock import ServiceClock
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.landing.interval_manifest import check_not_purged, close_interval, purge_intervals
from murmurate.service.landing.layout import Landing, interval_name
from murmurate.service.landing.meter_table import pin_table, pinned_table
from murmurate.service.storage.state_store import WORKER_HEARTBEAT
from murmurate.service.worker.publisher_context import PublisherContext
from murmurate.units import SECONDS_PER_DAY

logger = logging.getLogger(__name__)


_PURGE_EVERY_S = 3600
_NO_INTERVAL_YET = -(2**62)


@dataclass(slots=True, kw_only=True)
class IntervalWorker:
    """Closes, aggregates, releases and purges for all zones of one landing."""

    landing: Landing
    meters: Path
    context: PublisherContext
    ingest_store: IngestStore
    clock: ServiceClock
    grace_s: int = 60
    quorum: float = 0.9
    keep_days: float = 7.0
    timeout_s: float = 30.0
    _last_aggregated: int = field(default=_NO_INTERVAL_YET, init=False)  # the last interval that was tried
    _last_released: int = field(default=_NO_INTERVAL_YET, init=False)  # the last interval that every zone has decided
    _last_purge_s: float = field(default=float(_NO_INTERVAL_YET), init=False)

    def run_once(self) -> None:
        """Do what is due. Call it in every release slot: most of the time there is nothing to do."""
        now = self.clock.now()
        due = int((now - self.grace_s) // self.landing.interval_s) - 1
        if due > self._last_aggregated:
            self._aggregate_due(due)
        if due > self._last_released:
            self._release_due(due, now)
        if now - self._last_purge_s > _PURGE_EVERY_S:
            self._purge_old(now)
            self._last_purge_s = now

    def _aggregate_due(self, due: int) -> None:
        """Submit the demand of each interval that may still get a price.

        An interval that cannot be aggregated gets the forecast and is not tried again: its deadline is over. Without
        the state there is no release either: the error is raised, and the next run tries again.
        """
        longest_lead = max((opening.lead for opening in self.context.state.openings().values()), default=0)
        for interval in range(max(self._last_aggregated + 1, due - max(longest_lead, 1) + 1), due + 1):
            start_s = interval * self.landing.interval_s
            try:
                demands = self._close_and_aggregate(start_s)
                unusable = submit_demand(self.context.state, self.landing.interval_s, demands, self.quorum)
            except (MurmurateError, OSError) as error:
                logger.warning("not aggregated", extra={"interval": interval_name(start_s), "reason": _reason(error)})
            else:
                self._log_aggregation(demands[0], unusable)
            self._last_aggregated = interval
        self._last_aggregated = due

    def _close_and_aggregate(self, start_s: int) -> list[IntervalDemand]:
        """Under the current meter table, unless the interval was closed under another one."""
        table = pin_table(self.landing, self.meters)
        manifest = close_interval(self.landing, start_s, table.version, sharded=table.sharded)
        check_not_purged(manifest)
        if manifest.table_version != table.version:
            table = pinned_table(self.landing, manifest.table_version)
        return aggregate_landing(self.landing, table, [manifest])

    def _log_aggregation(self, interval_demand: IntervalDemand, unusable: dict[str, str]) -> None:
        reported, imputed = int(interval_demand.demand.reported.sum()), int(interval_demand.demand.imputed.sum())
        counts = {
            "reported": reported,
            "imputed": imputed,
            "unknown_meter": interval_demand.unknown_meter,
            "wrong_interval": interval_demand.wrong_interval,
        }
        blocked = {"blocked": len(unusable), "reasons": _first_reasons(unusable)}
        logger.info("aggregated", extra={"interval": interval_name(interval_demand.start_s), **counts, **blocked})

    def _release_due(self, due: int, now: float) -> None:
        failed: set[str] = set()
        desired, without_plan = self.context.desired_states(now, self.grace_s)
        outcome = self.context.make_publisher().publish(desired, timeout_s=self.timeout_s, on_failure=failed.add)
        outcome.blocked |= without_plan
        report: dict[str, object] = {
            "until": due,
            **_zone_counts(outcome),
            "reasons": _first_reasons({zone: reason.text for zone, reason in outcome.blocked.items()}),
        }
        logger.info("released", extra={**report, "failed": sorted(failed)})
        if not outcome.unfinished:
            self._last_released = due
        self.context.state.record_heartbeat(WORKER_HEARTBEAT, {"interval_s": self.landing.interval_s, **report})

    def _purge_old(self, now: float) -> None:
        """Delete what was released long ago: readings, demand, and which signed readings were taken."""
        before_s = int(now - self.keep_days * SECONDS_PER_DAY)
        try:
            count = purge_intervals(self.landing, before_s)
        except (MurmurateError, OSError) as error:
            logger.warning("not purged", extra={"reason": _reason(error)})
            return
        before = before_s // self.landing.interval_s
        self.context.state.purge_demand(self._zones_of_landing(), before)
        self.ingest_store.purge_claims(before_s)
        if count:
            logger.info("purged", extra={"intervals": count})

    def _zones_of_landing(self) -> Collection[str]:
        """Zones whose intervals are as long as the landing's."""
        state = self.context.state
        terms_by_zone = {zone: state.terms_for_plan(plan) for zone, plan in state.plan_by_zone().items()}
        return [
            zone
            for zone, terms in terms_by_zone.items()
            if terms is not None and terms.interval_s == self.landing.interval_s
        ]


def _zone_counts(outcome: Outcome) -> dict[str, int]:
    return {
        "up_to_date": len(outcome.up_to_date),
        "blocked": len(outcome.blocked),
        "unfinished": len(outcome.unfinished),
    }


def _first_reasons(reasons: dict[str, str], max_count: int = 5) -> dict[str, str]:
    return dict(sorted(reasons.items())[:max_count])


def _reason(error: Exception) -> str:
    """Our own errors name files, intervals and rules, never a reading. Of other errors only the class is safe."""
    return str(error) if isinstance(error, MurmurateError) else type(error).__name__
