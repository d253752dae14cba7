"""What an operator has to know about a service, from the public log and from what its parts say. Never a demand."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf

import psycopg

from murmurate.publication.record import Kind
from murmurate.service.access import Client
from murmurate.service.board.follow import Follower
from murmurate.service.board.view import ZoneView
from murmurate.service.clock import Schedule
from murmurate.service.settings import Sign

MOST_ZONES = 1000
DAY_S = 86_400
AGAIN_S = 1.0  # between two looks at the log
PATIENCE_S = 0.4  # what a page waits for a look

Beat = tuple[float, Mapping[str, object]]  # seconds since, and what was said


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneFacts:
    """A zone as its operator sees it: how far it is, and what it has cost."""

    zone: str
    title: str
    plan: str
    key: str
    decided_end_s: int  # until when prices are decided [s of UTC]
    behind: int  # intervals that are due and not decided
    kinds: Mapping[Kind, int]  # of the last 24 hours
    due: int  # what the last 24 hours should have
    epsilon_micro: int
    rho_micro: int
    is_broken: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorFacts:
    """All that the operator's page shows."""

    now_s: float
    zones: Sequence[ZoneFacts]  # those that need a person first, at most MOST_ZONES
    broken: Mapping[str, str]  # zones whose log nobody believes any more, and why
    zone_count: int
    fine_count: int
    counts: Mapping[str, int]  # readings since this door opened
    beat: Beat | None  # of the road
    clients: Sequence[Client]
    next_deadline_s: float | None
    stale_s: float = 0.0  # since the log was last read


def facts_of(
    views: Mapping[str, ZoneView],
    broken: Mapping[str, str],
    *,
    now_s: float,
    grace_s: int,
    counts: Mapping[str, int],
    beat: Beat | None,
    clients: Sequence[Client],
    stale_s: float = 0.0,
) -> OperatorFacts:
    """The facts at one moment. Only the zones that are shown are looked at closely."""
    late = {zone: _behind(view, now_s, grace_s) for zone, view in views.items()}
    order = sorted(views, key=lambda zone: (zone not in broken, not late[zone], zone))
    shown = [_zone(views[zone], late[zone], zone in broken, now_s, grace_s) for zone in order[:MOST_ZONES]]
    return OperatorFacts(
        now_s=now_s,
        zones=shown,
        broken=broken,
        zone_count=len(views.keys() | broken.keys()),
        fine_count=sum(not late[zone] and zone not in broken for zone in views),
        counts=counts,
        beat=beat,
        clients=clients,
        next_deadline_s=_next_deadline(views.values(), now_s, grace_s),
        stale_s=stale_s,
    )


def _due(view: ZoneView, now_s: float, grace_s: int) -> int:
    """The interval that should be decided by now, as one that pays."""
    schedule = Schedule(interval_s=view.interval_s, lead=view.lead, grace_s=grace_s)
    return max(schedule.wish(now_s).until + view.lead, view.first - 1)


def _behind(view: ZoneView, now_s: float, grace_s: int) -> int:
    return max(0, _due(view, now_s, grace_s) - view.decided)


def _zone(view: ZoneView, behind: int, is_broken: bool, now_s: float, grace_s: int) -> ZoneFacts:
    due = _due(view, now_s, grace_s)
    day = range(max(view.first, due + 1 - DAY_S // view.interval_s), due + 1)
    return ZoneFacts(
        zone=view.zone,
        title=view.sign.title,
        plan=view.plan,
        key=view.key,
        decided_end_s=view.begin_s(view.decided + 1),
        behind=behind,
        kinds=Counter(view.prices[n].kind for n in day if n in view.prices),
        due=len(day),
        epsilon_micro=view.total_epsilon_micro,
        rho_micro=view.total_rho_micro,
        is_broken=is_broken,
    )


def _next_deadline(views: Iterable[ZoneView], now_s: float, grace_s: int) -> float | None:
    """When the next interval is over and its grace too [s of UTC]."""
    steps = {view.interval_s for view in views}
    return min((((now_s - grace_s) // step + 1) * step + grace_s for step in steps), default=None)


class LogSide:
    """The public log as anybody may read it, for the operator's page. Any thread may ask, and none waits for long."""

    def __init__(self, dsn: str, sign: Callable[[str], Sign]) -> None:
        self._follower = Follower(dsn, sign)
        self._lock = threading.Lock()
        self._reading: threading.Thread | None = None
        self._looked = self._read_s = -inf  # when a look began, and when one last ended well, by the monotonic clock
        self.views: Mapping[str, ZoneView] = {}
        self.broken: Mapping[str, str] = {}

    def look(self) -> None:
        """Have what is new read, at most once a second, and wait a moment for it. The first time takes longer."""
        with self._lock:
            if self._reading is None or not self._reading.is_alive():
                if time.monotonic() - self._looked < AGAIN_S:
                    return
                self._looked = time.monotonic()
                self._reading = threading.Thread(target=self._read, daemon=True)
                self._reading.start()
            reading = self._reading
        reading.join(PATIENCE_S)

    def _read(self) -> None:
        with suppress(psycopg.Error, OSError):  # the page says how old its news is
            self._follower.refresh()
            self.views, self.broken = dict(self._follower.views), dict(self._follower.broken)
            self._read_s = time.monotonic()

    @property
    def stale_s(self) -> float:
        """Since the log was last read."""
        return time.monotonic() - self._read_s

    def close(self) -> None:
        """Hang up; a later look connects again."""
        with self._lock:
            if self._reading is not None:
                self._reading.join()
            self._follower.close()
