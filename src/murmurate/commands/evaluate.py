"""`murmurate evaluate`: compare ways to price zones, and write a page that says what a private price is worth."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from murmurate.errors import ModelError
from murmurate.extras import require_extra
from murmurate.operations.options import AsJson, optional_imports

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is loaded: every core has a process of ours already
with optional_imports():
    from murmurate.lab.evaluate.evaluation import count_tasks, evaluate_region
    from murmurate.lab.evaluate.evaluation_report import make_evaluation_report
    from murmurate.lab.evaluate.market import Supply
    from murmurate.lab.evaluate.parallel import run_tasks
    from murmurate.lab.evaluate.promised_noise import DEFAULT_PROMISES, parse_promises, plan_noise
    from murmurate.lab.evaluate.region import (
        LEVEL_KNOWN,
        USUAL_REGION,
        RegionSize,
        choose_sizes,
        region_of_readings,
        simulate_region,
    )
    from murmurate.lab.evaluate.zone_pricing import Setting
    from murmurate.lab.forecast_files import read_weather
    from murmurate.lab.report import make_progress_bar
    from murmurate.prediction.forecast import USUAL_WEATHER, Weather
    from murmurate.readings.imported_file import MAX_EVALUATED_MISSING, PastReadings, read_households
    from murmurate.units import QUARTER_HOURS_PER_DAY, SECONDS_PER_DAY

DEFAULT_SIZES, QUICK_SIZES = (300, 1_000, 3_000, 10_000, 100_000), (300, 1_000)
_MIN_HOMES, _MAX_HOMES = 20, 10_000_000
ComparedPromises = Annotated[
    list[str] | None,
    typer.Option(
        help="A promise, or several separated by semicolons; give it again to compare.",
        show_default="epsilon 1 and any moment 1; epsilon 2; epsilon 4",
    ),
]
OwnReadings = Annotated[
    Path | None,
    typer.Option(
        "--readings",
        help="Your own readings instead of a simulated region, from murmurate import: five weeks of quarter hours.",
        exists=True,
        dir_okay=False,
    ),
]
OwnWeather = Annotated[
    Path | None,
    typer.Option(
        "--weather",
        help="With --readings: CSV start,temperature_c,irradiance, or one of both, for each quarter hour of them.",
        exists=True,
        dir_okay=False,
    ),
]


def evaluate_prices(
    sizes: Annotated[
        str | None, typer.Option(help="Homes in a zone.", show_default="300,1000,3000,10000,100000")
    ] = None,
    promise: ComparedPromises = None,
    seed: Annotated[int, typer.Option(help="Another seed simulates another region.", min=0)] = 1,
    supply: Annotated[str, typer.Option(help="Marginal cost of electricity: linear or convex.")] = "convex",
    elasticity: Annotated[float, typer.Option(help="How strongly demand answers to its price.")] = 0.1,
    readings_file: OwnReadings = None,
    weather_file: OwnWeather = None,
    out: Annotated[Path, typer.Option(help="Folder for the page and its figures.", file_okay=False)] = Path("evaluate"),
    jobs: Annotated[int, typer.Option(help="Processes; 0 uses every core. The result is the same.", min=0)] = 0,
    *,
    quick: Annotated[bool, typer.Option("--quick", help="A small region: shows the page, not its figures.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run the evaluation with a progress bar, write and print the report."""
    setting, wanted = make_setting(supply, elasticity), () if sizes is None else parse_sizes(sizes)
    promises = promise or DEFAULT_PROMISES
    for text in promises:
        parse_promises(text)  # a wrong one is refused before the work begins
    readings, weather = None, USUAL_WEATHER
    if weather_file is not None and readings_file is None:
        raise ModelError("--weather", str(weather_file), "must come with --readings: simulated homes have a weather")
    if readings_file is not None:
        require_extra("service", "pyarrow")
        readings = read_households(readings_file)
        wanted = choose_sizes(readings.households, wanted)
        if weather_file is not None:
            first = readings.first_interval - readings.utc_offset_s * QUARTER_HOURS_PER_DAY // SECONDS_PER_DAY
            weather = read_weather(weather_file, QUARTER_HOURS_PER_DAY, first, readings.intervals)
    wanted = wanted or (QUICK_SIZES if quick else DEFAULT_SIZES)
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text("{}\n", encoding="utf-8")  # better to fail now than after the run
    with make_progress_bar() as bar:
        task = bar.add_task("planning noise", total=len(promises))
        noises = run_tasks(plan_noise, promises, jobs, lambda _: bar.advance(task))
        facts: dict[str, Any]
        if readings is not None and readings_file is not None:
            region = region_of_readings(readings, wanted, seed, weather)
            facts = {"file": readings_file.name, "seed": seed} | _describe_readings(readings, weather)
        else:
            scale = RegionSize(sample=3_000, whole=6_000, zones=3, days=42) if quick else USUAL_REGION
            homes = scale.homes_of(wanted)
            simulated = bar.add_task("simulating homes", total=homes)
            region = simulate_region(
                seed, wanted, scale=scale, jobs=jobs, progress=lambda done: bar.advance(simulated, done)
            )
            facts = {"kind": "simulated", "homes": homes, "region_homes": scale.whole, "seed": seed}
        pricing = bar.add_task("pricing zones", total=count_tasks(len(region.zones), len(noises)))
        evaluation = evaluate_region(region, noises, setting, jobs=jobs, progress=lambda: bar.advance(pricing))
    source = _describe_source(facts, evaluation.forecast_error)
    make_evaluation_report(evaluation, source, facts).write_and_print(out, as_json=as_json)


def _describe_readings(readings: PastReadings, weather: Weather) -> dict[str, Any]:
    return {
        "kind": "readings",
        "households": readings.households,
        "left_out": readings.left_out,
        "each_meter_a_household": readings.is_by_meter,
        "below_zero": readings.below_zero,
        "filled": readings.filled,
        "silent_share": 0.0 if readings.silent is None else float(readings.silent.mean()),
        "weather": [name for name, column in weather._asdict().items() if column is not None],
        "days": readings.days,
    }


def parse_sizes(text: str) -> tuple[int, ...]:
    """Return the sizes of zones in a list, ascending.

    >>> parse_sizes("1000, 300")
    (300, 1000)
    """
    try:
        sizes = sorted({int(part) for part in text.split(",") if part.strip()})
    except ValueError:
        sizes = []
    if not sizes or sizes[0] < _MIN_HOMES or sizes[-1] > _MAX_HOMES:
        allowed = f"must be numbers of homes from {_MIN_HOMES} to {_MAX_HOMES:,}, for example 300,1000,10000"
        raise ModelError("sizes", repr(text), allowed)
    return tuple(sizes)


def make_setting(supply: str, elasticity: float) -> Setting:
    """Return how zones are priced. Raises ModelError for another curve or elasticity."""
    if supply not in {each.value for each in Supply}:
        raise ModelError("supply", supply, "must be linear or convex")
    if not 0.01 <= elasticity <= 0.9:
        raise ModelError("elasticity", elasticity, "must be between 0.01 and 0.9, for example 0.1")
    return Setting(Supply(supply), elasticity)


def _describe_source(facts: dict[str, Any], forecast_error: float) -> str:
    error = f"{100 * forecast_error:.1f} %"
    if facts["kind"] == "simulated":
        return (
            f"A simulated winter: {facts['homes']:,} homes, seed {facts['seed']}. The forecast comes from a consented "
            f"sample of the year before, and was {error} off there on weeks that it had not seen. The mean use of a "
            f"zone is known to the public within {100 * LEVEL_KNOWN:.0f} % (standard deviation)."
        )
    known = " and ".join(name.removesuffix("_c") for name in facts["weather"]) or "no weather"
    said = (
        f"Readings of {facts['households']:,} households on {facts['days']} days, from {facts['file']}. "
        f"{facts['left_out']:,} households were left out: more than {MAX_EVALUATED_MISSING:.0%} of the readings of a "
        f"meter are missing. {facts['filled']:,} missing readings of the others were filled, in "
        f"{facts['silent_share']:.1%} of the quarter hours of households. The demand counts the mean of the meter at "
        "that time of day, a release what is expected of the household, as in the service. Forecasts know "
        f"{known}. They are fitted on the weeks before, to exact sums of the whole file: they were {error} off at "
        "first. The mean use of a zone is that of its first four weeks. The regional load is that of the whole file: a "
        "zone of all its households is the region itself."
    )
    if facts["each_meter_a_household"]:
        said += " Each meter is taken for a household: the file names none."
    if facts["below_zero"]:
        count = f"{facts['below_zero']:,} readings are below zero"
        said += f" {count}: homes feed in, and the demand of a zone is its net load."
        if "irradiance" not in facts["weather"]:
            said += " Forecasts know no sun, so they see no feed-in coming: name the irradiance with --weather."
    return said
