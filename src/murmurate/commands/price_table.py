"""A table of prices in a terminal: cheap and dear are seen at once, and the cheapest hours are marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from statistics import fmean
from typing import NamedTuple
from zoneinfo import ZoneInfo

from rich.console import Console

from murmurate.commands.price_text import format_cents, price_unit
from murmurate.units import SECONDS_PER_DAY

CHEAP_HOURS = 3
EXPECTED = "expected"  # a price that is not decided: the plan's forecast, which is not billed
_BAR_WIDTH = 30
_HOUR_S = SECONDS_PER_DAY // 24


class ShownPrice(NamedTuple):
    """What a kilowatt-hour costs in an interval."""

    start_s: int  # of UTC
    end_s: int
    price: float | None  # [currency/kWh]; None: withheld
    ticks: int | None
    tick: str  # [currency/kWh] of one tick; empty where it is not known
    currency: str
    kind: str  # measured, fallback, withheld or expected


@dataclass(frozen=True, slots=True)
class ZonePrices:
    """The prices of a zone in ascending order, and where they come from."""

    zone: str
    currency: str
    time_zone: ZoneInfo
    interval_s: int
    prices: tuple[ShownPrice, ...]
    is_verified: bool
    is_key_given: bool = False


def find_cheapest(prices: Sequence[ShownPrice], from_s: float = float("-inf")) -> list[int]:
    """Return when the cheapest hours begin [s of UTC], in order: three of a day, and never more than one in four.

    An hour is as dear as its intervals in the mean.
    """
    hours: dict[int, list[float]] = {}
    for price in prices:
        if price.price is not None and price.end_s > from_s:
            hours.setdefault(price.start_s // _HOUR_S * _HOUR_S, []).append(price.price)
    means = {at_s: fmean(values) for at_s, values in hours.items()}
    return sorted(sorted(means, key=lambda at_s: (round(means[at_s], 9), at_s))[: min(CHEAP_HOURS, len(means) // 4)])


def print_prices(found: ZonePrices, day: date | None, now_s: float) -> None:
    """Print one line for each interval, by the clock of the zone."""
    console = Console(highlight=False, soft_wrap=True, markup=False)
    when = f"the last {len(found.prices):,} prices" if day is None else f"{day:%A}, {day.day} {day:%B %Y}"
    console.print(f"{found.zone}: {when}, {found.time_zone.key}, in {price_unit(found.currency)}", style="bold")
    cheapest = set(find_cheapest(found.prices))
    values = [price.price for price in found.prices if price.price is not None]
    block = "█" if console.encoding.lower().startswith("utf") else "#"
    for price in found.prices:
        mark = "cheap" if price.start_s // _HOUR_S * _HOUR_S in cheapest and price.price is not None else ""
        now = "<- now" if price.start_s <= now_s < price.end_s else ""
        amount = "withheld" if price.price is None else format_cents(price.price, found.currency)
        bar = block * _bar_length(price.price, values)
        line = f"{_label(found, price.start_s, day)}  {amount:>8}  {bar:<{_BAR_WIDTH}}  {price.kind:<9} {mark:<5} {now}"
        console.print(line.rstrip(), style="green" if mark else "dim" if price.kind == EXPECTED else None)
    for line in _notes(found, day, now_s):
        console.print(line)


def _bar_length(price: float | None, values: Sequence[float]) -> int:
    """From 1 for the cheapest to the full width for the dearest; all are equal: half of it."""
    if price is None:
        return 0
    low, high = min(values), max(values)
    return _BAR_WIDTH // 2 if high <= low else 1 + round((_BAR_WIDTH - 1) * (price - low) / (high - low))


def _label(found: ZonePrices, at_s: int, day: date | None) -> str:
    """The begin of an interval or an hour; with the name of its time where the clock changes in between."""
    ends = (found.prices[0].start_s, found.prices[-1].start_s)
    offsets = {_local(found, each_s).utcoffset() for each_s in ends}
    layout = "%H:%M" if day is not None else "%a %H:%M"
    return _local(found, at_s).strftime(layout if len(offsets) == 1 else f"{layout} %Z")


def _local(found: ZonePrices, at_s: int) -> datetime:
    return datetime.fromtimestamp(at_s, UTC).astimezone(found.time_zone)


def _notes(found: ZonePrices, day: date | None, now_s: float) -> list[str]:
    notes = []
    if cheapest := find_cheapest(found.prices):
        notes = [f"Cheapest hours: {_hours(found, cheapest, day)}."]
    if found.prices[0].start_s <= now_s and (coming := find_cheapest(found.prices, now_s)):
        notes.append(f"Cheapest of those to come: {_hours(found, coming, day)}.")
    kinds = {price.kind for price in found.prices}
    meanings = {
        "fallback": "fallback: decided without a measurement, from the plan's forecast.",
        "withheld": "withheld: decided too late; the tariff says what is paid then.",
        EXPECTED: "expected: not decided yet, and not what is paid: the plan's forecast.",
    }
    notes += [words for kind, words in meanings.items() if kind in kinds]
    if not found.is_verified:
        return [*notes, "Not verified: this is what the server says. --verify checks its signed log first."]
    trust = "" if found.is_key_given else " Its first key was trusted; --key takes the operator's only."
    return [*notes, f"Verified: signatures, chain, plan and costs of the log hold.{trust}"]


def _hours(found: ZonePrices, starts_s: Sequence[int], day: date | None) -> str:
    return ", ".join(_label(found, at_s, day) for at_s in starts_s)
