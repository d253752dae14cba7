"""`murmurate forecast --log`: a forecast from the noised demand that a public log shows, once the log was verified."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from murmurate.commands.log_source import source_name
from murmurate.commands.verify import read_verified_zone
from murmurate.errors import ModelError
from murmurate.lab.forecast_files import align_temperature, read_history, utc_offsets
from murmurate.prediction.calendar import locate_intervals
from murmurate.prediction.forecast_sources import NoisedError, forecast_from_noised_history
from murmurate.prediction.public_forecast import PublicForecast
from murmurate.public_log.noised_demand import DemandTerms, LoggedDemand, extract_demand
from murmurate.time_zones import load_time_zone
from murmurate.units import SECONDS_PER_DAY

MIN_LOG_DAYS = 35  # four weeks to begin with, and one to measure the error on


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Which log, and which zone of it."""

    source: str  # as `murmurate log verify` takes it
    zone: str | None
    plans: tuple[Path, ...] = ()  # that the log does not hold
    key: str | None = None  # that must have opened the chain; None: the first one is trusted
    time_zone: str | None = None  # None: that of the plan
    interval_minutes: int | None = None  # None: that of the log


@dataclass(frozen=True, slots=True, kw_only=True)
class LogForecast:
    """A forecast, and what a person should know about it."""

    forecast: PublicForecast
    notes: tuple[str, ...]
    zone_lines: tuple[str, ...]  # of the table [forecast], beside its file


def forecast_from_log(options: LogOptions, holidays: tuple[int, ...] | None, temperature: Path | None) -> LogForecast:
    """Verify a log and make a forecast from the noised demand of one of its zones."""
    if options.zone is None:
        raise ModelError("zone", "missing", "must name the zone of the log: --zone harbour")
    logged = _read_demand(options, options.zone)
    public = None if logged.last.prediction is None else logged.last.prediction.model.public
    time_zone = options.time_zone or logged.last.time_zone
    if holidays is None:
        holidays = () if public is None else public.holidays
    load_time_zone(time_zone)
    slots, count = logged.slots_per_day, len(logged.history.demand_wh)
    when = locate_intervals(
        np.arange(logged.first, logged.first + count),
        slots,
        utc_offsets(time_zone, logged.first, count, slots),
        holidays,
    )
    degrees = None
    if temperature is not None:
        degrees = align_temperature(read_history(temperature, ("temperature_c",), slots), logged.first, count)
    name = source_name(options.source)
    made, error = forecast_from_noised_history(
        logged.history,
        when,
        degrees,
        source=f"noised demand of zone {options.zone} in {name}, {logged.measured:,} intervals",
        time_zone=time_zone,
        holidays=holidays,
    )
    if public is not None:
        made = replace(made, sample=public.sample)  # its sensor and volatility come from the plan
    return LogForecast(forecast=made, notes=_notes(logged, error, options), zone_lines=_zone_lines(logged.last))


def _read_demand(options: LogOptions, zone: str) -> LoggedDemand:
    """Verify the log and return the noised demand of the zone, if there is enough of it."""
    found = read_verified_zone(options.source, zone, options.plans, options.key)
    plans = {digest: DemandTerms.from_json(text) for digest, text in found.plans.items()}
    logged = extract_demand(found.releases, plans)
    minutes = SECONDS_PER_DAY // logged.slots_per_day // 60
    if options.interval_minutes not in {None, minutes}:
        raise ModelError("interval-minutes", options.interval_minutes, f"must be {minutes} as in the log, or left out")
    days = logged.measured / logged.slots_per_day
    if days < MIN_LOG_DAYS:
        shown = f"{days:.1f} days with a noised demand ({logged.measured:,} of {logged.decided:,} intervals)"
        allowed = f"must have {MIN_LOG_DAYS} days or more; make a forecast from --history or --h25 until then"
        raise ModelError(f"log of zone {zone}", shown, allowed)
    return logged


def _notes(logged: LoggedDemand, error: NoisedError, options: LogOptions) -> tuple[str, ...]:
    used, days = f"{logged.measured:,} of its {logged.decided:,} intervals", logged.measured / logged.slots_per_day
    with_noise, noise = f"{100 * error.with_noise:.1f} %", f"{100 * error.noise:.1f} %"
    notes = [
        f"The log of zone {options.zone} holds. {used} have a noised demand: {days:.0f} days.",
        f"On weeks that it had not seen it was {with_noise} off beside the noised demand (rms, rolling origin).",
        f"The noise alone is {noise}, as the plan states.",
    ]
    if error.measured:
        notes.append(f"So it was {100 * error.error:.1f} % off beside the demand itself, which is stored.")
    else:
        notes.append(
            f"The noise hides the error beside the demand itself: at most about {100 * error.error:.1f} %, which is "
            "stored. Deviations are taken as usual. A longer log shows more."
        )
    if options.key is None:
        notes.append("The first key of the log was trusted; --key 3b6a27bc.. takes that of the operator only.")
    return tuple(notes)


def _zone_lines(last: DemandTerms) -> tuple[str, ...]:
    """What a zone file must say so that the answer to prices, which was taken out, is put in again."""
    if last.prediction is None or not last.prediction.price_response.elasticity:
        return ()
    response = last.prediction.price_response
    price = float(response.reference_ticks * last.terms.curve.tick)
    return f"elasticity = {response.elasticity:g}", f'reference_price = "{price:.10g}"'
