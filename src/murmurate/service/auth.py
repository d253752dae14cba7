"""Clients with a secret, and the tokens they get for it (OAuth 2 client credentials, RFC 6749)."""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import quote, unquote

from murmurate.errors import MurmurateError
from murmurate.service.storage.session import TransactionSource, open_source

TOKEN_LIFETIME_S = 3600
_CLIENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SCOPE_PREFIX = "readings:"
_DUMMY_DIGEST = bytes(32)


class AuthError(MurmurateError):
    """A request that is not authorized. `code` is an error code of RFC 6749."""

    def __init__(self, code: str, field: str, value: object, allowed: str) -> None:
        super().__init__(field, value, allowed)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiClient:
    """The zones whose readings it may send, and whether it may see the operator's page."""

    id: str
    zones: frozenset[str]
    is_operator: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessToken:
    """What a client gets for its secret, for an hour."""

    value: str
    zones: frozenset[str]
    expires_in_s: int = TOKEN_LIFETIME_S

    @property
    def scope(self) -> str:
        return scope_for_zones(self.zones)


def scope_for_zones(zones: Collection[str]) -> str:
    """Zones as an OAuth scope.

    >>> scope_for_zones({"quay", "old town"})
    'readings:old%20town readings:quay'
    """
    return " ".join(f"{_SCOPE_PREFIX}{quote(zone, safe='')}" for zone in sorted(zones))


class AuthStore:
    """Clients and tokens in the state database. Threads may share one that has a pool."""

    def __init__(self, database: str | TransactionSource) -> None:
        self._session = open_source(database)

    def add_client(self, client: ApiClient) -> str:
        """A new client. Returns its secret, which is kept nowhere; one that is there already gets another secret."""
        if not _CLIENT_ID.fullmatch(client.id):
            raise MurmurateError("client", client.id, "must be letters, digits, dots and dashes, at most 64")
        secret = os.urandom(32).hex()
        query = """
            INSERT INTO access.client VALUES (%s, %s, %s, %s) ON CONFLICT (id) DO UPDATE
            SET secret = excluded.secret, zones = excluded.zones, operator = excluded.operator"""
        with self._session.transaction() as connection:
            connection.execute("DELETE FROM access.token WHERE client = %s", (client.id,))
            connection.execute(query, (client.id, _digest(secret), sorted(client.zones), client.is_operator))
        return secret

    def remove_client(self, client_id: str) -> bool:
        """Remove a client and its tokens. Returns whether there was one."""
        with self._session.transaction() as connection:
            return bool(connection.execute("DELETE FROM access.client WHERE id = %s", (client_id,)).rowcount)

    def list_clients(self) -> list[ApiClient]:
        with self._session.transaction() as connection:
            rows = connection.execute("SELECT id, zones, operator FROM access.client ORDER BY id").fetchall()
        return [ApiClient(id=name, zones=frozenset(zones), is_operator=operator) for name, zones, operator in rows]

    def authenticate(self, client_id: str, secret: str) -> ApiClient:
        """The client, if it is who it says. Raises AuthError."""
        with self._session.transaction() as connection:
            query = "SELECT secret, zones, operator FROM access.client WHERE id = %s"
            row = connection.execute(query, (client_id.replace("\0", ""),)).fetchone()
        kept, zones, operator = row or (_DUMMY_DIGEST, [], False)
        if not hmac.compare_digest(bytes(kept), _digest(secret)):
            raise AuthError("invalid_client", "client", "unknown", "must be a client with its secret")
        return ApiClient(id=client_id, zones=frozenset(zones), is_operator=operator)

    def issue_token(self, client: ApiClient, scope: str | None = None) -> AccessToken:
        """A token for all zones of a client, or for those that `scope` asks for. Raises AuthError."""
        zones = client.zones if not scope else frozenset(_zone_from_scope(word) for word in scope.split())
        if not zones or not zones <= client.zones:
            raise AuthError("invalid_scope", "scope", "too wide", f"must be within {scope_for_zones(client.zones)}")
        token = os.urandom(32).hex()
        query = "INSERT INTO access.token VALUES (%s, %s, %s, now() + make_interval(secs => %s))"
        with self._session.transaction() as connection:
            connection.execute("DELETE FROM access.token WHERE expires < now()")
            connection.execute(query, (_digest(token), client.id, sorted(zones), TOKEN_LIFETIME_S))
        return AccessToken(value=token, zones=zones)

    def authorized_zones(self, token: str) -> frozenset[str]:
        """The zones whose readings the bearer of a token may send. Raises AuthError.

        A client may have lost zones since it got the token: what counts is what both name.
        """
        query = """
            SELECT t.zones, c.zones FROM access.token t JOIN access.client c ON c.id = t.client
            WHERE t.digest = %s AND t.expires > now()"""
        with self._session.transaction() as connection:
            row = connection.execute(query, (_digest(token),)).fetchone()
        if row is None:
            raise AuthError("invalid_token", "token", "not valid", "is unknown or has expired; get another one")
        return frozenset(row[0]) & frozenset(row[1])

    def close(self) -> None:
        """Close the connection. It is reopened on the next call."""
        self._session.close()


def _digest(secret: str) -> bytes:
    return sha256(secret.encode(errors="surrogatepass")).digest()


def _zone_from_scope(word: str) -> str:
    if not word.startswith(_SCOPE_PREFIX):
        raise AuthError("invalid_scope", "scope", "unknown", f"must be words such as {_SCOPE_PREFIX}harbour")
    return unquote(word.removeprefix(_SCOPE_PREFIX))
