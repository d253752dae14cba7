"""A local day of prices as one OpenADR 3.1 event, always with all its intervals: what is not decided yet says so."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from typing import Literal

from murmurate.service.log_reader.zone_view import Price, ZoneView, format_rfc3339
from murmurate.service.public_api.formats.openadr_program import (
    PAYLOAD_NO_PRICE,
    PAYLOAD_PRICE,
    PAYLOAD_PRICE_FORECAST,
    Program,
    iso_duration,
    payload_descriptors,
    programs_of_zone,
)
from murmurate.service.public_api.local_days import recent_days, steps_of_day

NotificationOperation = Literal["CREATE", "UPDATE"]


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
    def known_prices(self) -> list[Price]:
        """The prices in it."""
        return [price for step in self.steps for price in _known_prices(self.program, step)]


def event_days(view: ZoneView) -> list[EventDay]:
    """The events of a zone's programs that could be made, sorted by program and begin."""
    known = recent_days(view)
    found = [EventDay(program, day) for program in programs_of_zone(view) for day in known]
    # A day of hours may begin after the last price: where the first hour of UTC is half an hour after a local midnight.
    return [one for one in found if any(True for step in one.steps for _ in _known_prices(one.program, step))]


def event_documents(view: ZoneView) -> list[dict[str, object]]:
    """The events of a zone's programs, sorted by program and begin."""
    return [event_document(day) for day in event_days(view)]


def changed_events(
    view: ZoneView, new_intervals: Collection[int]
) -> list[tuple[NotificationOperation, dict[str, object]]]:
    """The events that the prices of these intervals have changed. One whose prices are all new has just been made."""
    found: list[tuple[NotificationOperation, dict[str, object]]] = []
    for day in event_days(view):
        known = {price.interval for price in day.known_prices}
        if not known.isdisjoint(new_intervals):
            found.append(("CREATE" if known <= set(new_intervals) else "UPDATE", event_document(day)))
    return found


def notification_document(operation: NotificationOperation, event: dict[str, object]) -> dict[str, object]:
    """The notification of an event. It holds the whole event, so that the client need not fetch it."""
    return {"objectType": "EVENT", "operation": operation, "object": event}


def event_document(day: EventDay) -> dict[str, object]:
    program, steps = day.program, day.steps
    taken_s = [price.logged_s for price in day.known_prices]
    return {
        "id": day.id,
        "createdDateTime": format_rfc3339(min(taken_s)),
        "modificationDateTime": format_rfc3339(max(taken_s)),
        "objectType": "EVENT",
        "programID": program.id,
        "eventName": day.id,
        "priority": None,
        "targets": None,
        "payloadDescriptors": payload_descriptors(program.view),
        "intervalPeriod": _period(program, steps[0]),
        "intervals": [_interval(program, number, step) for number, step in enumerate(steps)],
    }


def _interval(program: Program, number: int, step: int) -> dict[str, object]:
    return {"id": number, "intervalPeriod": _period(program, step), "payloads": _payloads(program, step)}


def _period(program: Program, step: int) -> dict[str, str]:
    """Start and duration, each time: clients differ in what they take over from the event."""
    return {"start": format_rfc3339(step * program.step_s), "duration": iso_duration(program.step_s)}


def _payloads(program: Program, step: int) -> list[dict[str, object]]:
    """The price of a step: final, or what is expected of it, or none.

    Without a price in one of its intervals a step has none: a mean of the others would be a price that is never paid.
    """
    view, parts = program.view, _intervals_of_step(program, step)
    values = [value for interval in parts if (value := _exact_price(view, interval)) is not None]
    if len(values) < len(parts):
        return [{"type": PAYLOAD_NO_PRICE, "values": [True]}]
    kind = PAYLOAD_PRICE if parts[-1] <= view.last_decided else PAYLOAD_PRICE_FORECAST
    return [{"type": kind, "values": [float(_mean(values))]}]


def _exact_price(view: ZoneView, interval: int) -> Fraction | None:
    """[currency/kWh], exactly: decided or, after that, expected. None: withheld, or before the zone began."""
    if interval > view.last_decided:
        return view.expected_ticks[interval % len(view.expected_ticks)] * view.tick
    price = view.prices.get(interval)
    return None if price is None or price.ticks is None else price.ticks * price.tick


def _mean(values: list[Fraction]) -> Fraction:
    return sum(values, Fraction()) / len(values)


def _known_prices(program: Program, step: int) -> Iterable[Price]:
    found = (program.view.prices.get(interval) for interval in _intervals_of_step(program, step))
    return (price for price in found if price is not None)


def _intervals_of_step(program: Program, step: int) -> range:
    """The intervals of a step: itself, or those of the hour."""
    parts = program.step_s // program.view.interval_s
    return range(step * parts, (step + 1) * parts)
