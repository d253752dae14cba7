"""`murmurate landing`: create the folder that readings land in."""

from __future__ import annotations

import time
from pathlib import Path

from murmurate.commands.console import stdout
from murmurate.errors import MurmurateError
from murmurate.service.landing.layout import Landing
from murmurate.units import SECONDS_PER_DAY


def create_landing(root: Path, minutes: int, shard_meters: int) -> None:
    """`murmurate landing`."""
    if SECONDS_PER_DAY % (60 * minutes):
        raise MurmurateError("--minutes", minutes, "must divide a day, such as 5, 15, 30 or 60")
    landing = Landing.create(root, interval_s=60 * minutes, shard_meters=shard_meters)
    example = landing.shard_folder(int(time.time()) // landing.interval_s * landing.interval_s, 0)
    stdout.print(f"Readings go to {example}/*.parquet")
    stdout.print(f"and so on: a folder for each {minutes} min of UTC, in it one for each {shard_meters:,} meters.")
    stdout.print("Columns: meter, interval_start, energy_wh. Keep it where only the curator can read.")
