"""Send responses that are ready. A long one goes out piece by piece, as the client reads it."""

from __future__ import annotations

import asyncio

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from murmurate.service.public_api.response_cache import CachedResponse
from murmurate.service.web.responses import DelayedRefusal

PIECE_BYTES = 65_536
MAX_UNREAD_BYTES = 64 * 2**20  # of long bodies that clients have not read yet
MAX_READ_S = 60.0  # for a client to read a body of at most a few MB


class ResponseSender:
    """Sends responses. Bodies beyond a piece count until they are read, so that slow readers cannot fill memory."""

    def __init__(self, max_bytes: int = MAX_UNREAD_BYTES) -> None:
        self._max_bytes, self._bytes_in_flight = max_bytes, 0

    async def send(self, response: CachedResponse, scope: Scope, receive: Receive, send: Send) -> None:
        size = len(response.body)
        if size <= PIECE_BYTES or scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": response.status, "headers": response.headers})
            await send({"type": "http.response.body", "body": response.body})
            return
        if self._bytes_in_flight + size > self._max_bytes:
            refusal = DelayedRefusal(503, "too many clients are reading; try again", {"retry-after": "5"})
            await refusal(scope, receive, send)
            return
        self._bytes_in_flight += size
        try:
            async with asyncio.timeout(MAX_READ_S):
                await _send_pieces(response, send)
        except TimeoutError:
            return  # the server closes the connection: the response is not whole
        finally:
            self._bytes_in_flight -= size


async def _send_pieces(response: CachedResponse, send: Send) -> None:
    """Each `send` waits until the client has read most of what went before."""
    await send({"type": "http.response.start", "status": response.status, "headers": response.headers})
    body = response.body
    for at in range(0, len(body), PIECE_BYTES):
        end = at + PIECE_BYTES
        await send({"type": "http.response.body", "body": body[at:end], "more_body": end < len(body)})


class PreparedResponse(Response):
    """A `CachedResponse` as an endpoint returns it."""

    def __init__(self, response: CachedResponse, sender: ResponseSender) -> None:
        super().__init__(status_code=response.status)
        self._response, self._sender = response, sender
        self.raw_headers = list(response.headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._sender.send(_with_headers(self._response, self.raw_headers), scope, receive, send)


def _with_headers(response: CachedResponse, headers: list[tuple[bytes, bytes]]) -> CachedResponse:
    """The response with headers that an endpoint has added."""
    return CachedResponse(response.status, headers, response.body, response.etag)
