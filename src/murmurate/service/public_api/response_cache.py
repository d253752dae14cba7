"""Responses that are kept until something changes."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from hashlib import sha256
from math import inf

MAX_AGE_S = 5  # for which others may keep what can change


CACHE_CONTROL_SHORT = f"public, max-age={MAX_AGE_S}"


CACHE_CONTROL_IMMUTABLE = "public, max-age=31536000, immutable"


MAX_CACHE_BYTES = 64 * 2**20  # of responses in each cache


MAX_CACHED_BODY_BYTES = 2**20  # a longer one is made anew each time


_NOT_MODIFIED_HEADERS = {b"etag", b"cache-control", b"access-control-allow-origin", b"vary"}
CacheKey = tuple[bytes, bytes]  # path and query


@dataclass(frozen=True, slots=True)
class CachedResponse:
    """A response, ready to be sent. It ends with the current interval if it may name that one."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes
    etag: bytes
    expires_s: float = inf  # by the wall clock [s of UTC]

    @classmethod
    def from_body(cls, body: bytes, media_type: str, cache_control: str) -> CachedResponse:
        etag = f'"{sha256(body).hexdigest()[:32]}"'.encode()
        headers = [(b"etag", etag), (b"cache-control", cache_control.encode()), (b"access-control-allow-origin", b"*")]
        headers += [(b"content-type", media_type.encode()), (b"content-length", str(len(body)).encode())]
        return cls(200, headers, body, etag)

    @classmethod
    def from_json(cls, document: object, cache_control: str = CACHE_CONTROL_SHORT) -> CachedResponse:
        return cls.from_body(encode_json(document), "application/json", cache_control)

    @property
    def not_modified(self) -> CachedResponse:
        headers = [header for header in self.headers if header[0] in _NOT_MODIFIED_HEADERS]
        return CachedResponse(304, headers, b"", self.etag, self.expires_s)

    def sent_at(self, now_s: float) -> CachedResponse:
        """The response with a `max-age` that does not reach beyond its end."""
        left_s = self.expires_s - now_s
        if left_s >= MAX_AGE_S:
            return self
        max_age = b"public, max-age=%d" % max(0, int(left_s))
        headers = [(name, max_age if name == b"cache-control" else value) for name, value in self.headers]
        return replace(self, headers=headers)


def encode_json(document: object) -> bytes:
    """A document as it is sent, and as it lies in a file."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


ALL_SHARDS = ""  # of a response that is about zones of several shards


class ResponseCache:
    """Answers by path and query, within a bound; it is cleared when it is full.

    Each belongs to a shard, and is dropped when the shard changes. One that is about several is dropped with any.
    """

    def __init__(self, max_bytes: int = MAX_CACHE_BYTES) -> None:
        self._max_bytes, self._bytes = max_bytes, 0
        self._responses: dict[CacheKey, CachedResponse] = {}
        self._keys_by_shard: dict[str, list[CacheKey]] = {}
        self.generation = 0  # how often something was dropped: an answer that was begun before belongs to what was then
        self.get = self._responses.get

    def find(self, key: CacheKey, now_s: float) -> CachedResponse | None:
        """The response to a request now. Where one has ended, an interval has, and all are dropped."""
        response = self.get(key)
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
