"""A second implementation of the rules of tiles, written from the public description of the log.

Tiles are bytes and zone tables are texts, as a reader of the log gets them. This file imports nothing from `murmurate`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from struct import Struct
from typing import Any, NamedTuple

HEADER_MEMBERS = {
    "murmurate": int,
    "shard": str,
    "seq": int,
    "kind": str,
    "interval": int,
    "interval_s": int,
    "lead": int,
    "table": str,
    "count": int,
    "row": str,
    "root": str,
    "prev": str,
    "key": str,
    "next_key": (str, type(None)),
    "extensions": dict,
    "signature": str,
}
LAYOUT = (
    "kind:u1 noise:u1 price_ticks:i8 scale_wh:f8 core_wh:i8 epsilon_micro:i8 rho_micro:i8 "
    "total_epsilon_micro:i8 total_rho_micro:i8 prev:h32"
)
ROW = Struct("<BBqdqqqqq32s")
MEASURED, FORECAST, WITHHELD, PUBLIC = 1, 2, 3, 4
LAPLACE, HUBER, GAUSSIAN = 1, 2, 3
NOTHING = "0" * 64
ROW_MEMBERS = {"zone", "plan", "currency", "tick", "since"}
TOTALS = {"total_epsilon_micro", "total_rho_micro"}

Header = dict[str, Any]
Table = dict[str, Any]


class Row(NamedTuple):
    """One row of a release."""

    kind: int
    noise: int
    price_ticks: int
    scale_wh: float
    core_wh: int
    epsilon_micro: int
    rho_micro: int
    total_epsilon_micro: int
    total_rho_micro: int
    prev: bytes
    noisy_wh: int = 0
    states: tuple[int, ...] = ()  # of a predicted price
    due: tuple[int, ...] = ()


class Place(NamedTuple):
    """Where the chain of a zone stands: the hash of its last leaf, and its totals."""

    leaf: bytes
    epsilon_micro: int
    rho_micro: int


START = Place(bytes(32), 0, 0)  # where a zone stands before its first row


class Head(NamedTuple):
    """The last tile of a shard, and where its zones stand after it."""

    header: Header
    hash: str
    table: Table
    places: dict[str, Place]  # by zone
    rows: dict[str, Row]  # by zone; empty unless the tile is a release


class BrokenRuleError(Exception):
    """A tile breaks a rule, which is named."""


def require(rule: str, *holds: bool) -> None:
    """Raise BrokenRuleError unless all hold."""
    if not all(holds):
        raise BrokenRuleError(rule)


def broken_rule(head: Head | None, tile: bytes, table_text: str) -> str | None:
    """Return the rule that a tile breaks as the next one after `head`, or None. The signature is not checked."""
    try:
        follow(head, tile, table_text)
    except BrokenRuleError as broken:
        return str(broken)
    return None


def follow(head: Head | None, tile: bytes, table_text: str) -> Head:
    """Return the head after a tile. Raises BrokenRuleError if it may not follow. The signature is not checked."""
    line, _, body = tile.partition(b"\n")
    header, table = parse_header(line.decode()), parse_table(table_text)
    releases = header["kind"] == "release"
    require("table digest", header["table"] == sha256(table_text.encode()).hexdigest())
    has_states = header["row"] != LAYOUT
    require("rows", header["row"] in (LAYOUT, predicted_layout(header["lead"])), releases or not has_states)
    require("rows", len(body) == header["count"] * row_struct(header).size)
    require("count", header["count"] == (len(table["zones"]) if releases else 0))
    require("next_key", (header["next_key"] is not None) == (header["kind"] == "key"))
    require("root", releases or header["root"] == NOTHING)
    if head is None:
        require("opening", header["kind"] == "open", header["seq"] == 0, header["prev"] == NOTHING)
    else:
        require("ended", bool(head.table["zones"]))
        _check_successor(head, header)
    require("closed", header["kind"] == "zones" or "closed" not in header["extensions"])
    tile_hash = sha256(line).hexdigest()
    if releases and head is not None:
        places, rows = _release(head, header, body)
        return Head(header, tile_hash, table, places, rows)
    places = dict(head.places) if head is not None else {}
    if header["kind"] in ("open", "zones"):
        places = _change_table(head, header, table)
    return Head(header, tile_hash, table, places, {})


def predicted_layout(lead: int) -> str:
    """Return the layout of rows in a shard with predicted prices."""
    return f"{LAYOUT} noisy_wh:i8 states:i4x28" + (f" due:i8x{lead - 1}" if lead > 1 else "")


def row_struct(header: Header) -> Struct:
    """Return how a row is packed."""
    further = "" if header["row"] == LAYOUT else f"q28i{max(header['lead'] - 1, 0)}q"
    return Struct(ROW.format + further)


def parse_header(line: str) -> Header:
    """Return the members of a header. Raises BrokenRuleError unless it is one."""
    header = json.loads(line)
    require("canonical", dump(header) == line)
    require("members", header.keys() == HEADER_MEMBERS.keys(), header.get("murmurate") == 1)
    for name, types in HEADER_MEMBERS.items():
        require("type", isinstance(header[name], types), not isinstance(header[name], bool))
    require("signature", not set(header["signature"]) - set("0123456789abcdef"))
    require("kind", header["kind"] in ("open", "zones", "key", "release"))
    require("time", header["interval_s"] >= 1, 0 <= header["lead"] <= 10**6, abs(header["interval"]) < 2**62)
    return header


@lru_cache(maxsize=256)
def parse_table(text: str) -> Table:
    """Return the members of a zone table, to be read only. Raises BrokenRuleError unless it is one."""
    table = json.loads(text)
    require("canonical", dump(table) == text)
    require("table members", table.keys() - {"closed"} == {"murmurate_zones", "zones"}, table["murmurate_zones"] == 1)
    require("table members", table.get("closed") != [])
    closed = table.get("closed", [])
    zones, ended = ([row["zone"] for row in rows] for rows in (table["zones"], closed))
    require("zones", zones == sorted(set(zones)), ended == sorted(set(ended)), not set(zones) & set(ended))
    require("zones", 1 <= len(zones) + len(ended) <= 1000)
    require("names", all(1 <= len(name.encode()) <= 200 for name in (*zones, *ended)))
    for row in table["zones"]:
        require("row", row.keys() == ROW_MEMBERS, is_hash(row["plan"]))
    for row in closed:
        require("row", row.keys() == ROW_MEMBERS | {"last"} | TOTALS, is_hash(row["plan"]))
        require("last", row["since"] - 1 <= row["last"] < 2**62)
        require("total", all(0 <= row[total] < 2**63 for total in TOTALS))
    return table


def is_hash(text: str) -> bool:
    """Return whether a text is 64 hexadecimal digits."""
    return len(text) == 64 and not set(text) - set("0123456789abcdef")


def dump(members: dict[str, Any]) -> str:
    """Return the canonical text of a JSON object."""
    return json.dumps(members, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def signed_bytes(header: Header) -> bytes:
    """Return what the signature of a header is for: the header without it."""
    return dump({name: value for name, value in header.items() if name != "signature"}).encode()


def signed_hash(body: bytes, key: str, verify: Callable[[str, bytes, str], bool]) -> str | None:
    """Return the hash of a tile, if a key has signed its header; None otherwise."""
    line = body.partition(b"\n")[0]
    header = json.loads(line)
    is_signed = "signature" in header and verify(key, signed_bytes(header), header["signature"])
    return sha256(line).hexdigest() if is_signed else None


def _check_successor(head: Head, header: Header) -> None:
    last = head.header
    expected = {
        "shard": last["shard"],
        "seq": last["seq"] + 1,
        "prev": head.hash,
        "key": last["next_key"] or last["key"],
        "interval": last["interval"] + (1 if header["kind"] == "release" else 0),
        "interval_s": last["interval_s"],
        "lead": last["lead"],
    }
    if header["kind"] != "zones":
        expected["table"] = last["table"]
    require("opened twice", header["kind"] != "open")
    for name, value in expected.items():
        require(name, header[name] == value)


def _change_table(head: Head | None, header: Header, table: Table) -> dict[str, Place]:
    rows = {row["zone"]: row for row in table["zones"]}
    require("closed", head is not None or "closed" not in table)
    if head is not None:
        _check_closed(head, header, table)
        for before in head.table["zones"]:
            if before["zone"] not in rows:
                continue
            now = rows[before["zone"]]
            require("since", now["since"] == before["since"])
            price = (now["currency"], now["tick"]) == (before["currency"], before["tick"])
            require("tick", price or now["plan"] != before["plan"])
    places: dict[str, Place] = {}
    for zone, row in rows.items():
        if head is not None and zone in head.places:
            places[zone] = head.places[zone]
            continue
        require("enters", row["since"] == header["interval"] + 1)
        places[zone] = START
    return places


def _check_closed(head: Head, header: Header, table: Table) -> None:
    """A zone that leaves is closed with what it has spent, after the last interval; one that was closed stays so."""
    rows = {row["zone"] for row in table["zones"]}
    ended, stated = {row["zone"]: row for row in head.table.get("closed", [])}, {}
    for row in head.table["zones"]:
        if row["zone"] not in rows:
            _, epsilon_micro, rho_micro = head.places[row["zone"]]
            stated[row["zone"]] = {"total_epsilon_micro": epsilon_micro, "total_rho_micro": rho_micro}
            ended[row["zone"]] = row | {"last": header["interval"]} | stated[row["zone"]]
    require("zone left", {row["zone"]: row for row in table.get("closed", [])} == ended)
    require("closed", header["extensions"].get("closed", {}) == stated)


def _release(head: Head, header: Header, body: bytes) -> tuple[dict[str, Place], dict[str, Row]]:
    places, rows, leaves = {}, {}, []
    packed = row_struct(header)
    for number, its in enumerate(head.table["zones"]):
        zone, data = its["zone"], body[number * packed.size : (number + 1) * packed.size]
        numbers = packed.unpack(data)
        noisy_wh = numbers[10] if len(numbers) > 10 else 0
        row = rows[zone] = Row(*numbers[:10], noisy_wh, numbers[11:39], numbers[39:])
        _check_row(row)
        before = head.places[zone]
        require("prev of a row", row.prev == before.leaf)
        require("total_epsilon_micro", row.total_epsilon_micro == before.epsilon_micro + row.epsilon_micro)
        require("total_rho_micro", row.total_rho_micro == before.rho_micro + row.rho_micro)
        leaves.append(leaf_hash(zone, its["plan"], header["interval"], data))
        places[zone] = Place(leaves[-1], row.total_epsilon_micro, row.total_rho_micro)
    require("root", header["root"] == merkle_root(leaves).hex())
    return places, rows


def leaf_hash(zone: str, plan: str, interval: int, row: bytes) -> bytes:
    """Return the hash of a leaf."""
    name = zone.encode()
    prefix = b"\0" + len(name).to_bytes(2, "little") + name + bytes.fromhex(plan)
    return sha256(prefix + interval.to_bytes(8, "little", signed=True) + row).digest()


def merkle_root(leaves: list[bytes]) -> bytes:
    """Return the root of RFC 9162: the left half is the largest power of two below the number of leaves."""
    if len(leaves) == 1:
        return leaves[0]
    half = 1
    while half * 2 < len(leaves):
        half *= 2
    return sha256(b"\1" + merkle_root(leaves[:half]) + merkle_root(leaves[half:])).digest()


def _check_row(row: Row) -> None:
    require("row kind", row.kind in (MEASURED, FORECAST, WITHHELD, PUBLIC))
    require("price", row.kind != WITHHELD or row.price_ticks == 0)
    if row.kind != MEASURED:
        require("noisy_wh", row.noisy_wh == 0)
        require("noise", row.noise == 0, row.scale_wh == 0, row.core_wh == 0)
        require("cost", row.epsilon_micro == 0, row.rho_micro == 0)
        return
    require("noise", row.noise in (LAPLACE, HUBER, GAUSSIAN), 0 < row.scale_wh < float("inf"))
    require("core", row.core_wh >= 0, row.core_wh == 0 or row.noise == HUBER)
    spent, other = row.epsilon_micro, row.rho_micro
    if row.noise == GAUSSIAN:
        spent, other = other, spent
    require("cost", spent >= 0, other == 0)
