"""Prices, zones and shards in the formats that clients read, but for OpenADR. Each is a function of the public log."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from datetime import UTC, date, datetime
from io import StringIO

from murmurate.errors import MurmurateError
from murmurate.public_log.tile import RowKind
from murmurate.service.log_reader.zone_view import (
    PRICE_KINDS,
    Price,
    ShardView,
    ZoneView,
    format_rfc3339,
    parse_tick,
)
from murmurate.service.public_api.local_days import interval_start_end, intervals_of_day, is_day_complete
from murmurate.units import MICROSECONDS_PER_SECOND

EVCC_HORIZON_S = 48 * 3600  # as far as evcc plans
HISTORY_COLUMNS = ("start", "end", "price", "price_ticks", "tick", "currency", "kind")


def zone_entry(view: ZoneView) -> dict[str, object]:
    """Return a zone as `/zones` lists it."""
    return {
        "zone": view.zone,
        "shard": view.shard.name,
        "currency": view.currency,
        "interval_s": view.interval_s,
        "plan": view.plan_digest,
        "timezone": view.display.timezone.key,
        "decided_until": format_rfc3339(view.start_s(view.last_decided + 1)),
        **({} if view.closed is None else {"closed": True}),
    }


def shard_entry(shard: ShardView, *, has_archived: bool = False) -> dict[str, object]:
    """Return a shard as `/shards` lists it: its last tile, and what a reader needs to begin.

    Without `has_archived`, it names up to which number tiles have left the log, and which of these are here.
    """
    header = shard.head.tile.header
    entry: dict[str, object] = {
        "shard": shard.name,
        "seq": header.seq,
        "hash": shard.head.tile.hash,
        "interval": header.interval,
        "interval_s": header.interval_s,
        "lead": header.lead,
        "table": header.table,
        "zones": len(shard.table),
        "opening_key": shard.opening_key,
    }
    if shard.archived_seq >= 0 and not has_archived:
        entry["archived"] = {"seq": shard.archived_seq, "kept": list(shard.kept_seqs)}
    return entry


def new_price_json(view: ZoneView, price: Price) -> str:
    """Return a price that has just become public, about 200 bytes: for server-sent events and MQTT."""
    document = {
        "zone": view.zone,
        **interval_start_end(view, price.interval),
        "price": price.value,
        "price_ticks": price.ticks,
        "tick": f"{price.tick.numerator}/{price.tick.denominator}",
        "currency": view.currency,
        "unit": "kWh",
        "kind": price.kind.value,
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def current_price_document(view: ZoneView, now_s: float) -> dict[str, object] | None:
    """Return the price now as one flat object, as Home Assistant's REST sensor reads it. None: there is no price."""
    price = view.prices.get(view.interval_at(now_s))
    if price is None or price.value is None:
        return None
    following = view.prices.get(price.interval + 1)
    when = interval_start_end(view, price.interval)
    return {
        "zone": view.zone,
        "price": price.value,
        "currency": view.currency_of(price.interval),
        "unit": "kWh",
        **when,
        "kind": price.kind.value,
        "next_price": None if following is None else following.value,
        "next_change": when["end"],
    }


def shard_prices_path(shard: ShardView, interval: int) -> str:
    """Return the path of the prices of a shard for an interval, below the address of the service."""
    start = datetime.fromtimestamp(interval * shard.interval_s, UTC)
    return f"prices/{shard.name}/{start:%Y%m%dT%H%M%SZ}.json"


def shard_prices_document(shard: ShardView, interval: int) -> dict[str, object]:
    """Return the price of each zone of a shard for one interval, to the tick. It never changes.

    One tile decides all of them, under its own zone table: none can be missing and come later.

    Raises MurmurateError unless the prices are decided and in memory.
    """
    measured, start = interval - shard.lead_intervals, format_rfc3339(interval * shard.interval_s)
    if not shard.first <= measured <= shard.last:
        limits = (shard.first + shard.lead_intervals, shard.last + 1 + shard.lead_intervals)
        since, until = (format_rfc3339(at * shard.interval_s) for at in limits)
        raise MurmurateError("interval", start, f"must be decided and recent: prices are here from {since} to {until}")
    table, rows = shard.columns.table_of(measured), []
    for row in table.rows:
        kind, ticks, _, _, logged_s = shard.columns.read(measured, shard.table.column[row.zone])
        own = None if kind is RowKind.WITHHELD else ticks
        price = Price(interval, PRICE_KINDS[kind], own, parse_tick(row.tick), None, logged_s)
        rows.append(
            {
                "zone": row.zone,
                "price": price.value,
                "price_ticks": price.ticks,
                "tick": row.tick,
                "currency": row.currency,
                "kind": price.kind.value,
            }
        )
    end = format_rfc3339((interval + 1) * shard.interval_s)
    return {"shard": shard.name, "start": start, "end": end, "unit": "kWh", "prices": rows}


def prices_document(view: ZoneView, intervals: range, now_s: float) -> dict[str, object]:
    """Return the prices of a stretch that begins with the zone's first price at the earliest: past and future alike.

    A row is `final` where the price is decided; null is one that was withheld. It is `expected` where the plan expects
    a price, which is not billed. An interval that has begun without a price is `undecided` and null: it will be
    withheld. A closed zone has final rows only.

    Raises KeyError unless the view has each decided price of the stretch.
    """
    prices, undecided = view.prices, range(max(intervals.start, view.last_decided + 1), intervals.stop)
    rows = [(n, prices[n].value, "final") for n in range(intervals.start, min(intervals.stop, view.last_decided + 1))]
    if undecided and view.closed is None:
        ticks, current = view.terms.expected_ticks(undecided, view.lead_intervals), view.interval_at(now_s)
        rows += [
            (n, float(own * view.tick), "expected") if n > current else (n, None, "undecided")
            for n, own in zip(undecided, ticks, strict=True)
        ]
    return {
        "zone": view.zone,
        "currency": view.currency,
        "unit": "kWh",
        "timezone": view.display.timezone.key,
        "interval_s": view.interval_s,
        "prices": [{**interval_start_end(view, n), "value": value, "status": status} for n, value, status in rows],
    }


def day_document(view: ZoneView, day: date) -> dict[str, object]:
    """Return the prices of a local day: ticks for billing, a double for charts. It never changes.

    Raises MurmurateError unless each price is decided and known to the view.
    """
    intervals = intervals_of_day(view, day)
    if not intervals:
        raise MurmurateError("day", day, f"must be a day of the calendar in {view.display.timezone.key}")
    if intervals[0] < view.first_priced:
        first = format_rfc3339(view.start_s(view.first_priced))
        raise MurmurateError("day", day, f"must begin when there were prices, from {first} on")
    if not is_day_complete(view, day):
        end, last = format_rfc3339(view.start_s(view.last_decided + 1)), intervals[-1] + 1 - view.lead_intervals
        # A price is decided when the interval that it was measured in is over, at the earliest.
        when = f"it can be from {format_rfc3339(view.start_s(last))} on, when its last interval is decided"
        reason = when if view.closed is None else f"the zone is closed, and its last price ended at {end}"
        raise MurmurateError("day", day, f"must be whole: {reason}")
    prices = view.prices
    if intervals[0] not in prices:
        raise MurmurateError("day", day, "must be among the days that are kept at hand")
    return {
        "zone": view.zone,
        "day": day.isoformat(),
        "timezone": view.display.timezone.key,
        "currency": view.currency,
        "unit": "kWh",
        "interval_s": view.interval_s,
        "prices": [
            {
                **interval_start_end(view, interval),
                "price": price.value,
                "price_ticks": price.ticks,
                "tick": str(price.tick),
                "kind": price.kind.value,
            }
            for interval, price in ((interval, prices[interval]) for interval in intervals)
        ],
    }


def evcc_list(view: ZoneView, now_s: float, *, forecast: bool = False) -> list[dict[str, object]]:
    """Return the final prices from this interval on, as evcc reads them to charge a car.

    The format has no word for "not final", so what the plan expects after them is given on request alone. A withheld
    price is left out: a missing row is a gap to evcc, a price of null would be an error.
    """
    current, known, prices = view.interval_at(now_s), view.known_intervals, view.prices
    final = ((interval, prices[interval].value) for interval in range(max(current, known.start), known.stop))
    rows = [(interval, value) for interval, value in final if value is not None]
    if forecast and view.closed is None:
        # An interval that has begun without a price cannot get one: it will be withheld.
        undecided = range(max(current, view.last_decided) + 1, current + EVCC_HORIZON_S // view.interval_s)
        rows += [(interval, view.expected_price(interval)) for interval in undecided]
    return [{**interval_start_end(view, interval), "value": value} for interval, value in rows]


def csv_bytes(prices: Iterable[Price], interval_s: int, currency: str) -> bytes:
    """Return a header and one line for each price. A withheld price is an empty cell."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HISTORY_COLUMNS)
    for price in prices:
        start, end = (format_rfc3339(at * interval_s) for at in (price.interval, price.interval + 1))
        writer.writerow([start, end, *_price_columns(price, currency)])
    return text.getvalue().encode()


def parquet_bytes(prices: Iterable[Price], interval_s: int, currency: str) -> bytes:
    """Return the columns of `csv_bytes` as Parquet. A withheld price is null.

    Raises ModuleNotFoundError where PyArrow is not installed: it is as large as all else that the public process needs.
    """
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    interval_us, moment = interval_s * MICROSECONDS_PER_SECOND, pa.timestamp("us", "UTC")
    rows = [
        (price.interval * interval_us, (price.interval + 1) * interval_us, *_price_columns(price, currency))
        for price in prices
    ]
    columns = list(zip(*rows, strict=True)) or [()] * len(HISTORY_COLUMNS)
    types = (moment, moment, pa.float64(), pa.int64(), pa.string(), pa.string(), pa.string())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(arrays, names=list(HISTORY_COLUMNS)), sink)
    return bytes(sink.getvalue())


def _price_columns(price: Price, currency: str) -> tuple[float | None, int | None, str, str, str]:
    return price.value, price.ticks, str(price.tick), currency, price.kind.value


def vse_tariffs(view: ZoneView, first: int, last: int) -> dict[str, object]:
    """Return the prices of the intervals from `first` to `last`, both included, as Swiss grid operators publish them.

    The format is that of VSE, version 1 (GET /v1/tariffs). The publication timestamp is when the log took the latest
    of them: two servers answer with the same bytes.

    Raises MurmurateError for another currency than CHF (the format has no other), and where one is not decided.
    """
    if view.currency != "CHF":
        raise MurmurateError("currency", view.currency, "must be CHF: the VSE format has no other")
    if first > last:
        raise MurmurateError("last", last, f"must be at least the first, {first}")
    prices, found = view.prices, []
    for interval in range(first, last + 1):
        if interval not in prices:
            known = view.known_intervals or range(view.first_priced, view.first_priced)
            begin, end = (format_rfc3339(view.start_s(at)) for at in (known.start, view.last_decided + 1))
            when = format_rfc3339(view.start_s(interval))
            raise MurmurateError("interval", when, f"must have a decided price at hand: from {begin} to {end}")
        found.append(prices[interval])
    rows = []
    for price in found:
        if price.value is not None:
            span = interval_start_end(view, price.interval)
            electricity = [{"unit": "CHF_kWh", "value": price.value}]
            rows.append({"start_timestamp": span["start"], "end_timestamp": span["end"], "electricity": electricity})
    return {"publication_timestamp": format_rfc3339(max(price.logged_s for price in found)), "prices": rows}
