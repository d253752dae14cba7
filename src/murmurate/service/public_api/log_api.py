"""The public log itself: shards with their prices, tiles, documents, and one zone's lines for `murmurate log verify`.

A few clients fetch the lines of a zone at once, and a slow one makes room for others.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from murmurate.errors import MurmurateError
from murmurate.service.public_api import query_params
from murmurate.service.public_api.live_state import LiveState
from murmurate.service.public_api.price_formats import shard_entry, shard_prices_document, shard_prices_path
from murmurate.service.public_api.response_cache import CACHE_CONTROL_IMMUTABLE, CachedResponse, HandlersByPath
from murmurate.service.public_api.worker_threads import WorkerThreads
from murmurate.service.web.address_counts import AddressCounts
from murmurate.service.web.responses import StreamedResponse

MAX_EXPORTS = 8
MAX_EXPORTS_PER_ADDRESS = 2
MAX_EXPORT_S = 300.0
MIN_READ_BYTES_PER_S = 1_000_000  # of a client that stays although others wait
READ_GRACE_S = 5.0  # of waiting for a client before its rate counts
EXPORT_RETRY_AFTER_S = 60
_DIGEST_PATTERN = re.compile(r"[0-9a-f]{64}")
_TILE_NUMBER_PATTERN = re.compile(r"0|[1-9][0-9]{0,17}")


class ExportEndedError(Exception):
    """A log whose client read too slowly."""


class LogExport:
    """One log on its way: how much the client has read, and how long it made the server wait."""

    def __init__(self) -> None:
        self.sent_bytes, self.client_wait_s = 0, 0.0
        self.waits_since: float | None = None  # by the monotonic clock; None: the client does not read now
        self.is_ended = False

    @property
    def is_slow(self) -> bool:
        """Whether the client reads too slowly to stay while others wait."""
        waits_s = 0.0 if self.waits_since is None else time.monotonic() - self.waits_since
        return self.client_wait_s + waits_s > READ_GRACE_S + self.sent_bytes / MIN_READ_BYTES_PER_S


class LogExports:
    """The exports that run. One event loop."""

    def __init__(self, threads: WorkerThreads, by_address: AddressCounts, max_exports: int = MAX_EXPORTS) -> None:
        self._threads, self._by_address, self._max_exports = threads, by_address, max_exports
        self._running: dict[LogExport, None] = {}  # in the order of their start

    def make_room(self, address: str) -> None:
        """End a slow export where there are too many. Raises HTTPException if none is, or the address has enough."""
        retry = {"retry-after": str(EXPORT_RETRY_AFTER_S)}
        if self._by_address.is_full(address):
            raise HTTPException(429, "this address is fetching other logs; try again when it has them", retry)
        if len(self._running) < self._max_exports:
            return
        slow = next((export for export in self._running if export.is_slow), None)
        if slow is None:
            raise HTTPException(503, "others are fetching the log; try again in a minute", retry)
        slow.is_ended = True
        del self._running[slow]

    @contextmanager
    def held(self, export: LogExport, address: str) -> Iterator[None]:
        """Count an export while the block runs."""
        self._running[export] = None
        try:
            with self._by_address.held(address):
                yield
        finally:
            self._running.pop(export, None)

    async def send_chunks(self, export: LogExport, chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
        """Yield chunks as the client reads them, until the end, the deadline, or the need for its place.

        A response that is ended is not complete, and the connection is closed: no client takes it for the whole log.
        """
        end_s = time.monotonic() + MAX_EXPORT_S
        while (chunk := await self._threads.run_next_piece(next, chunks, None)) is not None:
            if export.is_ended or time.monotonic() > end_s:
                raise ExportEndedError
            if chunk:
                export.waits_since = time.monotonic()
                try:
                    yield chunk
                finally:
                    export.client_wait_s += time.monotonic() - export.waits_since
                    export.waits_since = None
                    export.sent_bytes += len(chunk)


class LogApi:
    """Everything from which a reader verifies the prices."""

    def __init__(self, live_state: LiveState) -> None:
        self._live_state = live_state
        by_address = AddressCounts(MAX_EXPORTS_PER_ADDRESS, live_state.settings.limits.trusted)
        self._exports = LogExports(live_state.bulk_threads, by_address)

    def handlers(self) -> HandlersByPath:
        return {
            "/shards": (self.get_shards, ()),
            "/prices/{shard}/{start}.json": (self.get_shard_prices, ()),
            "/tiles/{shard}/{seq}": (self.get_tile, ()),
            "/documents/{digest}": (self.get_document, ()),
            "/plans/{digest}.json": (self.get_document, ()),
        }

    def get_shards(self, _: Request) -> CachedResponse:
        """Return the shards as far as they were read and checked."""
        shards = sorted(self._live_state.views.shards.items())
        has_archived = self._live_state.settings.archive is not None
        return CachedResponse.from_json([shard_entry(shard, has_archived=has_archived) for _, shard in shards])

    async def get_shard_prices(self, request: Request) -> CachedResponse:
        """Return the prices of all zones of a shard for the interval that begins with the second in the name."""
        shard = self._live_state.views.shards.get(request.path_params["shard"])
        if shard is None:
            raise HTTPException(404, "there is no such shard here; /shards lists them")
        interval, text = shard.last + shard.lead_intervals, request.path_params["start"]
        with suppress(ValueError):
            start = datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
            interval = max(0, int(start.timestamp()) // shard.interval_s)
        path = shard_prices_path(shard, interval)
        if not path.endswith(f"/{text}.json"):  # each interval has one name
            raise HTTPException(
                404, f"the name must be the start of an interval of {shard.interval_s} s, as in /{path}"
            )

        def make_prices() -> CachedResponse:
            return CachedResponse.from_json(shard_prices_document(shard, interval), CACHE_CONTROL_IMMUTABLE)

        try:
            return await self._live_state.lookup_threads.run(make_prices)
        except MurmurateError as error:
            raise HTTPException(404, str(error)) from None

    async def get_tile(self, request: Request) -> CachedResponse:
        shard, seq = request.path_params["shard"], request.path_params["seq"]
        view, data = self._live_state.views.shards.get(shard), None
        # Not beyond what was checked: the log may hold a tile that no reader accepts, and caches keep what is sent.
        if view is not None and _TILE_NUMBER_PATTERN.fullmatch(seq) and int(seq) <= view.head.tile.header.seq:
            data = await self._live_state.lookup_threads.run(self._live_state.archive.read_tile, shard, int(seq))
        if data is None:
            raise HTTPException(404, "there is no such tile here; /shards lists them")
        return CachedResponse.from_body(data, "application/octet-stream", CACHE_CONTROL_IMMUTABLE)

    async def get_document(self, request: Request) -> CachedResponse:
        """Return a plan or a zone table."""
        digest, text = request.path_params["digest"], None
        if _DIGEST_PATTERN.fullmatch(digest):
            text = await self._live_state.lookup_threads.run(self._live_state.archive.read_document, digest)
        if text is None:
            raise HTTPException(404, "there is no such document here")
        return CachedResponse.from_body(text.encode(), "application/json", CACHE_CONTROL_IMMUTABLE)

    async def stream_zone_log(self, request: Request) -> Response:
        """Send the log of a zone, line by line."""
        query_params.check_query_params(request, ())
        view = query_params.zone_param(request, self._live_state.views)
        address = query_params.client_address(request)
        await self._live_state.lookup_threads.run(self._live_state.archive.require_whole_log, view.shard.name)
        self._exports.make_room(address)
        export = LogExport()
        chunks = self._exports.send_chunks(export, self._live_state.archive.read_log_chunks(view))
        headers = {"cache-control": "public, max-age=60", "access-control-allow-origin": "*"}
        return StreamedResponse(request, chunks, "application/x-ndjson", headers, self._exports.held(export, address))
