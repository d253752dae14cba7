"""Set aside, as evidence, what is in the tables of the log and not part of it. Only the owner of the log can.

Whether something may be set aside is decided by the caller. Here it is moved in one transaction, if the log has not
changed meanwhile. A trigger refuses every change of the log; its owner turns it off for this transaction alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psycopg import Connection

from murmurate.errors import ChainError
from murmurate.public_log.tile import GENESIS_PREV
from murmurate.publisher.invalid_tail import InvalidTail
from murmurate.service.storage.session import TransactionSource

_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '10s'"
_LOCK_HEAD = "SELECT FROM public_log.head WHERE shard = %s AND seq = %s AND hash = %s FOR UPDATE"
_MOVE_TILES = """
    WITH moved AS (DELETE FROM public_log.tile WHERE shard = %s AND seq >= %s RETURNING shard, seq, body, taken)
    INSERT INTO public_log.evidence (kind, shard, seq, body, taken) SELECT 'tile', * FROM moved"""
_RESET_HEAD = """
    UPDATE public_log.head SET seq = %s, hash = %s, key = %s, zones = %s, interval = %s, interval_s = %s, lead = %s
    WHERE shard = %s"""
_CLOSE_SHARD = "UPDATE public_log.head SET seq = -1, hash = %s WHERE shard = %s"
_MOVE_CLAIM = """
    WITH moved AS (DELETE FROM public_log.claim WHERE zone = %s AND shard = %s RETURNING shard, zone)
    INSERT INTO public_log.evidence (kind, shard, name) SELECT 'claim', * FROM moved"""
# Claims of zones that are in no zone table of their shard, open or closed. A tile that changes the table has no rows.
_UNUSED_CLAIMS = """
    WITH entered AS (
        SELECT h.shard, z.zone FROM public_log.head AS h JOIN public_log.document AS d ON d.digest = h.zones
        CROSS JOIN LATERAL jsonb_to_recordset(
            (d.body::jsonb -> 'zones') || coalesce(d.body::jsonb -> 'closed', '[]')) AS z (zone text) WHERE h.seq >= 0
    ), candidate AS MATERIALIZED (
        SELECT c.zone, c.shard FROM public_log.claim AS c
        WHERE NOT EXISTS (SELECT FROM entered AS e WHERE e.shard = c.shard AND e.zone = c.zone)
    ), earlier AS MATERIALIZED (
        SELECT DISTINCT t.shard,
            convert_from(substring(t.body FROM 1 FOR position('\\x0a'::bytea IN t.body) - 1), 'UTF8')::jsonb ->> 'table'
                AS digest
        FROM public_log.tile AS t
        WHERE t.shard IN (SELECT c.shard FROM candidate AS c) AND octet_length(t.body) <= 65536
    )
    SELECT c.zone, c.shard FROM candidate AS c WHERE NOT EXISTS (
        SELECT FROM earlier AS e JOIN public_log.document AS d ON d.digest = e.digest
        CROSS JOIN LATERAL jsonb_to_recordset(d.body::jsonb -> 'zones') AS z (zone text)
        WHERE e.shard = c.shard AND z.zone = c.zone
    ) ORDER BY c.zone"""


def set_tiles_aside(log: TransactionSource, shard: str, tail: InvalidTail) -> None:
    """Move the tiles of a tail, and set the head of the shard back to the tile before.

    Raises ChainError where the shard does not end with this tail any more.
    """
    with log.transaction() as connection:
        connection.execute(_LOCK_TIMEOUT)
        if connection.execute(_LOCK_HEAD, (shard, tail.last_seq, tail.last_hash)).rowcount != 1:
            raise ChainError("log", f"not at tile {tail.last_seq} of {shard} any more", "run the command again")
        with _changing(connection, "tile"):
            connection.execute(_MOVE_TILES, (shard, tail.first_seq))
        if tail.head is None:
            connection.execute(_CLOSE_SHARD, (GENESIS_PREV, shard))
            return
        tile, header = tail.head.tile, tail.head.tile.header
        members = (header.seq, tile.hash, tile.key_in_force, header.table)
        connection.execute(_RESET_HEAD, (*members, header.interval, header.interval_s, header.lead, shard))


def set_claim_aside(log: TransactionSource, zone: str) -> str:
    """Move the claim of a zone that is in no table of its shard, so that it can be claimed again. Returns the shard.

    Raises ChainError where there is no such claim.
    """
    with log.transaction() as connection:
        connection.execute(_LOCK_TIMEOUT)
        connection.execute("LOCK TABLE public_log.head IN EXCLUSIVE MODE")  # no zone enters a shard meanwhile
        claims: dict[str, str] = dict(connection.execute(_UNUSED_CLAIMS).fetchall())
        shard = claims.get(zone)
        if shard is None:
            raise ChainError("zone", zone, "has no claim, or is in the shard that has claimed it: nothing was changed")
        with _changing(connection, "claim"):
            connection.execute(_MOVE_CLAIM, (zone, shard))
    return shard


def find_unused_claims(log: TransactionSource) -> dict[str, str]:
    """The shard of each zone that is claimed and was never in the zone table of its shard."""
    with log.transaction() as connection:
        return dict(connection.execute(_UNUSED_CLAIMS).fetchall())


def count_evidence(log: TransactionSource, kind: str) -> int:
    """How many tiles, documents or claims were set aside."""
    with log.transaction() as connection:
        row = connection.execute("SELECT count(*) FROM public_log.evidence WHERE kind = %s", (kind,)).fetchone()
    return int(row[0]) if row else 0


@contextmanager
def _changing(connection: Connection[Any], table: str) -> Iterator[None]:
    """Let the owner change a table of the log in this transaction. Other roles fail: they may not turn it off."""
    connection.execute(f"ALTER TABLE public_log.{table} DISABLE TRIGGER append_only")
    yield
    connection.execute(f"ALTER TABLE public_log.{table} ENABLE TRIGGER append_only")
