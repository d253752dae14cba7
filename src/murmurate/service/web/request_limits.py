"""Limits on requests without valid credentials: they must keep neither the database nor the process busy.

A request with a token that was valid a moment ago is not limited here: it costs no look-up.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from murmurate.service.web.address_counts import UNKNOWN_CLIENT, AddressGroups

MAX_FAILURES_PER_S = 50.0  # of one address
MAX_FAILURE_BURST = 1000
MAX_TOKENS_PER_S = 5.0  # issued to one client; it needs one an hour
MAX_TOKEN_BURST = 500
MAX_KNOWN_KEYS = 100_000  # addresses or clients; the one that was quiet for longest is dropped
HOLD_S = 1.0  # what a request beyond its limit waits for its refusal: a client that repeats it at once gains nothing
MAX_PACED_FAILURES_PER_S = 100.0  # of all addresses together
PACED_FAILURE_BURST = 100
MAX_PACE_S = 5.0  # what a failure waits at most; a head-end whose token has expired waits as long, under such a load
MAX_LOOKUPS_AT_ONCE = 4  # of credentials that were not valid before; those that were do not wait for them
MAX_WAITING_LOOKUPS = 2_000
MAX_OPEN_REQUESTS_PER_S = 1.0  # of one address, where no credentials are asked for: health, what is not there
MAX_OPEN_REQUEST_BURST = 5
MAX_PACED_OPEN_REQUESTS_PER_S = 200.0  # of all addresses that exceed that
_ALL_ADDRESSES = AddressGroups()
_ALL = ""  # the key where all requests count as one

_Result = TypeVar("_Result")


class TooManyRequestsError(Exception):
    """A request beyond a limit. It may be sent again later."""


class RequestLimit:
    """Limits requests for each key: a rate a second, and a burst after a pause. Thread-safe.

    A request beyond its limit may be refused (`allows`), or wait for its turn, at most `max_wait_s` [s].

    >>> limit = RequestLimit(10.0, 2, max_wait_s=0.25, now=lambda: 0.0)
    >>> [round(limit.count("home"), 2) for _ in range(6)], limit.allows("home"), limit.allows("other")
    ([0.0, 0.0, 0.1, 0.2, 0.25, 0.25], False, True)
    """

    def __init__(
        self, per_s: float, burst: int, *, max_wait_s: float = 0.0, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_s, self._burst, self._max_used, self._now = per_s, burst, burst + max_wait_s * per_s, now
        self._lock = threading.Lock()
        self._used: dict[str, tuple[float, float]] = {}  # by key: how much of its burst is used, and when; oldest first

    def allows(self, key: str) -> bool:
        """Whether one more is within the limit."""
        with self._lock:
            return self._used_now(key) + 1 <= self._burst

    def count(self, key: str = _ALL) -> float:
        """Count a request. Return how long it must wait for its turn [s]."""
        with self._lock:
            used = min(self._used_now(key) + 1, self._max_used)
            self._used.pop(key, None)
            self._used[key] = used, self._now()
            if len(self._used) > MAX_KNOWN_KEYS:
                del self._used[next(iter(self._used))]
        return max(0.0, used - self._burst) / self._per_s

    def _used_now(self, key: str) -> float:
        used, at_s = self._used.get(key, (0.0, 0.0))
        return max(0.0, used - (self._now() - at_s) * self._per_s)


class AnonymousLimits:
    """What clients without valid credentials may cost the app of a private port. For its event loop."""

    def __init__(self, trusted: Iterable[str] = ()) -> None:
        self.failures = RequestLimit(MAX_FAILURES_PER_S, MAX_FAILURE_BURST)
        self.pace = RequestLimit(MAX_PACED_FAILURES_PER_S, PACED_FAILURE_BURST, max_wait_s=MAX_PACE_S)
        self.open_requests = RequestLimit(MAX_OPEN_REQUESTS_PER_S, MAX_OPEN_REQUEST_BURST)
        self.open_pace = RequestLimit(MAX_PACED_OPEN_REQUESTS_PER_S, 1, max_wait_s=MAX_PACE_S)
        self.groups = AddressGroups(trusted)
        self._lookups = asyncio.Semaphore(MAX_LOOKUPS_AT_ONCE)
        self._waiting_lookups = 0

    async def look_up(self, function: Callable[[], _Result]) -> _Result:
        """Look up in a thread, after those that came before. Raises TooManyRequestsError where too many wait."""
        if self._waiting_lookups >= MAX_WAITING_LOOKUPS:
            raise TooManyRequestsError
        self._waiting_lookups += 1
        try:
            async with self._lookups:
                return await run_in_threadpool(function)
        finally:
            self._waiting_lookups -= 1


def client_address(request: Request) -> str:
    """The address that a request comes from; of IPv6 the network, of which one client has all addresses."""
    return _ALL_ADDRESSES.find(request.client.host if request.client else "") or UNKNOWN_CLIENT


def _limits(request: Request) -> AnonymousLimits:
    limits: AnonymousLimits = request.app.state.anonymous
    return limits


async def check_failure_limit(request: Request) -> None:
    """Refuse an address that has failed too often. Raises TooManyRequestsError, after a while."""
    if not _limits(request).failures.allows(client_address(request)):
        await asyncio.sleep(HOLD_S)
        raise TooManyRequestsError


async def look_up_anonymous(request: Request, function: Callable[[], _Result]) -> _Result:
    """Check credentials that were not valid before. Raises TooManyRequestsError."""
    await check_failure_limit(request)
    return await _limits(request).look_up(function)


async def count_failure(request: Request) -> None:
    """Count a request without valid credentials, and wait for its turn. A trusted address does not wait."""
    limits = _limits(request)
    limits.failures.count(client_address(request))
    if limits.groups.find(request.client.host if request.client else "") is not None:
        await asyncio.sleep(limits.pace.count())


class HeldRequests:
    """Middleware: where no credentials are asked for, an address that asks too often waits for its turn.

    All such addresses share the turns. Nothing is refused: a monitor that shares its address still gets its answer.
    """

    def __init__(self, app: ASGIApp, limits: AnonymousLimits, limited_elsewhere: frozenset[str]) -> None:
        self._app, self._limits, self._limited_elsewhere = app, limits, limited_elsewhere

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in self._limited_elsewhere:
            group = self._limits.groups.find((scope["client"] or ("",))[0])
            if group is not None:
                is_allowed = self._limits.open_requests.allows(group)
                self._limits.open_requests.count(group)
                if not is_allowed:
                    await asyncio.sleep(self._limits.open_pace.count())
        await self._app(scope, receive, send)
