"""What an import writes: readings for `evaluate` and `ingest`, a meter table for `serve`, a zone file for `plan`."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from murmurate.planning.household_bounds import round_household_count
from murmurate.planning.plan_prediction import recommended_promise
from murmurate.reading_import.meter_columns import MeterPlace
from murmurate.reading_import.resample import MeterReadings

READINGS_NAME, METERS_NAME, ZONE_NAME = "readings.parquet", "meters.csv", "zone.toml"
KIND_NAME = "home"  # of the households of a file that names no kind
USUAL_BOUND_WH = 1000  # of a quarter hour, as in the example of `murmurate plan`
_ZONE_TEXT = """\
# Made by murmurate readings import. What stands here is public: choose it without looking at the readings.
name = {name}
currency = "EUR"
interval_minutes = {minutes}
time_zone = {time_zone}
promise = ["{promise}"]

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
{kinds}
[forecast]                                  # prices are predicted from the releases and what is expected above
from = "occupancy"
"""
_KIND_TEXT = """
[[households]]
name = {name}
meters = "{meters}"
away = {{ uniform_to = {away_wh} }}
home = {{ uniform_to = {home_wh} }}
occupancy = "resident"
"""


class ReadingsWriter:
    """Writes readings to a Parquet file, part by part.

    `interval_start` is in UTC, as `murmurate readings ingest` wants it; `timestamp` is the same in the time
    zone, so that the days of `murmurate evaluate` are local ones. `household` is there where it is known. `zone` and
    `kind` are those of the meter table.
    """

    def __init__(self, path: Path, time_zone: str, places: Sequence[MeterPlace]) -> None:
        self._names = [place.meter for place in places]
        self._roles = {"zone": [place.zone for place in places], "kind": [place.kind for place in places]}
        if all(place.household is not None for place in places):
            self._roles["household"] = [str(place.household) for place in places]
        self._local, self._utc = pa.timestamp("ms", time_zone), pa.timestamp("ms", "UTC")
        schema = pa.schema(
            [
                ("timestamp", self._local),
                ("meter_id", pa.string()),
                ("interval_start", self._utc),
                ("energy_wh", pa.int64()),
                *((role, pa.string()) for role in self._roles),
            ]
        )
        self._schema = schema
        self._writer = pq.ParquetWriter(path, schema, compression="zstd")

    def write_part(self, readings: MeterReadings) -> None:
        """Append the readings of some meters."""
        start_ms = readings.start_s * 1000
        numbers, index = np.unique(readings.meter, return_inverse=True)

        def name_meters(names: Sequence[str]) -> pa.Array:
            texts = pa.array([names[number] for number in numbers.tolist()], pa.string())
            return pa.DictionaryArray.from_arrays(pa.array(index.astype(np.int32)), texts).cast(pa.string())

        columns = [
            pa.array(start_ms, self._local),
            name_meters(self._names),
            pa.array(start_ms, self._utc),
            pa.array(readings.energy_wh),
            *(name_meters(names) for names in self._roles.values()),
        ]
        self._writer.write_table(pa.table(columns, schema=self._schema))

    def close(self) -> None:
        self._writer.close()


def write_meter_table(path: Path, rows: Sequence[MeterPlace], bound_wh: int) -> None:
    """Write the meter table, with the columns that the service and `murmurate plan` read.

    Each meter has the same bound. So the bound of a household is as many times that as it has meters, and a plan from
    this table hides the household with most of them.
    """
    households = [row.household for row in rows if row.household is not None]
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
        table.writerow(["meter", "id", "zone", "bound_wh", "kind", *(["household"] if households else [])])
        for number, row in enumerate(rows):
            told = [row.household] if households else []
            table.writerow([number, row.meter, row.zone, bound_wh, row.kind, *told])


def write_zone_files(
    folder: Path, rows: Sequence[MeterPlace], minutes: int, time_zone: str, bound_wh: int
) -> list[str]:
    """Write a zone file to begin with for each zone, which names the meter table. Returns the names of the files."""
    zones = sorted({row.zone for row in rows})
    names = [ZONE_NAME] if len(zones) == 1 else [f"{zone}.toml" for zone in zones]
    for zone, name in zip(zones, names, strict=True):
        of_zone = [row for row in rows if row.zone == zone]
        homes = round_household_count(len({row.household or row.meter for row in of_zone}))
        laws = {"away_wh": 3 * bound_wh // 10, "home_wh": 6 * bound_wh // 10}
        kinds = [
            _KIND_TEXT.format(name=json.dumps(kind, ensure_ascii=False), meters=METERS_NAME, **laws)
            for kind in sorted({row.kind for row in of_zone})
        ]
        text = _ZONE_TEXT.format(
            name=json.dumps(zone, ensure_ascii=False),
            minutes=minutes,
            time_zone=json.dumps(time_zone),
            promise=recommended_promise(homes),
            alpha=f"{0.16 / homes:.6f}",
            kinds="".join(kinds),
        )
        (folder / name).write_text(text, encoding="utf-8")
    return names
