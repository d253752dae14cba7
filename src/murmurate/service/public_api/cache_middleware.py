"""Cached responses are sent before the app sees a request."""

from __future__ import annotations

import time

from starlette.types import ASGIApp, Receive, Scope, Send

from murmurate.service.public_api.response_cache import CachedResponse, ResponseCache
from murmurate.service.public_api.response_sender import ResponseSender


class ResponseCacheMiddleware:
    """Sends cached responses at once; the app makes the others."""

    def __init__(self, caches: tuple[ResponseCache, ...], sender: ResponseSender, inner: ASGIApp) -> None:
        self._caches, self._sender, self._inner = caches, sender, inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "GET":
            ready = self._find_response(scope)
            if ready is not None:
                if etag_matches(scope, ready):
                    ready = ready.not_modified
                await self._sender.send(ready, scope, receive, send)
                return
        await self._inner(scope, receive, send)

    def _find_response(self, scope: Scope) -> CachedResponse | None:
        key, now_s = (scope["raw_path"], scope["query_string"]), time.time()
        for cache in self._caches:
            ready = cache.find(key, now_s)
            if ready is not None:
                return ready.sent_at(now_s)
        return None


def etag_matches(scope: Scope, response: CachedResponse) -> bool:
    """Whether the client has this response already."""
    return any(
        name == b"if-none-match" and (response.etag in value or value == b"*") for name, value in scope["headers"]
    )
