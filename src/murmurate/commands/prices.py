"""`murmurate prices`: the prices of a zone, from a server's address or from a log that is verified first."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from io import StringIO
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit, urlunsplit
from zoneinfo import ZoneInfo

from murmurate.commands.json_output import format_utc, print_json
from murmurate.commands.log_source import fetch_bytes
from murmurate.commands.price_table import EXPECTED, ShownPrice, ZonePrices, find_cheapest, print_prices
from murmurate.commands.verified_zone import read_verified_zone
from murmurate.errors import MurmurateError
from murmurate.public_log.noised_demand import DemandTerms
from murmurate.public_log.tile import RowKind
from murmurate.service.public_api.local_days import steps_of_day
from murmurate.time_zones import load_time_zone
from murmurate.units import SECONDS_PER_DAY

_COLUMNS = ("start", "end", "price", "price_ticks", "tick", "currency", "kind")
_NO_ZONE = "is there a zone of this name, and has it a price yet? /zones lists the zones"


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceOptions:
    """Which prices, and how they are shown."""

    zone: str | None = None
    day: date | None = None  # None: today, or the last ones
    last: int | None = None
    verify: bool = False
    key: str | None = None
    plans: Sequence[Path] = ()
    time_zone: str | None = None  # None: that of the zone
    output: str = "table"  # or json, csv


def show_prices(source: str, options: PriceOptions) -> None:
    """Print the prices of a local day, or the last ones that were decided."""
    now_s = time.time()
    found = _read_prices(source, options, now_s)
    if options.time_zone is not None:
        found = replace(found, time_zone=load_time_zone(options.time_zone))
    day = options.day or datetime.fromtimestamp(now_s, UTC).astimezone(found.time_zone).date()
    shown = replace(found, prices=_choose(found, day, options.last))
    if not shown.prices:
        where = f"; the log has prices until {format_utc(found.prices[-1].end_s)}" if found.prices else ""
        raise MurmurateError(f"zone {found.zone}", f"without a price on {day}", f"name another --day{where}")
    if options.output == "json":
        print_json(_document(shown))
    elif options.output == "csv":
        sys.stdout.write(_csv_text(shown))
    else:
        print_prices(shown, None if options.last else day, now_s)


def _choose(found: ZonePrices, day: date, last: int | None) -> tuple[ShownPrice, ...]:
    if last is not None:
        return tuple(price for price in found.prices if price.kind != EXPECTED)[-last:]
    intervals = steps_of_day(found.time_zone, day, found.interval_s)
    return tuple(price for price in found.prices if price.start_s // found.interval_s in intervals)


def _read_prices(source: str, options: PriceOptions, now_s: float) -> ZonePrices:
    address = _find_zone_address(source, options.zone)
    if address is not None and not options.verify:
        return _fetch_prices(address, options.day)
    if address is not None:
        return _read_log(f"{address}/log.jsonl", _zone_of_address(address), options, now_s)
    if options.zone is None:
        raise MurmurateError("--zone", "missing", "name the zone of this log, for example --zone harbour")
    return _read_log(source, options.zone, options, now_s)


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


def _zone_of_address(address: str) -> str:
    return unquote(address.rpartition("/")[2])


def _fetch_prices(address: str, day: date | None) -> ZonePrices:
    """What a server says, without a check: the last week or one day, and after it what the plan expects."""
    zone, time_zone = _zone_of_address(address), _fetch_time_zone(address)
    rows = _fetch_rows(f"{address}/history.csv")
    interval_s = rows[0].end_s - rows[0].start_s
    if day is not None:
        intervals = steps_of_day(time_zone, day, interval_s)
        if intervals and intervals[0] * interval_s < rows[0].start_s:
            times = (format_utc(at * interval_s) for at in (intervals[0], intervals[-1] + 1))
            query = "&".join(f"{name}={at}" for name, at in zip(("start", "end"), times, strict=True))
            rows = _fetch_rows(f"{address}/history.csv?{query}")
    expected = _fetch_expected(address, rows[-1])
    return ZonePrices(zone, rows[0].currency, time_zone, interval_s, (*rows, *expected), is_verified=False)


def _fetch_time_zone(address: str) -> ZoneInfo:
    document = _parse_json(f"{address}/days", _fetch(f"{address}/days"))
    name = document.get("timezone") if isinstance(document, dict) else None
    if not isinstance(name, str):
        raise MurmurateError("source", address, "is not the address of a zone of a murmurate service")
    return load_time_zone(name)


def _fetch_rows(address: str) -> list[ShownPrice]:
    try:
        rows = [_row_of_csv(row) for row in csv.DictReader(StringIO(_fetch(address).decode()))]
    except (KeyError, TypeError, ValueError):
        raise MurmurateError("source", address, "is no list of prices of a murmurate service") from None
    if not rows:
        raise MurmurateError("source", address, f"has no price: {_NO_ZONE}")
    return rows


def _fetch_expected(address: str, last: ShownPrice) -> list[ShownPrice]:
    """What the plan expects after the last price that is decided; it is not billed."""
    listed = _parse_json(address, _fetch(f"{address}/evcc?forecast=true"))
    try:
        rows = [(_parse_time(row["start"]), _parse_time(row["end"]), float(row["value"])) for row in listed]  # type: ignore[attr-defined]
    except (KeyError, TypeError, ValueError):
        raise MurmurateError("source", address, "is no list of prices of a murmurate service") from None
    return [
        ShownPrice(start_s, end_s, price, None, "", last.currency, EXPECTED)
        for start_s, end_s, price in rows
        if start_s >= last.end_s
    ]


def _fetch(address: str) -> bytes:
    try:
        return fetch_bytes(address)
    except MurmurateError as error:
        if "Not Found" in error.allowed:
            raise MurmurateError(error.field, error.value, f"was not found; {_NO_ZONE}") from None
        raise


def _parse_json(address: str, data: bytes) -> object:
    try:
        return json.loads(data)
    except (RecursionError, ValueError):
        raise MurmurateError("source", address, "is no answer of a murmurate service") from None


def _row_of_csv(row: dict[str, str]) -> ShownPrice:
    ticks = int(row["price_ticks"]) if row["price_ticks"] else None
    price = float(row["price"]) if row["price"] else None
    start_s, end_s = _parse_time(row["start"]), _parse_time(row["end"])
    return ShownPrice(start_s, end_s, price, ticks, row["tick"], row["currency"], row["kind"])


def _parse_time(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def _read_log(source: str, zone: str, options: PriceOptions, now_s: float) -> ZonePrices:
    """What a log says about a zone, once the log was verified; after it what the last plan expects for two days."""
    logged = read_verified_zone(source, zone, options.plans, options.key)
    if not logged.releases:
        raise MurmurateError(f"zone {zone}", "without a price", "it has just been opened; wait for its first interval")
    plans = {digest: DemandTerms.from_json(text) for digest, text in logged.plans.items()}
    prices = []
    for release in logged.releases:
        terms, step_s = plans[release.plan].terms, release.header.interval_s
        kind, at = RowKind(int(release.row["kind"][0])), release.header.interval + release.header.lead
        ticks = None if kind is RowKind.WITHHELD else int(release.row["price_ticks"][0])
        value = None if ticks is None else float(ticks * terms.curve.tick)
        span = (at * step_s, (at + 1) * step_s)
        prices.append(ShownPrice(*span, value, ticks, terms.tick, terms.currency, kind.name.lower()))
    last, header = plans[logged.releases[-1].plan], logged.releases[-1].header
    step_s = header.interval_s
    first, end = prices[-1].end_s // step_s, int(now_s + 2 * SECONDS_PER_DAY) // step_s
    for at in range(first, min(end, first + 3 * SECONDS_PER_DAY // step_s)):
        ticks = int(last.terms.forecast_ticks[last.terms.slot_of_day(at - header.lead)])
        value = float(ticks * last.terms.curve.tick)
        prices.append(
            ShownPrice(at * step_s, (at + 1) * step_s, value, ticks, last.terms.tick, last.terms.currency, EXPECTED)
        )
    time_zone = load_time_zone(last.time_zone)
    return ZonePrices(
        zone,
        last.terms.currency,
        time_zone,
        step_s,
        tuple(prices),
        is_verified=True,
        is_key_given=options.key is not None,
    )


def _document(found: ZonePrices) -> dict[str, object]:
    return {
        "zone": found.zone,
        "currency": found.currency,
        "unit": "kWh",
        "timezone": found.time_zone.key,
        "interval_s": found.interval_s,
        "verified": found.is_verified,
        "key_given": found.is_key_given,
        "cheapest_hours": [format_utc(at_s) for at_s in find_cheapest(found.prices)],
        "prices": [dict(zip(_COLUMNS, _cells(price), strict=True)) for price in found.prices],
    }


def _csv_text(found: ZonePrices) -> str:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows(_cells(price) for price in found.prices)
    return text.getvalue()


def _cells(price: ShownPrice) -> tuple[object, ...]:
    times = (format_utc(price.start_s), format_utc(price.end_s))
    return (*times, price.price, price.ticks, price.tick or None, price.currency, price.kind)
