"""A tile: what one shard decided in one interval, a row for each of its zones, signed once.

A tile is one line of canonical JSON (the header, signed, in UTF-8), a line end, and the rows, each of the same size.
The header holds the root of a Merkle tree over the rows, the hash of the header before, and the digest of the zone
table that says which zone and which plan each row is about. The SHA-256 of the header is the hash of the tile. A leaf
of the tree is zone, plan, interval and row; the row holds the hash of the leaf before it of the same zone. So each zone
has its own chain, and ten hashes prove to a reader of one zone that a row is in a tile. The members and the
columns are listed in docs/reference/public-log.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from enum import IntEnum, StrEnum
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from murmurate.errors import ChainError
from murmurate.public_log.canonical import FORMAT_VERSION, HEX_DIGITS, canonical_json, parse_canonical, require_types
from murmurate.public_log.merkle import compute_root, root_from_proof
from murmurate.public_log.signing import Signer
from murmurate.public_log.zone_table import ZoneTable

GENESIS_PREV = "0" * 64  # what the first tile of a shard names as the one before
NO_ROOT = "0" * 64  # of a tile without rows
CLOSED = "closed"  # among the extensions of a header: the final totals of each zone that the tile closes

Rows = NDArray[np.void]
Hashes = NDArray[np.uint8]  # [zone, 32]


class TileKind(StrEnum):
    """What a tile decides."""

    OPEN = "open"  # a shard begins
    ZONES = "zones"  # another zone table from the next interval on: zones are opened, closed, or under another plan
    KEY = "key"  # another key from the next tile on
    RELEASE = "release"  # one interval: a row for each zone


class RowKind(IntEnum):
    """What a row of a release decides about its zone."""

    MEASURED = 1  # a price from the noised demand of the interval
    FALLBACK = 2  # the price of the plan's forecast, or a prediction from earlier releases: no new reading, no cost
    WITHHELD = 3  # no price
    PUBLIC = 4  # a prediction from public numbers alone: the plan reads no meter, no cost


class NoiseCode(IntEnum):
    """The distribution of the noise of a row."""

    NONE = 0
    LAPLACE = 1
    HUBER = 2
    GAUSSIAN = 3


ROW_COLUMNS = (
    ("kind", "u1"),
    ("noise", "u1"),
    ("price_ticks", "i8"),  # 0 where there is no price
    ("scale_wh", "f8"),  # scale of the noise; 0 where there is none
    ("core_wh", "i8"),  # half-width of the Gaussian core of Huber noise
    ("epsilon_micro", "i8"),  # cost in millionths of epsilon (Laplace, Huber), rounded up
    ("rho_micro", "i8"),  # or of rho (Gaussian), rounded up
    ("total_epsilon_micro", "i8"),  # cost of the zone's chain up to and with this row
    ("total_rho_micro", "i8"),
    ("prev", "h32"),  # hash of the zone's leaf before
)
_NUMPY_TYPES: dict[str, tuple[Any, ...]] = {
    "u1": ("u1",),
    "i4": ("<i4",),
    "i8": ("<i8",),
    "f8": ("<f8",),
    "h32": ("u1", (32,)),
}
ROW_LAYOUT = " ".join(f"{name}:{kind}" for name, kind in ROW_COLUMNS)
MAX_NUMBERS = 1000  # in one column of a row
_COLUMN_TYPE = re.compile("h32|(?P<one>u1|i4|i8|f8)(?:x(?P<count>[1-9][0-9]{0,3}))?")  # several numbers: `i4x22`


@lru_cache(maxsize=64)
def row_dtype(layout: str = ROW_LAYOUT) -> np.dtype[np.void]:
    """Return the type of a row. Columns that this version does not know may follow those that it knows."""
    if layout != ROW_LAYOUT and not layout.startswith(ROW_LAYOUT + " "):
        raise ChainError("row", layout, f"must begin with {ROW_LAYOUT}")
    columns: dict[str, tuple[Any, ...]] = {}
    for name, _, kind in (column.partition(":") for column in layout.split(" ")):
        found = _COLUMN_TYPE.fullmatch(kind)
        if not name.isidentifier() or name in columns or found is None or int(found["count"] or 1) > MAX_NUMBERS:
            words = f"must have columns of the types {', '.join(_NUMPY_TYPES)}, each named once"
            raise ChainError("row", layout, words)
        several = () if found["count"] is None else ((int(found["count"]),),)
        columns[name] = *_NUMPY_TYPES[found["one"] or kind], *several
    return np.dtype([(name, *kind) for name, kind in columns.items()])


@dataclass(frozen=True, slots=True, kw_only=True)
class TileHeader:
    """The signed part of a tile. Interval n is the time from n * interval_s to (n + 1) * interval_s s of UTC."""

    shard: str
    seq: int  # 0, 1, 2, .. in the chain of its shard
    kind: TileKind
    interval: int  # that is released; the last one that was, where nothing is
    interval_s: int  # seconds of an interval
    lead: int  # intervals from `interval` to the one in which its prices are paid
    table: str  # digest of the zone table
    count: int = 0  # rows
    row: str = ROW_LAYOUT
    root: str = NO_ROOT  # of the Merkle tree over the rows
    prev: str  # hash of the tile before
    key: str  # Ed25519 public key that verifies the signature
    next_key: str | None = None  # key of the tiles after this one, where it changes
    extensions: dict[str, Any] = field(default_factory=dict)  # signed; a reader ignores what it does not know

    def members(self) -> dict[str, Any]:
        """Return the members of the header without its signature."""
        return {name: getattr(self, name) for name in _HEADER_FIELDS} | {"murmurate": FORMAT_VERSION}

    def signed_bytes(self) -> bytes:
        """Return what is signed: the header without its signature."""
        return canonical_json(self.members()).encode()


_HEADER_FIELDS = tuple(each.name for each in fields(TileHeader))


_TILE_KINDS = frozenset(TileKind)
_HEADER_TYPES: dict[str, tuple[type, ...]] = {
    "murmurate": (int,),
    "shard": (str,),
    "seq": (int,),
    "kind": (str,),
    "interval": (int,),
    "interval_s": (int,),
    "lead": (int,),
    "table": (str,),
    "count": (int,),
    "row": (str,),
    "root": (str,),
    "prev": (str,),
    "key": (str,),
    "next_key": (str, type(None)),
    "extensions": (dict,),
    "signature": (str,),
}


class RowProof(NamedTuple):
    """Which zone a line is about, and the hashes that prove that its row is in the tile."""

    zone: str
    plan: str  # digest; in force from this tile on
    row_index: int | None = None  # None where the tile is no release
    hashes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Tile:
    """A signed tile: all of its rows, or the row of one zone with its proof (`zone_line`)."""

    header: TileHeader
    signature: str
    rows: Rows
    proof: RowProof | None = None  # None: the rows are all there

    @cached_property
    def header_line(self) -> bytes:
        """The first line, without its end."""
        return canonical_json(self.header.members() | {"signature": self.signature}).encode()

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the header, as 64 hexadecimal digits."""
        return sha256(self.header_line).hexdigest()

    @property
    def key_in_force(self) -> str:
        """Who signs the next tile."""
        return self.header.next_key or self.header.key

    def to_bytes(self) -> bytes:
        return self.header_line + b"\n" + self.rows.tobytes()

    def to_json(self) -> str:
        """Return the line of a zone, without its end. Raises ChainError for a tile with all of its rows."""
        if self.proof is None:
            raise ChainError("tile", self.header.seq, "must be the part of one zone: only that is written as a line")
        return canonical_json(
            {
                "murmurate_zone": FORMAT_VERSION,
                "zone": self.proof.zone,
                "plan": self.proof.plan,
                "row": row_members(self.rows) if len(self.rows) else None,
                "index": self.proof.row_index,
                "proof": list(self.proof.hashes),
                "tile": self.header.members() | {"signature": self.signature},
            }
        )

    def find_root(self, leaf_hashes: list[bytes]) -> str:
        """Return the root that the leaves of the rows lead to; an empty text where the proof of a line does not fit."""
        if self.proof is None:
            return compute_root(leaf_hashes).hex()
        hashes = [bytes.fromhex(each) for each in self.proof.hashes]
        index = -1 if self.proof.row_index is None else self.proof.row_index
        root = root_from_proof(leaf_hashes[0], index, self.header.count, hashes)
        return "" if root is None else root.hex()


def row_members(row: Rows) -> dict[str, Any]:
    """Return a row in words: kind and noise by name, hashes in hexadecimal, the scale as the shortest decimal."""
    members: dict[str, Any] = {}
    for name in row.dtype.names or ():
        value = row[name][0]
        if value.ndim:
            members[name] = value.tobytes().hex() if value.dtype == np.uint8 else value.tolist()
        else:
            members[name] = repr(float(value)) if value.dtype.kind == "f" else int(value)
    return members | {
        "kind": RowKind(members["kind"]).name.lower(),
        "noise": NoiseCode(members["noise"]).name.lower(),
    }


def is_closed_by(header: TileHeader, zone: str) -> bool:
    """Whether a tile closes a zone. Its line in the tile is its last."""
    closing = header.extensions.get(CLOSED, {})
    return header.kind is TileKind.ZONES and isinstance(closing, dict) and zone in closing


def hash_leaves(table: ZoneTable, interval: int, rows: Rows) -> list[bytes]:
    """Return the hash of each leaf: of zone, plan, interval (8 bytes) and row."""
    data, size, at_interval = rows.tobytes(), rows.dtype.itemsize, interval.to_bytes(8, "little", signed=True)
    return [
        sha256(prefix + at_interval + data[at : at + size]).digest()
        for prefix, at in zip(table.leaf_prefixes, range(0, len(data), size), strict=True)
    ]


def hashes_to_array(hashes: list[bytes]) -> Hashes:
    """Return hashes as an array [zone, byte]."""
    return np.frombuffer(b"".join(hashes), np.uint8).reshape(-1, 32)


def sign_tile(header: TileHeader, signer: Signer, rows: Rows | None = None) -> Tile:
    """Return the signed tile. A tile that releases nothing has no rows."""
    return Tile(header, signer.sign(header.signed_bytes()), np.zeros(0, row_dtype()) if rows is None else rows)


def parse_header(line: str) -> tuple[TileHeader, str]:
    """Return the header in a line, and its signature. Raises ChainError unless it is one, in canonical form."""
    members = parse_canonical(line, "header")
    require_types(members, _HEADER_TYPES, "header")
    if members.pop("murmurate") != FORMAT_VERSION:
        raise ChainError("murmurate", line[:40], f"must be version {FORMAT_VERSION}")
    signature = members.pop("signature")
    if not HEX_DIGITS.issuperset(signature):
        raise ChainError("signature", "in another form", "must be lower-case hexadecimal digits")
    if members["kind"] not in _TILE_KINDS:
        raise ChainError("kind", repr(members["kind"]), f"must be one of {', '.join(TileKind)}")
    header = TileHeader(**members | {"kind": TileKind(members["kind"])})
    if header.interval_s < 1 or not 0 <= header.lead <= 10**6 or abs(header.interval) >= 2**62:
        raise ChainError("header", f"of interval {header.interval}", "must have an interval, its seconds and a lead")
    return header, signature


def parse_tile(data: bytes) -> Tile:
    """Return the tile in these bytes. Raises ChainError unless they are exactly those that `to_bytes` gives."""
    line, end, body = data.partition(b"\n")
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise ChainError("header", "not UTF-8", "must be a line of JSON") from None
    header, signature = parse_header(text)
    dtype = row_dtype(header.row)
    if not end or header.count < 0 or len(body) != header.count * dtype.itemsize:
        raise ChainError("rows", f"{len(body)} bytes", f"must be {header.count} rows of {dtype.itemsize} bytes")
    return Tile(header, signature, np.frombuffer(body, dtype))
