"""The same demand from the same files by Polars and DuckDB, and our tallying alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.aggregation_data import SampleLanding
from murmurate.aggregation import Shard, tally_readings
from murmurate.service.landing.meter_table import MeterTable
from murmurate.types import Readings

BATCH_SIZE = 131_072
_MICRO = 10**6

ORACLE = """
WITH largest AS (
    SELECT interval, meter, max(energy_wh) AS energy_wh
    FROM read_parquet('{root}/interval={interval}/shard=*/*.parquet',
                      hive_partitioning = true, hive_types_autocast = false)
    WHERE epoch_us(interval_start) = epoch_us(strptime(interval, '%Y%m%dT%H%MZ'))
    GROUP BY interval, meter
), due AS (
    SELECT * FROM (SELECT DISTINCT interval FROM largest), '{meters}'
)
SELECT strptime(interval, '%Y%m%dT%H%MZ') AS interval_start, zone,
    sum(CASE WHEN energy_wh IS NULL THEN imputed_wh
             WHEN energy_wh < -export_bound_wh THEN -export_bound_wh
             WHEN energy_wh > bound_wh THEN bound_wh
             ELSE energy_wh END)::BIGINT AS energy_wh,
    count(energy_wh) AS reported,
    count(*) - count(energy_wh) AS imputed
FROM due LEFT JOIN largest USING (interval, meter)
GROUP BY interval, zone
"""


def aggregate_with_duckdb(sample: SampleLanding, interval: str = "*") -> pa.Table:
    """The oracle: aggregate with plain SQL over the raw files and the operator's meter table, without our code."""
    with duckdb.connect(config={"memory_limit": "4GB"}) as connection:
        query = ORACLE.format(root=sample.landing.root, interval=interval, meters=sample.source)
        rows = connection.sql(query).to_arrow_table()
    return rows.set_column(0, "interval_start", rows["interval_start"].cast(pa.timestamp("us", "UTC")))


def aggregate_with_polars(sample: SampleLanding, table: MeterTable) -> pa.Table:
    """Aggregate with the fastest of a dozen queries that were tried: shard by shard, ten intervals at once, streaming.

    It reads the pinned table, in which zones are numbers, and computes missing meters from the zone's totals, which
    saves the left join. Over all shards at once it takes a tenth longer, in the in-memory engine twice as long, and
    with one query over all intervals three times as long.
    """
    parts = []
    for shard, name in zip(table.shards, table.names[:-1], strict=True):
        meters = pl.read_parquet(sample.landing.root / name, hive_partitioning=False)
        zones = meters.group_by("zone").agg(
            all_imputed_wh=pl.col("imputed_wh").sum(),
            meters=pl.len().cast(pl.Int64),
        )
        known = meters.lazy().select("meter", "zone", "bound_wh", "imputed_wh", "export_bound_wh")
        queries = [
            _query(sample.landing.shard_folder(start_s, shard), start_s, known, zones.lazy())
            for start_s in sample.starts_s
        ]
        parts += pl.collect_all(queries, engine="streaming")
    names = (
        pl.DataFrame({"zone": table.zones}).with_row_index("number", 0).with_columns(pl.col("number").cast(pl.Int64))
    )
    counts = pl.col("energy_wh", "reported", "imputed").sum()
    rows = pl.concat(parts).group_by("interval_start", "number").agg(counts)
    return rows.join(names, on="number").drop("number").to_arrow()


def _query(folder: Path, start_s: int, known: pl.LazyFrame, zones: pl.LazyFrame) -> pl.LazyFrame:
    """Return the query for the demand of one shard in one interval."""
    start = datetime.fromtimestamp(start_s, UTC)
    readings = pl.scan_parquet(folder / "*.parquet", hive_partitioning=False).filter(pl.col("interval_start") == start)
    largest = readings.group_by("meter").agg(pl.col("energy_wh").max())
    more_wh = pl.col("energy_wh").clip(-pl.col("export_bound_wh"), pl.col("bound_wh")) - pl.col("imputed_wh")
    by_zone = largest.join(known, on="meter").select("zone", more_wh=more_wh).group_by("zone")
    sums = by_zone.agg(pl.col("more_wh").sum(), reported=pl.len().cast(pl.Int64))
    reported = pl.col("reported").fill_null(0)
    return zones.join(sums, on="zone", how="left").select(
        interval_start=pl.lit(start, pl.Datetime("us", "UTC")),
        number="zone",
        energy_wh=pl.col("all_imputed_wh") + pl.col("more_wh").fill_null(0),
        reported=reported,
        imputed=pl.col("meters") - reported,
    )


def tally_only(files: Mapping[tuple[int, int], Sequence[Path]], shards: Mapping[int, Shard]) -> None:
    """Decode and tally only: no manifest, no hash, no meter table, no demand."""
    for (start_s, shard), paths in files.items():
        tally_readings(_batches(paths), shards[shard], start_s * _MICRO)


def _batches(paths: Sequence[Path]) -> Iterator[Readings]:
    columns = ["meter", "interval_start", "energy_wh"]
    for path in paths:
        with pq.ParquetFile(path, pre_buffer=False) as parquet:
            for batch in parquet.iter_batches(BATCH_SIZE, columns=columns, use_threads=False):
                meter, start, energy_wh = (column.view(pa.int64()).to_numpy() for column in batch.columns)
                yield Readings(meter=meter, energy_wh=energy_wh, start_us=start)
