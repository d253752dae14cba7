"""Prices by the year, as CSV and as Parquet: the same columns, so that whoever changes over changes nothing else."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from murmurate.service.board.view import Price, rfc3339

_MOMENT = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        ("start", _MOMENT),
        ("end", _MOMENT),
        ("price", pa.float64()),
        ("price_ticks", pa.int64()),
        ("tick", pa.string()),
        ("currency", pa.string()),
        ("kind", pa.string()),
    ]
)
_US = 1_000_000


class _Line:
    """Hands a line back instead of keeping it, so that a year of them is never in memory."""

    @staticmethod
    def write(text: str) -> str:
        return text


def csv_lines(prices: Iterable[Price], interval_s: int, currency: str) -> Iterator[str]:
    """A header and one line for each price, each with its line feed. A withheld price is an empty cell."""
    writer = csv.writer(_Line(), lineterminator="\n")
    yield writer.writerow(SCHEMA.names)
    for price in prices:
        start, end = (rfc3339(at * interval_s) for at in (price.interval, price.interval + 1))
        yield writer.writerow([start, end, *_what(price, currency)])


def parquet_bytes(prices: Iterable[Price], interval_s: int, currency: str) -> bytes:
    """One row for each price. A withheld price is null."""
    rows = [
        (price.interval * interval_s * _US, (price.interval + 1) * interval_s * _US, *_what(price, currency))
        for price in prices
    ]
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(arrays, schema=SCHEMA), sink)
    return bytes(sink.getvalue())


def _what(price: Price, currency: str) -> tuple[float | None, int | None, str, str, str]:
    return price.value, price.ticks, str(price.tick), currency, price.kind.value
