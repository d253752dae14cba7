"""Bugs of the log in an object store, for `seeded_bugs`."""

from __future__ import annotations

_PUBLISH_TABLE = "        self.publish_documents({table.digest: table.text})\n"
_CREATE_TILE = "        if self._store.create(tile_name(shard, tile.header.seq), tile.to_bytes()):\n"
_REMEMBER_HEAD = "            self._appended[shard] = head\n"

OBJECT_LOG_BUGS: tuple[tuple[str, str, str], ...] = (  # what it is, what the source says, the bug
    ("an interval counts as over before it is", "        return self._shown_s >= end_s\n", "        return True\n"),
    (
        "an object that was created too early shows that an interval is over",
        "max((self._shown_s, *(each.changed_s for each in found)))",
        "max(self._shown_s, end_s if found else 0)",
    ),
    (
        "after an object that was created too early there is no other",
        "if not any(each.changed_s >= end_s for each in found):",
        "if not found:",
    ),
    (
        "a claim counts as won, whoever has it",
        "            return self._read_claim(zone) or UNREADABLE_CLAIM\n",
        "            return claims[zone]\n",
    ),
    (
        "a tile takes the next number that is free",
        _CREATE_TILE,
        _CREATE_TILE.replace("tile.header.seq", "self._find_last(shard, -1) + 1"),
    ),
    ("the tile that was appended last is taken for the one before", "appended.tile.header.seq == seq - 1", "True"),
    ("a tile without its zone table", _PUBLISH_TABLE, ""),
    (
        "a tile before its zone table",
        _PUBLISH_TABLE + _CREATE_TILE + _REMEMBER_HEAD,
        _CREATE_TILE + _REMEMBER_HEAD + _PUBLISH_TABLE,
    ),
)
