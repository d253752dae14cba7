"""Clients with a secret, and the tokens they get for it (OAuth 2 client credentials, RFC 6749)."""

from __future__ import annotations

import base64
import binascii
import hmac
import math
import os
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import quote, unquote, unquote_plus

from murmurate.errors import MurmurateError
from murmurate.service.storage.session import TransactionSource, open_source

TOKEN_LIFETIME_S = 3600
TOKEN_CACHE_S = 5.0  # tokens of a removed client may still be accepted for this long [s]
MAX_CACHED_TOKENS = 100_000
MAX_TOKENS_PER_CLIENT = 1000  # a client that takes more loses its oldest ones
PURGE_PIECE = 100  # tokens that are deleted when one is issued, so that no request deletes a million
MAX_CACHED_ZONES = 10_000_000  # zones of all cached tokens
_CLIENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SCOPE_PREFIX = "readings:"
_DUMMY_DIGEST = bytes(32)
# By an array: rows are found in the order of their digests, so two that delete the same ones wait for each other once.
_DELETE_EXPIRED_TOKENS = """
    DELETE FROM access.token WHERE digest = ANY(ARRAY(
        SELECT digest FROM access.token WHERE expires < now() ORDER BY expires LIMIT %s
    ))"""
_DELETE_OLDEST_TOKENS = """
    DELETE FROM access.token WHERE digest = ANY(ARRAY(
        SELECT digest FROM access.token WHERE client = %s ORDER BY expires DESC OFFSET %s LIMIT %s
    ))"""


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

    def change_zones(
        self, client_id: str, *, granted: Collection[str] = (), revoked: Collection[str] = ()
    ) -> ApiClient | None:
        """Give zones to a client, or take them from it. Its secret and its tokens stay. Returns it; None if not there.

        Raises MurmurateError if nothing would be left that the client may do.
        """
        query = """
            UPDATE access.client SET zones = ARRAY(
                SELECT DISTINCT zone FROM unnest(zones || %s::text[]) AS zone WHERE zone <> ALL (%s::text[])
                ORDER BY zone
            ) WHERE id = %s RETURNING zones, operator"""
        with self._session.transaction() as connection:
            row = connection.execute(query, (sorted(granted), sorted(revoked), client_id)).fetchone()
            if row is None:
                return None
            if not any(row):
                raise MurmurateError("client", client_id, f"has no other zone: murmurate client remove {client_id}")
        return ApiClient(id=client_id, zones=frozenset(row[0]), is_operator=row[1])

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

    def authenticate_operator(self, headers: Mapping[str, str]) -> ApiClient:
        """Return the operator whose name and secret a request has. Raises AuthError."""
        client = self.authenticate(*(basic_credentials(headers) or ("", "")))
        if not client.is_operator:
            raise AuthError("invalid_client", "client", client.id, "is no operator")
        return client

    def issue_token(self, client: ApiClient, scope: str | None = None) -> AccessToken:
        """A token for all zones of a client, or for those that `scope` asks for. Raises AuthError."""
        words = (scope or "").split()
        if not all(word.startswith(_SCOPE_PREFIX) for word in words):
            raise AuthError("invalid_scope", "scope", "unknown", f"must be words such as {_SCOPE_PREFIX}harbour")
        zones = frozenset(unquote(word.removeprefix(_SCOPE_PREFIX)) for word in words) if scope else client.zones
        if not zones or not zones <= client.zones:
            raise AuthError("invalid_scope", "scope", "too wide", f"must be within {scope_for_zones(client.zones)}")
        token = os.urandom(32).hex()
        query = "INSERT INTO access.token VALUES (%s, %s, %s, now() + make_interval(secs => %s))"
        with self._session.transaction() as connection:
            connection.execute(_DELETE_EXPIRED_TOKENS, (PURGE_PIECE,))
            connection.execute(_DELETE_OLDEST_TOKENS, (client.id, MAX_TOKENS_PER_CLIENT - 1, PURGE_PIECE))
            connection.execute(query, (_digest(token), client.id, sorted(zones), TOKEN_LIFETIME_S))
        return AccessToken(value=token, zones=zones)

    def find_token(self, token: str) -> tuple[frozenset[str], float]:
        """The zones whose readings the bearer of a token may send, and for how long it is still valid [s].

        A client may have lost zones since it got the token: what counts is what both name. Raises AuthError.
        """
        query = """
            SELECT t.zones, c.zones, extract(epoch FROM t.expires - now())::float8
            FROM access.token t JOIN access.client c ON c.id = t.client
            WHERE t.digest = %s AND t.expires > now()"""
        with self._session.transaction() as connection:
            row = connection.execute(query, (_digest(token),)).fetchone()
        if row is None:
            raise AuthError("invalid_token", "token", "not valid", "is unknown or has expired; get another one")
        return frozenset(row[0]) & frozenset(row[1]), row[2]

    def close(self) -> None:
        """Close the connection. It is reopened on the next call."""
        self._session.close()


class TokenCache:
    """The zones of tokens that were valid a moment ago. Threads may share it.

    A client that is removed, or loses a zone, may send readings for `TOKEN_CACHE_S` more. A token that expires is
    refused at once. A token that is not valid is never cached.
    """

    def __init__(self, access: AuthStore, now: Callable[[], float] = time.monotonic) -> None:
        self._access = access
        self._now = now
        self._lock = threading.Lock()
        self._entries: dict[bytes, tuple[float, frozenset[str]]] = {}  # by digest: until when, zones; oldest first
        self._zone_count = 0

    def cached_zones(self, token: str) -> frozenset[str] | None:
        """The zones of a token, if they were looked up a moment ago."""
        with self._lock:
            until_s, zones = self._entries.get(_digest(token), (-math.inf, None))
        return zones if self._now() < until_s else None

    def was_valid(self, token: str) -> bool:
        """Whether a token was valid when it was last looked up."""
        with self._lock:
            return _digest(token) in self._entries

    def authorized_zones(self, token: str) -> frozenset[str]:
        """The zones of `AuthStore.find_token`, looked up now."""
        asked_s = self._now()  # before the database answers, so that no answer is older than it seems
        digest = _digest(token)
        try:
            zones, valid_s = self._access.find_token(token)
        except AuthError:
            with self._lock:
                self._remove(digest)
            raise
        with self._lock:
            self._remove(digest)
            self._entries[digest] = asked_s + min(TOKEN_CACHE_S, valid_s), zones
            self._zone_count += len(zones)
            while len(self._entries) > MAX_CACHED_TOKENS or self._zone_count > MAX_CACHED_ZONES:
                self._remove(next(iter(self._entries)))
        return zones

    def _remove(self, digest: bytes) -> None:
        if (entry := self._entries.pop(digest, None)) is not None:
            self._zone_count -= len(entry[1])


def basic_credentials(headers: Mapping[str, str]) -> tuple[str, str] | None:
    """Name and secret of HTTP Basic, if a request has them. RFC 6749 has both percent-encoded."""
    scheme, _, coded = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, _, secret = base64.b64decode(coded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return "", ""
    return unquote_plus(name), unquote_plus(secret)


def _digest(secret: str) -> bytes:
    return sha256(secret.encode(errors="surrogatepass")).digest()
