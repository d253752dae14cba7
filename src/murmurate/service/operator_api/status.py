"""What an operator has to know about a service, from the public log and from its heartbeats. Never a demand."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from heapq import merge
from itertools import chain, islice, repeat
from math import inf
from operator import itemgetter

import psycopg

from murmurate.service.auth import ApiClient
from murmurate.service.clock import ReleaseSchedule
from murmurate.service.log_reader.follower import ChangedShard, Follower
from murmurate.service.log_reader.tile_source import PostgresTiles, open_tile_source
from murmurate.service.log_reader.zone_view import PRICE_KINDS, Price, PriceKind, RecentPrices, ShardView
from murmurate.service.settings import ZoneDisplay
from murmurate.service.storage.databases import Database, ObjectLog
from murmurate.service.storage.server_checks import read_database_bytes
from murmurate.service.storage.session import Session
from murmurate.units import SECONDS_PER_DAY, IntArray

MAX_STATUS_ZONES = 1000
MIN_REFRESH_PERIOD_S = 1.0  # between two looks at the log
REFRESH_TIMEOUT_S = 0.4  # what a page waits for a look
MAX_BACKFILL_S = 10.0  # for older prices, at each look

Heartbeat = tuple[float, Mapping[str, object]]  # its age [s], and the report of the process


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneStatus:
    """A zone as its operator sees it: how far it is, and what it has cost."""

    zone: str
    title: str
    plan_digest: str
    key: str
    decided_end_s: int  # until when prices are decided [s of UTC]
    intervals_behind: int  # intervals that are due and not decided
    releases_by_kind: Mapping[PriceKind, int]  # of the last 24 hours
    due_releases: int  # what the last 24 hours should have
    epsilon_micro: int
    rho_micro: int
    currency: str
    last_price: Price | None  # the last that was decided; None: none yet
    is_broken: bool = False
    square_units: int | None = None  # of its last row, see `prediction.corrections`; None: its price is not predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStatus:
    """All that the operator's page shows."""

    now_s: float
    zones: Sequence[ZoneStatus]  # those that need an operator first, at most MAX_STATUS_ZONES
    broken_shards: Mapping[str, str]  # shards whose log is not valid, and the reason
    broken_zone_count: int  # zones of these shards, as far as they were read before
    zone_count: int  # that are open
    up_to_date_count: int
    reading_counts: Mapping[str, int]  # readings since this process started
    heartbeat: Heartbeat | None  # of the worker
    clients: Sequence[ApiClient]
    next_deadline_s: float | None
    log_age_s: float = 0.0  # since the log was last read
    worker_beat: Heartbeat | None = None  # when the worker was last alive, and its figures
    part_restarts: Mapping[str, int] = field(default_factory=dict)  # of each process, by the supervisor
    last_kinds: Mapping[PriceKind, int] = field(default_factory=dict)  # zones by the kind of their last price
    ingest_warnings: Mapping[str, str] = field(default_factory=dict)  # by part of the private process
    ingest_clock_difference_s: float | None = None  # its clock minus the state database's
    closed_count: int = 0  # zones that were closed


def service_status(
    shards: Iterable[ShardView],
    broken_shards: Mapping[str, str],
    *,
    display_of: Callable[[str], ZoneDisplay],
    now_s: float,
    grace_s: int,
    reading_counts: Mapping[str, int],
    heartbeat: Heartbeat | None,
    clients: Sequence[ApiClient],
    log_age_s: float = 0.0,
    worker_beat: Heartbeat | None = None,
    part_restarts: Mapping[str, int] | None = None,
    only_zone: str | None = None,
    ingest_warnings: Mapping[str, str] | None = None,
    ingest_clock_difference_s: float | None = None,
) -> ServiceStatus:
    """The status at one moment. The zones of a shard are equally late; only those that are shown are looked at.

    With `only_zone` the list of zones has this one alone; the counts are of all zones.
    """
    statuses = []
    for shard in shards:
        schedule = ReleaseSchedule(interval_s=shard.interval_s, lead_intervals=shard.lead_intervals, grace_s=grace_s)
        statuses.append(_ShardStatus(shard, schedule.due_interval(now_s), is_broken=shard.name in broken_shards))
    by_urgency: list[list[_ShardStatus]] = [[], [], []]  # broken, late, up to date
    for status in statuses:
        by_urgency[0 if status.is_broken else 1 if status.intervals_behind else 2].append(status)
    # By name within each urgency. The zones of a shard are sorted.
    in_order: Iterable[tuple[str, _ShardStatus]] = chain.from_iterable(
        merge(*(zip(each.shard.table.zones, repeat(each), strict=False) for each in some), key=itemgetter(0))
        for some in by_urgency
    )
    if only_zone is not None:
        in_order = (found for found in in_order if found[0] == only_zone)
    counts = [sum(len(status.shard.table) for status in each) for each in by_urgency]
    steps_s = {status.shard.interval_s for status in statuses}  # the next interval that is over, and its grace too
    return ServiceStatus(
        now_s=now_s,
        zones=[status.zone_status(zone, display_of(zone)) for zone, status in islice(in_order, MAX_STATUS_ZONES)],
        broken_shards=broken_shards,
        broken_zone_count=counts[0],
        zone_count=sum(counts),
        up_to_date_count=counts[2],
        reading_counts=reading_counts,
        heartbeat=heartbeat,
        clients=clients,
        next_deadline_s=min((((now_s - grace_s) // step + 1) * step + grace_s for step in steps_s), default=None),
        log_age_s=log_age_s,
        worker_beat=worker_beat,
        part_restarts=part_restarts or {},
        last_kinds=sum((status.count_last_kinds() for status in statuses), Counter()),
        ingest_warnings=ingest_warnings or {},
        ingest_clock_difference_s=ingest_clock_difference_s,
        closed_count=sum(len(status.shard.table.closed) for status in statuses),
    )


class _ShardStatus:
    def __init__(self, shard: ShardView, due: int, *, is_broken: bool) -> None:
        self.shard, self.is_broken = shard, is_broken
        self.due = due  # the interval that should be decided by now
        self.intervals_behind = max(0, due - shard.last)

    @cached_property
    def day_kinds(self) -> IntArray:
        """Releases of the last 24 hours of all zones of the shard: [kind, zone]."""
        first = max(self.shard.first, self.due + 1 - SECONDS_PER_DAY // self.shard.interval_s)
        return self.shard.columns.count_kinds(range(first, min(self.shard.last, self.due) + 1))

    def zone_status(self, zone: str, display: ZoneDisplay) -> ZoneStatus:
        shard, at = self.shard, self.shard.table.position[zone]
        row, lead = shard.table.rows[at], shard.lead_intervals
        day = range(max(row.since, self.due + 1 - SECONDS_PER_DAY // shard.interval_s), self.due + 1)
        counts = self.day_kinds[:, shard.table.column[zone]].tolist()
        return ZoneStatus(
            zone=zone,
            title=display.title,
            plan_digest=row.plan,
            key=shard.head.tile.key_in_force,
            decided_end_s=(shard.last + lead + 1) * shard.interval_s,
            intervals_behind=self.intervals_behind,
            releases_by_kind={kind: counts[number] for number, kind in PRICE_KINDS.items() if counts[number]},
            due_releases=len(day),
            epsilon_micro=int(shard.head.totals[0, at]),
            rho_micro=int(shard.head.totals[1, at]),
            currency=row.currency,
            last_price=RecentPrices(shard, row).get(shard.last + lead) if shard.last >= row.since else None,
            is_broken=self.is_broken,
            square_units=shard.square_units(zone),
        )

    def count_last_kinds(self) -> Counter[PriceKind]:
        """How many zones have which kind of price last; those without any price are not counted."""
        shard, is_open = self.shard, [self.shard.table.column[zone] for zone in self.shard.table.zones]
        counts = shard.columns.count_kinds(range(shard.last, shard.last + 1) if shard.last >= shard.first else range(0))
        return Counter({kind: int(counts[number, is_open].sum()) for number, kind in PRICE_KINDS.items()})


class BackgroundLogReader:
    """The public log as anybody may read it, for the operator's page. Any thread may ask, and none waits for long."""

    def __init__(self, log: Database | ObjectLog) -> None:
        self._session = Session(log.dsn) if isinstance(log, Database) else None
        tiles = PostgresTiles(self._session) if self._session is not None else open_tile_source(log)
        self._follower = Follower(tiles, recent_s=SECONDS_PER_DAY)
        self._lock = threading.Lock()
        self._refresh_thread: threading.Thread | None = None
        self._refresh_started_s = -inf  # by the monotonic clock
        self._refreshed_s = -inf  # when a look last ended well
        self.shards: Mapping[str, ShardView] = {}
        self.broken: Mapping[str, str] = {}
        self.database_bytes: int | None = None  # None: not read yet, or there is no database

    def refresh(self) -> None:
        """Have what is new read, at most once a second, and wait a moment for it. The first time takes longer."""
        with self._lock:
            if self._refresh_thread is None or not self._refresh_thread.is_alive():
                if time.monotonic() - self._refresh_started_s < MIN_REFRESH_PERIOD_S:
                    return
                self._refresh_started_s = time.monotonic()
                self._refresh_thread = threading.Thread(target=self._refresh_views, daemon=True)
                self._refresh_thread.start()
            reading = self._refresh_thread
        reading.join(REFRESH_TIMEOUT_S)

    def _refresh_views(self) -> None:
        with suppress(psycopg.Error, OSError):  # the page shows the age of what it has read
            self._show(self._follower.refresh())
            self._refreshed_s = time.monotonic()
            if self._session is not None:
                with self._session.transaction() as connection:
                    self.database_bytes = read_database_bytes(connection)
            self._show(self._follower.backfill(MAX_BACKFILL_S))

    def _show(self, changes: Iterable[ChangedShard]) -> None:
        for change in changes:
            self.shards = {**self.shards, change.view.name: change.view}
        self.broken = dict(self._follower.broken)

    @property
    def log_age_s(self) -> float:
        """Since the log was last read."""
        return time.monotonic() - self._refreshed_s

    def close(self) -> None:
        """Close the connection. It is reopened on the next refresh."""
        with self._lock:
            if self._refresh_thread is not None:
                self._refresh_thread.join()
            self._follower.close()
