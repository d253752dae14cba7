"""A zone's tariff as OpenADR 3.1 programs: one of its own intervals, and one of hours for clients that count in hours.

Everything is a function of the public log, so that two servers tell the same and an id outlives both of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from urllib.parse import quote

from murmurate.service.log_reader.zone_view import ZoneView, format_rfc3339

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
    """A program as OpenADR has it. That of a zone that was closed ends with its last price."""
    view = program.view
    opened = format_rfc3339(view.opened_s)
    changed_s = view.opened_s if view.closed is None else view.start_s(view.closed.last + 1)
    return {
        "id": program.id,
        "createdDateTime": opened,
        "modificationDateTime": format_rfc3339(changed_s),
        "objectType": "PROGRAM",
        "programName": program.id,
        "programDescriptions": [{"URL": f"{base_url.rstrip('/')}/zones/{quote(view.zone, safe='')}"}],
        "payloadDescriptors": payload_descriptors(view.currency),
        "attributes": _attributes(program),
        "targets": None,
        **_period(view),
    }


def _period(view: ZoneView) -> dict[str, object]:
    """When the prices of a zone that was closed began and ended. One that is open has no end."""
    length_s = view.start_s(view.last_decided + 1) - view.start_s(view.first_priced)
    if view.closed is None or not length_s:
        return {}
    start = format_rfc3339(view.start_s(view.first_priced))
    return {"intervalPeriod": {"start": start, "duration": iso_duration(length_s)}}


def _attributes(program: Program) -> list[dict[str, object]]:
    country = program.view.display.country
    known = [] if country is None else [("COUNTRY", country)]
    pairs = [*known, ("LOCATION", program.view.zone), ("BINDING_EVENTS", program.is_native)]
    return [{"type": name, "values": [value]} for name, value in pairs]
