"""A local day of prices as one OpenADR 3.1 event, always with all its intervals: what is not decided yet says so."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from functools import lru_cache
from typing import Literal

import numpy as np

from murmurate.service.log_reader.zone_view import ZoneView, format_rfc3339
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
    def intervals(self) -> range:
        """The intervals of its steps: as many, or those of each hour."""
        parts, steps = self.program.step_s // self.program.view.interval_s, self.steps
        return range(steps.start * parts, steps.stop * parts)

    @property
    def known_intervals(self) -> range:
        """Those whose prices are at hand."""
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
    """The members of an event but its intervals, and what each of those says."""
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
    return members, _step_prices(day, prices)


@lru_cache(maxsize=512)
def _periods(step_s: int, first: int, end: int) -> list[dict[str, str]]:
    """Start and duration of each step: clients differ in what they take over from the event."""
    return [{"start": format_rfc3339(n * step_s), "duration": iso_duration(step_s)} for n in range(first, end)]


@lru_cache(maxsize=512)
def _interval_beginnings(step_s: int, first: int, end: int) -> list[str]:
    """The text of each interval up to its payload."""
    periods = [json.dumps(period, separators=(",", ":")) for period in _periods(step_s, first, end)]
    return [f'{{"id":{number},"intervalPeriod":{period},"payloads":[' for number, period in enumerate(periods)]


_Ratio = tuple[int, int] | None  # numerator and denominator of a price [currency/kWh]; None: there is none


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
        expected, tick, lead = view.terms.forecast_ticks, view.tick, view.lead_intervals
        slots = np.arange(known.stop - lead, intervals.stop - lead) % len(expected)
        numerator, denominator = tick.numerator, tick.denominator
        prices += [(ticks * numerator, denominator) for ticks in expected[slots].tolist()]
    return prices, [at_s for _, _, at_s in decided]


_StepPrice = tuple[str, float | None]  # type of the payload, and the price [currency/kWh]; None: there is none


def _step_prices(day: EventDay, prices: list[_Ratio]) -> list[_StepPrice]:
    """The price of each step: final, or what is expected of it, or none.

    Without a price in one of its intervals a step has none: a mean of the others would be a price that is never paid.
    """
    parts = day.program.step_s // day.program.view.interval_s
    decided = day.program.view.last_decided + 1 - day.intervals.start  # intervals
    means = (
        [None if ratio is None else ratio[0] / ratio[1] for ratio in prices]
        if parts == 1
        else [_mean(prices[end - parts : end]) for end in range(parts, len(prices) + 1, parts)]
    )
    final = max(0, decided // parts)
    return [(PAYLOAD_PRICE if number < final else PAYLOAD_PRICE_FORECAST, mean) for number, mean in enumerate(means)]


_NO_PRICE: list[dict[str, object]] = [{"type": PAYLOAD_NO_PRICE, "values": [True]}]
_NO_PRICE_JSON = json.dumps(_NO_PRICE[0], separators=(",", ":")) + "]}"


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
