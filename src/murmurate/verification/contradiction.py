"""Two signed values for one thing: a proof of misbehaviour that anyone can check."""

from __future__ import annotations

from typing import NamedTuple

from murmurate.errors import ChainError
from murmurate.public_log.tile import TileHeader, TileKind, parse_header
from murmurate.public_log.tile_chain import VerifySignature
from murmurate.public_log.zone_line import ZoneLine, parse_zone_line
from murmurate.verification.log_item import ItemKind, find_kind
from murmurate.verification.report import MisbehaviourProof


class _Evidence(NamedTuple):
    header: TileHeader
    signature: str
    header_text: str
    line: ZoneLine | None
    text: str  # of the line


def prove_contradiction(first: bytes, second: bytes, verify: VerifySignature) -> MisbehaviourProof | None:
    """Return the proof that one key has signed two items that cannot both stand; None if they can.

    An item is a tile (its header is enough) or a line of a zone. A shard has one tile of each number and one release of
    each interval. A zone has one row for each interval, in all shards. Both signatures are checked here again.
    """
    one, other = _read_evidence(first), _read_evidence(second)
    if one is None or other is None or one.header.key != other.header.key:
        return None
    about = _contradiction_of_shard(one.header, other.header)
    zone = _zone_of_both(one, other)
    if zone and (about or _rows_contradict(one, other)):
        about = about or f"interval {one.header.interval}"
    else:
        zone = zone if about else ""
    both = (one, other)
    if not about or not all(verify(each.header.key, each.header.signed_bytes(), each.signature) for each in both):
        return None
    lines = (one.text, other.text) if zone else ()
    return MisbehaviourProof(one.header.shard, zone, about, one.header.key, (one.header_text, other.header_text), lines)


def _contradiction_of_shard(one: TileHeader, other: TileHeader) -> str:
    """What two headers say differently about one shard."""
    if one.shard != other.shard or one == other:
        return ""
    number = f"tile {one.seq}" if one.seq == other.seq else ""
    both_release = one.kind is TileKind.RELEASE and other.kind is TileKind.RELEASE
    interval = f"interval {one.interval}" if both_release and one.interval == other.interval else ""
    return " and ".join(filter(None, (number, interval)))


def _zone_of_both(one: _Evidence, other: _Evidence) -> str:
    if one.line is None or other.line is None or one.line.zone != other.line.zone:
        return ""
    return one.line.zone


def _rows_contradict(one: _Evidence, other: _Evidence) -> bool:
    """Whether one zone has two rows for one interval: in two shards, or twice in one tile."""
    if one.line is None or other.line is None or one.line.row is None or other.line.row is None:
        return False
    same_time = (one.header.interval, one.header.interval_s) == (other.header.interval, other.header.interval_s)
    return same_time and (one.header.shard != other.header.shard or one.line.leaf_hash != other.line.leaf_hash)


def _read_evidence(data: bytes) -> _Evidence | None:
    try:
        if find_kind(data) is ItemKind.ZONE_LINE:
            text = data.decode()
            line = parse_zone_line(text)
            return _Evidence(line.header, line.tile.signature, line.tile.header_line.decode(), line, text)
        header_text = data.partition(b"\n")[0].decode()
        header, signature = parse_header(header_text)
    except (ChainError, RecursionError, ValueError):
        return None
    return _Evidence(header, signature, header_text, None, "")
