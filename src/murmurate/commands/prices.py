"""`murmurate prices`: the prices of a zone, from a server's address or from a log that is verified first.

Cheap and dear are seen at once, and the cheapest hours are marked. A service gives the same prices as CSV and Parquet
(`/zones/{zone}/history.csv`).
"""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from io import StringIO
from pathlib import Path
from statistics import fmean
from typing import Annotated, NamedTuple
from urllib.parse import quote, unquote, urlsplit, urlunsplit
from zoneinfo import ZoneInfo

import typer

from murmurate.errors import MurmurateError
from murmurate.operations.console import format_cents, format_utc, price_unit, print_json, stdout
from murmurate.operations.log_source import fetch_bytes, read_verified_zone
from murmurate.operations.options import AsJson, LogPlans
from murmurate.public_log.noised_demand import DemandTerms
from murmurate.public_log.tile import RowKind
from murmurate.service.public_api.local_days import steps_of_day
from murmurate.time_zones import load_time_zone
from murmurate.units import SECONDS_PER_DAY

CHEAP_HOURS = 3
EXPECTED = "expected"  # a price that is not decided: the plan's forecast, which is not billed
_BAR_WIDTH = 30
_HOUR_S = SECONDS_PER_DAY // 24
_NO_ZONE = "is there a zone of this name? /zones lists them"
_NO_SERVICE = "must be that of a zone of a murmurate service; what is there answers otherwise"


def show_prices(
    source: Annotated[
        str, typer.Argument(help="Address of a zone, or a log as verify takes it: file, folder, - or URL.")
    ],
    zone: Annotated[str | None, typer.Option(help="Zone, where the source does not name it.")] = None,
    day: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%d"], metavar="YYYY-MM-DD", help="Local day; by default today.")
    ] = None,
    last: Annotated[int | None, typer.Option(help="The last N prices instead of a day.", min=1)] = None,
    time_zone: Annotated[str | None, typer.Option("--timezone", help="Clock to show; by default the zone's.")] = None,
    key: Annotated[str | None, typer.Option(help="The key that must have opened the log; implies --verify.")] = None,
    plans: LogPlans = None,
    *,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check the log of an address first; others always are.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the prices of a local day, or the last ones that were decided."""
    now_s, wanted = time.time(), None if day is None else day.date()
    address = _find_zone_address(source, zone)
    if address is not None:
        source, zone = f"{address}/log.jsonl", unquote(address.rpartition("/")[2])
    elif zone is None:
        raise MurmurateError("--zone", "missing", "name the zone of this log, for example --zone harbour")
    if address is not None and not verify and key is None:
        found = _fetch_prices(address, zone, wanted)
    else:
        found = _read_log(source, zone, plans or [], key, now_s)
    if time_zone is not None:
        found = replace(found, time_zone=load_time_zone(time_zone))
    wanted = wanted or found.local(now_s).date()
    if last is not None:
        shown = [price for price in found.prices if price.kind != EXPECTED][-last:]
    else:
        intervals = steps_of_day(found.time_zone, wanted, found.interval_s)
        shown = [price for price in found.prices if price.start_s // found.interval_s in intervals]
    if not shown:
        where = f"; the log has prices until {format_utc(found.prices[-1].end_s)}" if found.prices else ""
        raise MurmurateError(f"zone {zone}", f"without a price on {wanted}", f"name another --day{where}")
    found = replace(found, prices=tuple(shown))
    if not as_json:
        print_prices(found, None if last else wanted, now_s)
        return
    columns = ("start", "end", "price", "price_ticks", "tick", "currency", "kind")
    rows = ((format_utc(price.start_s), format_utc(price.end_s), *price[2:]) for price in shown)
    print_json(
        {
            "zone": zone,
            "currency": found.currency,
            "unit": "kWh",
            "timezone": found.time_zone.key,
            "interval_s": found.interval_s,
            "verified": found.is_verified,
            "key_given": found.is_key_given,
            "cheapest_hours": [format_utc(at_s) for at_s in find_cheapest(shown)],
            "prices": [dict(zip(columns, row, strict=True)) for row in rows],
        }
    )


class ShownPrice(NamedTuple):
    """What a kilowatt-hour costs in an interval."""

    start_s: int  # of UTC
    end_s: int
    price: float | None  # [currency/kWh]; None: withheld
    ticks: int | None
    tick: str | None  # [currency/kWh] of one tick; None: not known
    currency: str
    kind: str  # measured, public, fallback, withheld or expected


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

    def local(self, at_s: float) -> datetime:
        return datetime.fromtimestamp(at_s, UTC).astimezone(self.time_zone)


def _find_zone_address(source: str, zone: str | None) -> str | None:
    """Return the address of the zone's page, if the source is the address of a zone or of a service.

    >>> _find_zone_address("https://prices.example/zones/quay/log.jsonl", None)
    'https://prices.example/zones/quay'
    >>> _find_zone_address("https://prices.example", "quay"), _find_zone_address("log.tar", "quay")
    ('https://prices.example/zones/quay', None)
    """
    if not source.lower().startswith(("http://", "https://")):
        return None
    parts = urlsplit(source)
    folder, found, rest = parts.path.partition("/zones/")
    name = rest.partition("/")[0] if found else ""
    if not name and zone is None:
        raise MurmurateError("source", source, "must be the address of a zone, such as https://host/zones/harbour")
    path = f"{folder.rstrip('/')}/zones/{name or quote(zone or '', safe='')}"
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def _fetch(address: str) -> bytes:
    try:
        return fetch_bytes(address)
    except MurmurateError as error:
        if "Not Found" in error.allowed:
            raise MurmurateError(error.field, error.value, f"was not found; {_NO_ZONE}") from None
        raise


def _fetch_prices(address: str, zone: str, day: date | None) -> ZonePrices:
    """Return what a server says, without a check: the last week or one day, and after it what the plan expects."""
    try:
        about = json.loads(_fetch(f"{address}/days"))
        time_zone = load_time_zone(about["timezone"])
        try:
            rows = _read_csv(fetch_bytes(f"{address}/history.csv"))
        except MurmurateError as error:
            first = about.get("first_price")
            if "Not Found" in error.allowed:
                raise _no_price_yet(zone, None if first is None else _parse_time(first), time_zone) from None
            raise
        interval_s = rows[0].end_s - rows[0].start_s
        intervals = range(0) if day is None else steps_of_day(time_zone, day, interval_s)
        if intervals and intervals[0] * interval_s < rows[0].start_s:
            start, end = (format_utc(at * interval_s) for at in (intervals[0], intervals[-1] + 1))
            rows = _read_csv(_fetch(f"{address}/history.csv?start={start}&end={end}"))
        last = rows[-1]
        for row in json.loads(_fetch(f"{address}/evcc?forecast=true")):
            if (start_s := _parse_time(row["start"])) >= last.end_s:
                price = (float(row["value"]), None, None, last.currency, EXPECTED)
                rows.append(ShownPrice(start_s, _parse_time(row["end"]), *price))
    except IndexError:
        raise MurmurateError("source", address, f"has no price: {_NO_ZONE}") from None
    except (KeyError, TypeError, ValueError, RecursionError):
        raise MurmurateError("the address", address, _NO_SERVICE) from None
    return ZonePrices(zone, rows[0].currency, time_zone, interval_s, tuple(rows), is_verified=False)


def _no_price_yet(zone: str, first_s: int | None, time_zone: ZoneInfo) -> MurmurateError:
    first = "it was closed before it had one"
    if first_s is not None:
        first = (
            f"its first is paid from {datetime.fromtimestamp(first_s, time_zone):%a %d %b %Y, %H:%M} ({time_zone.key})"
        )
    return MurmurateError(f"zone {zone}", "without a price yet", first)


def _read_csv(data: bytes) -> list[ShownPrice]:
    rows = csv.DictReader(StringIO(data.decode()))
    return [
        ShownPrice(
            _parse_time(row["start"]),
            _parse_time(row["end"]),
            float(row["price"]) if row["price"] else None,
            int(row["price_ticks"]) if row["price_ticks"] else None,
            row["tick"] or None,
            row["currency"],
            row["kind"],
        )
        for row in rows
    ]


def _parse_time(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def _read_log(source: str, zone: str, plan_files: list[Path], key: str | None, now_s: float) -> ZonePrices:
    """Return the prices of a zone in a log, once the log was verified; after them what the last plan expects."""
    logged = read_verified_zone(source, zone, plan_files, key)
    if not logged.releases:
        raise _no_price_yet(zone, logged.first_paid_s, ZoneInfo("UTC"))
    plans = {digest: DemandTerms.from_json(text) for digest, text in logged.plans.items()}

    def price_at(interval: int, step_s: int, plan: DemandTerms, ticks: int | None, kind: str) -> ShownPrice:
        value = None if ticks is None else float(ticks * plan.terms.curve.tick)
        span = (interval * step_s, (interval + 1) * step_s)
        return ShownPrice(*span, value, ticks, plan.terms.tick, plan.terms.currency, kind)

    prices = []
    for release in logged.releases:
        header, kind = release.header, RowKind(int(release.row["kind"][0]))
        ticks = None if kind is RowKind.WITHHELD else int(release.row["price_ticks"][0])
        paid = header.interval + header.lead
        prices.append(price_at(paid, header.interval_s, plans[release.plan], ticks, kind.name.lower()))
    last, header = plans[logged.releases[-1].plan], logged.releases[-1].header
    step_s = header.interval_s
    first, end = prices[-1].end_s // step_s, int(now_s + 2 * SECONDS_PER_DAY) // step_s
    ahead = range(first, min(end, first + 3 * SECONDS_PER_DAY // step_s))
    expected = zip(ahead, last.terms.expected_ticks(ahead, header.lead), strict=True)
    prices.extend(price_at(at, step_s, last, ticks, EXPECTED) for at, ticks in expected)
    time_zone, is_key_given = load_time_zone(last.time_zone), key is not None
    return ZonePrices(
        zone, last.terms.currency, time_zone, step_s, tuple(prices), is_verified=True, is_key_given=is_key_given
    )


def find_cheapest(prices: Iterable[ShownPrice], from_s: float = float("-inf")) -> list[int]:
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
    """Print one line for each interval, by the clock of the zone, with a bar from zero to the price."""
    when = f"the last {len(found.prices):,} prices" if day is None else f"{day:%A}, {day.day} {day:%B %Y}"
    stdout.print(f"{found.zone}: {when}, {found.time_zone.key}, in {price_unit(found.currency)}", style="bold")
    offsets = {found.local(price.start_s).utcoffset() for price in (found.prices[0], found.prices[-1])}
    layout = ("%H:%M" if day is not None else "%a %H:%M") + (" %Z" if len(offsets) > 1 else "")  # the clock changes

    def label(at_s: float) -> str:
        return found.local(at_s).strftime(layout)

    cheapest = find_cheapest(found.prices)
    values = [price.price for price in found.prices if price.price is not None]
    low, high = min(0.0, *values, 0.0), max(0.0, *values, 0.0)
    zero = round(_BAR_WIDTH * -low / (high - low)) if high > low else 0  # where bars begin
    block = "█" if stdout.encoding.lower().startswith("utf") else "#"
    for price in found.prices:
        amount, bar, mark = "withheld", "", ""
        if price.price is not None:
            amount = format_cents(price.price, found.currency)
            end = zero + round(_BAR_WIDTH * price.price / (high - low)) if high > low else 0
            bar = " " * min(zero, end) + block * abs(end - zero)
            mark = "cheap" if price.start_s // _HOUR_S * _HOUR_S in cheapest else ""
        now = "<- now" if price.start_s <= now_s < price.end_s else ""
        line = f"{label(price.start_s)}  {amount:>8}  {bar:<{_BAR_WIDTH}}  {price.kind:<9} {mark:<5} {now}"
        stdout.print(line.rstrip(), style="green" if mark else "dim" if price.kind == EXPECTED else None)
    if cheapest:
        stdout.print(f"Cheapest hours: {', '.join(map(label, cheapest))}.")
    if found.prices[0].start_s <= now_s and (coming := find_cheapest(found.prices, now_s)):
        stdout.print(f"Cheapest of those to come: {', '.join(map(label, coming))}.")
    meanings = {
        "public": "public: made from public numbers alone; no meter was read.",
        "fallback": "fallback: decided without a measurement, from the plan's forecast.",
        "withheld": "withheld: decided too late; the tariff says what is paid then.",
        EXPECTED: "expected: not decided yet, and not what is paid: the plan's forecast.",
    }
    kinds = {price.kind for price in found.prices}
    notes = [words for kind, words in meanings.items() if kind in kinds]
    if found.is_verified:
        trust = "" if found.is_key_given else " Its first key was trusted; --key takes the operator's only."
        notes.append(f"Verified: signatures, chain, plan and costs of the log hold.{trust}")
    else:
        notes.append("Not verified: this is what the server says. --verify checks its signed log first.")
    for note in notes:
        stdout.print(note)
