"""An HTTP server with timeouts and size limits for headers, bodies and slow readers, and where it may listen."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import signal
import socket
import threading
from asyncio import TimerHandle
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from typing import Any

import uvicorn
from starlette.responses import Response
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from murmurate.errors import MurmurateError
from murmurate.service.logging_setup import RateLimit
from murmurate.service.settings import ClientLimits
from murmurate.service.watchdog import report_progress
from murmurate.service.web.address_counts import AddressCounts, AddressGroups, forwarded_address
from murmurate.service.web.responses import BODY_TIMEOUT_S, DelayedRefusal, problem_response

logger = logging.getLogger(__name__)
logger.addFilter(RateLimit())  # its only line is caused by clients

HEADER_TIMEOUT_S = 10.0  # to send the head of a request
SLOW_READER_TIMEOUT_S = 20.0  # to read what is waiting
MAX_HEADER_BYTES = 32_768
CONNECTION_RETRY_AFTER_S = 10  # for a client that is refused
WATCHDOG_PERIOD_S = 1.0  # between two signs of life
RESERVED_DESCRIPTORS = 64  # for databases, brokers, files and modules, however many clients there are
_MAX_DESCRIPTORS = 1_048_576  # where the system names no limit
_UNLIMITED = 2**62
_NO_SNIFFING = "nosniff"  # no browser takes an answer for another type than it says
_LISTEN_FAULTS = {
    errno.EADDRINUSE: (
        "taken",
        "another program listens there: stop it (ss -ltnp shows it), or name another port in the settings",
    ),
    errno.EACCES: ("not allowed", "ports below 1024 need special rights: name one above 1023 in the settings"),
    errno.EADDRNOTAVAIL: (
        "not of this machine",
        "name one of its own addresses in the settings, 127.0.0.1, or 0.0.0.0 for all",
    ),
}


class ConnectionLimits:
    """How many connections a server accepts, how many it has, and which of them come from proxies."""

    def __init__(self, limits: ClientLimits | None = None) -> None:
        limits = limits or ClientLimits(connections_per_address=_UNLIMITED)
        self.max_connections, self.connections = limits.connections, 0
        self.by_address = AddressCounts(limits.connections_per_address, (*limits.trusted, *limits.forwarded_by))
        self.proxies = AddressGroups(limits.forwarded_by)  # exempts those that name their clients


class TimeoutProtocol(HttpToolsProtocol):
    """Closes the connection of a client that takes too long to send a request, or to read the response.

    Beyond the limit of its address a client is answered with 429, and beyond twice the limit its connection is closed.
    Beyond the limit of all connections it is answered with 503 at once: it holds no descriptor that others need.
    """

    def __init__(self, *args: Any, limits: ConnectionLimits, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits, self._is_too_many = limits, False
        self._request_timer: TimerHandle | None = None
        self._response_timer: TimerHandle | None = None
        self._header_bytes = 0
        self._unfinished_bytes = 0
        self._in_head = False
        self._in_body = False
        self._is_idle = False  # all that was sent so far are whole requests

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        limits, held = self._limits, self._limits.by_address.add(self._address)
        limits.connections += 1
        self._is_too_many = held > limits.by_address.max_each
        if held > 2 * limits.by_address.max_each:
            self.transport.abort()
        elif limits.connections > limits.max_connections:
            self._send_and_close(503, "too many clients are connected; try again")
        self._start_request_timer()

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def data_received(self, data: bytes) -> None:
        """A client that sends anything has to finish a head, then a body. An unfinished header counts too.

        A request that comes as a whole, as nearly all do, needs no timer.
        """
        self._is_idle = False
        if was_in_head := self._in_head:
            self._unfinished_bytes += len(data)
        super().data_received(data)
        if was_in_head and self._in_head and self._unfinished_bytes > MAX_HEADER_BYTES:
            self.transport.abort()
        if not self._is_idle:
            self._start_request_timer()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP gets the same kind of answer as everything else."""
        self._send_and_close(400, msg)

    def _send_and_close(self, status: int, detail: str) -> None:
        """Answer before there is a request that the app could answer."""
        answer = _refusal(status, detail)
        answer.headers["x-content-type-options"] = _NO_SNIFFING
        head = b"".join(b"%b: %b\r\n" % pair for pair in answer.raw_headers)
        self.transport.write(b"%b%b\r\n%b" % (STATUS_LINE[status], head, bytes(answer.body)))
        self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._header_bytes = self._unfinished_bytes = 0
        self._in_head, self._is_idle = True, False

    def on_url(self, url: bytes) -> None:
        self._count_header_bytes(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_header_bytes(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._in_body = False, True
        self._request_timer = self._cancel_timer(self._request_timer)
        self.scope["state"]["peer"] = self._address  # who is connected, not what a proxy says
        if self._limits.proxies.find(self._address) is None:
            address = forwarded_address(self.headers)
            self.scope["client"] = None if address is None else (address, 0)
        app, hosts = self.app, sum(name == b"host" for name, _ in self.headers)
        if self._is_too_many:
            headers = {"connection": "close", "retry-after": str(CONNECTION_RETRY_AFTER_S)}
            self.app = DelayedRefusal(429, "too many connections from this address; try again", headers)
        elif hosts > 1 or (not hosts and self.parser.get_http_version() == "1.1"):
            self.app = _refusal(400, "a request must have one Host header")
        super().on_headers_complete()
        self.app = app

    def on_message_complete(self) -> None:
        self._in_body, self._is_idle = False, True
        self._request_timer = self._cancel_timer(self._request_timer)
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._response_timer = self._response_timer or self.loop.call_later(SLOW_READER_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._response_timer = self._cancel_timer(self._response_timer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._request_timer = self._cancel_timer(self._request_timer)
        self._response_timer = self._cancel_timer(self._response_timer)
        self._limits.connections -= 1
        self._limits.by_address.remove(self._address)
        super().connection_lost(exc)

    @staticmethod
    def _cancel_timer(timer: TimerHandle | None) -> TimerHandle | None:
        """End the wait; no timer is left."""
        if timer is not None:
            timer.cancel()
        return None

    def _start_request_timer(self) -> None:
        timeout_s = BODY_TIMEOUT_S + HEADER_TIMEOUT_S if self._in_body else HEADER_TIMEOUT_S  # after any answer of 408
        self._request_timer = self._request_timer or self.loop.call_later(timeout_s, self.transport.abort)

    def _count_header_bytes(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > MAX_HEADER_BYTES:
            self.transport.abort()


def _refusal(status: int, detail: str) -> Response:
    """A response after which the connection is closed. It is an app by itself."""
    retry = {} if status == HTTPStatus.BAD_REQUEST else {"retry-after": str(CONNECTION_RETRY_AFTER_S)}
    return problem_response(status, detail, {"connection": "close"} | retry)


async def feed_watchdog() -> None:
    """Report to the watchdog that the event loop turns, until it is cancelled."""
    while True:
        report_progress()
        await asyncio.sleep(WATCHDOG_PERIOD_S)


class LimitedServer(uvicorn.Server):
    """A server whose log lines clients cannot multiply, and which the watchdog restarts if it stands still.

    Without `feeds_watchdog` it is not what the process is there for, and tells nothing about its progress.
    """

    def __init__(self, config: uvicorn.Config, *, feeds_watchdog: bool) -> None:
        super().__init__(config)
        self._feeds_watchdog = feeds_watchdog

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop when a signal comes. uvicorn would raise it again after that, and nothing else would be closed."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        def report_error(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            """Log an error that no task handles, such as a connection that cannot be accepted."""
            error = context.get("exception")
            facts = {"reason": type(error).__name__, "errno": getattr(error, "errno", 0)}
            logger.warning("connection failed", extra=facts)

        loop = asyncio.get_running_loop()
        loop.set_exception_handler(report_error)
        if self._feeds_watchdog:
            self._watchdog = loop.create_task(feed_watchdog())  # ends with the loop
        await super().startup(sockets)


def check_can_listen(name: str, host: str, port: int) -> None:
    """Raise MurmurateError unless a server can listen there. `name` is the setting that names the address."""
    where = f"{name} address {host}:{port}"
    try:
        (family, kind, _, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen()
    except socket.gaierror:
        raise MurmurateError(
            where, "unknown", "this machine does not know the host: correct it in the settings"
        ) from None
    except OSError as error:
        fallback = ("not usable", f"{error.strerror}: name another in the settings")
        raise MurmurateError(where, *_LISTEN_FAULTS.get(error.errno or 0, fallback)) from None


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open files to the hard one: systemd starts a service with 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def make_server(
    app: ASGIApp, host: str, port: int, limits: ConnectionLimits | None = None, *, feeds_watchdog: bool = True
) -> uvicorn.Server:
    """Return a server for an app. It accepts no more clients than leave `RESERVED_DESCRIPTORS` for the process."""
    limits = limits or ConnectionLimits()
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        limits.max_connections = max(1, min(limits.max_connections, soft - RESERVED_DESCRIPTORS))
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=partial(TimeoutProtocol, limits=limits),  # type: ignore[arg-type]
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # it would believe the text of any client of this machine
        server_header=False,
        headers=[("x-content-type-options", _NO_SNIFFING)],
        timeout_keep_alive=15,
        timeout_graceful_shutdown=3,
    )
    return LimitedServer(config, feeds_watchdog=feeds_watchdog)
