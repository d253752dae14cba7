"""Green Button (NAESB ESPI 1.1/3.3): an Atom feed of usage points, meter readings, reading types and interval blocks.

The feed is read as a stream, by expat, without a tree: no DTD, no entities, few levels, few elements. Entries come
in any order, so readings wait as text until the whole feed has said what type they are of.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn
from xml.parsers import expat

from murmurate.errors import ReadingError
from murmurate.service.doors.slip import Refusals, Slip
from murmurate.service.doors.values import (
    LONGEST_LINE,
    MOST_SECONDS,
    NANO,
    floored_wh,
    interval_start_s,
    meter_name,
    parse_numeral,
    refuse,
)

MOST_ELEMENTS = 2_000_000  # eight years of quarter-hours
MOST_ENTRIES = 100_000
MOST_LEVELS = 32
_LONGEST_LINK = 2048
_FEED, _ENTRY, _LINK = (f"http://www.w3.org/2005/Atom {name}" for name in ("feed", "entry", "link"))
_ESPI = "http://naesb.org/espi "
_READING = f"{_ESPI}IntervalReading"
_RESOURCES = frozenset(f"{_ESPI}{name}" for name in ("UsagePoint", "MeterReading", "ReadingType", "IntervalBlock"))
_OF_A_TYPE = frozenset({"accumulationBehaviour", "flowDirection", "powerOfTenMultiplier", "uom"})
_IN_TIME, _IN_READING = f"{_ESPI}timePeriod {_ESPI}", f"{_READING} {_ESPI}"
_OF_A_READING = {f"{_IN_TIME}start": 0, f"{_IN_TIME}duration": 1, f"{_IN_READING}value": 2}
_BLOCK = re.compile(r"((?:.*/)?UsagePoint/([^/]+)/MeterReading/[^/]+)/IntervalBlock(?:/[^/]*)?")
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_WH, _DELIVERED, _RECEIVED, _DELTA = "72", "1", "19", "4"
_TOTALS = frozenset({"1", "2", "3", "9"})  # bulk, continuously cumulative, cumulative, summation
_MOST_POWER = 12
_Raw = tuple[str | None, str | None, str | None]  # an IntervalReading as it stood: start, duration, value


@dataclass(slots=True)
class _Entry:
    """An Atom entry: what it is, what it is called, what it points to, and what it holds."""

    kind: str = ""
    link: str = ""  # rel="self"
    up: str = ""
    related: list[str] = field(default_factory=list)
    said: dict[str, str] = field(default_factory=dict)  # of a ReadingType
    readings: list[tuple[int, _Raw]] = field(default_factory=list)  # ordinal in the feed, from 1

    def below(self) -> tuple[str, str]:
        """Of an IntervalBlock: its MeterReading's link and its UsagePoint's name."""
        found = _BLOCK.fullmatch(self.link) or _BLOCK.fullmatch(self.up)
        return (found[1], found[2]) if found else ("", "")


_Entries = Mapping[str, _Entry]  # by link, or by the last part of it


class _Feed:
    """The handlers that expat calls."""

    def __init__(self) -> None:
        self.entries: list[_Entry] = []
        self.readings = 0
        self._path: list[str] = []
        self._elements = 0
        self._entry = _Entry()
        self._raw: list[str | None] = [None, None, None]
        self._text = ""

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        """Begin an element."""
        self._elements += 1
        if len(self._path) >= MOST_LEVELS or self._elements > MOST_ELEMENTS or len(self.entries) > MOST_ENTRIES:
            most = f"{MOST_LEVELS} levels, {MOST_ENTRIES} entries and {MOST_ELEMENTS} elements"
            raise ReadingError("feed", "too large", f"must have at most {most}")
        stray = (name == _ENTRY and len(self._path) != 1) or (name == _READING and self._path[1:2] != [_ENTRY])
        if stray or (name == _FEED) != (not self._path):
            raise ReadingError("body", "not Green Button", "must be one Atom feed of entries")
        self._path.append(name)
        self._text = ""
        if name == _ENTRY:
            self._entry = _Entry()
            self.entries.append(self._entry)
        elif name == _LINK:
            self._link(attributes)
        elif name == _READING:
            self._raw = [None, None, None]
        elif name in _RESOURCES:
            self._entry.kind = name.removeprefix(_ESPI)

    def _link(self, attributes: Mapping[str, str]) -> None:
        href = attributes.get("href", "").partition("?")[0].rstrip("/")
        if len(href) > _LONGEST_LINK:
            raise ReadingError("link", "too long", f"must have at most {_LONGEST_LINK} characters")
        rel = attributes.get("rel")
        self._entry.link = href if rel == "self" else self._entry.link
        self._entry.up = href if rel == "up" else self._entry.up
        self._entry.related += [href] if rel == "related" else []

    def text(self, some: str) -> None:
        """Keep what a number may need and one character more, to see that it is none."""
        self._text += some[: LONGEST_LINE + 1 - len(self._text)]

    def end(self, name: str) -> None:
        """End an element, and keep what it said if that matters."""
        self._path.pop()
        text, self._text = self._text.strip(), ""
        parent = self._path[-1] if self._path else ""
        if name == _READING:
            self.readings += 1
            start, duration, value = self._raw
            self._entry.readings.append((self.readings, (start, duration, value)))
            self._raw = [None, None, None]  # for a reading around this one, if anybody writes such
        elif (place := _OF_A_READING.get(f"{parent} {name}")) is not None:
            self._raw[place] = text if self._raw[place] is None else ""  # twice is none
        elif parent == f"{_ESPI}ReadingType" and (said := name.removeprefix(_ESPI)) in _OF_A_TYPE:
            self._entry.said[said] = text
        elif name == _ENTRY:
            self._entry = _Entry()

    def named(self, kind: str) -> dict[str, _Entry]:
        """The entries of a kind by the last part of their link. Raises ReadingError if that means two things."""
        found: dict[str, _Entry] = {}
        for entry in self.entries:
            if entry.kind == kind:
                first = found.setdefault(entry.link.rpartition("/")[2], entry)
                if (first.link, first.said) != (entry.link, entry.said):
                    raise ReadingError(kind, "ambiguous", "must have a link whose last part no other has")
        return found


def espi_readings(body: bytes, *, interval_s: int) -> tuple[Slip, Refusals]:
    """The readings of a feed. A meter is the last part of its UsagePoint's link, a line the ordinal of a reading."""
    feed = _parse(body)
    points, types = feed.named("UsagePoint"), feed.named("ReadingType")
    meters = {entry.link: entry for entry in feed.entries if entry.kind == "MeterReading"}
    rows: list[tuple[str, int, int, int, str | None]] = []
    refused: Refusals = {}
    for block in (entry for entry in feed.entries if entry.readings):
        meter, power, why = _block(block, points, meters, types)
        for line, raw in block.readings:
            if why:
                refuse(refused, line, why)
                continue
            try:
                start_s, energy_wh = _reading(raw, power, interval_s)
            except ReadingError as error:
                refuse(refused, line, str(error))
            else:
                rows.append((meter, start_s, energy_wh, line, None))
    return Slip.of(rows), refused


def _block(block: _Entry, points: _Entries, meters: _Entries, types: _Entries) -> tuple[str, int, str]:
    """Meter and power of ten of a block's readings, or why they are all refused."""
    name = block.below()[1]
    if name not in points:
        return "", 0, "IntervalBlock is of no UsagePoint: must have a self link below a UsagePoint of the feed"
    try:
        return meter_name(name), _power(_type(block, meters, types)), ""
    except ReadingError as error:
        return "", 0, str(error)


def _parse(body: bytes) -> _Feed:
    feed = _Feed()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = _no_doctype
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = feed.start, feed.end, feed.text
    try:
        parser.Parse(body, True)  # noqa: FBT003 - expat's parameter has no name
    except (expat.ExpatError, ValueError, LookupError):
        raise ReadingError("body", "not XML", "must be a well-formed Atom feed") from None
    return feed


def _no_doctype(*_: object) -> NoReturn:
    raise ReadingError("body", "with a DOCTYPE", "must have none: entities are how a small feed becomes a large one")


def _type(block: _Entry, meters: _Entries, types: _Entries) -> _Entry:
    """By the link from its MeterReading; without one, the only type there is."""
    related = meters.get(block.below()[0], _Entry()).related
    names = {link.rpartition("/")[2] for link in related if "/ReadingType/" in f"/{link}"} or set(types)
    if len(names) != 1 or not names <= types.keys():
        raise ReadingError("IntervalBlock", "of no ReadingType", "must have a MeterReading that links to its one type")
    return types[names.pop()]


def _power(kind: _Entry) -> int:
    """The power of ten of a type, if it is energy [Wh] that was delivered, each interval for itself."""
    if kind.said.get("uom") != _WH:
        raise ReadingError("uom", "another unit", f"must be {_WH}, that is Wh")
    if kind.said.get("flowDirection") != _DELIVERED:
        received = kind.said.get("flowDirection") == _RECEIVED
        raise ReadingError("flowDirection", "received" if received else "another", "must be 1, that is delivered")
    if kind.said.get("accumulationBehaviour") != _DELTA:
        totals = kind.said.get("accumulationBehaviour") in _TOTALS
        hint = "must be 4, that is deltaData" + ("; send totals to the register door" if totals else "")
        raise ReadingError("accumulationBehaviour", "cumulative" if totals else "another", hint)
    power = kind.said.get("powerOfTenMultiplier", "0")
    if not _NUMBER.fullmatch(power) or abs(int(power)) > _MOST_POWER:
        raise ReadingError("powerOfTenMultiplier", "out of range", f"must lie between -{_MOST_POWER} and {_MOST_POWER}")
    return int(power)


def _reading(raw: _Raw, power: int, interval_s: int) -> tuple[int, int]:
    """Begin [s of UTC] and energy [Wh], rounded down. The value is a number of any size."""
    start, duration, value = (text or "" for text in raw)
    number = parse_numeral(value)
    if number is None or not _NUMBER.fullmatch(start) or not _NUMBER.fullmatch(duration):
        raise ReadingError("reading", "not whole", "must have start and duration in whole seconds, and a value")
    start_s, duration_s = int(start), int(duration)
    if not 0 <= start_s < MOST_SECONDS:
        raise ReadingError("start", "no time", "must be seconds since 1970")
    if duration_s != interval_s:
        many = duration_s > 0 and duration_s % interval_s == 0
        what = "several intervals long, and nobody knows its parts" if many else "of another length"
        raise ReadingError("reading", what, f"covers another stretch than an interval of {interval_s} s")
    return interval_start_s(start_s * NANO, interval_s), floored_wh("value", number, power)
