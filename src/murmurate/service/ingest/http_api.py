"""The ingest API: batches of readings over HTTP, from clients with a token."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from urllib.parse import parse_qs

import psycopg
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from murmurate.errors import MurmurateError, ReadingError
from murmurate.service.auth import AuthError, AuthStore, TokenCache, basic_credentials
from murmurate.service.clock_comparison import ClockDifferenceError
from murmurate.service.ingest.decoder_pool import DECODERS, PARSERS_BY_MEDIA_TYPE, DecoderPool
from murmurate.service.ingest.ingestor import IngestBusyError, ReadingIngestor, Receipt
from murmurate.service.settings import LOCAL_ADDRESSES
from murmurate.service.web.request_limits import (
    MAX_TOKEN_BURST,
    MAX_TOKENS_PER_S,
    AnonymousLimits,
    HeldRequests,
    RequestLimit,
    TooManyRequestsError,
    check_failure_limit,
    count_failure,
    look_up_anonymous,
)
from murmurate.service.web.responses import (
    BodyTimeoutError,
    BodyTooLargeError,
    json_response,
    openapi_document,
    problem_response,
    read_body,
)

logger = logging.getLogger(__name__)


MAX_BODY_BYTES = 32 * 2**20
MAX_BYTES_IN_FLIGHT = 256 * 2**20  # of bodies that are being checked and stored
MAX_FORM_BYTES = 8192
MAX_BODY_THREADS = 32  # bodies that are being checked at the same time
_NO_STORE_HEADERS = {"cache-control": "no-store"}
_RETRY_LATER = {"retry-after": "1"}
_BUSY = (503, "is busy: too many readings wait to be stored; send it again")
_TOO_MANY = (429, "too many requests without valid credentials, or too many tokens")
_COUNTED_FAILURES = {"invalid_token", "invalid_client"}


class IngestApi:
    """Routes for head-ends: send readings, get a token."""

    def __init__(
        self,
        *,
        current_ingestor: Callable[[], ReadingIngestor],
        access: AuthStore,
        decoders: DecoderPool = DECODERS,
    ) -> None:
        self.max_bytes_in_flight = MAX_BYTES_IN_FLIGHT
        self._current_ingestor = current_ingestor
        self._access = access
        self._decoders = decoders
        self._tokens = TokenCache(access)
        self._issued = RequestLimit(MAX_TOKENS_PER_S, MAX_TOKEN_BURST)  # tokens by client
        self._body_threads = ThreadPoolExecutor(MAX_BODY_THREADS, "body")
        self._bytes_in_flight = 0

    def routes(self) -> list[Route]:
        return [
            Route("/readings", self.post_readings, methods=["POST"]),
            Route("/auth/token", self.post_token, methods=["POST"]),
            Route("/openapi.json", self.get_openapi, methods=["GET"]),
        ]

    async def get_openapi(self, _: Request) -> Response:
        return json_response(openapi_document("murmurate.service.ingest"))

    async def post_readings(self, request: Request) -> Response:
        """Take a batch. 200: all is safe or late; 422: the refused ones are listed, the rest is safe."""
        zones = await self._authorized_zones(request)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in PARSERS_BY_MEDIA_TYPE:
            return problem_response(415, f"the body must be one of {', '.join(PARSERS_BY_MEDIA_TYPE)}")
        body = await read_body(request, MAX_BODY_BYTES)
        receipt = await self._ingest_body(kind, body, zones)
        status = 422 if receipt.refused_count else 200
        return json_response(receipt.to_document(), status=status, headers=_NO_STORE_HEADERS)

    async def _authorized_zones(self, request: Request) -> frozenset[str]:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not (token := token.strip()):
            await check_failure_limit(request)
            raise AuthError("invalid_token", "authorization", "missing", "must be Bearer and a token of /auth/token")
        if (zones := self._tokens.cached_zones(token)) is not None:
            return zones
        look_up = partial(self._tokens.authorized_zones, token)
        return await (
            run_in_threadpool(look_up) if self._tokens.was_valid(token) else look_up_anonymous(request, look_up)
        )

    async def _ingest_body(self, media_type: str, body: bytes, zones: frozenset[str]) -> Receipt:
        """Check a body in a thread, then wait without one until its readings are stored."""
        if self._bytes_in_flight and self._bytes_in_flight + len(body) > self.max_bytes_in_flight:
            raise IngestBusyError

        def start_batch() -> tuple[ReadingIngestor, Receipt]:
            ingestor = self._current_ingestor()
            batch, refused = self._decoders.parse(media_type, body, interval_s=ingestor.landing.interval_s)
            return ingestor, ingestor.start_batch(batch, zones, Receipt(refused=refused))

        self._bytes_in_flight += len(body)
        try:
            loop = asyncio.get_running_loop()  # bodies have their own threads: look-ups of tokens never wait for them
            ingestor, receipt = await loop.run_in_executor(self._body_threads, start_batch)
            if receipt.commits:
                await asyncio.wait([asyncio.wrap_future(stored) for _, stored in receipt.commits])
            return ingestor.finish_batch(receipt)
        finally:
            self._bytes_in_flight -= len(body)

    async def post_token(self, request: Request) -> Response:
        """Client credentials for a token (RFC 6749, 4.4), in the body or by HTTP Basic."""
        await check_failure_limit(request)
        text = (await read_body(request, MAX_FORM_BYTES)).decode(errors="replace")
        try:
            form = parse_qs(text, max_num_fields=20)
        except ValueError:
            form = {}
        parameters = {name: values[0] for name, values in form.items() if len(values) == 1}
        if len(parameters) < len(form):  # RFC 6749, 3.2: no parameter more than once
            return json_response({"error": "invalid_request"}, status=400, headers=_NO_STORE_HEADERS)
        if parameters.get("grant_type") != "client_credentials":
            code = "unsupported_grant_type" if "grant_type" in parameters else "invalid_request"
            return json_response({"error": code}, status=400, headers=_NO_STORE_HEADERS)
        name, secret = basic_credentials(request.headers) or (
            parameters.get("client_id", ""),
            parameters.get("client_secret", ""),
        )

        def issue_token() -> dict[str, object]:
            client = self._access.authenticate(name, secret)
            if not self._issued.allows(client.id):
                raise TooManyRequestsError
            self._issued.count(client.id)
            token = self._access.issue_token(client, parameters.get("scope"))
            facts = {"access_token": token.value, "token_type": "Bearer"}
            return facts | {"expires_in": token.expires_in_s, "scope": token.scope}

        return json_response(await look_up_anonymous(request, issue_token), headers=_NO_STORE_HEADERS)


def private_app(routes: list[Route], trusted: Sequence[str] = LOCAL_ADDRESSES) -> Starlette:
    """The app behind the private port. Addresses that are trusted never wait for an answer."""

    async def refused(request: Request, error: Exception) -> Response:
        if not isinstance(error, AuthError):
            return _error_response(request, error)
        if error.code in _COUNTED_FAILURES:
            await count_failure(request)
        if error.code == "invalid_token":
            return problem_response(401, str(error), {"www-authenticate": 'Bearer error="invalid_token"'})
        if error.code == "invalid_client":
            challenge = _NO_STORE_HEADERS | {"www-authenticate": 'Basic realm="murmurate"'}
            return json_response({"error": error.code}, status=401, headers=challenge)
        document = {"error": error.code, "error_description": str(error)}
        return json_response(document, status=400, headers=_NO_STORE_HEADERS)

    limits = (BodyTooLargeError, BodyTimeoutError, IngestBusyError, ClockDifferenceError, TooManyRequestsError)
    kinds = (MurmurateError, HTTPException, *limits, psycopg.Error, OSError, Exception)
    handlers: dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = dict.fromkeys(kinds, refused)
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # its tracebacks might quote a body
    anonymous = AnonymousLimits(trusted)
    held = Middleware(HeldRequests, limits=anonymous, limited_elsewhere=frozenset({"/readings", "/auth/token"}))
    app = Starlette(routes=routes, exception_handlers=handlers, middleware=[held])
    app.state.anonymous = anonymous
    app.router.redirect_slashes = False  # it would redirect clients to the host that the request names
    return app


def _error_response(request: Request, error: Exception) -> Response:
    """The response to any other error."""
    if isinstance(error, HTTPException):
        return problem_response(error.status_code, error.detail, error.headers)
    if isinstance(error, ReadingError):
        return problem_response(400, str(error))
    if isinstance(error, BodyTooLargeError | BodyTimeoutError):
        status, detail = error.status_and_detail
        return problem_response(status, detail, {"connection": "close"})
    if isinstance(error, IngestBusyError | TooManyRequestsError):
        return problem_response(*_BUSY if isinstance(error, IngestBusyError) else _TOO_MANY, _RETRY_LATER)
    detail = "Resend every batch that did not get 200 or 422."
    if isinstance(error, ClockDifferenceError):
        detail = f"No reading is taken: {error}. {detail}"
    else:
        detail = f"Service unavailable. {detail}"
        logger.warning("failing", extra={"route": request.url.path, "reason": type(error).__name__})
    return problem_response(503, detail, {"retry-after": "5"})
