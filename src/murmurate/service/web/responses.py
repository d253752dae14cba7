"""HTTP responses, request bodies and the OpenAPI document: what every API shares."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager
from http import HTTPStatus
from importlib.resources import files
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from murmurate import __version__

BODY_TIMEOUT_S = 60.0  # to send a body
REFUSAL_DELAY_S = 1.0  # before a client hears that there are too many: one that asks again at once is no load


def problem_response(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """What went wrong, in the form of RFC 9457 that OpenADR also speaks."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    return json_response(body, status=status, headers={"cache-control": "no-store"} | dict(headers or {}))


class DelayedRefusal(Response):
    """An answer that says try again, after a while in which the client cannot ask again."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str]) -> None:
        refusal = problem_response(status, detail, headers)
        super().__init__(refusal.body, status)
        self.raw_headers = refusal.raw_headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(REFUSAL_DELAY_S)
        await super().__call__(scope, receive, send)


def json_response(document: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    body = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    return Response(body, status, dict(headers or {}), "application/json")


class StreamedResponse(StreamingResponse):
    """An answer that is written while it is read. HEAD has none of it; what it holds is let go however it ends."""

    def __init__(
        self,
        request: Request,
        content: AsyncIterator[bytes],
        media_type: str,
        headers: dict[str, str],
        resource: AbstractContextManager[object],
    ) -> None:
        super().__init__(content, media_type=media_type, headers=headers)
        self._is_head, self._resource = request.method == "HEAD", resource

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._is_head:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": b""})
            return
        with self._resource:
            await super().__call__(scope, receive, send)


class BodyTooLargeError(Exception):
    """A body beyond its bound."""

    status_and_detail = (413, "the body is too large; send several")


class BodyTimeoutError(Exception):
    """A body that did not come in time."""

    status_and_detail = (408, "the body did not come in time")


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The body of a request, if it is small enough and comes in time."""
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > max_bytes:
        raise BodyTooLargeError
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > max_bytes:
                    raise BodyTooLargeError
    except (TimeoutError, ClientDisconnect):
        raise BodyTimeoutError from None
    return bytes(body)


def openapi_document(package: str, base_url: str = "/") -> dict[str, Any]:
    """Return `openapi.json` of the API in `package`, with the version and the address `base_url` filled in."""
    document: dict[str, Any] = json.loads(files(package).joinpath("openapi.json").read_bytes())
    document["info"]["version"] = __version__
    document["servers"] = [{"url": base_url}]
    return document
