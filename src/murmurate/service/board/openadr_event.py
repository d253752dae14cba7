"""A local day of prices as one OpenADR 3.1 event, always with all its intervals: what is not decided yet says so."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from typing import Literal

from murmurate.service.board.grid import recent_days, steps_of
from murmurate.service.board.openadr_program import (
    NO_PRICE,
    PRICE,
    PRICE_FORECAST,
    Program,
    descriptors,
    duration,
    programs_of,
)
from murmurate.service.board.view import Price, ZoneView, rfc3339

Operation = Literal["CREATE", "UPDATE"]


@dataclass(frozen=True, slots=True)
class Day:
    """An event that can be made: a program and a local day with a price in it."""

    program: Program
    day: date

    @property
    def id(self) -> str:
        return f"{self.program.id}-{self.day.isoformat()}"

    @property
    def steps(self) -> range:
        return steps_of(self.program.view.sign.timezone, self.day, self.program.step_s)

    @property
    def known(self) -> list[Price]:
        """The prices in it."""
        return [price for step in self.steps for price in _known(self.program, step)]


def days(view: ZoneView) -> list[Day]:
    """The events of a zone's programs that could be made, sorted by program and begin."""
    known = recent_days(view)
    found = [Day(program, day) for program in programs_of(view) for day in known]
    # A day of hours may begin after the last price: where the first hour of UTC is half an hour after a local midnight.
    return [one for one in found if any(True for step in one.steps for _ in _known(one.program, step))]


def events(view: ZoneView) -> list[dict[str, object]]:
    """The events of a zone's programs, sorted by program and begin."""
    return [event_of(day) for day in days(view)]


def changes(view: ZoneView, new: Collection[int]) -> list[tuple[Operation, dict[str, object]]]:
    """The events that the prices of these intervals have changed. One whose prices are all new has just been made."""
    found: list[tuple[Operation, dict[str, object]]] = []
    for day in days(view):
        known = {price.interval for price in day.known}
        if not known.isdisjoint(new):
            found.append(("CREATE" if known <= set(new) else "UPDATE", event_of(day)))
    return found


def notification(operation: Operation, event: dict[str, object]) -> dict[str, object]:
    """What is told of an event: all of it, so that nobody has to come and ask."""
    return {"objectType": "EVENT", "operation": operation, "object": event}


def event_of(day: Day) -> dict[str, object]:
    program, steps = day.program, day.steps
    taken_s = [price.taken_s for price in day.known]
    return {
        "id": day.id,
        "createdDateTime": rfc3339(min(taken_s)),
        "modificationDateTime": rfc3339(max(taken_s)),
        "objectType": "EVENT",
        "programID": program.id,
        "eventName": day.id,
        "priority": None,
        "targets": None,
        "payloadDescriptors": descriptors(program.view),
        "intervalPeriod": _period(program, steps[0]),
        "intervals": [_interval(program, number, step) for number, step in enumerate(steps)],
    }


def _interval(program: Program, number: int, step: int) -> dict[str, object]:
    return {"id": number, "intervalPeriod": _period(program, step), "payloads": _payloads(program, step)}


def _period(program: Program, step: int) -> dict[str, str]:
    """Start and duration, each time: clients differ in what they take over from the event."""
    return {"start": rfc3339(step * program.step_s), "duration": duration(program.step_s)}


def _payloads(program: Program, step: int) -> list[dict[str, object]]:
    """The price of a step: final, or what is expected of it, or none.

    Without a price in one of its intervals a step has none: a mean of the others would be a price that nobody pays.
    """
    view, parts = program.view, _parts(program, step)
    values = [value for interval in parts if (value := _value(view, interval)) is not None]
    if len(values) < len(parts):
        return [{"type": NO_PRICE, "values": [True]}]
    kind = PRICE if parts[-1] <= view.decided else PRICE_FORECAST
    return [{"type": kind, "values": [float(_mean(values))]}]


def _value(view: ZoneView, interval: int) -> Fraction | None:
    """[currency/kWh], exactly: decided or, after that, expected. None: withheld, or before the zone began."""
    if interval > view.decided:
        return view.expected_ticks[interval % len(view.expected_ticks)] * view.tick
    price = view.prices.get(interval)
    return None if price is None or price.ticks is None else price.ticks * price.tick


def _mean(values: list[Fraction]) -> Fraction:
    return sum(values, Fraction()) / len(values)


def _known(program: Program, step: int) -> Iterable[Price]:
    found = (program.view.prices.get(interval) for interval in _parts(program, step))
    return (price for price in found if price is not None)


def _parts(program: Program, step: int) -> range:
    """The intervals of a step: itself, or those of the hour."""
    parts = program.step_s // program.view.interval_s
    return range(step * parts, (step + 1) * parts)
