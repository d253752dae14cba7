"""A zone's tariff in OpenADR 3.1: programs of its own intervals and of hours, and an event for each local day.

An event always has all its intervals: one that is not decided yet is marked as such. Everything is a function of the
public log, so that two servers give the same answer and an id outlives both of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from functools import cache, lru_cache
from hashlib import sha256
from typing import Literal
from urllib.parse import quote

import numpy as np

from murmurate.service.log_reader.zone_view import ZoneView, ZoneViews, format_rfc3339
from murmurate.service.public_api.local_days import recent_days, steps_of_day
from murmurate.units import IntArray

PAYLOAD_PRICE = "PRICE"
PAYLOAD_PRICE_FORECAST = "PRICE_FORECAST"  # a private type: no client takes it for a price that has to be paid
PAYLOAD_NO_PRICE = "NO_PRICE"  # likewise; some clients refuse a whole list for one interval without a payload
HOUR_S = 3600
OPENADR_TOPIC_PREFIX = "OpenADR/3.1.0/programs"

_MAX_SLUG_LENGTH = 100  # of the 128 characters of an id, which also has to hold a duration and a date
_SLUG_ESCAPE_PATTERN = re.compile(rb"[^A-Za-z0-9-]")

OPENADR_BASE_PATH = "/openadr3/3.1.0"


@dataclass(frozen=True, slots=True)
class Program:
    """A zone's prices in steps of one length."""

    view: ZoneView
    step_s: int

    @property
    def id(self) -> str:
        return f"{zone_slug(self.view.zone)}-{iso_duration(self.step_s)}"

    @property
    def is_native(self) -> bool:
        """A mean of the hour is for planning; what has to be paid is the price of the interval."""
        return self.step_s == self.view.interval_s


def programs_of_zone(view: ZoneView) -> list[Program]:
    """The program of the zone's own intervals and, where these are parts of an hour, its companion; sorted by id."""
    has_companion = view.interval_s < HOUR_S and HOUR_S % view.interval_s == 0
    steps_s = (view.interval_s, HOUR_S) if has_companion else (view.interval_s,)
    return sorted((Program(view, step_s) for step_s in steps_s), key=lambda program: program.id)


def payload_descriptors(currency: str) -> list[dict[str, object]]:
    """What the numbers mean: a client that does not know the private type leaves it alone."""
    same = {"objectType": "EVENT_PAYLOAD_DESCRIPTOR", "units": "KWH", "currency": currency}
    priced: list[dict[str, object]] = [
        {"payloadType": payload, **same} for payload in (PAYLOAD_PRICE, PAYLOAD_PRICE_FORECAST)
    ]
    return [*priced, {"payloadType": PAYLOAD_NO_PRICE, "objectType": "EVENT_PAYLOAD_DESCRIPTOR"}]


def notifier_topics(program_id: str) -> dict[str, dict[str, str]]:
    """Where the broker tells of a program's events. ALL is a filter that matches each of the others, and them alone."""
    names = {"CREATE": "create", "UPDATE": "update", "DELETE": "delete", "ALL": "+"}
    return {
        "topics": {operation: f"{OPENADR_TOPIC_PREFIX}/{program_id}/events/{name}" for operation, name in names.items()}
    }


def zone_slug(zone: str) -> str:
    """A zone's name in the letters of an id. What is not one becomes its bytes, so no two zones meet.

    A long one ends in a hash. Two underscores in a row say so: an escape never has them.

    >>> zone_slug("fish market"), zone_slug("Zürich_1")
    ('fish_20market', 'Z_C3_BCrich_5F1')
    """
    escaped = _SLUG_ESCAPE_PATTERN.sub(lambda found: b"_%02X" % ord(found[0]), zone.encode()).decode()
    if len(escaped) <= _MAX_SLUG_LENGTH:
        return escaped
    end = f"__{sha256(zone.encode()).hexdigest()}"
    return escaped[: _MAX_SLUG_LENGTH - len(end)] + end


@cache
def iso_duration(seconds: int) -> str:
    """A stretch of time as ISO 8601 writes it.

    >>> iso_duration(900), iso_duration(3600), iso_duration(5430)
    ('PT15M', 'PT1H', 'PT1H30M30S')
    """
    parts = ((seconds // HOUR_S, "H"), (seconds // 60 % 60, "M"), (seconds % 60, "S"))
    return "PT" + "".join(f"{number}{unit}" for number, unit in parts if number)


def program_document(program: Program, base_url: str) -> dict[str, object]:
    """Return a program as OpenADR has it. That of a closed zone ends with its last price; an open one has no end."""
    view = program.view
    opened_s = view.start_s(view.row.since)  # the first interval that was decided for it
    changed_s = opened_s if view.closed is None else view.start_s(view.closed.last + 1)
    first_s = view.start_s(view.first_priced)
    length_s = view.start_s(view.last_decided + 1) - first_s
    period: dict[str, object] = {}
    if view.closed is not None and length_s:
        period = {"intervalPeriod": {"start": format_rfc3339(first_s), "duration": iso_duration(length_s)}}
    country = [] if view.display.country is None else [("COUNTRY", view.display.country)]
    attributes = [*country, ("LOCATION", view.zone), ("BINDING_EVENTS", program.is_native)]
    return {
        "id": program.id,
        "createdDateTime": format_rfc3339(opened_s),
        "modificationDateTime": format_rfc3339(changed_s),
        "objectType": "PROGRAM",
        "programName": program.id,
        "programDescriptions": [{"URL": f"{base_url.rstrip('/')}/zones/{quote(view.zone, safe='')}"}],
        "payloadDescriptors": payload_descriptors(view.currency),
        "attributes": [{"type": name, "values": [value]} for name, value in attributes],
        "targets": None,
        **period,
    }


ProgramGroups = tuple[list[str], IntArray]  # a program's id for each group; by program, its group


class ProgramIndex:
    """From ids of programs to zones. The sorted list of all ids is made when it is asked for."""

    def __init__(self, views: ZoneViews) -> None:
        self._views = views
        self._zone_by_slug: dict[str, str] = {}
        self._ids: list[str] = []
        self._unlisted: list[str] = []  # zones whose programs are not in `_ids` yet
        self._groups: tuple[int, int, ProgramGroups] | None = None  # of a table version and a number of programs

    def add_zones(self, zones: Iterable[str]) -> None:
        """Add zones that are new. Their views must be there."""
        for zone in zones:
            slug = zone_slug(zone)
            self._zone_by_slug[zone if slug == zone else slug] = zone  # usually one text for both
            self._unlisted.append(zone)

    def find(self, program_id: str) -> Program | None:
        """The program with an id."""
        view = self._views.get(self.zone_of(program_id) or "")
        programs = [] if view is None else programs_of_zone(view)
        return next((program for program in programs if program.id == program_id), None)

    def zone_of(self, object_id: str) -> str | None:
        """The zone of a program or an event, by its id."""
        return self._zone_by_slug.get(object_id.rpartition("-PT")[0])

    @property
    def ids(self) -> Sequence[str]:
        """The ids of all programs, sorted: paging needs an order, and the standard names none."""
        if self._unlisted:
            new = sorted(program.id for zone in self._unlisted for program in programs_of_zone(self._views[zone]))
            self._ids = sorted([*self._ids, *new])  # two runs: merged in linear time
            self._unlisted = []
        return self._ids

    @property
    def groups(self) -> ProgramGroups:
        """All programs by the days of their events: zones of a shard that were opened together share them.

        They are the same until a zone table changes.
        """
        ids, version = self.ids, self._views.table_version
        if self._groups is None or self._groups[:2] != (version, len(ids)):
            by_key: dict[object, int] = {}
            examples: list[str] = []
            numbers = np.zeros(len(ids), np.int64)
            for at, program_id in enumerate(ids):
                slug, _, duration = program_id.rpartition("-PT")
                view = self._views[self._zone_by_slug[slug]]
                last = view.closed and view.closed.last
                key = (view.shard.name, view.row.since, last, view.display.timezone.key, duration)
                numbers[at] = group = by_key.setdefault(key, len(by_key))
                if group == len(examples):
                    examples.append(program_id)
            self._groups = version, len(ids), (examples, numbers)
        return self._groups[2]


NotificationOperation = Literal["CREATE", "UPDATE"]
_NO_PRICE: list[dict[str, object]] = [{"type": PAYLOAD_NO_PRICE, "values": [True]}]
_NO_PRICE_JSON = json.dumps(_NO_PRICE[0], separators=(",", ":")) + "]}"
_Ratio = tuple[int, int] | None  # numerator and denominator of a price [currency/kWh]; None: there is none
_StepPrice = tuple[str, float | None]  # type of the payload, and the price [currency/kWh]; None: there is none


@dataclass(frozen=True, slots=True)
class EventDay:
    """An event that can be made: a program and a local day with a price in it."""

    program: Program
    day: date

    @property
    def id(self) -> str:
        return f"{self.program.id}-{self.day.isoformat()}"

    @property
    def steps(self) -> range:
        return steps_of_day(self.program.view.display.timezone, self.day, self.program.step_s)

    @property
    def intervals(self) -> range:
        """The intervals of its steps: as many, or those of each hour."""
        parts, steps = self.program.step_s // self.program.view.interval_s, self.steps
        return range(steps.start * parts, steps.stop * parts)

    @property
    def known_intervals(self) -> range:
        """Those whose prices the view has."""
        return _overlap(self.intervals, self.program.view.known_intervals)


def event_days(program: Program) -> list[EventDay]:
    """The events of a program that could be made, sorted by day.

    A day of hours may begin after the last price: where the first hour of UTC is half an hour after a local midnight.
    """
    return [each for day in recent_days(program.view) if (each := EventDay(program, day)).known_intervals]


def changed_events(view: ZoneView, new_intervals: range) -> list[tuple[NotificationOperation, EventDay]]:
    """The events that the prices of these intervals have changed. One whose prices are all new has just been made."""
    found: list[tuple[NotificationOperation, EventDay]] = []
    for day in (EventDay(program, day) for program in programs_of_zone(view) for day in recent_days(view)):
        if not _overlap(day.intervals, new_intervals):
            continue
        known = day.known_intervals
        new = _overlap(known, new_intervals)
        if new:
            found.append(("CREATE" if new == known else "UPDATE", day))
    return found


def notification_json(operation: NotificationOperation, day: EventDay) -> str:
    """The notification of an event. It holds the whole event, so that the client need not fetch it.

    It is `event_document` in OpenADR's envelope, as text. Text is made piece by piece, from pieces that many events
    share: each price changes two events of each zone, and a document of a hundred intervals takes ten times as long.
    """
    steps = day.steps
    members, payloads = _event_parts(day)
    begins = _interval_beginnings(day.program.step_s, steps.start, steps.stop)
    intervals = ",".join(
        [
            begin + _NO_PRICE_JSON if mean is None else f'{begin}{{"type":"{kind}","values":[{mean!r}]}}]}}'
            for begin, (kind, mean) in zip(begins, payloads, strict=True)
        ]
    )
    event = json.dumps(members, separators=(",", ":"))
    return f'{{"objectType":"EVENT","operation":"{operation}","object":{event[:-1]},"intervals":[{intervals}]}}}}'


def event_document(day: EventDay) -> dict[str, object]:
    """An event as OpenADR has it. Parts that many events share are the same objects: change none of them."""
    members, payloads = _event_parts(day)
    steps = day.steps
    periods = _periods(day.program.step_s, steps.start, steps.stop)
    intervals = [
        {
            "id": number,
            "intervalPeriod": period,
            "payloads": _NO_PRICE if mean is None else [{"type": kind, "values": [mean]}],
        }
        for number, (period, (kind, mean)) in enumerate(zip(periods, payloads, strict=True))
    ]
    return members | {"intervals": intervals}


def _event_parts(day: EventDay) -> tuple[dict[str, object], list[_StepPrice]]:
    """Return the members of an event but its intervals, and the price of each step: final, expected, or none.

    Without a price in one of its intervals a step has none: a mean of the others would be a price that is never paid.
    """
    program, steps = day.program, day.steps
    prices, logged_s = _decided_or_expected(day)
    members: dict[str, object] = {
        "id": day.id,
        "createdDateTime": format_rfc3339(min(logged_s)),
        "modificationDateTime": format_rfc3339(max(logged_s)),
        "objectType": "EVENT",
        "programID": program.id,
        "eventName": day.id,
        "priority": None,
        "targets": None,
        "payloadDescriptors": payload_descriptors(program.view.currency),
        "intervalPeriod": _periods(program.step_s, steps.start, steps.stop)[0],
    }
    parts = program.step_s // program.view.interval_s
    if parts == 1:
        means = [None if ratio is None else ratio[0] / ratio[1] for ratio in prices]
    else:
        means = [_mean(prices[end - parts : end]) for end in range(parts, len(prices) + 1, parts)]
    final = max(0, (program.view.last_decided + 1 - day.intervals.start) // parts)
    kinds = (PAYLOAD_PRICE if number < final else PAYLOAD_PRICE_FORECAST for number in range(len(means)))
    return members, list(zip(kinds, means, strict=True))


@lru_cache(maxsize=512)
def _periods(step_s: int, first: int, end: int) -> list[dict[str, str]]:
    """Start and duration of each step: clients differ in what they take over from the event."""
    return [{"start": format_rfc3339(n * step_s), "duration": iso_duration(step_s)} for n in range(first, end)]


@lru_cache(maxsize=512)
def _interval_beginnings(step_s: int, first: int, end: int) -> list[str]:
    """The text of each interval up to its payload."""
    periods = [json.dumps(period, separators=(",", ":")) for period in _periods(step_s, first, end)]
    return [f'{{"id":{number},"intervalPeriod":{period},"payloads":[' for number, period in enumerate(periods)]


def _decided_or_expected(day: EventDay) -> tuple[list[_Ratio], list[float]]:
    """The price of each interval, exactly: decided or, after that, expected. And when the log took those decided.

    There is none where it was withheld, before the zone began, or after it was closed.
    """
    view, intervals, known = day.program.view, day.intervals, day.known_intervals
    decided = view.exact_prices(known)
    prices: list[_Ratio] = [None] * (known.start - intervals.start)
    last, numerator, denominator = None, 1, 1
    for ticks, tick, _ in decided:
        if tick is not last:
            last, numerator, denominator = tick, tick.numerator, tick.denominator
        prices.append(None if ticks is None else (ticks * numerator, denominator))
    if view.closed is not None:
        prices += [None] * (intervals.stop - known.stop)
    elif known.stop < intervals.stop:
        expected = view.terms.expected_ticks(range(known.stop, intervals.stop), view.lead_intervals)
        numerator, denominator = view.tick.numerator, view.tick.denominator
        prices += [(ticks * numerator, denominator) for ticks in expected]
    return prices, [at_s for _, _, at_s in decided]


def _mean(prices: list[_Ratio]) -> float | None:
    """The double nearest to the mean; None where a price is missing."""
    ratios = [ratio for ratio in prices if ratio is not None]
    if len(ratios) < len(prices):
        return None
    denominator = ratios[0][1]
    if all(other == denominator for _, other in ratios):
        return sum(numerator for numerator, _ in ratios) / (denominator * len(ratios))
    return float(sum(Fraction(*ratio) for ratio in ratios) / len(ratios))


def _overlap(one: range, other: range) -> range:
    return range(max(one.start, other.start), min(one.stop, other.stop))
