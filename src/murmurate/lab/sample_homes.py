"""A made file of 200 homes to try an import with: simulated, the same on every machine and in every run.

It has the form of many real files: a row for each meter and day, semicolons, decimal commas, local time with 50 half
hours on the day on which clocks go back, and a few cells that no import can take.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import numpy as np

from murmurate.lab.evaluate.homes import Homes, draw_season
from murmurate.readings.cell_values import local_midnight
from murmurate.time_zones import load_time_zone
from murmurate.units import IntArray

SAMPLE_NAME, SAMPLE_ZONE = "half-hours.csv", "Europe/Zurich"
SAMPLE_HOMES, SAMPLE_DAYS = 200, 42
_FIRST_DAY = date(2025, 9, 29)  # clocks go back on 2025-10-26
_SEED = 2025
_MAX_SLOTS = 50


def write_sample(folder: Path) -> Path:
    """Write the file and return where it is."""
    path = folder / SAMPLE_NAME
    folder.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        file.writelines(f"{';'.join(row)}\r\n" for row in sample_rows())
    return path


def sample_rows() -> Iterator[list[str]]:
    """Yield the header and the rows of the file."""
    yield ["meter_id", "date", *(f"HH{number} kWh" for number in range(1, _MAX_SLOTS + 1))]
    energy_wh, zone = sample_energy(), load_time_zone(SAMPLE_ZONE)
    for home in range(SAMPLE_HOMES):
        begin = 0
        for day in range(SAMPLE_DAYS):
            when = _FIRST_DAY + timedelta(days=day)
            count = (local_midnight(when + timedelta(days=1), zone) - local_midnight(when, zone)) // 1800
            cells = [f"{wh / 1000:.3f}".replace(".", ",") for wh in energy_wh[begin : begin + count, home].tolist()]
            begin += count
            if (home, day) in {(3, 9), (70, 20)}:
                cells[17] = "Null"  # the meter did not answer
            elif (home, day) == (111, 30):
                cells[40] = "error 7"
            yield [f"H{home + 1:03}", f"{when:%d.%m.%Y}", *cells, *[""] * (_MAX_SLOTS - count)]


def sample_energy() -> IntArray:
    """Return what the homes use in each half hour of the file [Wh: interval, household]."""
    season = draw_season(np.random.default_rng(_SEED), days=SAMPLE_DAYS + 1)
    homes = Homes(np.random.Generator(np.random.SFC64(_SEED)), SAMPLE_HOMES)
    quarters = np.array([homes.step(season, t) for t in range(season.intervals)], np.int64)
    return np.asarray(quarters.reshape(-1, 2, SAMPLE_HOMES).sum(axis=1))
