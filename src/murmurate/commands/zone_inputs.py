"""Files that a zone file names: a forecast, and a table of meters."""

from __future__ import annotations

from pathlib import Path

from murmurate.errors import ModelError, require_extra
from murmurate.files import read_text
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
    """Return the households of a zone and kind, and their largest bound, from a meter table.

    It has a column `bound_wh`. Where there is a column `zone`, only meters of that zone count; where there is a column
    `kind`, only those of that kind. Meters with the same text in a column `household` are one household. Without that
    column each meter is a household. See `summarize_meters`.
    """
    require_extra("service", "pyarrow")
    from murmurate.readings.meter_file import read_table  # noqa: PLC0415 - a zone without a meter table needs no Arrow

    table = read_table(path, required=("bound_wh",), optional=("zone", "kind", "household"))
    columns = {
        name: ["" if value is None else str(value) for value in table[name].to_pylist()]
        for name in table.column_names[1:]
    }
    return summarize_meters(
        table["bound_wh"].to_numpy(),
        zone_of=columns.get("zone", [zone] * len(table)),
        kind_of=columns.get("kind", [""] * len(table)),
        household_of=columns.get("household", [str(number) for number in range(len(table))]),
        zone=zone,
        kind=kind,
    )
