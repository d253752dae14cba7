"""What is public now, kept up to date: views of all zones, and answers that are ready before anybody asks."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

import psycopg
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from murmurate.service.board.archive import Archive
from murmurate.service.board.follow import Follower
from murmurate.service.board.notices import Notices
from murmurate.service.board.stream import Stream
from murmurate.service.board.view import ZoneView
from murmurate.service.clock import Clock
from murmurate.service.pool import Pool
from murmurate.service.saying import Say
from murmurate.service.settings import Settings

MOVING = "public, max-age=5"
FOR_EVER = "public, max-age=31536000, immutable"
STALE_S = 30.0
MOST_READY = 20_000


@dataclass(frozen=True, slots=True)
class Ready:
    """An answer, ready to be sent."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes
    etag: bytes

    @classmethod
    def of(cls, body: bytes, media_type: str, cache: str) -> Ready:
        etag = f'"{sha256(body).hexdigest()[:32]}"'.encode()
        headers = [(b"etag", etag), (b"cache-control", cache.encode()), (b"access-control-allow-origin", b"*")]
        headers += [(b"content-type", media_type.encode()), (b"content-length", str(len(body)).encode())]
        return cls(200, headers, body, etag)

    @classmethod
    def json(cls, document: object, cache: str = MOVING) -> Ready:
        body = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        return cls.of(body, "application/json", cache)

    @property
    def unchanged(self) -> Ready:
        return Ready(304, self.headers[:3], b"", self.etag)

    def response(self) -> Response:
        response = Response(self.body, self.status)
        response.raw_headers = self.headers
        return response


class Board:
    """Follows the log, tells whoever listens, and keeps what was asked for until it changes."""

    def __init__(self, log: str, settings: Settings, say: Say, notices: Notices | None = None) -> None:
        self.settings, self.say, self.notices = settings, say, notices
        self.clock: Clock = settings.playback
        self.archives = Pool(lambda: Archive(log))
        self.stream = Stream()
        self.ready: dict[tuple[bytes, bytes], Ready] = {}  # by path and query, until something moves
        self.kept: dict[tuple[bytes, bytes], Ready] = {}  # what never changes
        self.views: Mapping[str, ZoneView] = {}
        self._follower = Follower(log, settings.sign)
        self._fresh = float("-inf")  # when the log last answered, by the monotonic clock
        self._interval: dict[int, int] = {}  # by length: the one that pays now
        self._said: dict[str, str] = {}

    async def follow(self) -> None:
        """Look at the log on every beat, for ever."""
        while True:
            await self.refresh()
            await asyncio.sleep(min(1.0, self.settings.beat_s))

    async def refresh(self) -> None:
        try:
            moved = await run_in_threadpool(self._follower.refresh)
        except (psycopg.Error, OSError) as error:
            self.say("log out of reach", why=type(error).__name__)
            return
        self._fresh = time.monotonic()
        if moved:
            self.views = dict(sorted(self._follower.views.items()))
        if moved or self._ticked():
            self.ready.clear()
        for view, prices in moved:
            self.stream.tell(view, prices)
            if self.notices is not None:
                self.notices.tell(view, prices)
        for zone, why in self._follower.broken.items():
            if self._said.get(zone) != why:
                self._said[zone] = why
                self.say("log broken", zone=zone, why=why)

    def _ticked(self) -> bool:
        """Whether another interval pays than the last time: what is called now has moved."""
        now = self.clock.now()
        paying = {step: int(now // step) for step in {view.interval_s for view in self.views.values()}}
        ticked, self._interval = paying != self._interval, paying
        return ticked

    @property
    def unwell(self) -> str:
        """Why nobody should be sent here; empty: all is well."""
        if time.monotonic() - self._fresh > STALE_S:
            return "the public log has not answered for a while"
        if not self.views:
            return "no zone is open yet"
        return f"{len(self._follower.broken)} zones have a broken log" if self._follower.broken else ""

    def keep(self, key: tuple[bytes, bytes], answer: Ready, *, for_ever: bool) -> None:
        shelf = self.kept if for_ever else self.ready
        if len(shelf) >= MOST_READY:
            shelf.clear()
        shelf[key] = answer
