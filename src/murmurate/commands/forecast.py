"""`murmurate forecast`: a public forecast of one household, as a file that a plan is made with.

It comes from a standard load profile, a public history, a consented sample, or the noised demand that a public log
shows, once the log was verified.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console

from murmurate.errors import ModelError, PrivacyError
from murmurate.extras import require_extra
from murmurate.operations.console import print_json
from murmurate.operations.options import AsJson, LogPlans, optional_imports
from murmurate.time_zones import load_time_zone
from murmurate.units import SECONDS_PER_DAY

with optional_imports():
    import numpy as np

    from murmurate.lab.forecast_files import read_h25, read_history, read_holidays, read_weather, utc_offsets
    from murmurate.operations.log_source import read_verified_zone, source_name
    from murmurate.operations.sample_ledger import SampleSpending, record_spending
    from murmurate.prediction.calendar import CalendarSlots, locate_intervals
    from murmurate.prediction.forecast import USUAL_WEATHER, Weather
    from murmurate.prediction.forecast_sources import (
        forecast_from_history,
        forecast_from_noised_history,
        forecast_from_sample,
        forecast_from_table,
    )
    from murmurate.prediction.private_sample import cast_votes, choose_layout, release_votes
    from murmurate.prediction.public_forecast import SAMPLE_DELTA, PublicForecast
    from murmurate.privacy.noise import NoiseSampler, SystemNoise
    from murmurate.public_log.noised_demand import DemandTerms, LoggedDemand, extract_demand
    from murmurate.readings.imported_file import read_sample
    from murmurate.units import parse_fraction

MIN_LOG_DAYS = 35  # four weeks to begin with, and one to measure the error on
H25 = Annotated[
    float | None, typer.Option("--h25", help="From the German standard load profile: kWh a household and year.")
]
Profile = Annotated[
    Path | None, typer.Option(help="With --h25: h25.csv or the wheel of demandlib; else the installed package.")
]
History = Annotated[
    Path | None,
    typer.Option(help="From a public history: CSV start,kwh[,temperature_c][,irradiance], five weeks or more."),
]
Sample = Annotated[
    Path | None, typer.Option(help="From households that agreed: readings from murmurate import, a week or more.")
]
SampleEpsilon = Annotated[
    str | None, typer.Option(help="With --sample: what each of its households spends, for example 1.")
]
UsualDay = Annotated[
    float, typer.Option(help="With --sample: about what a household uses a day; far from it is cut off.", min=0.1)
]
WeatherFile = Annotated[
    Path | None, typer.Option(help="With --sample or --log: CSV start,temperature_c,irradiance, or one of both.")
]
PublicLog = Annotated[
    str | None,
    typer.Option(help="From a public log of predicted prices, as verify takes it: a file, a folder, - or a URL."),
]
Clock = Annotated[
    str | None, typer.Option(help="Whose clocks people live by.", show_default="UTC; with --log that of the plan")
]
Interval = Annotated[
    int | None, typer.Option(help="Length of an interval.", min=1, show_default="15; with --log that of the log")
]


def make_forecast(
    h25: H25 = None,
    profile: Profile = None,
    history: History = None,
    households: Annotated[int | None, typer.Option(help="With --history: whose demand it is.")] = None,
    sample: Sample = None,
    epsilon: SampleEpsilon = None,
    usual_day_kwh: UsualDay = 10.0,
    weather: WeatherFile = None,
    log: PublicLog = None,
    zone: Annotated[str | None, typer.Option(help="With --log: whose noised demand is taken.")] = None,
    plans: LogPlans = None,
    key: Annotated[str | None, typer.Option(help="With --log: the key that must have opened the chain.")] = None,
    holidays: Annotated[Path | None, typer.Option(help="Dates that count as Sundays, one a line.")] = None,
    time_zone: Clock = None,
    interval_minutes: Interval = None,
    out: Annotated[Path, typer.Option(help="Where the forecast is written.", dir_okay=False)] = Path("forecast.json"),
    *,
    as_json: AsJson = False,
) -> None:
    """Make a forecast from one source, write it, and say what it is worth."""
    sources = {"--h25": h25, "--history": history, "--sample": sample, "--log": log}
    given = [name for name, value in sources.items() if value is not None]
    if len(given) != 1:
        allowed = "must be one of --h25 3500, --history demand.csv, --sample readings.parquet and --log log.jsonl"
        raise ModelError("source", " and ".join(given) or "missing", allowed)
    days = None if holidays is None else read_holidays(holidays)
    calendar = ForecastCalendar(time_zone or "UTC", days or (), interval_minutes or 15, weather)
    if 1440 % calendar.minutes:
        raise ModelError("interval-minutes", calendar.minutes, "must divide a day, for example 15")
    load_time_zone(calendar.time_zone)
    console = Console(width=None if Console().is_terminal else 100, highlight=False, stderr=as_json)
    spent, zone_lines = None, list[str]()
    if sample is not None:
        require_extra("service", "pyarrow")
        made, spent = forecast_from_readings(sample, epsilon, usual_day_kwh, calendar, out, SystemNoise(), console)
        notes = ["Its error was not measured: that would cost more epsilon."]
    elif log is not None:
        logged = _read_demand(log, zone, plans or [], key, interval_minutes)
        public = None if logged.last.prediction is None else logged.last.prediction.model.public
        if days is None and public is not None:
            calendar = calendar._replace(holidays=public.holidays)
        calendar = calendar._replace(
            time_zone=time_zone or logged.last.time_zone, minutes=SECONDS_PER_DAY // logged.slots_per_day // 60
        )
        made, notes = _forecast_from_log(logged, f"zone {zone} in {source_name(log)}", calendar)
        if key is None:
            notes.append("The first key of the log was trusted; --key 3b6a27bc.. takes that of the operator only.")
        zone_lines = _zone_lines(logged.last)
    elif h25 is not None:
        made = _forecast_from_h25(h25, profile, calendar)
        notes = ["Its error was not measured: a profile has no history. Deviations are taken as usual."]
    else:
        made = _forecast_from_history(history or Path(), households, calendar)
        notes = [f"On weeks that it had not seen it was {100 * (made.error or 0):.1f} % off (rms, rolling origin)."]
    if spent is None:
        out.write_text(made.to_json(), encoding="utf-8")
    _print_forecast(made, notes, zone_lines, spent, out, None if as_json else console)


class ForecastCalendar(NamedTuple):
    """Whose clocks and holidays a forecast has, its intervals, and their weather."""

    time_zone: str
    holidays: tuple[int, ...]
    minutes: int  # length of an interval
    weather: Path | None

    def locate(self, first: int, count: int) -> CalendarSlots:
        """Return the types of day and slots of intervals."""
        slots = 1440 // self.minutes
        offsets = utc_offsets(self.time_zone, first, count, slots)
        return locate_intervals(np.arange(first, first + count), slots, offsets, self.holidays)

    def read_weather(self, first: int, count: int) -> Weather:
        """Return the weather of these intervals, as far as there is a file."""
        return USUAL_WEATHER if self.weather is None else read_weather(self.weather, 1440 // self.minutes, first, count)


def _forecast_from_h25(year_kwh: float, profile: Path | None, calendar: ForecastCalendar) -> PublicForecast:
    table = read_h25(profile, year_kwh)
    per_interval, left = divmod(calendar.minutes, 15)
    if left or 96 % per_interval:
        raise ModelError("interval-minutes", calendar.minutes, "must be 15, 30 or 60 with --h25")
    whole = table.reshape(*table.shape[:2], -1, per_interval).sum(axis=3)
    source = f"BDEW standard load profile H25, {year_kwh:g} kWh a year"
    return forecast_from_table(whole, source=source, time_zone=calendar.time_zone, holidays=calendar.holidays)


def _forecast_from_history(path: Path, households: int | None, calendar: ForecastCalendar) -> PublicForecast:
    if households is None or households < 1:
        given = "missing" if households is None else households
        raise ModelError("--households", given, "must say whose demand it is, for example --households 1000")
    found = read_history(path, ("kwh",), 1440 // calendar.minutes)
    return forecast_from_history(
        1000 * found.columns["kwh"],
        calendar.locate(found.first, len(found.columns["kwh"])),
        found.weather,
        households=households,
        source=f"demand of {households:,} households in {path.name}",
        time_zone=calendar.time_zone,
        holidays=calendar.holidays,
    )


def forecast_from_readings(
    path: Path,
    epsilon_text: str | None,
    usual_day_kwh: float,
    calendar: ForecastCalendar,
    out: Path,
    noise: NoiseSampler,
    console: Console,
) -> tuple[PublicForecast, SampleSpending]:
    """Publish what a consented sample shows, with noise, and write the forecast that follows from it.

    `out` must not exist: what it holds has cost epsilon. It is created, and the run stands in the ledger of the sample,
    before any noise is drawn.
    """
    if epsilon_text is None:
        raise PrivacyError("epsilon", "missing", "must say what each household of the sample spends: --epsilon 1")
    epsilon = parse_fraction(epsilon_text, "epsilon", PrivacyError)
    sample = read_sample(path, 60 * calendar.minutes, needs_occupancy=False)
    energy_wh, first = sample.energy_wh, sample.first_s // (60 * calendar.minutes)
    when = calendar.locate(first, len(energy_wh))
    layout = choose_layout(
        when,
        calendar.read_weather(first, len(energy_wh)),
        usual_day_wh=round(1000 * usual_day_kwh),
        epsilon=epsilon,
        households=energy_wh.shape[1],
    )
    votes = cast_votes(energy_wh, layout)
    with out.open("x", encoding="utf-8") as file:
        try:
            spent = record_spending(path, command="forecast", epsilon=epsilon, delta=SAMPLE_DELTA, out=out)
            released = release_votes(votes, layout, epsilon=epsilon, noise=noise)
            answers = f", how that changes with {' and '.join(layout.asked)}," if layout.asked else ""
            console.print(
                f"Took {released.households:,} households that agreed, {len(when) / when.slots_per_day:.0f} days: "
                f"what they use in {layout.periods} periods of the day, for {layout.day_types} types of day{answers} "
                f"and what lies above some bounds. What is far from {usual_day_kwh:g} kWh a day is cut off."
            )
            effect = f"Its noise moves the demand by {released.use_noise_wh:.1f} Wh (rms). "
            spent.print(epsilon, console, effect, delta=SAMPLE_DELTA)
            made = forecast_from_sample(
                released,
                spent=(spent.epsilon, spent.delta),
                source=f"{released.households:,} households that agreed, in {path.name}",
                time_zone=calendar.time_zone,
                holidays=calendar.holidays,
            )
            file.write(made.to_json())
        except BaseException:
            out.unlink()
            raise
    return made, spent


def _read_demand(
    source: str, zone: str | None, plans: list[Path], key: str | None, interval_minutes: int | None
) -> LoggedDemand:
    """Verify the log and return the noised demand of the zone, if there is enough of it."""
    if zone is None:
        raise ModelError("zone", "missing", "must name the zone of the log: --zone harbour")
    found = read_verified_zone(source, zone, plans, key)
    logged = extract_demand(
        found.releases, {digest: DemandTerms.from_json(text) for digest, text in found.plans.items()}
    )
    minutes = SECONDS_PER_DAY // logged.slots_per_day // 60
    if interval_minutes not in {None, minutes}:
        raise ModelError("interval-minutes", interval_minutes, f"must be {minutes} as in the log, or left out")
    days = logged.measured / logged.slots_per_day
    if days < MIN_LOG_DAYS:
        shown = f"{days:.1f} days with a noised demand ({logged.measured:,} of {logged.decided:,} intervals)"
        allowed = f"must have {MIN_LOG_DAYS} days or more; make a forecast from --history or --h25 until then"
        raise ModelError(f"log of zone {zone}", shown, allowed)
    return logged


def _forecast_from_log(logged: LoggedDemand, name: str, calendar: ForecastCalendar) -> tuple[PublicForecast, list[str]]:
    """Return a forecast from the noised demand of a zone, and what a person should know about it."""
    load_time_zone(calendar.time_zone)
    count, days = len(logged.history.demand_wh), logged.measured / logged.slots_per_day
    made, error = forecast_from_noised_history(
        logged.history,
        calendar.locate(logged.first, count),
        calendar.read_weather(logged.first, count),
        source=f"noised demand of {name}, {logged.measured:,} intervals",
        time_zone=calendar.time_zone,
        holidays=calendar.holidays,
    )
    if logged.last.prediction is not None:  # what lies outside the range and how households vary is that of the plan
        known = logged.last.prediction.model.public
        made = replace(made, spread=known.spread, above=known.above, below=known.below, sample=known.sample)
    used, with_noise = f"{logged.measured:,} of its {logged.decided:,} intervals", f"{100 * error.with_noise:.1f} %"
    notes = [
        f"The log holds. {used} have a noised demand: {days:.0f} days.",
        f"On weeks that it had not seen it was {with_noise} off the noised demand (rms, rolling origin).",
        f"The noise alone is {100 * error.noise:.1f} %, as the plan states.",
    ]
    if error.measured:
        notes.append(f"So it was {100 * error.error:.1f} % off the demand itself, which is stored.")
    else:
        notes.append(
            f"The noise hides the error against the demand itself: at most about {100 * error.error:.1f} %, which is "
            "stored. Deviations are taken as usual. A longer log shows more."
        )
    return made, notes


def _zone_lines(last: DemandTerms) -> list[str]:
    """What a zone file must say so that the answer to prices, which was taken out, is put in again."""
    if last.prediction is None or not last.prediction.price_response.elasticity:
        return []
    response = last.prediction.price_response
    price = float(response.reference_ticks * last.terms.curve.tick)
    return [f"elasticity = {response.elasticity:g}", f'reference_price = "{price:.10g}"']


def _print_forecast(
    made: PublicForecast,
    notes: list[str],
    zone_lines: list[str],
    spent: SampleSpending | None,
    out: Path,
    console: Console | None,
) -> None:
    """Print what a forecast is worth: on a console, or as JSON without one."""
    day_kwh = float(made.demand.mean_wh.mean()) * made.demand.slots_per_day / 1000
    bounds_wh = [each.bound_wh for each in made.above]
    lines = ["[forecast]", f'file = "{out.name}"', *zone_lines]
    if console is None:
        found = {"file": str(out), "source": made.source, "day_kwh": day_kwh, "error": made.error}
        cost: dict[str, str | float | None] = dict.fromkeys(("spent", "delta", "runs"))
        if spent is not None:
            cost = {"spent": str(spent.epsilon), "delta": float(spent.delta), "runs": spent.runs}
        print_json(found | cost | {"bounds_wh": bounds_wh, "notes": notes, "zone_lines": lines})
        return
    console.print(f"[bold]Forecast[/] from {made.source}: {day_kwh:.1f} kWh a household and day, in the mean.")
    for note in notes:
        console.print(note, markup=False)
    if bounds_wh:
        bounds = ", ".join(f"{bound:,}" for bound in bounds_wh)
        console.print(f"It knows what is cut off of readings above bounds of {bounds} Wh.")
    else:
        console.print("It knows nothing about single readings: take a bound that few of them exceed, or --sample.")
    console.print(f"\nWritten to {out}. Name it in a zone file:\n\n" + "\n".join(lines), markup=False)
