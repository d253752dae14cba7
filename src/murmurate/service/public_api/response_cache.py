"""Responses that are kept until something changes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256

from starlette.responses import Response

CACHE_CONTROL_SHORT = "public, max-age=5"


CACHE_CONTROL_IMMUTABLE = "public, max-age=31536000, immutable"


MAX_CACHE_BYTES = 64 * 2**20  # of responses in each cache


MAX_CACHED_BODY_BYTES = 2**20  # a longer one is made anew each time


@dataclass(frozen=True, slots=True)
class CachedResponse:
    """A response, ready to be sent."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes
    etag: bytes

    @classmethod
    def from_body(cls, body: bytes, media_type: str, cache_control: str) -> CachedResponse:
        etag = f'"{sha256(body).hexdigest()[:32]}"'.encode()
        headers = [(b"etag", etag), (b"cache-control", cache_control.encode()), (b"access-control-allow-origin", b"*")]
        headers += [(b"content-type", media_type.encode()), (b"content-length", str(len(body)).encode())]
        return cls(200, headers, body, etag)

    @classmethod
    def from_json(cls, document: object, cache_control: str = CACHE_CONTROL_SHORT) -> CachedResponse:
        body = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        return cls.from_body(body, "application/json", cache_control)

    @property
    def not_modified(self) -> CachedResponse:
        return CachedResponse(304, self.headers[:3], b"", self.etag)

    def to_response(self) -> Response:
        response = Response(self.body, self.status)
        response.raw_headers = self.headers
        return response


class ResponseCache:
    """Answers by path and query, within a bound; it is cleared when it is full."""

    def __init__(self, max_bytes: int = MAX_CACHE_BYTES) -> None:
        self._max_bytes, self._bytes = max_bytes, 0
        self._responses: dict[tuple[bytes, bytes], CachedResponse] = {}
        self.generation = 0  # how often: an answer that was begun before belongs to what was then
        self.get = self._responses.get

    def put(self, key: tuple[bytes, bytes], response: CachedResponse) -> None:
        if len(response.body) > MAX_CACHED_BODY_BYTES or key in self._responses:
            return
        size = len(response.body) + len(key[0]) + len(key[1]) + 1000
        if self._bytes + size > self._max_bytes:
            self.clear()
        self._responses[key] = response
        self._bytes += size

    def clear(self) -> None:
        self._responses.clear()
        self._bytes = 0
        self.generation += 1
