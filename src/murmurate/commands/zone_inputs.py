"""Files that a zone file names: a forecast, and a table of meters."""

from __future__ import annotations

import csv
from pathlib import Path

from murmurate.errors import MeterError, ModelError
from murmurate.lab.sample_file import read_integer_columns
from murmurate.planning.zone_file import MeterSummary
from murmurate.prediction.public_forecast import PublicForecast
from murmurate.text_files import open_text, read_text
from murmurate.units import raise_where


def read_forecast_file(path: Path) -> PublicForecast:
    """Return the forecast in a file that `murmurate forecast` wrote."""
    try:
        return PublicForecast.from_json(read_text(path))
    except FileNotFoundError:
        allowed = "must exist beside the zone file: murmurate forecast writes one"
        raise ModelError("file", path.name, allowed) from None


def read_meter_summary(path: Path) -> MeterSummary:
    """Households and their largest bound from a CSV with a column `bound_wh`, one row a meter.

    Meters with the same text in a column `household` are one household, with the sum of their bounds. Without that
    column each meter is a household.
    """
    (bounds,) = read_integer_columns(path, ("bound_wh",), MeterError).T
    raise_where(bounds < 1, "bound_wh", bounds, "must be at least 1 Wh", MeterError)
    with open_text(path) as file:
        names = [row.get("household", str(number)) for number, row in enumerate(csv.DictReader(file))]
    if not all(names):
        raise MeterError("household", "empty here and there", "must name the household of every meter")
    total: dict[str, int] = {}
    for name, bound_wh in zip(names, bounds.tolist(), strict=True):
        total[name] = total.get(name, 0) + bound_wh
    return MeterSummary(len(total), max(total.values(), default=0))
