"""What a shell offers when a word is completed: fixed words, and names of zones from the log."""

from __future__ import annotations

import os
from collections.abc import Callable

MAX_OFFERED = 100
_SELECT_ZONES = "SELECT zone FROM public_log.claim WHERE starts_with(zone, %s) ORDER BY zone LIMIT %s"
_TIMEOUT_S = 2


def complete_words(*words: str) -> Callable[[str], list[str]]:
    """Return a function that offers those of some words that begin as the given one."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


def complete_zone(incomplete: str) -> list[str]:
    """Offer the zones of the log that MURMURATE_LOG names; none if it does not answer at once."""
    dsn = os.environ.get("MURMURATE_LOG")
    if not dsn:
        return []
    try:
        import psycopg  # noqa: PLC0415

        with psycopg.connect(dsn, connect_timeout=_TIMEOUT_S, options=f"-c statement_timeout={_TIMEOUT_S}s") as log:
            return [row[0] for row in log.execute(_SELECT_ZONES, (incomplete, MAX_OFFERED))]
    except Exception:  # noqa: BLE001  a shell that completes a word shows no errors
        return []
