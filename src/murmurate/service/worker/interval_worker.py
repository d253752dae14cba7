"""The interval worker: at its deadline an interval is closed and aggregated, then every zone gets its release.

Any number of workers may run for the same zones: the manifest of an interval is written once, the demand is the same
for all, and the log takes one record. If a step before the release fails, the fallback price of the plan is released.

An interval that fails for a reason that may pass (a full disk) is tried again until its price is due, and its release
waits until then. One that fails for any other reason gets its fallback price at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psycopg

from murmurate.aggregation import Tally
from murmurate.errors import MeterError, MurmurateError
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.publisher.desired_state import DesiredState, ShardOpening, ZoneOpening
from murmurate.publisher.protocol import BlockedCode
from murmurate.readings.meter_file import table_size
from murmurate.service.aggregation.job import ShardTask, TaskRunner, aggregate_landing, run_task
from murmurate.service.aggregation.spark_driver import SparkEngine
from murmurate.service.aggregation.submit_demand import submit_demand, terms_by_zone
from murmurate.service.clock import ReleaseSchedule, ServiceClock
from murmurate.service.clock_comparison import ClockComparison
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.landing.interval_manifest import check_not_purged, close_interval
from murmurate.service.landing.layout import Landing, interval_name
from murmurate.service.landing.maintenance import DamageScan, purge_landing
from murmurate.service.landing.meter_table import NO_METERS, MeterTable, pin_table, pinned_table
from murmurate.service.landing.table_in_force import TableInForce
from murmurate.service.storage.heartbeats import WORKER_BEAT, WORKER_HEARTBEAT
from murmurate.service.storage.session import SESSION_TIMEOUT_S, ClockReading
from murmurate.service.watchdog import report_progress
from murmurate.service.worker.figures import WorkerFigures, error_cause, error_reason, may_pass
from murmurate.service.worker.publisher_context import LOG_CLOCK, PublisherContext
from murmurate.service.worker.zone_warnings import (
    warn_of_household_counts,
    warn_of_short_leads,
    warn_of_zero_imputation,
)
from murmurate.types import Demand
from murmurate.units import SECONDS_PER_DAY

logger = logging.getLogger(__name__)

RELEASE_TIME_S = 60.0  # what a release may take: aggregation is given up this long before the price is due
SLOW_TABLE_BYTES_PER_S = 200_000  # watchdog allowance for the size of the meter table: 150 s for a million meters
MAX_ATTEMPTS = 3  # of processes that ended while they aggregated the same interval: the next one does not try
MAX_SHARES = 1000  # zones whose share of meters is reported, those with the smallest share first
MIN_PUBLISH_S = 5.0  # also just before an interval ends: a call reads every zone before it publishes the first
MAX_PUBLISH_S = 900.0
PURGE_EVERY_S = 1800  # nothing is kept longer than keep_days and an hour, also if one purge fails
RETRY_AFTER_S = 300  # a purge that left something
_NEVER_S = float("-inf")
_NO_INTERVAL_YET = -(2**62)
_DATABASE_STEP_S = SESSION_TIMEOUT_S + 10.0  # a database that stands still is given up then: no reason for a restart
_MAX_WARNINGS = 20  # that one report lists
_NO_PLAN = BlockedCode.NO_RECORD  # of a zone: its plan cannot be used, and its price is withheld


@dataclass(slots=True, kw_only=True)
class IntervalWorker:
    """Closes, aggregates, releases and purges for all zones of one landing."""

    landing: Landing
    meters: Path | None  # None: no zone reads meters, so nothing is closed or aggregated
    context: PublisherContext
    ingest_store: IngestStore
    clock: ServiceClock
    grace_s: int = 60
    quorum: float = 0.9
    keep_days: float = 7.0
    stall_s: float = 30.0  # a release in which no shard moves for this long is left to the next call [s]
    beat_every_s: float = 1.0
    engine: SparkEngine | None = None  # None: this process sums
    is_stopped: Callable[[], bool] = lambda: False  # asked between two rounds of a release
    figures: WorkerFigures = field(default_factory=WorkerFigures)
    _last_tried: int = field(default=_NO_INTERVAL_YET, init=False)  # the last interval that aggregation was begun for
    _waiting: dict[int, str] = field(default_factory=dict, init=False)  # intervals to try again, and why they failed
    _last_released: int = field(default=_NO_INTERVAL_YET, init=False)  # the last interval that every shard has decided
    _zones_without_meters: frozenset[str] = field(default=frozenset(), init=False)  # open, and not in the meter table
    _count_warnings: dict[str, str] = field(default_factory=dict, init=False)  # by zone: households do not fit its plan
    _zero_warnings: dict[str, str] = field(default_factory=dict, init=False)  # silent meters count as zero
    _lead_warnings: dict[str, str] = field(default_factory=dict, init=False)  # by shard
    _share_reported: dict[str, float] = field(default_factory=dict, init=False)  # of the meters of each zone
    _feed: dict[str, int] = field(default_factory=dict, init=False)  # of the last interval: readings, and expected ones
    _zones: dict[str, tuple[str, ZoneOpening]] | None = field(default=None, init=False)  # during a call
    _table: TableInForce | None = field(init=False)
    _damage_scan: DamageScan = field(init=False)
    _state_clock: ClockComparison = field(init=False)
    _log_clock: ClockComparison = field(init=False)
    _next_purge_s: float = field(default=_NEVER_S, init=False)
    _beat_s: float = field(default=_NEVER_S, init=False)  # monotonic, of the last heartbeat

    def __post_init__(self) -> None:
        self._table = None if self.meters is None else TableInForce(self.landing, self.meters)
        self._damage_scan = DamageScan(self.landing)
        self._state_clock = ClockComparison("state database", self.clock)
        self._log_clock = ClockComparison("log", self.clock)

    def run_once(self) -> None:
        """Do what is due. Call it in every release slot: most of the time there is nothing to do."""
        now = self._beat()
        due = int((now - self.grace_s) // self.landing.interval_s) - 1
        # Where the clock was set back, intervals that are due again are looked at again. Each is decided once.
        if due < self._last_released:
            logger.warning("clock set back", extra={"intervals": self._last_released - due})
            self._last_released = due - 1
        if due < self._last_tried:
            self._last_tried = due - 1
            self._waiting = {interval: reason for interval, reason in self._waiting.items() if interval < due}
        if self._next_purge_s > self.clock.now() + PURGE_EVERY_S:  # it was planned by a clock that was ahead
            self._next_purge_s = _NEVER_S
        try:
            aggregated = self._aggregate_due(due, now)
            if aggregated > self._last_released:
                self._release_due(aggregated, self._state_clock.bounded_now())
        finally:  # an error that prevents a release must not keep old readings
            self._zones = None
            if now >= self._next_purge_s:
                self._next_purge_s = now + (PURGE_EVERY_S if self.purge(now) else RETRY_AFTER_S)

    def _read_zones(self) -> dict[str, tuple[str, ZoneOpening]]:
        """Every open zone, read once in a call. One that is opened meanwhile is found by the next call."""
        if self._zones is None:
            self._zones = self.context.state.zones()
        return self._zones

    def _beat(self) -> float:
        """Store that the worker is alive. Returns the time to act by: no clock that runs ahead closes an interval."""
        report_progress()
        if time.monotonic() - self._beat_s >= self.beat_every_s:
            report_progress(_DATABASE_STEP_S)
            self._beat_s = asked_s = time.monotonic()
            shown_s = self.context.state.record_heartbeat(WORKER_BEAT, self.figures.to_report())
            self._state_clock.note(ClockReading(shown_s, asked_s, time.monotonic()))
            report_progress()
        self._state_clock.log_change()
        self.figures.clock_difference_s["state"] = self._state_clock.difference_s or 0.0
        return self._state_clock.bounded_now()

    def _aggregate_due(self, due: int, now: float) -> int:
        """Aggregate each interval up to `due` that may still get a price. Returns up to which one to release.

        Without the state there is no release either: its error is raised, and the next call tries again.
        """
        if due <= self._last_tried and not self._waiting:
            return self._last_tried
        shards = self.context.state.shards()
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

    def _try_interval(self, interval: int, now: float, shards: dict[str, ShardOpening]) -> None:
        """Aggregate an interval. If that fails, keep it for the next call or give it up."""
        report_progress(self._long_step_s())
        began_s, name = time.monotonic(), interval_name(interval * self.landing.interval_s)
        try:
            self._aggregate(interval, self._due_s(interval, shards))
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
            self.figures.table_problem = None if self._table is None else self._table.problem
            report_progress()
        self.context.state.finish_aggregation(self.landing.interval_s, interval)

    def _long_step_s(self) -> float:
        """How long reading the table, closing or summing may take on a machine that is busy [s]."""
        return 0.0 if self.meters is None else table_size(self.meters) / SLOW_TABLE_BYTES_PER_S

    def _keep_alive(self) -> None:
        """Report progress and store the heartbeat in the midst of something that may take minutes."""
        self._beat()
        report_progress(self._long_step_s())

    def _due_s(self, interval: int, shards: dict[str, ShardOpening]) -> float:
        """When the price of an interval must be released, by the wall clock [s of UTC]."""
        step_s = self.landing.interval_s
        leads = [opening.lead for opening in shards.values() if opening.interval_s == step_s]
        return self.clock.wall_at((interval + min(leads, default=0)) * step_s)

    def _has_time(self, interval: int, now: float, shards: dict[str, ShardOpening]) -> bool:
        """Whether there is time to try again before the price must be released."""
        step_s, due_s = self.landing.interval_s, self._due_s(interval, shards)
        window_s = due_s - self.clock.wall_at((interval + 1) * step_s + self.grace_s)
        return due_s - self.clock.wall_at(now) > min(RELEASE_TIME_S, window_s / 2)

    def begin_attempt(self, interval: int) -> None:
        """Count attempts across restarts: readings that end the process each time must not cost every price."""
        count = self.context.state.begin_aggregation(self.landing.interval_s, interval)
        if count > MAX_ATTEMPTS:
            allowed = f"must not end the worker: it was begun {count - 1} times and never finished"
            raise MurmurateError("aggregation", interval_name(interval * self.landing.interval_s), allowed)

    def _aggregate(self, interval: int, due_s: float) -> None:
        """Close an interval, sum it and store its demand. `due_s`: when its price must be released [s of UTC]."""
        start_s = interval * self.landing.interval_s
        if self.meters is None or self._table is None:
            none = np.zeros(0, np.int64)
            terms = terms_by_zone(self.context.state, self._keep_alive, self._read_zones())
            no_demand = Demand(zones=(), energy_wh=none, reported=none, imputed=none)
            self._note_zones(NO_METERS, no_demand, interval, terms)
            return
        if interval not in self._waiting:
            self.begin_attempt(interval)
        table = self._table.choose(interval)
        report_progress(self._long_step_s())
        manifest = close_interval(self.landing, start_s, table.version)
        check_not_purged(manifest)
        if manifest.table_version != table.version:
            table = pinned_table(self.landing, manifest.table_version)
        run: tuple[TaskRunner, int] = self._run_tasks, 1
        if self.engine is not None:  # half of the time is left for summing here
            limit_s = (due_s - self.clock.wall_now()) / 2
            run = self.engine.task_runner(self._run_tasks, limit_s=limit_s, on_progress=self._keep_alive)
        try:
            demands = aggregate_landing(self.landing, table, [manifest], *run)
        except MeterError:  # a pinned table that is damaged is written again where the operator's file is still it
            if pin_table(self.landing, self.meters).version != table.version:
                raise
            restored = pin_table(self.landing, self.meters, rewrite=True)
            demands = aggregate_landing(self.landing, restored, [manifest], self._run_tasks)
        terms = terms_by_zone(self.context.state, self._keep_alive, self._read_zones())
        unusable = submit_demand(self.context.state, self.landing.interval_s, demands, self.quorum, terms)
        demand = demands[start_s]
        self._note_zones(table, demand, interval, terms)
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
            self._keep_alive()
            yield from run_task(task)

    def _note_zones(
        self, table: MeterTable, demand: Demand, interval: int, terms_of: Mapping[str, ReleaseTerms | None]
    ) -> None:
        """Note which open zones have no meter or another number of them, and how many meters have reported."""
        state, step_s = self.context.state, self.landing.interval_s
        is_here = {shard for shard, opening in state.shards().items() if opening.interval_s == step_s}
        by_zone = {zone: terms for zone, terms in terms_of.items() if terms is not None}
        unread = {zone for zone, terms in by_zone.items() if not terms.reads_meters}  # no meter of theirs is missed
        opened = {zone for zone, (shard, _) in self._read_zones().items() if shard in is_here} - unread
        without = frozenset(opened.difference(table.zones))
        if without - self._zones_without_meters:
            logger.warning("zones without meters", extra={"count": len(without), "zones": sorted(without)[:5]})
        self._zones_without_meters = without
        households = zip(table.zones, table.households or [0] * len(table.zones), strict=True)
        in_table = {zone: count for zone, count in households if zone in opened and count}
        planned = {zone: terms.household_count for zone, terms in by_zone.items()}
        off = warn_of_household_counts(planned, in_table)
        _log_new("households do not fit plans", off, self._count_warnings)
        self._count_warnings = off
        predicted = [zone for zone in in_table if zone in by_zone and by_zone[zone].prediction is not None]
        zero = warn_of_zero_imputation(table.silent_meters, predicted)
        _log_new("silent meters count as zero", zero, self._zero_warnings)
        self._zero_warnings = zero
        ignored = unread | set(state.closed_zones())  # whose meters may be in the table for a while
        counts = zip(demand.zones, demand.reported.tolist(), demand.imputed.tolist(), strict=True)
        heard = {zone: (reported, reported + imputed) for zone, reported, imputed in counts if zone not in ignored}
        reported, expected = (sum(column) for column in zip(*heard.values(), strict=True)) if heard else (0, 0)
        self._feed = {"interval": interval, "reported": reported, "expected": expected}
        shares = {zone: round(reported / max(expected, 1), 4) for zone, (reported, expected) in heard.items()}
        self._share_reported = dict(sorted(shares.items(), key=lambda share: (share[1], share[0]))[:MAX_SHARES])

    def _publish_time_s(self, now: float, desired: Iterable[DesiredState]) -> float:
        """How long one call may publish [s]: until another state is desired, so that most intervals take one call.

        With the end of an interval a price may come too late, and once its grace is over it is due itself. A call that
        was longer would publish what is no longer desired; a second one reads every zone again. Heartbeats are stored
        meanwhile. What waits for another try of its aggregation, and the next purge, are not kept waiting for long.
        """
        if self._waiting:
            return self.stall_s
        openings = {(each.opening.interval_s, each.opening.lead) for each in desired if each.opening is not None}
        changes = [
            ReleaseSchedule(interval_s=step_s, lead_intervals=lead, grace_s=self.grace_s).next_change(now)
            for step_s, lead in openings
        ]
        left_s = self.clock.wall_at(min(changes, default=now)) - self.clock.wall_at(now)
        return min(max(left_s, MIN_PUBLISH_S), MAX_PUBLISH_S)

    def _release_due(self, until: int, now: float) -> None:
        try:  # a rotation takes effect with the next release; where the folder is damaged, the keys so far are used
            self.context.reload_keyring()
        except (MurmurateError, OSError) as error:
            logger.warning("keys not read", extra={"reason": error_reason(error)})
        began_s = self.clock.now()
        until_of = {self.landing.interval_s: until}
        desired = self.context.desired_states(now, self.grace_s, until_of, self._read_zones())
        outcome, failed = self.context.publish(
            desired,
            self._publish_time_s(now, desired.values()),
            stall_s=self.stall_s,
            on_progress=self._beat,
            is_stopped=self.is_stopped,
        )
        if self.is_stopped():
            return
        reasons = {name: reason.text for name, reason in (outcome.blocked | outcome.blocked_zones).items()}
        reasons = self.context.explain_unfinished(desired, outcome) | reasons
        if LOG_CLOCK in reasons:
            logger.warning("the log's clock is behind", extra={"reason": reasons[LOG_CLOCK]})
        self._log_clock.note(self.context.log.clock_reading)
        if (log_difference_s := self._log_clock.difference_s) is not None:
            self.figures.clock_difference_s["log"] = log_difference_s
        zone_warnings = self._zone_warnings()
        warnings = self._warnings() | zone_warnings
        self._note_oldest_readings(now)
        report: dict[str, object] = {
            "interval": interval_name(until * self.landing.interval_s),
            "up_to_date": len(outcome.up_to_date),
            "blocked": len(outcome.blocked),
            "unfinished": len(outcome.unfinished),
            "blocked_zones": len(outcome.blocked_zones),
            "zones_without_plan": sum(reason.code is _NO_PLAN for reason in outcome.blocked_zones.values()),
            "reasons": _first_reasons(reasons),
        }
        logger.info("released", extra={**report, "failed": sorted(failed)})
        if not outcome.unfinished:
            self._last_released = until
            if outcome.with_new_tiles:
                deadline_s = (until + 1) * self.landing.interval_s + self.grace_s
                self.figures.lateness.observe(max(0.0, now + self.clock.now() - began_s - deadline_s))
        report |= {"interval_s": self.landing.interval_s, "warnings": _first_reasons(warnings, _MAX_WARNINGS)}
        report |= {"zone_warnings": _first_reasons(zone_warnings, _MAX_WARNINGS)}
        report |= {
            "zones_without_meters": len(self._zones_without_meters),
            "meters": "" if self.meters is None else str(self.meters.resolve()),
        }
        report |= {"share_reported": self._share_reported, "feed": self._feed}
        self.context.state.record_heartbeat(WORKER_HEARTBEAT, report)

    def _warnings(self) -> dict[str, str]:
        """Return what an operator should know while releases are made: damage, and the meter table."""
        try:
            if self.landing.restore_layout():
                logger.warning("layout of the landing restored")
            damage = self._damage_scan.find_damage()
        except Exception as error:  # noqa: BLE001  the release is made; a strange file must not keep its report
            damage = {"landing": error_reason(error)}
        _log_new("damaged files", damage, self.figures.damage)
        self.figures.damage = damage
        problem = self.figures.table_problem
        table = {} if problem is None else {"meter table": f"{problem[0]}: {problem[1]}"}
        return table | damage

    def _zone_warnings(self) -> dict[str, str]:
        """Zones and shards whose prices are useless, or will be after a restart, with the reason."""
        late = warn_of_short_leads(self.context.state.shards(), self.grace_s)
        _log_new("grace longer than lead", late, self._lead_warnings)
        self._lead_warnings = late
        without = "has no meter in the meter table: its fallback price is released"
        no_meters = dict.fromkeys(sorted(self._zones_without_meters), without)
        damaged = {}  # plans that are damaged in the state, while this process still has them in memory
        if plans := self.context.state.find_damaged_plans(self._beat):
            words = "its plan is damaged in the state, and after a restart its price is withheld"
            remedy = "murmurate zone open with its plan.json restores it"
            zones = self.context.state.plan_by_zone()
            damaged = {zone: f"{words}: {remedy}" for zone, plan in zones.items() if plan in plans}
        return late | no_meters | self._count_warnings | self._zero_warnings | damaged

    def purge(self, now: float) -> bool:
        """Delete readings, demand, public inputs, claims of signed readings and silent registers after `keep_days`.

        One failure stops no other deletion. Returns whether none has failed.
        """
        before_s, interval_s = int(now - self.keep_days * SECONDS_PER_DAY), self.landing.interval_s

        def purge_readings() -> None:
            result = purge_landing(self.landing, before_s, report_progress)
            if result.intervals:
                logger.info("purged", extra={"intervals": result.intervals})
            for name, reason in result.failures.items():
                raise MurmurateError(name, f"not deleted ({reason})", "must be deleted by hand; the rest was purged")

        steps: dict[str, Callable[[], None]] = {
            "landing": purge_readings,
            "demand": lambda: self.context.state.purge_demand(interval_s, before_s // interval_s),
            "public inputs": lambda: self.context.state.purge_inputs(before_s),
            "claims": lambda: self.ingest_store.purge_claims(before_s),
            "registers": lambda: self.ingest_store.purge_registers(before_s),
        }
        is_complete = True
        for name, step in steps.items():
            report_progress()
            try:
                step()
            except Exception as error:  # noqa: BLE001  after any error the other steps must be done
                is_complete = False
                self.figures.retention_failed[name] += 1
                logger.warning("not purged", extra={"step": name, "reason": error_reason(error)})
        self._note_oldest_readings(now)
        return is_complete

    def _note_oldest_readings(self, now: float) -> None:
        """Note how old the oldest interval with readings is."""
        try:
            landed = self.landing.list_intervals()[0]
        except OSError:
            return
        self.figures.oldest_readings_age_s = max(0.0, now - landed[0]) if landed else 0.0


def _first_reasons(reasons: Mapping[str, str], max_count: int = 5) -> dict[str, str]:
    return dict(list(reasons.items())[:max_count])


def _log_new(event: str, warnings: Mapping[str, str], before: Mapping[str, str]) -> None:
    """Log warnings if there is one that was not there before."""
    if warnings.keys() - before.keys():
        logger.warning(event, extra={"count": len(warnings), "reasons": _first_reasons(warnings)})
