"""Responses that are kept until something changes, and how they are sent: a long one piece by piece.

`Expires` states until which moment others may keep a response that can change. `max-age` would be wrong behind nginx,
which sends no `Age`: the next cache would count the same age again, from later on.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache, partial
from hashlib import sha256
from math import inf

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from murmurate.service.web.responses import DelayedRefusal
from murmurate.units import SECONDS_PER_DAY

MAX_AGE_S = 5  # for which others may keep what can change
CACHE_CONTROL_EXPIRES = "public, must-revalidate"  # until `Expires`, and not later if the service does not answer
CACHE_CONTROL_IMMUTABLE = "public, max-age=31536000, immutable"
_IMMUTABLE = (b"cache-control", CACHE_CONTROL_IMMUTABLE.encode())
MAX_CACHE_BYTES = 64 * 2**20  # of responses in each cache
MAX_CACHED_BODY_BYTES = 2**20  # a longer one is made again each time
ALL_SHARDS = ""  # of a response about zones of several shards
PIECE_BYTES = 65_536
MAX_UNREAD_BYTES = 64 * 2**20  # of long bodies that clients have not read yet
MAX_READ_S = 60.0  # for a client to read a body of at most a few MB

_NOT_MODIFIED_HEADERS = {b"etag", b"cache-control", b"expires", b"access-control-allow-origin"}
_NOT_MODIFIED_HEADERS |= {b"vary", b"refresh"}
_ZONE_PATH_WITH_SLASH = re.compile(rb"/zones/.+/")
CacheKey = tuple[bytes, bytes]  # path and query


@dataclass(frozen=True, slots=True)
class CachedResponse:
    """A response, ready to be sent. It ends with the current interval if it may name that one."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes
    etag: bytes
    expires_s: float = inf  # by the wall clock [s of UTC]
    is_final: bool = False  # until `expires_s` the answer is the same, also if prices are published meanwhile

    @classmethod
    def from_body(cls, body: bytes, media_type: str, cache_control: str, *, is_final: bool = False) -> CachedResponse:
        etag = f'"{sha256(body).hexdigest()[:32]}"'.encode()
        headers = [(b"etag", etag), (b"cache-control", cache_control.encode()), (b"access-control-allow-origin", b"*")]
        headers += [(b"content-type", media_type.encode()), (b"content-length", str(len(body)).encode())]
        return cls(200, headers, body, etag, is_final=is_final)

    @classmethod
    def from_json(
        cls, document: object, cache_control: str = CACHE_CONTROL_EXPIRES, *, is_final: bool = False
    ) -> CachedResponse:
        return cls.from_body(encode_json(document), "application/json", cache_control, is_final=is_final)

    @property
    def is_immutable(self) -> bool:
        return _IMMUTABLE in self.headers

    def fresh_until_s(self, now_s: float) -> float:
        """Until when others may keep the response that is sent now, at most a day [s of UTC]."""
        return min(self.expires_s, now_s + (SECONDS_PER_DAY if self.is_final else MAX_AGE_S))

    def for_request(self, scope: Scope, now_s: float) -> CachedResponse:
        """Return what to send now: status 304 without a body where the client has this response already."""
        headers = self.headers
        if not self.is_immutable:
            # `Expires` has whole seconds, and nginx keeps a response to the end of the second that is named.
            headers = [*headers, (b"expires", _http_date(int(self.fresh_until_s(now_s)) - 1))]
        for name, value in scope["headers"]:
            if name == b"if-none-match" and (self.etag in value or value == b"*"):
                kept = [header for header in headers if header[0] in _NOT_MODIFIED_HEADERS]
                return CachedResponse(304, kept, b"", self.etag, self.expires_s)
        return CachedResponse(self.status, headers, self.body, self.etag, self.expires_s)


@lru_cache(maxsize=64)
def _http_date(at_s: int) -> bytes:
    return formatdate(at_s, usegmt=True).encode()


RequestHandler = Callable[[Request], CachedResponse | Awaitable[CachedResponse]]
HandlersByPath = dict[str, tuple[RequestHandler, tuple[str, ...]]]  # and the query parameters that each one knows


def encode_json(document: object) -> bytes:
    """Return a document as it is sent, and as files hold it."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


class ResponseCache:
    """Responses by path and query, within a bound; it is cleared when it is full.

    Each belongs to a shard, and is dropped when the shard changes. One about several shards is dropped with any.
    """

    def __init__(self, max_bytes: int = MAX_CACHE_BYTES) -> None:
        self._max_bytes, self._bytes = max_bytes, 0
        self._responses: dict[CacheKey, CachedResponse] = {}
        self._keys_by_shard: dict[str, list[CacheKey]] = {}
        self.generation = 0  # counts drops: a response begun under an earlier number shows what was true then

    def find(self, key: CacheKey, now_s: float) -> CachedResponse | None:
        """Return the response to a request now. Where one has ended, an interval has, and all are dropped."""
        response = self._responses.get(key)
        if response is not None and response.expires_s <= now_s:
            self.clear()
            return None
        return response

    def put(self, key: CacheKey, response: CachedResponse, shard: str = ALL_SHARDS) -> None:
        if len(response.body) > MAX_CACHED_BODY_BYTES or key in self._responses:
            return
        size = _stored_bytes(key, response)
        if self._bytes + size > self._max_bytes:
            self.clear()
        self._responses[key] = response
        self._keys_by_shard.setdefault(shard, []).append(key)
        self._bytes += size

    def drop_shard(self, shard: str) -> None:
        """Drop what is about a shard that has changed."""
        for name in (shard, ALL_SHARDS):
            for key in self._keys_by_shard.pop(name, ()):
                self._bytes -= _stored_bytes(key, self._responses.pop(key))
        self.generation += 1

    def clear(self) -> None:
        self._responses.clear()
        self._keys_by_shard.clear()
        self._bytes = 0
        self.generation += 1


def _stored_bytes(key: CacheKey, response: CachedResponse) -> int:
    return len(response.body) + len(key[0]) + len(key[1]) + 1000


class ResponseSender:
    """Sends responses. Bodies beyond a piece count until they are read, so that slow readers cannot fill memory."""

    def __init__(self, max_bytes: int = MAX_UNREAD_BYTES) -> None:
        self._max_bytes, self._bytes_in_flight = max_bytes, 0

    def answer(self, response: CachedResponse, request: Request) -> ASGIApp:
        """Return what an endpoint returns to have a response sent, or 304 where the client has it already."""
        return partial(self.send, response.for_request(request.scope, time.time()))

    async def send(self, response: CachedResponse, scope: Scope, receive: Receive, send: Send) -> None:
        body, size = response.body, len(response.body)
        start = {"type": "http.response.start", "status": response.status, "headers": response.headers}
        if size <= PIECE_BYTES or scope["method"] == "HEAD":
            await send(start)
            await send({"type": "http.response.body", "body": body})
            return
        if self._bytes_in_flight + size > self._max_bytes:
            refusal = DelayedRefusal(503, "too many clients are reading; try again", {"retry-after": "5"})
            await refusal(scope, receive, send)
            return
        self._bytes_in_flight += size
        try:
            async with asyncio.timeout(MAX_READ_S):
                await send(start)
                for at in range(0, size, PIECE_BYTES):  # each waits until the client has read most of the ones before
                    end = at + PIECE_BYTES
                    await send({"type": "http.response.body", "body": body[at:end], "more_body": end < size})
        except TimeoutError:
            return  # the server closes the connection: the response is not whole
        finally:
            self._bytes_in_flight -= size


class ResponseCacheMiddleware:
    """Sends cached responses at once, before the app sees the request; the app makes the others.

    An address of a zone with a slash at its end is the one without: no redirect has to name a host.
    """

    def __init__(self, caches: tuple[ResponseCache, ...], sender: ResponseSender, inner: ASGIApp) -> None:
        self._caches, self._sender, self._inner = caches, sender, inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and _ZONE_PATH_WITH_SLASH.fullmatch(scope["raw_path"]):
            scope = {**scope, "path": scope["path"][:-1], "raw_path": scope["raw_path"][:-1]}
        if scope["type"] == "http" and scope["method"] == "GET":
            key, now_s = (scope["raw_path"], scope["query_string"]), time.time()
            for cache in self._caches:
                ready = cache.find(key, now_s)
                if ready is not None:
                    await self._sender.send(ready.for_request(scope, now_s), scope, receive, send)
                    return
        await self._inner(scope, receive, send)
