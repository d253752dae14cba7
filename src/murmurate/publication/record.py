"""What is published: one record for each decision about a zone, in bytes that mean the same to everybody.

A record is a JSON object with sorted members, no spaces, whole numbers and strings (UTF-8). Its bytes are signed; the
line of the log is those bytes with the signature put before the closing brace, and the SHA-256 of that line is what the
next record of the zone names as `prev`. All that a zone stands on is in its last line: the head of a chain is a
function of one line. Members never change their meaning: a new meaning is a new version. They are listed in
docs/reference/public-log.md.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from enum import StrEnum
from hashlib import sha256
from operator import attrgetter

from murmurate.errors import ChainError
from murmurate.publication.signing import Signer

VERSION = 1
NOBODY = "0" * 64  # what the first record of a chain names as the one before

encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


class Kind(StrEnum):
    """What a record decides."""

    OPEN = "open"  # a chain begins
    PLAN = "plan"  # another plan from the next interval on
    KEY = "key"  # another key from the next record on
    MEASURED = "measured"  # a price from the noised demand of its interval
    FORECAST = "forecast"  # the plan's forecast price: uses no reading, costs nothing
    WITHHELD = "withheld"  # no price: it would have come too late


_KINDS = frozenset(Kind)
RELEASES = frozenset({Kind.MEASURED, Kind.FORECAST, Kind.WITHHELD})


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One decision. Interval n is the time from n * interval_s to (n + 1) * interval_s seconds of UTC since 1970."""

    zone: str
    seq: int  # 0, 1, 2, .. in the chain of its zone
    kind: Kind
    interval: int  # whose demand was priced; the last decided one where nothing is
    applies: int  # the interval in which the price is paid: a fixed lead after `interval`
    interval_s: int  # seconds of an interval
    plan: str  # SHA-256 of the plan that it was made under
    currency: str
    tick: str  # one price step [currency/kWh], as a fraction
    price_ticks: int | None = None
    noise: str = "none"  # the mechanism: laplace, gaussian, huber or none
    scale_wh: str | None = None  # scale of the noise [Wh], the shortest decimal of a double
    core_wh: int = 0  # how far the Gaussian core of Huber noise reaches [Wh]
    epsilon_micro: int = 0  # cost of this record in millionths of epsilon (Laplace, Huber), rounded up
    rho_micro: int = 0  # or of rho, zero-concentrated privacy (Gaussian), rounded up
    total_epsilon_micro: int = 0  # cost of the chain up to and with this record
    total_rho_micro: int = 0
    key: str  # Ed25519 public key of whoever signed it
    next_key: str | None = None  # and of whoever signs from now on, where that changes
    prev: str  # SHA-256 of the line before

    def text(self) -> str:
        """What is signed, in UTF-8."""
        return encode(dict(zip(_MEMBERS, _values(self), strict=True)) | {"murmurate": VERSION})


_MEMBERS = tuple(field.name for field in fields(Record))
_values = attrgetter(*_MEMBERS)
_NONE = type(None)
_OF_HINT = {"str": (str,), "int": (int,), "Kind": (str,), "int | None": (int, _NONE), "str | None": (str, _NONE)}
_TYPES = {field.name: _OF_HINT[str(field.type)] for field in fields(Record)}
_SIGNATURE = ',"signature":"{}"}}'
_SIGNED = re.compile(r'(.*),"signature":"([0-9a-f]*)"}', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Entry:
    """A signed record: one line of the public log, and its hash."""

    record: Record
    signature: str
    line: str
    hash: str

    def signed_bytes(self) -> bytes:
        """What the signature is for: the line without it."""
        return (self.line[: -len(_SIGNATURE.format(self.signature))] + "}").encode()

    @property
    def key(self) -> str:
        """Who signs the next record."""
        return self.record.next_key or self.record.key

    @property
    def lead(self) -> int:
        return self.record.applies - self.record.interval


def sign(record: Record, signer: Signer) -> Entry:
    """The line of the public log for a record."""
    text = record.text()
    return _entry(record, text, signer.sign(text.encode()))


def _entry(record: Record, text: str, signature: str) -> Entry:
    line = text[:-1] + _SIGNATURE.format(signature)
    return Entry(record, signature, line, sha256(line.encode()).hexdigest())


def read(line: str) -> Entry:
    """The entry in a line. Raises ChainError unless the line has exactly the bytes that `sign` would give it.

    >>> read("{}")
    Traceback (most recent call last):
    murmurate.errors.ChainError: line is '{}': must be a record of version 1
    """
    try:
        text, signature = _SIGNED.fullmatch(line).groups()  # type: ignore[union-attr]
        members = json.loads(text + "}")
        known = members.pop("murmurate") == VERSION and members.keys() == _TYPES.keys()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        known = False
    if not known or any(type(value) is bool or not isinstance(value, _TYPES[name]) for name, value in members.items()):
        raise ChainError("line", _shown(line), f"must be a record of version {VERSION}")
    if members["kind"] not in _KINDS:
        raise ChainError("kind", repr(members["kind"]), f"must be one of {', '.join(Kind)}")
    record = Record(**members | {"kind": Kind(members["kind"])})
    text = record.text()
    if text[:-1] + _SIGNATURE.format(signature) != line or not _is_utf8(line):
        raise ChainError("line", _shown(line), "must be in canonical form: sorted members, no spaces, UTF-8")
    return _entry(record, text, signature)


def _is_utf8(line: str) -> bool:
    """Half of a surrogate pair has no bytes."""
    try:
        line.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(line: str) -> str:
    return repr(line if len(line) <= 80 else f"{line[:80]}…")
