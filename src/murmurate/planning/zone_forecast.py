"""The table [forecast] of a zone file: the forecast by which prices are predicted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from murmurate.errors import ModelError, MurmurateError, TariffError
from murmurate.planning.zone import HouseholdKind, PredictedDemand, sum_consumption_moments
from murmurate.prediction.forecast_sources import forecast_from_day
from murmurate.prediction.public_forecast import PublicForecast
from murmurate.time_zones import LocalClock
from murmurate.toml_reader import TomlReader
from murmurate.units import parse_fraction

EXAMPLE_FORECAST = """
[forecast]                                  # prices are predicted for the interval that pays
from = "occupancy"                          # expected demand of the models above; file = "forecast.json" is better
"""

ReadForecast = Callable[[str], PublicForecast]
MIN_LEVEL, MAX_LEVEL = 0.01, 100
MAX_POOL_HOMES = 10**9
_PATH = ("forecast",)
FORECAST_KEYS = {"file", "from", "level", "elasticity", "reference_price", "pool_homes"}
_MIN_INTERVALS_PER_DAY = 24  # the filter has a gain for each hour


def reject_forecast_file(name: str) -> PublicForecast:
    """Refuse a zone file that names a forecast file, where files cannot be read."""
    raise ModelError("file", repr(name), "forecast files cannot be read here")


def read_predicted_demand(
    reader: TomlReader,
    top: Mapping[str, Any],
    day: int,
    clock: LocalClock,
    read_forecast: ReadForecast,
    kinds: Sequence[HouseholdKind],
) -> PredictedDemand | None:
    """Return the forecast by which prices are predicted, if the zone file has one."""
    if "forecast" not in top:
        return None
    table = reader.read_table(_PATH, FORECAST_KEYS)
    source = "from" if "from" in table else "file"
    with reader.locate_errors((), "interval_minutes"):
        if day < _MIN_INTERVALS_PER_DAY:
            raise MurmurateError("interval_minutes", 1440 // day, "must be 60 or less where prices are predicted")
    with reader.locate_errors(_PATH, source):
        forecast = _read_source(reader, table, day, clock, read_forecast, kinds)
    with reader.locate_errors(_PATH, "level" if "level" in table else source):
        level = float(reader.get(table, _PATH, "level", (int, float), 1.0))
        if not MIN_LEVEL <= level <= MAX_LEVEL:
            allowed = f"must be what a household uses, relative to the forecast's: {MIN_LEVEL} to {MAX_LEVEL}"
            raise ModelError("level", level, allowed)
    with reader.locate_errors(_PATH, "elasticity" if "elasticity" in table else source):
        elasticity = float(reader.get(table, _PATH, "elasticity", (int, float), 0.0))
        if not 0 <= elasticity < 1:
            raise ModelError("elasticity", elasticity, "must be 0 or more and below 1, for example 0.1")
    with reader.locate_errors(_PATH, "reference_price" if "reference_price" in table else source):
        reference = None
        if "reference_price" in table:
            price = reader.require(table, _PATH, "reference_price", (int, float, str))
            reference = parse_fraction(price, "reference_price", TariffError)
            if reference <= 0:
                raise TariffError("reference_price", price, "must be above 0: the price at which demand is as forecast")
    with reader.locate_errors(_PATH, "pool_homes" if "pool_homes" in table else source):
        pool_homes = reader.get(table, _PATH, "pool_homes", int, 0)
        if not 0 <= pool_homes <= MAX_POOL_HOMES:
            allowed = "must be how many households the other zones of its shard have together, or 0"
            raise ModelError("pool_homes", pool_homes, allowed)
    return PredictedDemand(forecast, level, elasticity, reference, pool_homes)


def _read_source(
    reader: TomlReader,
    table: Mapping[str, Any],
    day: int,
    clock: LocalClock,
    read_forecast: ReadForecast,
    kinds: Sequence[HouseholdKind],
) -> PublicForecast:
    """Return the forecast of a file, or what the occupancy models expect of a household, the same every day."""
    if {"file", "from"} <= set(table):
        raise MurmurateError("forecast", "file and from", "must be given in one of these ways")
    if "from" in table:
        if table["from"] != "occupancy":
            raise MurmurateError("from", repr(table["from"]), "must be 'occupancy', or give a file instead")
        mean_wh = sum_consumption_moments(kinds, day)[0] / sum(kind.count for kind in kinds)
        local_wh = np.roll(mean_wh, clock.slot_shifts(day)[0])
        made = forecast_from_day(local_wh, source="the occupancy models of the zone file", time_zone=clock.name)
        return PublicForecast.from_document(made.to_document())  # rounded, as in a plan
    forecast = read_forecast(reader.require(table, _PATH, "file", str))
    if forecast.demand.slots_per_day != day or forecast.time_zone != clock.name:
        found = f"of {forecast.demand.slots_per_day} intervals a day, on clocks of {forecast.time_zone}"
        raise ModelError("forecast", found, f"must have {day}, on those of {clock.name}")
    return forecast
