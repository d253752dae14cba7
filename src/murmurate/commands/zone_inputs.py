"""Files that a zone file names: a forecast, and a table of meters."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from murmurate.errors import MeterError, ModelError
from murmurate.files import open_text, read_text
from murmurate.planning.household_bounds import MeterSummary, summarize_meters
from murmurate.prediction.public_forecast import PublicForecast


def read_forecast_file(path: Path) -> PublicForecast:
    """Return the forecast in a file that `murmurate forecast` wrote."""
    try:
        return PublicForecast.from_json(read_text(path))
    except FileNotFoundError:
        allowed = "must exist beside the zone file: murmurate forecast writes one"
        raise ModelError("file", path.name, allowed) from None


def read_meter_summary(path: Path, zone: str, kind: str) -> MeterSummary:
    """Return the households of a zone and kind, and their largest bound, from a CSV with one row a meter.

    It has a column `bound_wh`. Where there is a column `zone`, only meters of that zone count; where there is a column
    `kind`, only those of that kind. Meters with the same text in a column `household` are one household. Without that
    column each meter is a household. See `summarize_meters`.
    """
    with open_text(path) as file:
        table = csv.DictReader(file)
        if "bound_wh" not in (table.fieldnames or ()):
            raise MeterError(str(path), f"with columns {table.fieldnames}", "must have the columns bound_wh")
        rows, bounds = [], []
        for row in table:
            try:
                bounds.append(int(row["bound_wh"]))
            except (ValueError, TypeError):
                where = f"{path}:{table.line_num}"
                raise MeterError(where, "not readable", "must be whole numbers: bound_wh") from None
            rows.append(row)
    if not rows:
        raise MeterError(path.name, "empty", "must have a row for each meter")
    return summarize_meters(
        np.array(bounds, np.int64),
        zone_of=[row.get("zone", zone) or "" for row in rows],
        kind_of=[row.get("kind") or "" for row in rows],
        household_of=[row.get("household", str(number)) or "" for number, row in enumerate(rows)],
        zone=zone,
        kind=kind,
    )
