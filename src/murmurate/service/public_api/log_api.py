"""The public log itself: shards, tiles, documents, and the lines of one zone for `murmurate verify`."""

from __future__ import annotations

import re

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from murmurate.service.public_api import query_params
from murmurate.service.public_api.formats.listings import shard_entry
from murmurate.service.public_api.live_state import LiveState
from murmurate.service.public_api.log_exports import MAX_EXPORTS_PER_ADDRESS, LogExport, LogExports
from murmurate.service.public_api.openadr_api import RequestHandler
from murmurate.service.public_api.response_cache import CACHE_CONTROL_IMMUTABLE, CachedResponse
from murmurate.service.web.address_counts import AddressCounts
from murmurate.service.web.responses import StreamedResponse

_DIGEST_PATTERN = re.compile(r"[0-9a-f]{64}")
_TILE_NUMBER_PATTERN = re.compile(r"0|[1-9][0-9]{0,17}")


class LogApi:
    """Everything from which a reader verifies the prices."""

    def __init__(self, live_state: LiveState) -> None:
        self._live_state = live_state
        by_address = AddressCounts(MAX_EXPORTS_PER_ADDRESS, live_state.settings.limits.trusted)
        self._exports = LogExports(live_state.bulk_threads, by_address)

    def handlers(self) -> dict[str, RequestHandler]:
        return {
            "/shards": self.get_shards,
            "/tiles/{shard}/{seq}": self.get_tile,
            "/documents/{digest}": self.get_document,
            "/plans/{digest}.json": self.get_document,
        }

    def get_shards(self, request: Request) -> CachedResponse:
        """The shards as far as they were read and checked."""
        query_params.check_query_params(request, ())
        shards = sorted(self._live_state.views.shards.items())
        has_archived = self._live_state.settings.archive is not None
        return CachedResponse.from_json([shard_entry(shard, has_archived=has_archived) for _, shard in shards])

    async def get_tile(self, request: Request) -> CachedResponse:
        query_params.check_query_params(request, ())
        shard, seq = request.path_params["shard"], request.path_params["seq"]
        view, data = self._live_state.views.shards.get(shard), None
        # Not beyond what was checked: the log may hold a tile that no reader accepts, and caches keep what is sent.
        if view is not None and _TILE_NUMBER_PATTERN.fullmatch(seq) and int(seq) <= view.head.tile.header.seq:
            data = await self._live_state.lookup_threads.run(self._live_state.archive.read_tile, shard, int(seq))
        if data is None:
            raise HTTPException(404, "there is no such tile here; /shards lists them")
        return CachedResponse.from_body(data, "application/octet-stream", CACHE_CONTROL_IMMUTABLE)

    async def get_document(self, request: Request) -> CachedResponse:
        """A plan or a zone table."""
        query_params.check_query_params(request, ())
        digest = request.path_params["digest"]
        text = None
        if _DIGEST_PATTERN.fullmatch(digest):
            text = await self._live_state.lookup_threads.run(self._live_state.archive.read_document, digest)
        if text is None:
            raise HTTPException(404, "there is no such document here")
        return CachedResponse.from_body(text.encode(), "application/json", CACHE_CONTROL_IMMUTABLE)

    async def stream_zone_log(self, request: Request) -> Response:
        """The log of a zone, line by line."""
        query_params.check_query_params(request, ())
        view = query_params.zone_param(request, self._live_state.views)
        address = query_params.client_address(request)
        await self._live_state.lookup_threads.run(self._live_state.archive.require_whole_log, view.shard.name)
        self._exports.make_room(address)
        export = LogExport()
        chunks = self._exports.send_chunks(export, self._live_state.archive.read_log_chunks(view))
        headers = {"cache-control": "public, max-age=60", "access-control-allow-origin": "*"}
        return StreamedResponse(request, chunks, "application/x-ndjson", headers, self._exports.held(export, address))
