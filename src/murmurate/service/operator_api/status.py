"""What an operator has to know about a service, from the public log and from its heartbeats. Never a demand."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf

import psycopg

from murmurate.public_log.record import RecordKind
from murmurate.service.auth import ApiClient
from murmurate.service.clock import ReleaseSchedule
from murmurate.service.log_reader.follower import Follower
from murmurate.service.log_reader.zone_view import ZoneView
from murmurate.service.settings import ZoneDisplay
from murmurate.units import SECONDS_PER_DAY

MAX_STATUS_ZONES = 1000
MIN_REFRESH_PERIOD_S = 1.0  # between two looks at the log
REFRESH_TIMEOUT_S = 0.4  # what a page waits for a look

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
    releases_by_kind: Mapping[RecordKind, int]  # of the last 24 hours
    due_releases: int  # what the last 24 hours should have
    epsilon_micro: int
    rho_micro: int
    is_broken: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStatus:
    """All that the operator's page shows."""

    now_s: float
    zones: Sequence[ZoneStatus]  # those that need an operator first, at most MAX_STATUS_ZONES
    broken_zones: Mapping[str, str]  # zones whose log is not valid, and the reason
    zone_count: int
    up_to_date_count: int
    reading_counts: Mapping[str, int]  # readings since this process started
    heartbeat: Heartbeat | None  # of the worker
    clients: Sequence[ApiClient]
    next_deadline_s: float | None
    log_age_s: float = 0.0  # since the log was last read


def service_status(
    views: Mapping[str, ZoneView],
    broken_zones: Mapping[str, str],
    *,
    now_s: float,
    grace_s: int,
    reading_counts: Mapping[str, int],
    heartbeat: Heartbeat | None,
    clients: Sequence[ApiClient],
    log_age_s: float = 0.0,
) -> ServiceStatus:
    """The status at one moment. Only the zones that are shown are looked at closely."""
    late = {zone: _intervals_behind(view, now_s, grace_s) for zone, view in views.items()}
    order = sorted(views, key=lambda zone: (zone not in broken_zones, not late[zone], zone))
    shown = [
        _zone_status(views[zone], late[zone], zone in broken_zones, now_s, grace_s) for zone in order[:MAX_STATUS_ZONES]
    ]
    return ServiceStatus(
        now_s=now_s,
        zones=shown,
        broken_zones=broken_zones,
        zone_count=len(views.keys() | broken_zones.keys()),
        up_to_date_count=sum(not late[zone] and zone not in broken_zones for zone in views),
        reading_counts=reading_counts,
        heartbeat=heartbeat,
        clients=clients,
        next_deadline_s=_next_deadline(views.values(), now_s, grace_s),
        log_age_s=log_age_s,
    )


def _due_interval(view: ZoneView, now_s: float, grace_s: int) -> int:
    """The interval that should be decided by now, as one that pays."""
    schedule = ReleaseSchedule(interval_s=view.interval_s, lead_intervals=view.lead_intervals, grace_s=grace_s)
    return max(schedule.desired_state(now_s).until + view.lead_intervals, view.first_priced - 1)


def _intervals_behind(view: ZoneView, now_s: float, grace_s: int) -> int:
    return max(0, _due_interval(view, now_s, grace_s) - view.last_decided)


def _zone_status(view: ZoneView, intervals_behind: int, is_broken: bool, now_s: float, grace_s: int) -> ZoneStatus:
    due = _due_interval(view, now_s, grace_s)
    day = range(max(view.first_priced, due + 1 - SECONDS_PER_DAY // view.interval_s), due + 1)
    return ZoneStatus(
        zone=view.zone,
        title=view.display.title,
        plan_digest=view.plan_digest,
        key=view.key,
        decided_end_s=view.start_s(view.last_decided + 1),
        intervals_behind=intervals_behind,
        releases_by_kind=Counter(view.prices[n].kind for n in day if n in view.prices),
        due_releases=len(day),
        epsilon_micro=view.total_epsilon_micro,
        rho_micro=view.total_rho_micro,
        is_broken=is_broken,
    )


def _next_deadline(views: Iterable[ZoneView], now_s: float, grace_s: int) -> float | None:
    """When the next interval is over and its grace too [s of UTC]."""
    steps = {view.interval_s for view in views}
    return min((((now_s - grace_s) // step + 1) * step + grace_s for step in steps), default=None)


class BackgroundLogReader:
    """The public log as anybody may read it, for the operator's page. Any thread may ask, and none waits for long."""

    def __init__(self, dsn: str, display_of: Callable[[str], ZoneDisplay]) -> None:
        self._follower = Follower(dsn, display_of)
        self._lock = threading.Lock()
        self._refresh_thread: threading.Thread | None = None
        self._refresh_started_s = (
            self._refreshed_s
        ) = -inf  # when a look began, and when one last ended well, by the monotonic clock
        self.views: Mapping[str, ZoneView] = {}
        self.broken: Mapping[str, str] = {}

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
            self._follower.refresh()
            self.views, self.broken = dict(self._follower.views), dict(self._follower.broken)
            self._refreshed_s = time.monotonic()

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
