"""Logs of zones on their way to clients: a few at once, and a slow client makes room for others."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from starlette.exceptions import HTTPException

from murmurate.service.public_api.worker_threads import WorkerThreads
from murmurate.service.web.address_counts import AddressCounts

MAX_EXPORTS = 8
MAX_EXPORTS_PER_ADDRESS = 2
MAX_EXPORT_S = 300.0
MIN_READ_BYTES_PER_S = 1_000_000  # of a client that stays although others wait
READ_GRACE_S = 5.0  # of waiting for a client before its rate counts
EXPORT_RETRY_AFTER_S = 60


class LogExport:
    """One log on its way: how much the client has read, and how long it made the server wait."""

    def __init__(self) -> None:
        self.sent_bytes, self.client_wait_s = 0, 0.0
        self._waits_since: float | None = None
        self.is_ended = False

    @property
    def is_slow(self) -> bool:
        """Whether the client reads too slowly to stay while others wait."""
        waits_s = 0.0 if self._waits_since is None else time.monotonic() - self._waits_since
        return self.client_wait_s + waits_s > READ_GRACE_S + self.sent_bytes / MIN_READ_BYTES_PER_S

    @contextmanager
    def client_reads(self, size: int) -> Iterator[None]:
        """Count the time in the block as time that the client takes to read so many bytes."""
        self._waits_since = time.monotonic()
        try:
            yield
        finally:
            self.client_wait_s += time.monotonic() - self._waits_since
            self._waits_since = None
            self.sent_bytes += size


class LogExports:
    """The exports that run. One event loop."""

    def __init__(self, threads: WorkerThreads, by_address: AddressCounts, max_exports: int = MAX_EXPORTS) -> None:
        self._threads, self._by_address, self._max_exports = threads, by_address, max_exports
        self._running: dict[LogExport, None] = {}  # in the order of their start

    def make_room(self, address: str) -> None:
        """End a slow export where there are too many. Raises HTTPException if none is, or the address has enough."""
        if self._by_address.is_full(address):
            detail = "this address is fetching other logs; try again when it has them"
            raise HTTPException(429, detail, {"retry-after": str(EXPORT_RETRY_AFTER_S)})
        if len(self._running) < self._max_exports:
            return
        slow = next((export for export in self._running if export.is_slow), None)
        if slow is None:
            detail = "others are fetching the log; try again in a minute"
            raise HTTPException(503, detail, {"retry-after": str(EXPORT_RETRY_AFTER_S)})
        slow.is_ended = True
        del self._running[slow]

    @asynccontextmanager
    async def held(self, export: LogExport, address: str) -> AsyncIterator[None]:
        """Count an export while the block runs."""
        self._running[export] = None
        try:
            with self._by_address.held(address):
                yield
        finally:
            self._running.pop(export, None)

    async def send_chunks(self, export: LogExport, chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
        """Chunks as the client reads them, until the end, the deadline, or the need for its place.

        A response that is ended is not complete, and the connection is closed: no client takes it for the whole log.
        """
        end_s = time.monotonic() + MAX_EXPORT_S
        while (chunk := await self._threads.run_next_piece(next, chunks, None)) is not None:
            if export.is_ended or time.monotonic() > end_s:
                raise ExportEndedError
            if chunk:
                with export.client_reads(len(chunk)):
                    yield chunk


class ExportEndedError(Exception):
    """A log whose client read too slowly."""
