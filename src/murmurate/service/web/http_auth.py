"""HTTP Basic authentication of clients and operators."""

from __future__ import annotations

import base64
import binascii
from urllib.parse import unquote_plus

from starlette.requests import Request

from murmurate.service.auth import ApiClient, AuthError, AuthStore


def basic_credentials(request: Request) -> tuple[str, str] | None:
    """Name and secret of HTTP Basic, if the request has them. RFC 6749 has both percent-encoded."""
    scheme, _, coded = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, _, secret = base64.b64decode(coded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return "", ""
    return unquote_plus(name), unquote_plus(secret)


def require_operator(request: Request, access: AuthStore) -> ApiClient:
    """The operator who asks. Raises AuthError."""
    name, secret = basic_credentials(request) or ("", "")
    client = access.authenticate(name, secret)
    if not client.is_operator:
        raise AuthError("invalid_client", "client", client.id, "is no operator")
    return client
