"""The current state of the public log: views of all zones, and cached responses."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache

import psycopg

from murmurate.service.clock import ServiceClock
from murmurate.service.clock_comparison import ClockComparison, ClockDifferenceError
from murmurate.service.log_reader.follower import ChangedShard, Follower, TileNotices
from murmurate.service.log_reader.log_queries import LogReader
from murmurate.service.log_reader.object_log_reader import ObjectLogReader
from murmurate.service.log_reader.tile_source import open_tile_source
from murmurate.service.log_reader.zone_view import PlanTerms, ZoneViews
from murmurate.service.public_api.home_assistant import HomeAssistantTopics
from murmurate.service.public_api.notifications import MqttNotifier, PriceStream, new_prices
from murmurate.service.public_api.openadr import ProgramIndex
from murmurate.service.public_api.response_cache import ResponseCache, ResponseSender
from murmurate.service.public_api.static_files import StaticFileWriter
from murmurate.service.public_api.worker_threads import WorkerThreads
from murmurate.service.settings import ServiceSettings
from murmurate.service.storage.databases import Database, name_log
from murmurate.service.storage.session import SessionPool
from murmurate.service.storage.tile_archive import TileArchive
from murmurate.service.web.address_counts import AddressCounts
from murmurate.service.web.server import ConnectionLimits

logger = logging.getLogger(__name__)


MAX_LOG_AGE_S = 30.0
LOOKUP_THREADS = 2  # for what is soon done: a tile, a plan, a day, a page
BULK_THREADS = 2  # for what clients can make long: histories, lists, logs of zones
ARCHIVE_TIMEOUT_S = 5.0  # of a look-up: a process that is stopped must not wait for a database that stands still
MAX_POLL_PERIOD_S = 3.0  # where the log sends notices
BACKFILL_SLICE_S = 0.25  # for older prices, before new ones are looked for again
MAX_PRELOADED_PLANS = 2_000  # a small service offers all formats also while the log is away
_STOP_TIMEOUT_S = 3.0


class LiveState:
    """Follows the log, notifies subscribers, and caches responses until they change.

    One thread reads the log. It passes each shard that has changed to the event loop, which alone writes the views and
    the caches, and waits for that before it reads the next.
    """

    def __init__(
        self,
        log: str,
        settings: ServiceSettings,
        notifier: MqttNotifier | None = None,
        home_assistant: HomeAssistantTopics | None = None,
    ) -> None:
        self.settings, self.notifier, self.home_assistant = settings, notifier, home_assistant
        self.clock: ServiceClock = settings.clock
        self.log_clock = ClockComparison("log", settings.clock)
        limits = settings.limits
        self.connections = ConnectionLimits(limits)
        self.lookup_threads = WorkerThreads(LOOKUP_THREADS, "lookup")
        self.bulk_threads = WorkerThreads(BULK_THREADS, "bulk")
        self.sender = ResponseSender()
        files = None if settings.archive is None else TileArchive(settings.archive)
        named = name_log(log)
        self.archive: LogReader | ObjectLogReader
        if isinstance(named, Database):
            sessions = SessionPool(named.dsn, max_size=LOOKUP_THREADS + BULK_THREADS, timeout_s=ARCHIVE_TIMEOUT_S)
            self.archive = LogReader(sessions, files)
        else:
            self.archive = ObjectLogReader(named.open())
        self.plan_terms = PlanTerms(self.archive.read_documents)
        by_address = AddressCounts(limits.streams_per_address, limits.trusted)
        self.price_stream = PriceStream(self.bulk_threads, by_address, limits.streams)
        self.volatile_cache = ResponseCache()  # until a price or the current interval changes
        self.immutable_cache = ResponseCache()  # what never changes
        self.views = ZoneViews(lru_cache(maxsize=4096)(settings.display_of), self.plan_terms.get)
        self.program_index = ProgramIndex(self.views)
        self.static_files: StaticFileWriter | None = None
        if settings.static_files is not None:
            self.static_files = StaticFileWriter(
                settings.static_files, LogReader(named.dsn, files), self.views.make_view
            )
        if notifier is not None:
            notifier.start(self.views.make_view, self.plan_terms)
        if home_assistant is not None:
            home_assistant.start(self.views.make_view, self.plan_terms, self.current_time)
        self._follower = Follower(open_tile_source(named))
        self._notices = TileNotices(named.dsn if isinstance(named, Database) else None)
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._clock_task: asyncio.Task[None] | None = None
        self.is_backfilled = False  # whether all prices that are kept in memory were read
        self._preloaded: set[str] = set()  # digests of zone tables whose plans were read
        self._refreshed_s = float("-inf")  # when the log last answered, by the monotonic clock
        self._interval_lengths: set[int] = set()  # of all shards [s]
        self._reported_faults: dict[str, str] = {}  # by shard

    async def start(self) -> None:
        """Begin to follow the log. Return when the last prices of all shards were read, or the log does not answer."""
        first_read = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._follow, args=(loop, first_read), name="follower", daemon=True)
        self._thread.start()
        self._clock_task = asyncio.create_task(self._watch_clock())
        await first_read.wait()

    async def stop(self) -> None:
        """Stop following the log. The last prices stay."""
        self._stopped.set()
        self._notices.interrupt()
        self.lookup_threads.stop()
        self.bulk_threads.stop()
        if self._clock_task is not None:
            self._clock_task.cancel()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, _STOP_TIMEOUT_S)

    async def _watch_clock(self) -> None:
        """Drop what is called now when another interval pays."""
        paid: dict[int, int] | None = None  # by length: the current interval; None: not known
        while True:
            before = paid
            try:
                now_s = self.current_time()
                paid = {step_s: int(now_s // step_s) for step_s in self._interval_lengths}
            except ClockDifferenceError:
                paid = None
            if paid != before:
                self.volatile_cache.clear()
            await asyncio.sleep(self._slot_s)

    def _follow(self, loop: asyncio.AbstractEventLoop, first_read: asyncio.Event) -> None:
        """Read the log when it has something new, and at least every few seconds, until it is stopped."""
        notices_come = is_announced = False
        while not self._stopped.is_set():
            is_complete = True
            try:
                with suppress(psycopg.Error, OSError):  # without notices the log is looked at more often
                    self._notices.listen()
                changes = self._pass_on(self._follower.refresh(), loop)
                self._refreshed_s = time.monotonic()
                self.log_clock.note(self._follower.clock_reading)
                loop.call_soon_threadsafe(first_read.set)
                notices_come = is_announced if changes else notices_come
                self._pass_on(self._follower.backfill(BACKFILL_SLICE_S), loop)
                is_complete = self.is_backfilled = self._follower.is_backfilled and self._preload_plans()
            except (psycopg.Error, OSError) as error:
                logger.warning("log out of reach", extra={"reason": type(error).__name__})
            except Exception as error:  # noqa: BLE001  without it a process that no longer follows would look alive
                logger.warning("failing", extra={"reason": type(error).__name__})
            if self._stopped.is_set():
                return
            self._report_broken_shards()
            loop.call_soon_threadsafe(first_read.set)
            wait_s = MAX_POLL_PERIOD_S if notices_come else self._slot_s
            is_announced = self._notices.wait(wait_s if is_complete else 0.0)

    @property
    def _slot_s(self) -> float:
        return min(1.0, self.settings.release_slot_s)

    def _pass_on(self, changes: Iterable[ChangedShard], loop: asyncio.AbstractEventLoop) -> int:
        """Pass on each shard when it was read: no zone waits for the last one. Return how many there were."""
        count = 0
        for change in changes:
            done = threading.Event()
            loop.call_soon_threadsafe(self.show_shard, change)
            loop.call_soon_threadsafe(done.set)  # after it, also where it has failed
            while not done.wait(1.0) and not self._stopped.is_set():
                pass
            if self._stopped.is_set():
                break
            if self.notifier is not None and change.new_intervals:
                self.notifier.notify(change)
            if self.home_assistant is not None:
                self.home_assistant.show(change.view)
            if self.static_files is not None:
                self.static_files.notify(change.view)
            count += 1
        return count

    def show_shard(self, change: ChangedShard) -> None:
        """Show a shard as it is now, and send its new prices to subscribers. In the event loop."""
        shard = change.view
        self.program_index.add_zones(self.views.put(shard))
        self._interval_lengths.add(shard.interval_s)
        self.volatile_cache.drop_shard(shard.name)
        if change.new_intervals:
            for zone in self.price_stream.zones & shard.table.column.keys():
                self.price_stream.publish_prices(self.views[zone], new_prices(self.views[zone], change.new_intervals))

    def _preload_plans(self) -> bool:
        """Read some plans of zones before they are asked for. Return whether that is done."""
        for shard in self._follower.views():
            plans = {row.plan for row in shard.table.rows}
            if shard.table.digest in self._preloaded or len(self.plan_terms) + len(plans) > MAX_PRELOADED_PLANS:
                continue
            self._preloaded.add(shard.table.digest)
            self.plan_terms.load(plans)
            return False
        return True

    def _report_broken_shards(self) -> None:
        broken = self._follower.broken
        for shard, reason in broken.items():
            if self._reported_faults.get(shard) != reason:
                self._reported_faults[shard] = reason
                logger.warning("log broken", extra={"shard": shard, "reason": reason})
        for shard in self._reported_faults.keys() - broken.keys():
            del self._reported_faults[shard]
            logger.info("log mended", extra={"shard": shard})

    def current_time(self) -> float:
        """The time by which a price is current [s of UTC]. Raises ClockDifferenceError while the log's differs."""
        now_s = self.clock.now()
        self.log_clock.check()
        return now_s

    def interval_end_s(self) -> float:
        """When the current interval ends, of all shards the first one, by the wall clock [s of UTC]."""
        now = self.clock.now()
        ends = [(now // step + 1) * step for step in self._interval_lengths]
        return self.clock.wall_at(min(ends)) if ends else time.time()

    async def load_terms(self, plans: Iterable[str]) -> None:
        """Have the terms of these plans in memory: the event loop must not wait for a database."""
        missing = [plan for plan in plans if plan not in self.plan_terms]
        if missing:
            await self.lookup_threads.run(self.plan_terms.load, missing)

    @property
    def log_age_s(self) -> float:
        """How long ago the log was last read; infinite: never."""
        return time.monotonic() - self._refreshed_s

    @property
    def not_ready_reason(self) -> str:
        """Why the process should get no requests; empty: it should. Zones that are broken leave it to the others."""
        if self.log_age_s > MAX_LOG_AGE_S:
            return "the public log has not answered for a while"
        if (clock_fault := self.log_clock.fault) is not None:
            return f"the clock {clock_fault}"
        if not self.views:
            return "no zone is open yet"
        return ""

    def stale_reason(self, zone: str) -> str:
        """Why a zone has no price now, or will have none; empty: it is as it should be."""
        shard = self.views.shard_of(zone)
        if shard in self._follower.broken:
            return "the log of its shard is broken: no new price is shown"
        view = self.views[zone]
        if view.closed is not None:
            return ""
        return "" if view.interval_at(self.clock.now()) in view.prices else "there is no price for this interval"

    @property
    def broken_shards(self) -> int:
        """How many shards have a log that does not hold."""
        return len(self._follower.broken)

    def count_stale_shards(self) -> int:
        """How many shards have no price for the current interval; all, where it is not known which one that is."""
        now = self.clock.now()
        shards = [shard for shard in self.views.shards.values() if shard.table.rows]
        if self.log_clock.fault is not None:
            return len(shards)
        return sum(shard.last + shard.lead_intervals < now // shard.interval_s for shard in shards)

    def close(self) -> None:
        """Close all connections. It cannot be started again."""
        notifiers = (self.notifier, self.home_assistant)
        for part in (self._follower, self._notices, self.archive, *notifiers, self.static_files):
            if part is not None:
                part.close()
