"""`murmurate forecast`: a public forecast of one household, as a file that a plan is made with."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
from rich.console import Console

from murmurate.commands.log_forecast import LogForecast, LogOptions, forecast_from_log
from murmurate.errors import ModelError
from murmurate.lab.forecast_files import (
    align_temperature,
    read_h25,
    read_history,
    read_holidays,
    utc_offsets,
)
from murmurate.lab.sample_file import read_sample
from murmurate.prediction.calendar import CalendarSlots, locate_intervals
from murmurate.prediction.forecast_sources import forecast_from_history, forecast_from_sample, forecast_from_table
from murmurate.prediction.public_forecast import PublicForecast
from murmurate.prediction.sensor import SampleMoments
from murmurate.time_zones import load_time_zone
from murmurate.units import SECONDS_PER_DAY, FloatArray

SENSOR_BOUNDS_WH = (300, 500, 700, 1000, 1500, 2100, 3000, 5000)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastOptions:
    """What the command was asked for."""

    h25_kwh: float | None
    profile: Path | None
    history: Path | None
    households: int | None
    sample: Path | None
    start: str | None
    temperature: Path | None
    holidays: Path | None
    time_zone: str
    interval_minutes: int
    log: LogOptions | None = None


def make_forecast(options: ForecastOptions, out: Path) -> None:
    """Make a forecast from one source, write it, and say what it is worth."""
    sources = {"--h25": options.h25_kwh, "--history": options.history, "--sample": options.sample, "--log": options.log}
    given = [name for name, value in sources.items() if value is not None]
    if len(given) != 1:
        allowed = "must be one of --h25 3500, --history demand.csv, --sample readings.csv and --log log.jsonl"
        raise ModelError("source", " and ".join(given) or "missing", allowed)
    if options.interval_minutes < 1 or 1440 % options.interval_minutes:
        raise ModelError("interval-minutes", options.interval_minutes, "must divide a day, for example 15")
    load_time_zone(options.time_zone)
    holidays = () if options.holidays is None else read_holidays(options.holidays)
    logged: LogForecast | None = None
    if options.log is not None:
        logged = forecast_from_log(options.log, None if options.holidays is None else holidays, options.temperature)
        made = logged.forecast
    elif options.h25_kwh is not None:
        made = _from_h25(options, holidays)
    elif options.history is not None:
        made = _from_history(options, options.history, holidays)
    else:
        made = _from_sample(options, holidays)
    out.write_text(made.to_json(), encoding="utf-8")
    _print_forecast(made, out, logged)


def _from_h25(options: ForecastOptions, holidays: tuple[int, ...]) -> PublicForecast:
    table = read_h25(options.profile, options.h25_kwh or 0)
    per_interval, left = divmod(options.interval_minutes, 15)
    if left or 96 % per_interval:
        raise ModelError("interval-minutes", options.interval_minutes, "must be 15, 30 or 60 with --h25")
    whole = table.reshape(*table.shape[:2], -1, per_interval).sum(axis=3)
    source = f"BDEW standard load profile H25, {options.h25_kwh:g} kWh a year"
    return forecast_from_table(whole, source=source, time_zone=options.time_zone, holidays=holidays)


def _from_history(options: ForecastOptions, path: Path, holidays: tuple[int, ...]) -> PublicForecast:
    if options.households is None or options.households < 1:
        given = "missing" if options.households is None else options.households
        raise ModelError("--households", given, "must say whose demand it is, for example --households 1000")
    slots = 1440 // options.interval_minutes
    found = read_history(path, ("kwh",), slots)
    when = _locate(options, found.first, len(found.columns["kwh"]), holidays)
    return forecast_from_history(
        1000 * found.columns["kwh"],
        when,
        found.columns.get("temperature_c"),
        households=options.households,
        source=f"demand of {options.households:,} households in {path.name}",
        time_zone=options.time_zone,
        holidays=holidays,
    )


def _from_sample(options: ForecastOptions, holidays: tuple[int, ...]) -> PublicForecast:
    if options.sample is None or options.start is None:
        raise ModelError("start", "missing", "must say when interval 0 began: --start 2025-01-06T00:00+01:00")
    begin = _parse_start(options.start)
    slots = 1440 // options.interval_minutes
    first, left = divmod(round(begin.timestamp()), SECONDS_PER_DAY // slots)
    if left:
        raise ModelError("start", options.start, f"must be the start of an interval of {options.interval_minutes} min")
    energy_wh = read_sample(options.sample).energy_wh
    temperature: FloatArray | None = None
    if options.temperature is not None:
        history = read_history(options.temperature, ("temperature_c",), slots)
        temperature = align_temperature(history, first, len(energy_wh))
    return forecast_from_sample(
        SampleMoments.from_readings(energy_wh, SENSOR_BOUNDS_WH, slots),
        _locate(options, first, len(energy_wh), holidays),
        temperature,
        source=f"{energy_wh.shape[1]:,} households that agreed, in {options.sample.name}",
        time_zone=options.time_zone,
        holidays=holidays,
    )


def _parse_start(text: str) -> datetime:
    allowed = "must be a time with its offset, for example 2025-01-06T00:00+01:00"
    try:
        begin = datetime.fromisoformat(text)
    except ValueError:
        raise ModelError("start", text, allowed) from None
    if begin.tzinfo is None:
        raise ModelError("start", text, allowed)
    return begin


def _locate(options: ForecastOptions, first: int, count: int, holidays: tuple[int, ...]) -> CalendarSlots:
    slots = 1440 // options.interval_minutes
    offsets = utc_offsets(options.time_zone, first, count, slots)
    return locate_intervals(np.arange(first, first + count), slots, offsets, holidays)


def _print_forecast(made: PublicForecast, out: Path, logged: LogForecast | None) -> None:
    console = Console(width=None if Console().is_terminal else 100, highlight=False)
    day_kwh = float(made.demand.mean_wh.mean()) * made.demand.slots_per_day / 1000
    console.print(f"[bold]Forecast[/] from {made.source}: {day_kwh:.1f} kWh a household and day, in the mean.")
    if logged is not None:
        for note in logged.notes:
            console.print(note, markup=False)
    elif made.error is None:
        console.print("Its error was not measured: a profile has no history. Deviations are taken as usual.")
    else:
        console.print(f"On weeks that it had not seen it was {100 * made.error:.1f} % off (rms, rolling origin).")
    if len(made.sensors) > 1:
        bounds = ", ".join(f"{sensor.bound_wh:,}" for sensor in made.sensors)
        console.print(f"It knows how sums of readings that are cut off show the demand, for bounds of {bounds} Wh.")
    else:
        console.print("It knows nothing about single readings: take a bound that few of them exceed, or --sample.")
    lines = ["[forecast]", f'file = "{out.name}"', *(() if logged is None else logged.zone_lines)]
    console.print(f"\nWritten to {out}. Name it in a zone file:\n\n" + "\n".join(lines), markup=False)
