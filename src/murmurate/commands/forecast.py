"""`murmurate forecast`: a public forecast of one household, as a file that a plan is made with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console

from murmurate.commands.log_forecast import LogForecast, LogOptions, forecast_from_log
from murmurate.commands.sample_ledger import record_spending
from murmurate.errors import ModelError, PrivacyError
from murmurate.lab.forecast_files import (
    align_temperature,
    read_h25,
    read_history,
    read_holidays,
    utc_offsets,
)
from murmurate.prediction.calendar import CalendarSlots, locate_intervals
from murmurate.prediction.forecast_sources import forecast_from_history, forecast_from_sample, forecast_from_table
from murmurate.prediction.private_sample import PrivateSample, cast_votes, choose_layout, release_votes
from murmurate.prediction.public_forecast import PublicForecast
from murmurate.privacy.noise import NoiseSampler, SystemNoise
from murmurate.readings.imported_file import read_sample
from murmurate.time_zones import load_time_zone
from murmurate.units import FloatArray, parse_fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastOptions:
    """What the command was asked for."""

    h25_kwh: float | None
    profile: Path | None
    history: Path | None
    households: int | None
    sample: Path | None
    epsilon: str | None
    max_day_kwh: float
    temperature: Path | None
    holidays: Path | None
    time_zone: str
    interval_minutes: int
    log: LogOptions | None = None


def make_forecast(options: ForecastOptions, out: Path, noise: NoiseSampler | None = None) -> None:
    """Make a forecast from one source, write it, and say what it is worth. `noise` is that of a sample."""
    sources = {"--h25": options.h25_kwh, "--history": options.history, "--sample": options.sample, "--log": options.log}
    given = [name for name, value in sources.items() if value is not None]
    if len(given) != 1:
        allowed = "must be one of --h25 3500, --history demand.csv, --sample readings.parquet and --log log.jsonl"
        raise ModelError("source", " and ".join(given) or "missing", allowed)
    if options.interval_minutes < 1 or 1440 % options.interval_minutes:
        raise ModelError("interval-minutes", options.interval_minutes, "must divide a day, for example 15")
    load_time_zone(options.time_zone)
    holidays = () if options.holidays is None else read_holidays(options.holidays)
    console = Console(width=None if Console().is_terminal else 100, highlight=False)
    if options.sample is not None:
        made = _from_sample(options, options.sample, holidays, out, noise or SystemNoise(), console)
        _print_forecast(made, out, None, console)
        return
    logged: LogForecast | None = None
    if options.log is not None:
        logged = forecast_from_log(options.log, None if options.holidays is None else holidays, options.temperature)
        made = logged.forecast
    elif options.h25_kwh is not None:
        made = _from_h25(options, holidays)
    else:
        made = _from_history(options, options.history or Path(), holidays)
    out.write_text(made.to_json(), encoding="utf-8")
    _print_forecast(made, out, logged, console)


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


def _from_sample(
    options: ForecastOptions, path: Path, holidays: tuple[int, ...], out: Path, noise: NoiseSampler, console: Console
) -> PublicForecast:
    """Publish what a sample shows, with noise, and write the forecast that follows from it.

    `out` must not exist: what it holds has cost epsilon. It is created, and the run stands in the ledger of the sample,
    before any noise is drawn.
    """
    if options.epsilon is None:
        raise PrivacyError("epsilon", "missing", "must say what each household of the sample spends: --epsilon 1")
    epsilon = parse_fraction(options.epsilon, "epsilon", PrivacyError)
    slots, interval_s = 1440 // options.interval_minutes, 60 * options.interval_minutes
    sample = read_sample(path, interval_s, needs_occupancy=False)
    energy_wh, first = sample.energy_wh, sample.first_s // interval_s
    temperature: FloatArray | None = None
    if options.temperature is not None:
        history = read_history(options.temperature, ("temperature_c",), slots)
        temperature = align_temperature(history, first, len(energy_wh))
    layout = choose_layout(
        _locate(options, first, len(energy_wh), holidays),
        temperature,
        max_day_wh=round(1000 * options.max_day_kwh),
        epsilon=epsilon,
        households=energy_wh.shape[1],
    )
    votes = cast_votes(energy_wh, layout)
    with out.open("x", encoding="utf-8") as file:
        try:
            spent = record_spending(path, command="forecast", epsilon=epsilon, out=out)
            released = release_votes(votes, layout, epsilon=epsilon, noise=noise)
            _print_release(released, options.max_day_kwh, console)
            console.print(str(spent))
            made = forecast_from_sample(
                released,
                spent=spent.epsilon,
                source=f"{released.households:,} households that agreed, in {path.name}",
                time_zone=options.time_zone,
                holidays=holidays,
            )
            file.write(made.to_json())
        except BaseException:
            out.unlink()
            raise
    return made


def _print_release(released: PrivateSample, max_day_kwh: float, console: Console) -> None:
    layout = released.layout
    days = len(layout.when) / layout.when.slots_per_day
    heat = ", and how much more on a colder day" if len(layout.colder_mk) else ""
    console.print(
        f"Took {released.households:,} households that agreed, {days:.0f} days: "
        f"what they use in {layout.periods} periods of the day, for {layout.day_types} types of day, and by size of "
        f"reading{heat}. What one uses beyond {max_day_kwh:g} kWh a day is cut off."
    )
    console.print(
        f"Spent epsilon {released.epsilon} of each of these households (pure, whatever the others do). Its noise moves "
        f"the use of a period by {100 * released.period_noise:.1f} % (rms). A second run on the same sample draws new "
        "noise and spends as much again: keep the file."
    )


def _locate(options: ForecastOptions, first: int, count: int, holidays: tuple[int, ...]) -> CalendarSlots:
    slots = 1440 // options.interval_minutes
    offsets = utc_offsets(options.time_zone, first, count, slots)
    return locate_intervals(np.arange(first, first + count), slots, offsets, holidays)


def _print_forecast(made: PublicForecast, out: Path, logged: LogForecast | None, console: Console) -> None:
    day_kwh = float(made.demand.mean_wh.mean()) * made.demand.slots_per_day / 1000
    console.print(f"[bold]Forecast[/] from {made.source}: {day_kwh:.1f} kWh a household and day, in the mean.")
    if logged is not None:
        for note in logged.notes:
            console.print(note, markup=False)
    elif made.sample is not None:
        console.print("Its error was not measured: that would cost more epsilon. Deviations are taken as usual.")
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
