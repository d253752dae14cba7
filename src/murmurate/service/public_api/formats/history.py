"""Prices by the year, as CSV and as Parquet: the same columns in both."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from murmurate.service.log_reader.zone_view import Price, format_rfc3339
from murmurate.units import MICROSECONDS_PER_SECOND

_UTC_TIMESTAMP = pa.timestamp("us", "UTC")
HISTORY_SCHEMA = pa.schema(
    [
        ("start", _UTC_TIMESTAMP),
        ("end", _UTC_TIMESTAMP),
        ("price", pa.float64()),
        ("price_ticks", pa.int64()),
        ("tick", pa.string()),
        ("currency", pa.string()),
        ("kind", pa.string()),
    ]
)


class _EchoWriter:
    """Hands a line back instead of keeping it, so that a year of them is never in memory."""

    @staticmethod
    def write(text: str) -> str:
        return text


def csv_lines(prices: Iterable[Price], interval_s: int, currency: str) -> Iterator[str]:
    """A header and one line for each price, each with its line feed. A withheld price is an empty cell."""
    writer = csv.writer(_EchoWriter(), lineterminator="\n")
    yield writer.writerow(HISTORY_SCHEMA.names)
    for price in prices:
        start, end = (format_rfc3339(at * interval_s) for at in (price.interval, price.interval + 1))
        yield writer.writerow([start, end, *_price_columns(price, currency)])


def parquet_bytes(prices: Iterable[Price], interval_s: int, currency: str) -> bytes:
    """One row for each price. A withheld price is null."""
    rows = [
        (
            price.interval * interval_s * MICROSECONDS_PER_SECOND,
            (price.interval + 1) * interval_s * MICROSECONDS_PER_SECOND,
            *_price_columns(price, currency),
        )
        for price in prices
    ]
    columns = list(zip(*rows, strict=True)) or [()] * len(HISTORY_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, HISTORY_SCHEMA, strict=True)]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(arrays, schema=HISTORY_SCHEMA), sink)
    return bytes(sink.getvalue())


def _price_columns(price: Price, currency: str) -> tuple[float | None, int | None, str, str, str]:
    return price.value, price.ticks, str(price.tick), currency, price.kind.value
