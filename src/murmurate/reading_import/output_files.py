"""What an import writes: readings for `evaluate` and `ingest`, a meter table for `serve`, a zone file for `plan`."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from murmurate.reading_import.resample import MeterReadings

READINGS_NAME, METERS_NAME, ZONE_NAME = "readings.parquet", "meters.csv", "zone.toml"
USUAL_BOUND_WH = 1000  # of a quarter hour, as in the example of `murmurate plan`
_ZONE_TEXT = """\
# Made by murmurate import. What stands here is public: choose it without looking at the readings.
name = {name}
currency = "EUR"
interval_minutes = {minutes}
time_zone = {time_zone}
promise = ["any 24 h: epsilon 4, delta 1e-6"]
calibration = "range"

[tariff]                                    # money/kWh: alpha per kWh of demand, on top of beta
alpha = "{alpha}"
beta = "0.08"
tick = "0.00001"
floor = "0"
cap = "2"

[occupancy.resident]                        # chances to arrive or leave at some point during a period
periods = {{ morning = "07:00", noon = "08:00", evening = "16:00", night = "23:00" }}
arrive = {{ morning = 0.98, noon = 0.05, evening = 0.99, night = 0.01 }}
leave = {{ morning = 0.05, noon = 0.95, evening = 0.05, night = 0.995 }}

[[households]]
name = "home"
meters = "{meters}"
away = {{ uniform_to = {away_wh} }}
home = {{ uniform_to = {home_wh} }}
occupancy = "resident"

[forecast]                                  # prices are predicted from the releases and what is expected above
from = "occupancy"
"""


class ReadingsWriter:
    """Writes readings to a Parquet file, part by part.

    `interval_start` is in UTC, as `murmurate ingest` wants it; `timestamp` is the same on the clocks of the time zone,
    so that the days of `murmurate evaluate` are local ones.
    """

    def __init__(self, path: Path, time_zone: str) -> None:
        self._local, self._utc = pa.timestamp("ms", time_zone), pa.timestamp("ms", "UTC")
        schema = pa.schema(
            [
                ("timestamp", self._local),
                ("meter_id", pa.string()),
                ("interval_start", self._utc),
                ("energy_wh", pa.int64()),
            ]
        )
        self._schema = schema
        self._writer = pq.ParquetWriter(path, schema, compression="zstd")

    def write_part(self, readings: MeterReadings, names: Sequence[str]) -> None:
        """Append the readings of some meters."""
        start_ms = readings.start_s * 1000
        numbers, index = np.unique(readings.meter, return_inverse=True)
        dictionary = pa.array([names[number] for number in numbers.tolist()], pa.string())
        meters = pa.DictionaryArray.from_arrays(pa.array(index.astype(np.int32)), dictionary)
        columns = [
            pa.array(start_ms, self._local),
            meters.cast(pa.string()),
            pa.array(start_ms, self._utc),
            pa.array(readings.energy_wh),
        ]
        self._writer.write_table(pa.table(columns, schema=self._schema))

    def close(self) -> None:
        self._writer.close()


def write_meter_table(path: Path, names: Sequence[str], zone: str, bound_wh: int) -> None:
    """Write the meter table of one zone, with the columns that the service and `murmurate plan` read."""
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
        rows.writerow(["meter", "id", "zone", "bound_wh", "kind"])
        rows.writerows((number, name, zone, bound_wh, "home") for number, name in enumerate(names))


def write_zone_file(path: Path, *, zone: str, homes: int, minutes: int, time_zone: str, bound_wh: int) -> None:
    """Write a zone file to begin with, which names the meter table."""
    text = _ZONE_TEXT.format(
        name=json.dumps(zone),
        minutes=minutes,
        time_zone=json.dumps(time_zone),
        alpha=f"{0.16 / homes:.6f}",
        meters=METERS_NAME,
        away_wh=3 * bound_wh // 10,
        home_wh=6 * bound_wh // 10,
    )
    path.write_text(text, encoding="utf-8")
