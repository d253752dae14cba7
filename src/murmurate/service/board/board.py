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
MOST_KEPT_BYTES = 64 * 2**20  # of answers on each shelf
MOST_ANSWER_BYTES = 2**20  # a longer one is made anew each time


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


class Shelf:
    """Answers by path and query, within a bound: whoever asks for many different things makes room for others."""

    def __init__(self, most_bytes: int = MOST_KEPT_BYTES) -> None:
        self._most_bytes, self._bytes = most_bytes, 0
        self._answers: dict[tuple[bytes, bytes], Ready] = {}
        self.emptied = 0  # how often: an answer that was begun before belongs to what was then
        self.get = self._answers.get

    def put(self, key: tuple[bytes, bytes], answer: Ready) -> None:
        if len(answer.body) > MOST_ANSWER_BYTES or key in self._answers:
            return
        size = len(answer.body) + len(key[0]) + len(key[1]) + 1000
        if self._bytes + size > self._most_bytes:
            self.clear()
        self._answers[key] = answer
        self._bytes += size

    def clear(self) -> None:
        self._answers.clear()
        self._bytes = 0
        self.emptied += 1


class Board:
    """Follows the log, tells whoever listens, and keeps what was asked for until it changes."""

    def __init__(self, log: str, settings: Settings, say: Say, notices: Notices | None = None) -> None:
        self.settings, self.say, self.notices = settings, say, notices
        self.clock: Clock = settings.playback
        self.archives = Pool(lambda: Archive(log))
        self.stream = Stream()
        self.ready = Shelf()  # until something moves
        self.kept = Shelf()  # what never changes
        self.views: Mapping[str, ZoneView] = {}
        self._follower = Follower(log, settings.sign)
        self._fresh = float("-inf")  # when the log last answered, by the monotonic clock
        self._interval: dict[int, int] = {}  # by length: the one that pays now
        self._said: dict[str, str] = {}

    async def follow(self) -> None:
        """Look at the log on every beat, for ever."""
        while True:
            try:
                await self.refresh()
            except Exception as error:  # noqa: BLE001  a board that stands still would look alive
                self.say("failing", why=type(error).__name__)
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
            await run_in_threadpool(self.notices.tell, moved)
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
