"""An HTTP server that nobody can hold up: headers, bodies and readers have their time, and their size."""

from __future__ import annotations

import asyncio
import json
from asyncio import TimerHandle
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from http import HTTPStatus
from typing import Any

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADERS_S = 10.0  # to send the head of a request
BODY_S = 60.0  # to send a body
READ_S = 20.0  # to read what is waiting
MOST_HEADER_BYTES = 32_768
MOST_CONNECTIONS = 10_000


class PatientProtocol(HttpToolsProtocol):
    """Hangs up on whoever takes too long to ask, or to read the answer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._asking: TimerHandle | None = None
        self._reading: TimerHandle | None = None
        self._header_bytes = 0
        self._unfinished_bytes = 0
        self._in_head = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._ask()

    def data_received(self, data: bytes) -> None:
        """Whoever sends anything has to finish a head, then a body. What is not a header yet counts too."""
        self._ask()
        if begun := self._in_head:
            self._unfinished_bytes += len(data)
        super().data_received(data)
        if begun and self._in_head and self._unfinished_bytes > MOST_HEADER_BYTES:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP gets the same kind of answer as everything else."""
        answer = problem(400, msg, {"connection": "close"})
        head = b"".join(b"%b: %b\r\n" % pair for pair in answer.raw_headers)
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n%b\r\n%b" % (head, bytes(answer.body)))
        self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._header_bytes = self._unfinished_bytes = 0
        self._in_head = True
        self._ask()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop(self._asking)
        self._asking = self.loop.call_later(BODY_S + HEADERS_S, self.transport.abort)  # after any answer of 408
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._asking = self._stop(self._asking)
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reading = self._reading or self.loop.call_later(READ_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._reading = self._stop(self._reading)

    def connection_lost(self, exc: Exception | None) -> None:
        self._asking, self._reading = self._stop(self._asking), self._stop(self._reading)
        super().connection_lost(exc)

    @staticmethod
    def _stop(timer: TimerHandle | None) -> TimerHandle | None:
        """End the wait; no timer is left."""
        if timer is not None:
            timer.cancel()
        return None

    def _ask(self) -> None:
        self._asking = self._asking or self.loop.call_later(HEADERS_S, self.transport.abort)

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > MOST_HEADER_BYTES:
            self.transport.abort()


def server(app: ASGIApp, host: str, port: int) -> uvicorn.Server:
    """A server for an app; it says nothing by itself."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=PatientProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=15,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=3,
    )
    return uvicorn.Server(config)


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """What went wrong, in the form of RFC 9457 that OpenADR also speaks."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    return as_json(body, status=status, headers={"cache-control": "no-store"} | dict(headers or {}))


def as_json(document: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    body = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    return Response(body, status, dict(headers or {}), "application/json")


class Flow(StreamingResponse):
    """An answer that is written while it is read. HEAD has none of it; what it holds is let go however it ends."""

    def __init__(
        self,
        request: Request,
        content: AsyncIterator[bytes],
        media_type: str,
        headers: dict[str, str],
        held: AbstractAsyncContextManager[object] | None = None,
    ) -> None:
        super().__init__(content, media_type=media_type, headers=headers)
        self._is_head, self._held = request.method == "HEAD", held or nullcontext()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._is_head:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": b""})
            return
        async with self._held:
            await super().__call__(scope, receive, send)


class TooLargeError(Exception):
    """A body beyond its bound."""

    answer = (413, "the body is too large; send several")


class TooSlowError(Exception):
    """A body that did not come in time."""

    answer = (408, "the body did not come in time")


async def body_of(request: Request, most_bytes: int) -> bytes:
    """The body of a request, if it is small enough and comes in time."""
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > most_bytes:
        raise TooLargeError
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most_bytes:
                    raise TooLargeError
    except (TimeoutError, ClientDisconnect):
        raise TooSlowError from None
    return bytes(body)
