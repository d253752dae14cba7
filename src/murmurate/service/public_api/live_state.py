"""The current state of the public log: views of all zones, and cached responses."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping

import psycopg
from starlette.concurrency import run_in_threadpool

from murmurate.service.clock import ServiceClock
from murmurate.service.log_reader.archive import Archive
from murmurate.service.log_reader.follower import Follower
from murmurate.service.log_reader.zone_view import ZoneView
from murmurate.service.public_api.mqtt_notifier import MqttNotifier
from murmurate.service.public_api.response_cache import ResponseCache
from murmurate.service.public_api.sse import PriceStream
from murmurate.service.settings import ServiceSettings
from murmurate.service.storage.session_pool import SessionPool

logger = logging.getLogger(__name__)


MAX_LOG_AGE_S = 30.0
MAX_ARCHIVE_CONNECTIONS = 8


class LiveState:
    """Follows the log, notifies subscribers, and caches responses until they change."""

    def __init__(self, log_dsn: str, settings: ServiceSettings, notifier: MqttNotifier | None = None) -> None:
        self.settings, self.notifier = settings, notifier
        self.clock: ServiceClock = settings.clock
        self.archive = Archive(SessionPool(log_dsn, max_size=MAX_ARCHIVE_CONNECTIONS))
        self.price_stream = PriceStream()
        self.volatile_cache = ResponseCache()  # until a price or the current interval changes
        self.immutable_cache = ResponseCache()  # what never changes
        self.views: Mapping[str, ZoneView] = {}
        self._follower = Follower(log_dsn, settings.display_of)
        self._refreshed_s = float("-inf")  # when the log last answered, by the monotonic clock
        self._current_intervals: dict[int, int] = {}  # by length: the one that pays now
        self._reported_faults: dict[str, str] = {}

    async def follow(self) -> None:
        """Read the log in every release slot, for ever."""
        while True:
            try:
                await self.refresh()
            except Exception as error:  # noqa: BLE001  without it a process that no longer follows would look alive
                logger.warning("failing", extra={"reason": type(error).__name__})
            await asyncio.sleep(min(1.0, self.settings.release_slot_s))

    async def refresh(self) -> None:
        try:
            changed = await run_in_threadpool(self._follower.refresh)
        except (psycopg.Error, OSError) as error:
            logger.warning("log out of reach", extra={"reason": type(error).__name__})
            return
        self._refreshed_s = time.monotonic()
        if changed:
            self.views = dict(sorted(self._follower.views.items()))
        if changed or self._has_interval_changed():
            self.volatile_cache.clear()
        for view, prices in changed:
            self.price_stream.publish_prices(view, prices)
        if self.notifier is not None:
            await run_in_threadpool(self.notifier.notify_changes, changed)
        for zone, reason in self._follower.broken.items():
            if self._reported_faults.get(zone) != reason:
                self._reported_faults[zone] = reason
                logger.warning("log broken", extra={"zone": zone, "reason": reason})

    def _has_interval_changed(self) -> bool:
        """Whether another interval pays than the last time: what is called now has moved."""
        now = self.clock.now()
        paying = {step: int(now // step) for step in {view.interval_s for view in self.views.values()}}
        has_changed, self._current_intervals = paying != self._current_intervals, paying
        return has_changed

    @property
    def not_ready_reason(self) -> str:
        """Why the process is not ready for requests; empty: it is ready."""
        if time.monotonic() - self._refreshed_s > MAX_LOG_AGE_S:
            return "the public log has not answered for a while"
        if not self.views:
            return "no zone is open yet"
        return f"{len(self._follower.broken)} zones have a broken log" if self._follower.broken else ""
