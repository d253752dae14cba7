"""Aggregate closed intervals. If one cannot be aggregated in time, its fallback price is released.

An interval that fails for a reason that may pass (a full disk) is tried again until its price is due, and its release
waits until then. One that fails for any other reason gets its fallback price at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from murmurate.aggregation import Tally
from murmurate.errors import MeterError, MurmurateError
from murmurate.publisher.desired_state import ShardOpening
from murmurate.service.aggregation.job import ShardTask, aggregate_landing, run_task
from murmurate.service.aggregation.submit_demand import submit_demand, terms_by_zone
from murmurate.service.clock import ReleaseSchedule, ServiceClock
from murmurate.service.landing.interval_manifest import check_not_purged, close_interval
from murmurate.service.landing.layout import Landing, interval_name
from murmurate.service.landing.meter_file import table_size
from murmurate.service.landing.meter_table import MeterTable, pin_table, pinned_table
from murmurate.service.landing.table_in_force import TableInForce
from murmurate.service.storage.state_store import PostgresStateStore
from murmurate.service.watchdog import report_progress
from murmurate.service.worker.figures import WorkerFigures, error_cause, error_reason, may_pass
from murmurate.service.worker.zone_warnings import warn_of_household_counts
from murmurate.types import Demand

logger = logging.getLogger(__name__)

RELEASE_TIME_S = 60.0  # what a release may take: aggregation is given up this long before the price is due
SLOW_TABLE_BYTES_PER_S = 200_000  # watchdog allowance for the size of the meter table: 150 s for a million meters
MAX_ATTEMPTS = 3  # of processes that ended while they aggregated the same interval: the next one does not try
MAX_SHARES = 1000  # zones whose share of meters is reported, those with the smallest share first
_NO_INTERVAL_YET = -(2**62)


@dataclass(slots=True, kw_only=True)
class IntervalAggregation:
    """Closes and aggregates the intervals of one landing, each until it succeeds or is given up."""

    landing: Landing
    meters: Path
    state: PostgresStateStore
    clock: ServiceClock
    grace_s: int
    quorum: float
    figures: WorkerFigures
    zones_without_meters: frozenset[str] = field(default=frozenset(), init=False)  # open, and not in the meter table
    household_count_warnings: dict[str, str] = field(default_factory=dict, init=False)  # by zone
    share_reported: dict[str, float] = field(default_factory=dict, init=False)  # of the meters of each zone
    feed: dict[str, int] = field(default_factory=dict, init=False)  # readings of the last interval: there, and expected
    _table: TableInForce = field(init=False)
    _last_tried: int = field(default=_NO_INTERVAL_YET, init=False)
    _waiting: dict[int, str] = field(default_factory=dict, init=False)  # intervals to try again, and why they failed

    def __post_init__(self) -> None:
        self._table = TableInForce(self.landing, self.meters)

    def aggregate_due(self, due: int, now: float) -> int:
        """Aggregate each interval up to `due` that may still get a price. Returns up to which one to release.

        Without the state there is no release either: its error is raised, and the next call tries again.
        """
        if due <= self._last_tried and not self._waiting:
            return self._last_tried
        shards = self.state.shards()
        longest_lead = max((opening.lead for opening in shards.values()), default=0)
        schedule = ReleaseSchedule(interval_s=self.landing.interval_s, lead_intervals=longest_lead)
        first = min(due, schedule.first_in_time(now))
        waiting = [interval for interval in self._waiting if interval >= first]
        self._waiting = {interval: self._waiting[interval] for interval in waiting}
        for interval in [*waiting, *range(max(self._last_tried + 1, first), due + 1)]:
            self._try_interval(interval, now, shards)
            self._last_tried = max(self._last_tried, interval)
        self._last_tried = max(self._last_tried, due)
        return min(self._waiting, default=self._last_tried + 1) - 1

    def follow_clock(self, due: int) -> None:
        """Where the clock was set back, what is due from now on is aggregated."""
        if due < self._last_tried:
            self._last_tried = due - 1
            self._waiting = {interval: reason for interval, reason in self._waiting.items() if interval < due}

    def _try_interval(self, interval: int, now: float, shards: dict[str, ShardOpening]) -> None:
        """Aggregate an interval. If that fails, keep it for the next call or give it up."""
        report_progress(self._long_step_s())
        began_s, name = time.monotonic(), interval_name(interval * self.landing.interval_s)
        try:
            self._aggregate(interval)
        except psycopg.Error:
            raise
        except Exception as error:  # noqa: BLE001  after any error the fallback price must be released in time
            facts = {"interval": name, "reason": error_reason(error)}
            if not (may_pass(error) and self._has_time(interval, now, shards)):
                self._waiting.pop(interval, None)
                self.figures.not_aggregated[error_cause(error)] += 1
                logger.warning("not aggregated", extra=facts)
            elif self._waiting.get(interval) != facts["reason"]:
                self._waiting[interval] = facts["reason"]
                logger.warning("not aggregated yet", extra=facts)
        else:
            self._waiting.pop(interval, None)
            self.figures.aggregation.observe(time.monotonic() - began_s)
        finally:
            self.figures.table_problem = self._table.problem
            report_progress()
        self.state.finish_aggregation(self.landing.interval_s, interval)

    def _long_step_s(self) -> float:
        """How long reading the table, closing or summing may take on a machine that is busy [s]."""
        return table_size(self.meters) / SLOW_TABLE_BYTES_PER_S

    def _has_time(self, interval: int, now: float, shards: dict[str, ShardOpening]) -> bool:
        """Whether there is time to try again before the price must be released."""
        step_s = self.landing.interval_s
        leads = [opening.lead for opening in shards.values() if opening.interval_s == step_s]
        due_s = self.clock.wall_at((interval + min(leads, default=0)) * step_s)
        window_s = due_s - self.clock.wall_at((interval + 1) * step_s + self.grace_s)
        return due_s - self.clock.wall_at(now) > min(RELEASE_TIME_S, window_s / 2)

    def begin_attempt(self, interval: int) -> None:
        """Count attempts across restarts: readings that end the process each time must not cost every price."""
        count = self.state.begin_aggregation(self.landing.interval_s, interval)
        if count > MAX_ATTEMPTS:
            allowed = f"must not end the worker: it was begun {count - 1} times and never finished"
            raise MurmurateError("aggregation", interval_name(interval * self.landing.interval_s), allowed)

    def _aggregate(self, interval: int) -> None:
        start_s = interval * self.landing.interval_s
        if interval not in self._waiting:
            self.begin_attempt(interval)
        table = self._table.choose(interval)
        report_progress(self._long_step_s())
        manifest = close_interval(self.landing, start_s, table.version, sharded=table.sharded)
        check_not_purged(manifest)
        if manifest.table_version != table.version:
            table = pinned_table(self.landing, manifest.table_version)
        try:
            demands = aggregate_landing(self.landing, table, [manifest], self._run_tasks)
        except MeterError:  # a pinned table that is damaged is written again where the operator's file is still it
            if pin_table(self.landing, self.meters).version != table.version:
                raise
            restored = pin_table(self.landing, self.meters, rewrite=True)
            demands = aggregate_landing(self.landing, restored, [manifest], self._run_tasks)
        unusable = submit_demand(self.state, self.landing.interval_s, demands, self.quorum)
        demand = demands[start_s]
        self._note_zones(table, demand, interval)
        counts = {
            "reported": int(demand.reported.sum()),
            "imputed": int(demand.imputed.sum()),
            "unknown_meter": demand.unknown_meter,
            "wrong_interval": demand.wrong_interval,
        }
        blocked = {"blocked": len(unusable), "reasons": dict(sorted(unusable.items())[:5])}
        logger.info("aggregated", extra={"interval": interval_name(start_s), **counts, **blocked})

    def _run_tasks(self, tasks: Sequence[ShardTask]) -> Iterator[tuple[int, Tally]]:
        for task in tasks:
            report_progress(self._long_step_s())
            yield from run_task(task)

    def _note_zones(self, table: MeterTable, demand: Demand, interval: int) -> None:
        """Note which open zones have no meter or another number of them, and how many meters have reported."""
        shards = self.state.shards()
        step_s = self.landing.interval_s
        is_here = {shard for shard, opening in shards.items() if opening.interval_s == step_s}
        opened = {zone for zone, (shard, _) in self.state.zones().items() if shard in is_here}
        without = frozenset(opened.difference(table.zones))
        if without - self.zones_without_meters:
            logger.warning("zones without meters", extra={"count": len(without), "zones": sorted(without)[:5]})
        self.zones_without_meters = without
        meters = dict(zip(demand.zones, (demand.reported + demand.imputed).tolist(), strict=True))
        households = zip(table.zones, table.households or [0] * len(table.zones), strict=True)
        in_table = {zone: count for zone, count in households if zone in opened and count}
        planned = {zone: 0 if its is None else its.household_count for zone, its in terms_by_zone(self.state).items()}
        off = warn_of_household_counts(planned, in_table)
        if off.keys() - self.household_count_warnings.keys():
            facts = {"count": len(off), "reasons": dict(list(off.items())[:5])}
            logger.warning("households do not fit plans", extra=facts)
        self.household_count_warnings = off
        closed = self.state.closed_zones()  # whose meters may be in the table for a while
        heard = {zone: n for zone, n in zip(demand.zones, demand.reported.tolist(), strict=True) if zone not in closed}
        shares = {zone: round(count / max(meters[zone], 1), 4) for zone, count in heard.items()}
        reported, expected = sum(heard.values()), sum(meters[zone] for zone in heard)
        self.feed = {"interval": interval, "reported": reported, "expected": expected}
        self.share_reported = dict(sorted(shares.items(), key=lambda share: (share[1], share[0]))[:MAX_SHARES])
