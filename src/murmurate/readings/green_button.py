"""Green Button (NAESB ESPI 1.1/3.3): an Atom feed of usage points, meter readings, reading types and interval blocks.

Expat reads the feed as a stream, without a tree: no DTD, no entities, few levels, few elements. Entries come in any
order, so readings are kept as text until the type of each is known. Service and import use this one reader.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn
from xml.parsers import expat

from murmurate.errors import ReadingError
from murmurate.readings.batch import BatchRow, ReadingBatch, Refusals, add_refusal
from murmurate.readings.field_values import (
    INTEGER_PATTERN,
    MAX_READING_LINE_BYTES,
    MAX_UNIX_TIME_S,
    MAX_WH,
    NANOSECONDS_PER_SECOND,
    floor_to_wh,
    interval_start_s,
    parse_meter_name,
    parse_numeral,
)

MAX_FEED_ELEMENTS = 2_000_000  # eight years of quarter-hours
MAX_FEED_ENTRIES = 100_000
MAX_FEED_DEPTH = 32
_MAX_LINK_LENGTH = 2048
_FEED, _ENTRY, _LINK = (f"http://www.w3.org/2005/Atom {name}" for name in ("feed", "entry", "link"))
_ESPI = "http://naesb.org/espi "
_INTERVAL_READING = f"{_ESPI}IntervalReading"
_RESOURCES = frozenset(f"{_ESPI}{name}" for name in ("UsagePoint", "MeterReading", "ReadingType", "IntervalBlock"))
_READING_TYPE_FIELDS = frozenset({"accumulationBehaviour", "flowDirection", "powerOfTenMultiplier", "uom"})
_TIME_PERIOD_PATH, _INTERVAL_READING_PATH = f"{_ESPI}timePeriod {_ESPI}", f"{_INTERVAL_READING} {_ESPI}"
_INTERVAL_READING_FIELDS = {
    f"{_TIME_PERIOD_PATH}start": 0,
    f"{_TIME_PERIOD_PATH}duration": 1,
    f"{_INTERVAL_READING_PATH}value": 2,
}
_INTERVAL_BLOCK_LINK = re.compile(r"((?:.*/)?UsagePoint/([^/]+)/MeterReading/[^/]+)/IntervalBlock(?:/[^/]*)?")
_UOM_WH, _DELIVERED, _RECEIVED, _DELTA_DATA = "72", "1", "19", "4"
_CUMULATIVE_BEHAVIOURS = frozenset({"1", "2", "3", "9"})  # bulk, continuously cumulative, cumulative, summation
_ONE_DIRECTION = (
    "reading is delivered or received alone: a feed with received energy must have both for each interval of the meter"
)
_MAX_POWER_OF_TEN = 12
_HOUR_S = 3600
_RawReading = tuple[str | None, str | None, str | None]  # an IntervalReading as it stood: start, duration, value


@dataclass(slots=True)
class _AtomEntry:
    """An Atom entry."""

    kind: str = ""
    link: str = ""  # rel="self"
    up: str = ""
    related: list[str] = field(default_factory=list)
    type_fields: dict[str, str] = field(default_factory=dict)  # of a ReadingType
    readings: list[tuple[int, _RawReading]] = field(default_factory=list)  # ordinal in the feed, from 1

    def parent_ids(self) -> tuple[str, str]:
        """Return the link of the MeterReading and the name of the UsagePoint of an IntervalBlock."""
        match = _INTERVAL_BLOCK_LINK.fullmatch(self.link) or _INTERVAL_BLOCK_LINK.fullmatch(self.up)
        return (match[1], match[2]) if match else ("", "")


_AtomEntries = Mapping[str, _AtomEntry]  # by link, or by the last part of it


class _FeedParser:
    """The entries of a feed, from the handlers that expat calls. Raises ReadingError if it is not Green Button."""

    def __init__(self, body: bytes) -> None:
        self.entries: list[_AtomEntry] = []
        self.readings = 0
        self._path: list[str] = []
        self._elements = 0
        self._entry = _AtomEntry()
        self._raw: list[str | None] = [None, None, None]
        self._text = ""
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = self.reject_doctype
        parser.StartElementHandler, parser.EndElementHandler = self.start_element, self.end_element
        parser.CharacterDataHandler = self.character_data
        try:
            parser.Parse(body, True)  # noqa: FBT003 - expat's parameter has no name
        except (expat.ExpatError, ValueError, LookupError):
            raise ReadingError("body", "not XML", "must be a well-formed Atom feed") from None

    def reject_doctype(self, *_: object) -> NoReturn:
        raise ReadingError(
            "body", "with a DOCTYPE", "must have none: entities are how a small feed becomes a large one"
        )

    def start_element(self, name: str, attributes: Mapping[str, str]) -> None:
        """Begin an element."""
        self._elements += 1
        if (
            len(self._path) >= MAX_FEED_DEPTH
            or self._elements > MAX_FEED_ELEMENTS
            or len(self.entries) > MAX_FEED_ENTRIES
        ):
            most = f"{MAX_FEED_DEPTH} levels, {MAX_FEED_ENTRIES} entries and {MAX_FEED_ELEMENTS} elements"
            raise ReadingError("feed", "too large", f"must have at most {most}")
        stray = (name == _ENTRY and len(self._path) != 1) or (name == _INTERVAL_READING and self._path[1:2] != [_ENTRY])
        if stray or (name == _FEED) != (not self._path):
            raise ReadingError("body", "not Green Button", "must be one Atom feed of entries")
        self._path.append(name)
        self._text = ""
        if name == _ENTRY:
            self._entry = _AtomEntry()
            self.entries.append(self._entry)
        elif name == _LINK:
            href = attributes.get("href", "").partition("?")[0].rstrip("/")
            if len(href) > _MAX_LINK_LENGTH:
                raise ReadingError("link", "too long", f"must have at most {_MAX_LINK_LENGTH} characters")
            if (rel := attributes.get("rel")) == "related":
                self._entry.related.append(href)
            elif rel in {"self", "up"}:
                setattr(self._entry, "link" if rel == "self" else "up", href)
        elif name == _INTERVAL_READING:
            self._raw = [None, None, None]
        elif name in _RESOURCES:
            self._entry.kind = name.removeprefix(_ESPI)

    def character_data(self, data: str) -> None:
        """Keep the characters of a number, and one more than the longest number has."""
        self._text += data[: MAX_READING_LINE_BYTES + 1 - len(self._text)]

    def end_element(self, name: str) -> None:
        """End an element, and keep its text if a reading or its type needs it."""
        self._path.pop()
        text, self._text = self._text.strip(), ""
        parent = self._path[-1] if self._path else ""
        if name == _INTERVAL_READING:
            self.readings += 1
            start, duration, value = self._raw
            self._entry.readings.append((self.readings, (start, duration, value)))
            self._raw = [None, None, None]  # for a reading around this one
        elif (column := _INTERVAL_READING_FIELDS.get(f"{parent} {name}")) is not None:
            self._raw[column] = text if self._raw[column] is None else ""  # twice is none
        elif parent == f"{_ESPI}ReadingType" and (field_name := name.removeprefix(_ESPI)) in _READING_TYPE_FIELDS:
            self._entry.type_fields[field_name] = text
        elif name == _ENTRY:
            self._entry = _AtomEntry()

    def entries_by_name(self, kind: str) -> dict[str, _AtomEntry]:
        """Return the entries of a kind by the last part of their link. Raises ReadingError if two differ."""
        by_name: dict[str, _AtomEntry] = {}
        for entry in self.entries:
            if entry.kind == kind:
                first = by_name.setdefault(entry.link.rpartition("/")[2], entry)
                if (first.link, first.type_fields) != (entry.link, entry.type_fields):
                    raise ReadingError(kind, "ambiguous", "must have a link whose last part no other has")
        return by_name


def parse_green_button(body: bytes, *, interval_s: int) -> tuple[ReadingBatch, Refusals]:
    """Parse a feed whose readings are one interval long. A line is the ordinal of a reading.

    Of a UsagePoint that also receives, a reading is delivered minus received energy of one interval. Both must be in
    the feed: an interval with one of the two is refused. Of repeated ones the largest difference counts.
    """
    readings, refused = read_feed(body, interval_s)
    exporting = {row[0] for _, is_export, row in readings if is_export}
    rows = [row for _, _, row in readings if row[0] not in exporting]
    by_interval: dict[tuple[str, int], tuple[list[BatchRow], list[BatchRow]]] = {}
    for _, is_export, row in readings:
        if row[0] in exporting:
            by_interval.setdefault((row[0], row[1]), ([], []))[is_export].append(row)
    for (meter, start_s), (delivered, received) in by_interval.items():
        if delivered and received:
            net_wh = max(row[2] for row in delivered) - min(row[2] for row in received)
            rows.append((meter, start_s, min(max(net_wh, -MAX_WH), MAX_WH), delivered[0][3], None))
            continue
        for row in (*delivered, *received):
            add_refusal(refused, row[3], _ONE_DIRECTION)
    return ReadingBatch.from_rows(sorted(rows, key=lambda row: row[3])), refused


def read_feed(body: bytes, interval_s: int | None) -> tuple[list[tuple[int, bool, BatchRow]], Refusals]:
    """Return the readings of a feed, each with its length [s] and whether it is received energy, and the refused ones.

    A meter is the last part of the link of its UsagePoint. With `interval_s` None, a reading may have any length that
    divides an hour.
    """
    feed = _FeedParser(body)
    points, types = feed.entries_by_name("UsagePoint"), feed.entries_by_name("ReadingType")
    meters = {entry.link: entry for entry in feed.entries if entry.kind == "MeterReading"}
    readings: list[tuple[int, bool, BatchRow]] = []
    refused: Refusals = {}
    for block in (entry for entry in feed.entries if entry.readings):
        name = block.parent_ids()[1]
        meter, power, is_export, reason = "", 0, False, ""
        if name not in points:
            reason = "IntervalBlock is of no UsagePoint: must have a self link below a UsagePoint of the feed"
        else:
            try:
                meter, (power, is_export) = parse_meter_name(name), _power_and_direction(block, meters, types)
            except ReadingError as error:
                reason = str(error)
        for line, raw in block.readings:
            if reason:
                add_refusal(refused, line, reason)
                continue
            try:
                length_s, start_s, energy_wh = _parse_reading(raw, power, interval_s)
            except ReadingError as error:
                add_refusal(refused, line, str(error))
            else:
                readings.append((length_s, is_export, (meter, start_s, energy_wh, line, None)))
    return readings, refused


def _power_and_direction(block: _AtomEntry, meters: _AtomEntries, types: _AtomEntries) -> tuple[int, bool]:
    """Return the power of ten of the type that the MeterReading of a block links to, and whether energy is received.

    Without a link, it is the only type of the feed. Raises ReadingError unless it is energy [Wh], delivered or
    received, of one interval.
    """
    related = meters.get(block.parent_ids()[0], _AtomEntry()).related
    names = {link.rpartition("/")[2] for link in related if "/ReadingType/" in f"/{link}"} or set(types)
    if len(names) != 1 or not names <= types.keys():
        raise ReadingError("IntervalBlock", "of no ReadingType", "must have a MeterReading that links to its one type")
    fields = types[names.pop()].type_fields
    if fields.get("uom") != _UOM_WH:
        raise ReadingError("uom", "another unit", f"must be {_UOM_WH}, that is Wh")
    if fields.get("flowDirection") not in {_DELIVERED, _RECEIVED}:
        raise ReadingError("flowDirection", "another", "must be 1, that is delivered, or 19, that is received")
    if fields.get("accumulationBehaviour") != _DELTA_DATA:
        totals = fields.get("accumulationBehaviour") in _CUMULATIVE_BEHAVIOURS
        hint = "must be 4, that is deltaData" + ("; send totals to the MQTT register topic" if totals else "")
        raise ReadingError("accumulationBehaviour", "cumulative" if totals else "another", hint)
    power = fields.get("powerOfTenMultiplier", "0")
    if not INTEGER_PATTERN.fullmatch(power) or abs(int(power)) > _MAX_POWER_OF_TEN:
        raise ReadingError(
            "powerOfTenMultiplier", "out of range", f"must lie between -{_MAX_POWER_OF_TEN} and {_MAX_POWER_OF_TEN}"
        )
    return int(power), fields["flowDirection"] == _RECEIVED


def _parse_reading(raw: _RawReading, power: int, interval_s: int | None) -> tuple[int, int, int]:
    """Return length [s], begin [s of UTC] and energy [Wh], rounded down. The value is a number of any size."""
    start, duration, value = (text or "" for text in raw)
    number = parse_numeral(value)
    if number is None or not INTEGER_PATTERN.fullmatch(start) or not INTEGER_PATTERN.fullmatch(duration):
        raise ReadingError("reading", "not whole", "must have start and duration in whole seconds, and a value")
    start_s, duration_s = int(start), int(duration)
    if not 0 <= start_s < MAX_UNIX_TIME_S:
        raise ReadingError("start", "no time", "must be seconds since 1970")
    if interval_s is None and not (duration_s > 0 and _HOUR_S % duration_s == 0):
        raise ReadingError("reading", "of another length", "must cover an hour or a part of it")
    if interval_s is not None and duration_s != interval_s:
        is_multiple = duration_s > 0 and duration_s % interval_s == 0
        what = "several intervals long" if is_multiple else "of another length"
        raise ReadingError("reading", what, f"covers another stretch than an interval of {interval_s} s")
    begin_s = interval_start_s(start_s * NANOSECONDS_PER_SECOND, duration_s)
    return duration_s, begin_s, floor_to_wh("value", number, power)
