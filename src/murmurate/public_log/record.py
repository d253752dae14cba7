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
from murmurate.public_log.signing import Signer

RECORD_VERSION = 1
GENESIS_PREV = "0" * 64  # what the first record of a chain names as the one before

canonical_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


class RecordKind(StrEnum):
    """What a record decides."""

    OPEN = "open"  # a chain begins
    PLAN = "plan"  # another plan from the next interval on
    KEY = "key"  # another key from the next record on
    MEASURED = "measured"  # a price from the noised demand of its interval
    FORECAST = "forecast"  # the plan's forecast price: uses no reading, costs nothing
    WITHHELD = "withheld"  # no price: it would have come too late


_RECORD_KINDS = frozenset(RecordKind)
RELEASE_KINDS = frozenset({RecordKind.MEASURED, RecordKind.FORECAST, RecordKind.WITHHELD})


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One decision. Interval n is the time from n * interval_s to (n + 1) * interval_s seconds of UTC since 1970."""

    zone: str
    seq: int  # 0, 1, 2, .. in the chain of its zone
    kind: RecordKind
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
    key: str  # Ed25519 public key that verifies the signature
    next_key: str | None = None  # key of the records after this one, where it changes
    prev: str  # SHA-256 of the line before

    def signed_text(self) -> str:
        """What is signed, in UTF-8."""
        return canonical_json(
            dict(zip(_RECORD_MEMBERS, _member_values(self), strict=True)) | {"murmurate": RECORD_VERSION}
        )


_RECORD_MEMBERS = tuple(field.name for field in fields(Record))
_member_values = attrgetter(*_RECORD_MEMBERS)
_NONE_TYPE = type(None)
_TYPES_BY_HINT = {
    "str": (str,),
    "int": (int,),
    "RecordKind": (str,),
    "int | None": (int, _NONE_TYPE),
    "str | None": (str, _NONE_TYPE),
}
_MEMBER_TYPES = {field.name: _TYPES_BY_HINT[str(field.type)] for field in fields(Record)}
_SIGNATURE_SUFFIX = ',"signature":"{}"}}'
_SIGNED_LINE = re.compile(r'(.*),"signature":"([0-9a-f]*)"}', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Entry:
    """A signed record: one line of the public log, and its hash."""

    record: Record
    signature: str
    line: str
    hash: str

    def signed_bytes(self) -> bytes:
        """What the signature is for: the line without it."""
        return (self.line[: -len(_SIGNATURE_SUFFIX.format(self.signature))] + "}").encode()

    @property
    def key_in_force(self) -> str:
        """Who signs the next record."""
        return self.record.next_key or self.record.key

    @property
    def lead_intervals(self) -> int:
        return self.record.applies - self.record.interval


def sign_record(record: Record, signer: Signer) -> Entry:
    """The line of the public log for a record."""
    text = record.signed_text()
    return _make_entry(record, text, signer.sign(text.encode()))


def _make_entry(record: Record, text: str, signature: str) -> Entry:
    line = text[:-1] + _SIGNATURE_SUFFIX.format(signature)
    return Entry(record, signature, line, sha256(line.encode()).hexdigest())


def parse_entry(line: str) -> Entry:
    """The entry in a line. Raises ChainError unless the line has exactly the bytes that `sign` would give it.

    >>> parse_entry("{}")
    Traceback (most recent call last):
    murmurate.errors.ChainError: line is '{}': must be a record of version 1
    """
    try:
        text, signature = _SIGNED_LINE.fullmatch(line).groups()  # type: ignore[union-attr]
        members = json.loads(text + "}")
        known = members.pop("murmurate") == RECORD_VERSION and members.keys() == _MEMBER_TYPES.keys()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        known = False
    if not known or any(
        type(value) is bool or not isinstance(value, _MEMBER_TYPES[name]) for name, value in members.items()
    ):
        raise ChainError("line", _shorten(line), f"must be a record of version {RECORD_VERSION}")
    if members["kind"] not in _RECORD_KINDS:
        raise ChainError("kind", repr(members["kind"]), f"must be one of {', '.join(RecordKind)}")
    record = Record(**members | {"kind": RecordKind(members["kind"])})
    text = record.signed_text()
    if text[:-1] + _SIGNATURE_SUFFIX.format(signature) != line or not _is_utf8(line):
        raise ChainError("line", _shorten(line), "must be in canonical form: sorted members, no spaces, UTF-8")
    return _make_entry(record, text, signature)


def _is_utf8(line: str) -> bool:
    """Half of a surrogate pair has no bytes."""
    try:
        line.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shorten(line: str) -> str:
    return repr(line if len(line) <= 80 else f"{line[:80]}…")
