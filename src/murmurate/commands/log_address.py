"""The whole log at an address: the list of its shards, and under it each tile and each document.

A service answers so, and so does any web server that carries its `static_files`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple
from urllib.parse import quote, urlsplit, urlunsplit

from murmurate.commands.log_files import LogWriter, document_name, note_name, tile_name
from murmurate.errors import MurmurateError
from murmurate.verification.sources import archived_note

SHARD_LIST = "shards"
FetchBytes = Callable[[str], bytes]  # the body at an address
FirstSeq = Callable[[str], int]  # of a shard: the first tile that is wanted
_DIGEST_PATTERN = re.compile(r"[0-9a-f]{64}")


class ListedShard(NamedTuple):
    """A shard that the list names."""

    name: str
    last_seq: int  # number of its last tile
    archived_seq: int  # releases up to this number are not there
    kept: list[int]  # tiles up to it that are


def find_base_address(address: str) -> str | None:
    """Return what the paths of a log begin with, if this is the address of a whole log; otherwise None.

    >>> find_base_address("https://prices.example/shards"), find_base_address("https://prices.example")
    ('https://prices.example/', 'https://prices.example/')
    >>> find_base_address("https://prices.example/zones/harbour/log.jsonl")
    """
    parts = urlsplit(address)
    folder, _, last = parts.path.rpartition("/")
    if parts.query or last not in {"", SHARD_LIST}:
        return None
    return urlunsplit((parts.scheme, parts.netloc, f"{folder}/", "", ""))


def copy_whole_log(base: str, fetch: FetchBytes, writer: LogWriter, first_seq: FirstSeq = lambda _: 0) -> None:
    """Copy every tile that the list of shards names, with its zone tables and their plans. Nothing of it is trusted."""
    documents: set[str] = set()
    for shard in _parse_shards(base, fetch(base + SHARD_LIST)):
        if shard.archived_seq >= 0:
            writer.add_file(note_name(shard.name), archived_note(shard.name, shard.archived_seq))
        first = first_seq(shard.name)
        kept = (seq for seq in shard.kept if seq >= first)
        for seq in (*kept, *range(max(first, shard.archived_seq + 1), shard.last_seq + 1)):
            tile = fetch(f"{base}tiles/{quote(shard.name, safe='')}/{seq}")
            for digest in _named_tables(tile) - documents:
                table = _copy_document(base, digest, fetch, writer)
                for plan in _named_plans(table) - documents:
                    _copy_document(base, plan, fetch, writer)
                    documents.add(plan)
                documents.add(digest)
            writer.add_file(tile_name(shard.name, seq), tile)


def _copy_document(base: str, digest: str, fetch: FetchBytes, writer: LogWriter) -> bytes:
    data = fetch(f"{base}documents/{digest}")
    writer.add_file(document_name(digest), data)
    return data


def _parse_shards(base: str, data: bytes) -> Iterator[ListedShard]:
    listed = _parse_json(data)
    if not isinstance(listed, list):
        raise MurmurateError("source", base + SHARD_LIST, "is no list of shards; is this the address of a service?")
    for members in listed:
        try:
            archived = members.get("archived", {"seq": -1, "kept": []})
            shard = ListedShard(members["shard"], members["seq"], archived["seq"], archived["kept"])
            numbers = [shard.last_seq, shard.archived_seq, *shard.kept]
        except (AttributeError, LookupError, TypeError):
            shard, numbers = None, []
        if shard is None or not isinstance(shard.name, str) or not all(type(number) is int for number in numbers):
            raise MurmurateError("source", base + SHARD_LIST, "must name each shard and the number of its last tile")
        yield shard


def _named_tables(tile: bytes) -> set[str]:
    """The zone table that the header of a tile names."""
    header = _parse_json(tile.partition(b"\n")[0])
    return _digests([header.get("table")] if isinstance(header, dict) else [])


def _named_plans(table: bytes) -> set[str]:
    document = _parse_json(table)
    rows = document.get("zones") if isinstance(document, dict) else None
    return _digests([row.get("plan") for row in rows if isinstance(row, dict)] if isinstance(rows, list) else [])


def _digests(texts: list[object]) -> set[str]:
    return {text for text in texts if isinstance(text, str) and _DIGEST_PATTERN.fullmatch(text)}


def _parse_json(data: bytes) -> object:
    """A document, or None where it is none: the check of the copy will say so."""
    try:
        return json.loads(data)
    except (RecursionError, ValueError):
        return None
