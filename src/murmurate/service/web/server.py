"""An HTTP server with timeouts and size limits for headers, bodies and slow readers."""

from __future__ import annotations

import asyncio
from asyncio import TimerHandle
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from murmurate.service.web.responses import BODY_TIMEOUT_S, problem_response

HEADER_TIMEOUT_S = 10.0  # to send the head of a request
SLOW_READER_TIMEOUT_S = 20.0  # to read what is waiting
MAX_HEADER_BYTES = 32_768
MAX_CONNECTIONS = 10_000


class TimeoutProtocol(HttpToolsProtocol):
    """Closes the connection of a client that takes too long to send a request, or to read the response."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._request_timer: TimerHandle | None = None
        self._response_timer: TimerHandle | None = None
        self._header_bytes = 0
        self._unfinished_bytes = 0
        self._in_head = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_request_timer()

    def data_received(self, data: bytes) -> None:
        """A client that sends anything has to finish a head, then a body. An unfinished header counts too."""
        self._start_request_timer()
        if was_in_head := self._in_head:
            self._unfinished_bytes += len(data)
        super().data_received(data)
        if was_in_head and self._in_head and self._unfinished_bytes > MAX_HEADER_BYTES:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP gets the same kind of answer as everything else."""
        answer = problem_response(400, msg, {"connection": "close"})
        head = b"".join(b"%b: %b\r\n" % pair for pair in answer.raw_headers)
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n%b\r\n%b" % (head, bytes(answer.body)))
        self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._header_bytes = self._unfinished_bytes = 0
        self._in_head = True
        self._start_request_timer()

    def on_url(self, url: bytes) -> None:
        self._count_header_bytes(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_header_bytes(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._cancel_timer(self._request_timer)
        self._request_timer = self.loop.call_later(
            BODY_TIMEOUT_S + HEADER_TIMEOUT_S, self.transport.abort
        )  # after any answer of 408
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._request_timer = self._cancel_timer(self._request_timer)
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._response_timer = self._response_timer or self.loop.call_later(SLOW_READER_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._response_timer = self._cancel_timer(self._response_timer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._request_timer, self._response_timer = (
            self._cancel_timer(self._request_timer),
            self._cancel_timer(self._response_timer),
        )
        super().connection_lost(exc)

    @staticmethod
    def _cancel_timer(timer: TimerHandle | None) -> TimerHandle | None:
        """End the wait; no timer is left."""
        if timer is not None:
            timer.cancel()
        return None

    def _start_request_timer(self) -> None:
        self._request_timer = self._request_timer or self.loop.call_later(HEADER_TIMEOUT_S, self.transport.abort)

    def _count_header_bytes(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > MAX_HEADER_BYTES:
            self.transport.abort()


def make_server(app: ASGIApp, host: str, port: int) -> uvicorn.Server:
    """A server for an app; it says nothing by itself."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=TimeoutProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=15,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=3,
    )
    return uvicorn.Server(config)
