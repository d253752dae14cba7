"""The ingest API: batches of readings over HTTP, from clients with a token."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import parse_qs

import psycopg
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from murmurate.errors import MurmurateError, ReadingError
from murmurate.service.auth import AuthError, AuthStore
from murmurate.service.ingest.batch import ReadingBatch, Receipt, Refusals
from murmurate.service.ingest.formats.green_button import parse_green_button
from murmurate.service.ingest.formats.parquet import parse_parquet
from murmurate.service.ingest.formats.text_lines import parse_csv, parse_json_lines
from murmurate.service.ingest.ingestor import ReadingIngestor
from murmurate.service.web.http_auth import basic_credentials
from murmurate.service.web.openapi import openapi_document
from murmurate.service.web.responses import (
    BodyTimeoutError,
    BodyTooLargeError,
    json_response,
    problem_response,
    read_body,
)

logger = logging.getLogger(__name__)


MAX_BODY_BYTES = 32 * 2**20
MAX_FORM_BYTES = 8192
_NO_STORE_HEADERS = {"cache-control": "no-store"}


BodyParser = Callable[..., tuple[ReadingBatch, Refusals]]

PARSERS_BY_MEDIA_TYPE: dict[str, BodyParser] = {
    "application/x-ndjson": parse_json_lines,
    "application/jsonl": parse_json_lines,
    "application/vnd.apache.parquet": parse_parquet,
    "text/csv": parse_csv,
    "application/atom+xml": parse_green_button,
}


@dataclass(slots=True, kw_only=True)
class IngestApi:
    """Routes for head-ends: send readings, get a token."""

    current_ingestor: Callable[[], ReadingIngestor]
    access: AuthStore

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
        zones = await run_in_threadpool(self._authorized_zones, request)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in PARSERS_BY_MEDIA_TYPE:
            return problem_response(415, f"the body must be one of {', '.join(PARSERS_BY_MEDIA_TYPE)}")
        body = await read_body(request, MAX_BODY_BYTES)
        receipt = await run_in_threadpool(self._ingest_body, PARSERS_BY_MEDIA_TYPE[kind], body, zones)
        return json_response(receipt.to_document(), status=422 if receipt.refused else 200, headers=_NO_STORE_HEADERS)

    def _authorized_zones(self, request: Request) -> frozenset[str]:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise AuthError("invalid_token", "authorization", "missing", "must be Bearer and a token of /auth/token")
        return self.access.authorized_zones(token.strip())

    def _ingest_body(self, parse: BodyParser, body: bytes, zones: frozenset[str]) -> Receipt:
        ingestor = self.current_ingestor()
        batch, refused = parse(body, interval_s=ingestor.landing.interval_s)
        return ingestor.ingest_batch(batch, zones, Receipt(refused=refused))

    async def post_token(self, request: Request) -> Response:
        """Client credentials for a token (RFC 6749, 4.4), in the body or by HTTP Basic."""
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
        name, secret = basic_credentials(request) or (
            parameters.get("client_id", ""),
            parameters.get("client_secret", ""),
        )
        token = await run_in_threadpool(self._issue_token, name, secret, parameters.get("scope"))
        return json_response(token, headers=_NO_STORE_HEADERS)

    def _issue_token(self, name: str, secret: str, scope: str | None) -> dict[str, object]:
        token = self.access.issue_token(self.access.authenticate(name, secret), scope)
        return {
            "access_token": token.value,
            "token_type": "Bearer",
            "expires_in": token.expires_in_s,
            "scope": token.scope,
        }


def private_app(routes: list[Route]) -> Starlette:
    """The app behind the private port."""

    async def refused(request: Request, error: Exception) -> Response:
        return _error_response(request, error)

    kinds = (
        AuthError,
        MurmurateError,
        HTTPException,
        BodyTooLargeError,
        BodyTimeoutError,
        psycopg.Error,
        OSError,
        Exception,
    )
    handlers: dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = dict.fromkeys(kinds, refused)
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # its tracebacks might quote a body
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False  # it would redirect clients to the host that the request names
    return app


def _error_response(request: Request, error: Exception) -> Response:
    """Each error as a response."""
    if isinstance(error, AuthError):
        return _access_error_response(error)
    if isinstance(error, HTTPException):
        return problem_response(error.status_code, error.detail, error.headers)
    if isinstance(error, ReadingError):
        return problem_response(400, str(error))
    if isinstance(error, BodyTooLargeError | BodyTimeoutError):
        status, detail = error.status_and_detail
        return problem_response(status, detail, {"connection": "close"})
    logger.warning("failing", extra={"route": request.url.path, "reason": type(error).__name__})
    return problem_response(503, "is out of order; what was not acknowledged must be sent again", {"retry-after": "5"})


def _access_error_response(error: AuthError) -> Response:
    if error.code == "invalid_token":
        return problem_response(401, str(error), {"www-authenticate": 'Bearer error="invalid_token"'})
    if error.code == "invalid_client":
        challenge = _NO_STORE_HEADERS | {"www-authenticate": 'Basic realm="murmurate"'}
        return json_response({"error": error.code}, status=401, headers=challenge)
    return json_response({"error": error.code, "error_description": str(error)}, status=400, headers=_NO_STORE_HEADERS)
