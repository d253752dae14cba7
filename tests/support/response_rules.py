"""Rules that every response of every API follows, whatever the request."""

from __future__ import annotations

import json
import re

import httpx

PROBLEM = {"type", "title", "status", "detail"}
RECEIPT = {"accepted", "late", "refused", "refusals"}
OAUTH = {"invalid_request", "invalid_client", "invalid_scope", "unsupported_grant_type"}
FOR_EVER = "public, max-age=31536000, immutable"
NEVER_CHANGES = re.compile(
    r"/zones/[^/]+/days/[^/]+\.json|/prices/[^/]+/[^/]+\.json|/plans/[^/]+\.json|/tiles/[^/]+/[0-9]+|/documents/[^/]+"
)
SOFTWARE = re.compile(r"uvicorn|starlette|python|murmurate/|postgres|httptools", re.IGNORECASE)


def check_rules(answer: httpx.Response, method: str = "GET") -> None:
    """Raise AssertionError if a response breaks a rule."""
    status, path = answer.status_code, answer.request.url.path
    assert status < 500, (status, answer.text)
    assert "Traceback" not in answer.text
    assert not {"server", "x-powered-by", "via"} & set(answer.headers)
    assert answer.headers.get_list("x-content-type-options") == ["nosniff"]
    assert not [value for value in answer.headers.values() if SOFTWARE.search(value)]
    if status >= 400:
        _check_error(answer, method)
    if status == 405:
        allowed = {word.strip() for word in answer.headers["allow"].split(",")}
        assert allowed
        assert method not in allowed
    for_ever = status in {200, 304} and NEVER_CHANGES.fullmatch(path) is not None
    assert ("immutable" in answer.headers.get("cache-control", "")) == for_ever
    if for_ever:
        assert answer.headers["cache-control"] == FOR_EVER
    if status >= 400:
        assert answer.headers["cache-control"] == "no-store"


def _check_error(answer: httpx.Response, method: str) -> None:
    assert answer.headers["content-type"] == "application/json"
    if method == "HEAD":
        assert answer.content == b""
        return
    body = json.loads(answer.content)
    if "error" in body:
        assert answer.status_code in {400, 401}
        assert set(body) <= {"error", "error_description"}
        assert body["error"] in OAUTH
        assert answer.headers["cache-control"] == "no-store"
        return
    if answer.status_code == 422:
        assert set(body) == RECEIPT
        return
    assert set(body) == PROBLEM
    assert body["status"] == answer.status_code
    assert body["type"] == "about:blank"
    assert body["title"]
    assert body["detail"]
