"""Which keys may open a shard: the one that is expected, and those that replaced it."""

from __future__ import annotations

from murmurate.public_log.tile import TileHeader, TileKind


class KeySuccession:
    """A key is trusted if it is the expected one, or if a trusted key has signed that it comes next.

    Add only headers whose signatures were checked. Without an expected key all keys are trusted.
    """

    def __init__(self, expected_key: str | None) -> None:
        self.expected_key = expected_key
        self._next_keys: dict[str, set[str]] = {}

    def add_rotation(self, header: TileHeader) -> None:
        """Note which key replaces the one that signed this header, if it says so."""
        if header.kind is TileKind.KEY and header.next_key is not None:
            self._next_keys.setdefault(header.key, set()).add(header.next_key)

    def trusted_keys(self) -> frozenset[str]:
        """The expected key and all that came after it, in the tiles and lines that were read."""
        trusted: set[str] = set()
        waiting = [] if self.expected_key is None else [self.expected_key]
        while waiting:
            key = waiting.pop()
            trusted.add(key)
            waiting += self._next_keys.get(key, set()) - trusted
        return frozenset(trusted)
