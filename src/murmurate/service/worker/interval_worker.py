"""The interval worker: at its deadline an interval is closed and aggregated, then every zone gets its release.

Any number of workers may run for the same zones: the manifest of an interval is written once, the demand is the same
for all, and the log takes one record. If a step before the release fails, the fallback price of the plan is released.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from murmurate.errors import MurmurateError
from murmurate.publisher.protocol import BlockedCode
from murmurate.service.clock import ServiceClock
from murmurate.service.clock_comparison import ClockComparison
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.maintenance import DamageScan, purge_landing
from murmurate.service.storage.heartbeats import WORKER_BEAT, WORKER_HEARTBEAT
from murmurate.service.storage.session import SESSION_TIMEOUT_S, ClockReading
from murmurate.service.watchdog import report_progress
from murmurate.service.worker.figures import WorkerFigures, error_reason
from murmurate.service.worker.interval_aggregation import IntervalAggregation
from murmurate.service.worker.publisher_context import LOG_CLOCK, PublisherContext
from murmurate.service.worker.zone_warnings import warn_of_short_leads
from murmurate.units import SECONDS_PER_DAY

logger = logging.getLogger(__name__)

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
    meters: Path
    context: PublisherContext
    ingest_store: IngestStore
    clock: ServiceClock
    grace_s: int = 60
    quorum: float = 0.9
    keep_days: float = 7.0
    timeout_s: float = 30.0
    beat_every_s: float = 1.0
    figures: WorkerFigures = field(default_factory=WorkerFigures)
    _aggregation: IntervalAggregation = field(init=False)
    _damage_scan: DamageScan = field(init=False)
    _last_released: int = field(default=_NO_INTERVAL_YET, init=False)  # the last interval that every shard has decided
    _state_clock: ClockComparison = field(init=False)
    _log_clock: ClockComparison = field(init=False)
    _lead_warnings: dict[str, str] = field(default_factory=dict, init=False)  # by shard
    _next_purge_s: float = field(default=_NEVER_S, init=False)
    _beat_s: float = field(default=_NEVER_S, init=False)  # monotonic, of the last heartbeat

    def __post_init__(self) -> None:
        self._damage_scan = DamageScan(self.landing)
        self._state_clock = ClockComparison("state database", self.clock)
        self._log_clock = ClockComparison("log", self.clock)
        self._aggregation = IntervalAggregation(
            landing=self.landing,
            meters=self.meters,
            state=self.context.state,
            clock=self.clock,
            grace_s=self.grace_s,
            quorum=self.quorum,
            figures=self.figures,
        )

    def run_once(self) -> None:
        """Do what is due. Call it in every release slot: most of the time there is nothing to do."""
        now = self._beat()
        due = int((now - self.grace_s) // self.landing.interval_s) - 1
        self._follow_clock(due)
        try:
            aggregated = self._aggregation.aggregate_due(due, now)
            if aggregated > self._last_released:
                self._release_due(aggregated, now)
        finally:  # an error that prevents a release must not keep old readings
            if now >= self._next_purge_s:
                self._next_purge_s = now + (PURGE_EVERY_S if self.purge(now) else RETRY_AFTER_S)

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

    def _follow_clock(self, due: int) -> None:
        """Where the clock was set back, intervals that are due again are looked at again. Each is decided once."""
        if due < self._last_released:
            logger.warning("clock set back", extra={"intervals": self._last_released - due})
            self._last_released = due - 1
        self._aggregation.follow_clock(due)
        if self._next_purge_s > self.clock.now() + PURGE_EVERY_S:  # it was planned by a clock that was ahead
            self._next_purge_s = _NEVER_S

    def _release_due(self, until: int, now: float) -> None:
        failed: set[str] = set()
        try:  # a rotation takes effect with the next release; where the folder is damaged, the keys so far are used
            self.context.reload_keyring()
        except (MurmurateError, OSError) as error:
            logger.warning("keys not read", extra={"reason": error_reason(error)})
        began_s = self.clock.now()
        desired = self.context.desired_states(now, self.grace_s, {self.landing.interval_s: until})
        outcome = self.context.make_publisher().publish(desired, timeout_s=self.timeout_s, on_failure=failed.add)
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
            "until": until,
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
        report |= {"zones_without_meters": len(self._aggregation.zones_without_meters)}
        report |= {"meters": str(self._aggregation.meters.resolve())}
        report |= {"share_reported": self._aggregation.share_reported, "feed": self._aggregation.feed}
        self.context.state.record_heartbeat(WORKER_HEARTBEAT, report)

    def _warnings(self) -> dict[str, str]:
        """Return what an operator should know while releases are made: damage, and the meter table."""
        try:
            if self.landing.restore_layout():
                logger.warning("layout of the landing restored")
            damage = self._damage_scan.find_damage()
        except Exception as error:  # noqa: BLE001  the release is made; a strange file must not keep its report
            damage = {"landing": error_reason(error)}
        if damage.keys() - self.figures.damage.keys():
            logger.warning("damaged files", extra={"count": len(damage), "reasons": _first_reasons(damage)})
        self.figures.damage = damage
        problem = self.figures.table_problem
        table = {} if problem is None else {"meter table": f"{problem[0]}: {problem[1]}"}
        return table | damage

    def _zone_warnings(self) -> dict[str, str]:
        """Zones and shards whose prices are useless, or will be after a restart, with the reason."""
        late = warn_of_short_leads(self.context.state.shards(), self.grace_s)
        if late.keys() - self._lead_warnings.keys():
            logger.warning("grace longer than lead", extra={"count": len(late), "reasons": _first_reasons(late)})
        self._lead_warnings = late
        without = "has no meter in the meter table: its fallback price is released"
        no_meters = dict.fromkeys(sorted(self._aggregation.zones_without_meters), without)
        damaged = {}  # plans that are damaged in the state, while this process still has them in memory
        if plans := self.context.state.find_damaged_plans():
            words = (
                "its plan is damaged in the state, and after a restart its price is withheld: murmurate zone open with "
            )
            words += "its plan.json restores it"
            damaged = {zone: words for zone, plan in self.context.state.plan_by_zone().items() if plan in plans}
        return late | no_meters | self._aggregation.household_count_warnings | damaged

    def purge(self, now: float) -> bool:
        """Delete readings, demand, claims of signed readings and points of silent registers older than `keep_days`.

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
