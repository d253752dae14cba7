"""The door for head-ends: batches of readings over HTTP, for whoever has a token."""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote_plus

import psycopg
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from murmurate.errors import MurmurateError, ReadingError
from murmurate.service.access import Access, AccessError, Client
from murmurate.service.doors.espi import espi_readings
from murmurate.service.doors.formats import csv_rows, json_lines
from murmurate.service.doors.intake import Intake
from murmurate.service.doors.openapi import document
from murmurate.service.doors.parquet_body import parquet_rows
from murmurate.service.doors.slip import Receipt, Refusals, Slip
from murmurate.service.pool import Pool
from murmurate.service.saying import Say
from murmurate.service.web import TooLargeError, TooSlowError, as_json, body_of, problem

MOST_BODY_BYTES = 32 * 2**20
MOST_FORM_BYTES = 8192
_PRIVATE = {"cache-control": "no-store"}


Reader = Callable[..., tuple[Slip, Refusals]]

FORMATS: dict[str, Reader] = {
    "application/x-ndjson": json_lines,
    "application/jsonl": json_lines,
    "application/vnd.apache.parquet": parquet_rows,
    "text/csv": csv_rows,
    "application/atom+xml": espi_readings,
}


@dataclass(slots=True, kw_only=True)
class ReadingsDoor:
    """What the door needs: who may come in, and where readings go."""

    intake: Callable[[], Intake]
    access: Pool[Access]
    say: Say

    def routes(self) -> list[Route]:
        return [
            Route("/readings", self.post_readings, methods=["POST"]),
            Route("/auth/token", self.post_token, methods=["POST"]),
            Route("/openapi.json", self.get_openapi, methods=["GET"]),
        ]

    async def get_openapi(self, _: Request) -> Response:
        return as_json(document())

    async def post_readings(self, request: Request) -> Response:
        """Take a batch. 200: all is safe or late; 422: the refused ones are listed, the rest is safe."""
        zones = await run_in_threadpool(self._zones, request)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in FORMATS:
            return problem(415, f"the body must be one of {', '.join(FORMATS)}")
        body = await body_of(request, MOST_BODY_BYTES)
        receipt = await run_in_threadpool(self._take, FORMATS[kind], body, zones)
        return as_json(receipt.document(), status=422 if receipt.refused else 200, headers=_PRIVATE)

    def _zones(self, request: Request) -> frozenset[str]:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise AccessError("invalid_token", "authorization", "missing", "must be Bearer and a token of /auth/token")
        with self.access.one() as access:
            return access.zones(token.strip())

    def _take(self, read: Reader, body: bytes, zones: frozenset[str]) -> Receipt:
        intake = self.intake()
        slip, refused = read(body, interval_s=intake.landing.interval_s)
        return intake.take(slip, zones, Receipt(refused=refused))

    async def post_token(self, request: Request) -> Response:
        """Client credentials for a token (RFC 6749, 4.4), in the body or by HTTP Basic."""
        text = (await body_of(request, MOST_FORM_BYTES)).decode(errors="replace")
        try:
            form = parse_qs(text, max_num_fields=20)
        except ValueError:
            form = {}
        given = {name: values[0] for name, values in form.items() if len(values) == 1}
        if len(given) < len(form):  # RFC 6749, 3.2: no parameter more than once
            return as_json({"error": "invalid_request"}, status=400, headers=_PRIVATE)
        if given.get("grant_type") != "client_credentials":
            code = "unsupported_grant_type" if "grant_type" in given else "invalid_request"
            return as_json({"error": code}, status=400, headers=_PRIVATE)
        name, secret = basic(request) or (given.get("client_id", ""), given.get("client_secret", ""))
        token = await run_in_threadpool(self._grant, name, secret, given.get("scope"))
        return as_json(token, headers=_PRIVATE)

    def _grant(self, name: str, secret: str, scope: str | None) -> dict[str, object]:
        with self.access.one() as access:
            token = access.grant(access.know(name, secret), scope)
        return {
            "access_token": token.token,
            "token_type": "Bearer",
            "expires_in": token.expires_in_s,
            "scope": token.scope,
        }


def basic(request: Request) -> tuple[str, str] | None:
    """Name and secret of HTTP Basic, if the request has them. RFC 6749 has both percent-encoded."""
    scheme, _, coded = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, _, secret = base64.b64decode(coded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return "", ""
    return unquote_plus(name), unquote_plus(secret)


def operator(request: Request, pool: Pool[Access]) -> Client:
    """The operator who asks. Raises AccessError."""
    name, secret = basic(request) or ("", "")
    with pool.one() as access:
        client = access.know(name, secret)
    if not client.operator:
        raise AccessError("invalid_client", "client", client.id, "is no operator")
    return client


def private_app(routes: list[Route], say: Say) -> Starlette:
    """The app behind the private port."""

    async def refused(request: Request, error: Exception) -> Response:
        return _answer(request, error, say)

    kinds = (AccessError, MurmurateError, HTTPException, TooLargeError, TooSlowError, psycopg.Error, OSError, Exception)
    handlers: dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = dict.fromkeys(kinds, refused)
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # its tracebacks might quote a body
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False  # it would send people to whatever host the request names
    return app


def _answer(request: Request, error: Exception, say: Say) -> Response:
    """Each error as an answer. Only this door knows status codes."""
    if isinstance(error, AccessError):
        return _shut(error)
    if isinstance(error, HTTPException):
        return problem(error.status_code, error.detail, error.headers)
    if isinstance(error, ReadingError):
        return problem(400, str(error))
    if isinstance(error, TooLargeError | TooSlowError):
        status, why = error.answer
        return problem(status, why, {"connection": "close"})
    say("failing", route=request.url.path, why=type(error).__name__)
    return problem(503, "is out of order; what was not acknowledged must be sent again", {"retry-after": "5"})


def _shut(error: AccessError) -> Response:
    if error.code == "invalid_token":
        return problem(401, str(error), {"www-authenticate": 'Bearer error="invalid_token"'})
    if error.code == "invalid_client":
        challenge = _PRIVATE | {"www-authenticate": 'Basic realm="murmurate"'}
        return as_json({"error": error.code}, status=401, headers=challenge)
    return as_json({"error": error.code, "error_description": str(error)}, status=400, headers=_PRIVATE)
