"""Who may come in: clients with a secret, and the tokens they get for it (OAuth 2 client credentials, RFC 6749)."""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import quote, unquote

from murmurate.errors import MurmurateError
from murmurate.service.connection import Session

TOKEN_S = 3600
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SCOPE = "readings:"
_NO_SECRET = bytes(32)


class AccessError(MurmurateError):
    """Somebody who is not let in. `code` is the word of RFC 6749 for it."""

    def __init__(self, code: str, field: str, value: object, allowed: str) -> None:
        super().__init__(field, value, allowed)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Whose meters it may speak for, and whether it may see the operator's page."""

    id: str
    zones: frozenset[str]
    operator: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What a client gets for its secret, for an hour."""

    token: str
    zones: frozenset[str]
    expires_in_s: int = TOKEN_S

    @property
    def scope(self) -> str:
        return scope_of(self.zones)


def scope_of(zones: Collection[str]) -> str:
    """Zones as an OAuth scope.

    >>> scope_of({"quay", "old town"})
    'readings:old%20town readings:quay'
    """
    return " ".join(f"{_SCOPE}{quote(zone, safe='')}" for zone in sorted(zones))


class Access:
    """Clients and tokens in the state database."""

    def __init__(self, dsn: str) -> None:
        self._session = Session(dsn)

    def add(self, client: Client) -> str:
        """A new client. Returns its secret, which is kept nowhere; one that is there already gets another secret."""
        if not _NAME.fullmatch(client.id):
            raise MurmurateError("client", client.id, "must be letters, digits, dots and dashes, at most 64")
        secret = os.urandom(32).hex()
        query = """
            INSERT INTO access.client VALUES (%s, %s, %s, %s) ON CONFLICT (id) DO UPDATE
            SET secret = excluded.secret, zones = excluded.zones, operator = excluded.operator"""
        with self._session.transaction() as connection:
            connection.execute("DELETE FROM access.token WHERE client = %s", (client.id,))
            connection.execute(query, (client.id, _digest(secret), sorted(client.zones), client.operator))
        return secret

    def remove(self, name: str) -> bool:
        """Shut a client out, its tokens too. Returns whether there was one."""
        with self._session.transaction() as connection:
            return bool(connection.execute("DELETE FROM access.client WHERE id = %s", (name,)).rowcount)

    def clients(self) -> list[Client]:
        with self._session.transaction() as connection:
            rows = connection.execute("SELECT id, zones, operator FROM access.client ORDER BY id").fetchall()
        return [Client(id=name, zones=frozenset(zones), operator=operator) for name, zones, operator in rows]

    def know(self, name: str, secret: str) -> Client:
        """The client, if it is who it says. Raises AccessError."""
        with self._session.transaction() as connection:
            query = "SELECT secret, zones, operator FROM access.client WHERE id = %s"
            row = connection.execute(query, (name.replace("\0", ""),)).fetchone()
        kept, zones, operator = row or (_NO_SECRET, [], False)
        if not hmac.compare_digest(bytes(kept), _digest(secret)):
            raise AccessError("invalid_client", "client", "unknown", "must be a client with its secret")
        return Client(id=name, zones=frozenset(zones), operator=operator)

    def grant(self, client: Client, scope: str | None = None) -> Token:
        """A token for all zones of a client, or for those that `scope` asks for. Raises AccessError."""
        zones = client.zones if not scope else frozenset(_zone(word) for word in scope.split())
        if not zones or not zones <= client.zones:
            raise AccessError("invalid_scope", "scope", "too wide", f"must be within {scope_of(client.zones)}")
        token = os.urandom(32).hex()
        query = "INSERT INTO access.token VALUES (%s, %s, %s, now() + make_interval(secs => %s))"
        with self._session.transaction() as connection:
            connection.execute("DELETE FROM access.token WHERE expires < now()")
            connection.execute(query, (_digest(token), client.id, sorted(zones), TOKEN_S))
        return Token(token=token, zones=zones)

    def zones(self, token: str) -> frozenset[str]:
        """Whose meters the bearer of a token may speak for. Raises AccessError.

        A client may have lost zones since it got the token: what counts is what both name.
        """
        query = """
            SELECT t.zones, c.zones FROM access.token t JOIN access.client c ON c.id = t.client
            WHERE t.digest = %s AND t.expires > now()"""
        with self._session.transaction() as connection:
            row = connection.execute(query, (_digest(token),)).fetchone()
        if row is None:
            raise AccessError("invalid_token", "token", "not valid", "is unknown or has expired; get another one")
        return frozenset(row[0]) & frozenset(row[1])

    def close(self) -> None:
        """Hang up; a later call connects again."""
        self._session.drop()


def _digest(secret: str) -> bytes:
    return sha256(secret.encode(errors="surrogatepass")).digest()


def _zone(word: str) -> str:
    if not word.startswith(_SCOPE):
        raise AccessError("invalid_scope", "scope", "unknown", f"must be words such as {_SCOPE}harbour")
    return unquote(word.removeprefix(_SCOPE))
