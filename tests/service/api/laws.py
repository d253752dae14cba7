"""What holds for every answer of every door, whatever was asked."""

import json
import re

PROBLEM = {"type", "title", "status", "detail"}
RECEIPT = {"accepted", "late", "refused", "refusals"}
OAUTH = {"invalid_request", "invalid_client", "invalid_scope", "unsupported_grant_type"}
FOR_EVER = "public, max-age=31536000, immutable"
NEVER_CHANGES = re.compile(r"/zones/[^/]+/days/[^/]+\.json|/plans/[^/]+\.json")
SOFTWARE = re.compile(r"uvicorn|starlette|python|murmurate/|postgres|httptools", re.IGNORECASE)


def hold(answer, method="GET"):
    """Raise AssertionError where an answer breaks a law."""
    status, path = answer.status_code, answer.request.url.path
    assert status < 500, (status, answer.text)
    assert "Traceback" not in answer.text
    assert not {"server", "x-powered-by", "via"} & set(answer.headers)
    assert not [value for value in answer.headers.values() if SOFTWARE.search(value)]
    if status >= 400:
        _says_what_went_wrong(answer, method)
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


def _says_what_went_wrong(answer, method):
    assert answer.headers["content-type"] == "application/json"
    if method == "HEAD":
        assert answer.content == b""
        return
    said = json.loads(answer.content)
    if "error" in said:
        assert answer.status_code in {400, 401}
        assert set(said) <= {"error", "error_description"}
        assert said["error"] in OAUTH
        assert answer.headers["cache-control"] == "no-store"
        return
    if answer.status_code == 422:
        assert set(said) == RECEIPT
        return
    assert set(said) == PROBLEM
    assert said["status"] == answer.status_code
    assert said["type"] == "about:blank"
    assert said["title"]
    assert said["detail"]
