"""`murmurate evaluate`: compare ways to price zones, and write a page that says what a private price is worth."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.progress import Progress

from murmurate.errors import ModelError
from murmurate.lab.evaluate.evaluation import count_tasks, evaluate_region
from murmurate.lab.evaluate.evaluation_report import make_evaluation_report
from murmurate.lab.evaluate.market import Supply
from murmurate.lab.evaluate.parallel import run_tasks
from murmurate.lab.evaluate.promised_noise import DEFAULT_PROMISES, parse_promises, plan_noise
from murmurate.lab.evaluate.region import (
    USUAL_REGION,
    Region,
    RegionSize,
    choose_sizes,
    region_of_readings,
    simulate_region,
)
from murmurate.lab.evaluate.zone_pricing import Setting
from murmurate.lab.report import make_progress_bar
from murmurate.readings.imported_file import PastReadings, read_households

DEFAULT_SIZES, QUICK_SIZES = (300, 1_000, 3_000, 10_000, 100_000), (300, 1_000)
_QUICK_REGION = RegionSize(sample=3_000, whole=6_000, zones=3, days=49)
_MIN_HOMES, _MAX_HOMES = 20, 10_000_000


@dataclass(frozen=True, slots=True)
class EvaluateOptions:
    """Options of the command line."""

    sizes: tuple[int, ...]  # empty: the usual ones
    promises: tuple[str, ...]  # empty: three usual ones
    seed: int
    setting: Setting
    out: Path
    jobs: int
    readings: Path | None
    quick: bool
    as_json: bool = False  # print results.json instead of the findings


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


def evaluate_prices(options: EvaluateOptions) -> None:
    """Run the evaluation with a progress bar, write and print the report."""
    promises = options.promises or DEFAULT_PROMISES
    for text in promises:
        parse_promises(text)  # a wrong one is refused before the work begins
    readings = None if options.readings is None else read_households(options.readings)
    usual = QUICK_SIZES if options.quick else DEFAULT_SIZES
    sizes = options.sizes or usual if readings is None else choose_sizes(readings.households, options.sizes)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "results.json").write_text("{}\n", encoding="utf-8")  # better to fail now than after the run
    with make_progress_bar() as bar:
        task = bar.add_task("planning noise", total=len(promises))
        noises = run_tasks(plan_noise, promises, options.jobs, lambda _: bar.advance(task))
        region, facts = _make_region(options, sizes, readings, bar)
        pricing = bar.add_task("pricing zones", total=count_tasks(len(region.zones), len(noises)))
        evaluation = evaluate_region(
            region, noises, options.setting, jobs=options.jobs, progress=lambda: bar.advance(pricing)
        )
    source = _describe_source(facts, evaluation.forecast_error)
    make_evaluation_report(evaluation, source, facts).write_and_print(options.out, as_json=options.as_json)


def _make_region(
    options: EvaluateOptions, sizes: tuple[int, ...], readings: PastReadings | None, bar: Progress
) -> tuple[Region, dict[str, Any]]:
    """Return the region, and facts on where it comes from."""
    if readings is not None and options.readings is not None:
        facts = {
            "kind": "readings",
            "file": options.readings.name,
            "households": readings.households,
            "left_out": readings.left_out,
            "each_meter_a_household": readings.is_by_meter,
            "days": readings.days,
            "seed": options.seed,
        }
        return region_of_readings(readings, sizes, options.seed), facts
    scale = _QUICK_REGION if options.quick else USUAL_REGION
    homes = scale.homes_of(sizes)
    task = bar.add_task("simulating homes", total=homes)
    region = simulate_region(
        options.seed, sizes, scale=scale, jobs=options.jobs, progress=lambda done: bar.advance(task, done)
    )
    return region, {"kind": "simulated", "homes": homes, "region_homes": scale.whole, "seed": options.seed}


def _describe_source(facts: dict[str, Any], forecast_error: float) -> str:
    error = f"{100 * forecast_error:.1f} %"
    if facts["kind"] == "simulated":
        return (
            f"A simulated winter: {facts['homes']:,} homes, seed {facts['seed']}. The forecast comes from a consented "
            f"sample of the year before, and was {error} off there on weeks that it had not seen."
        )
    without = f" ({facts['left_out']:,} left out: readings missing)" if facts["left_out"] else ""
    alone = " Each meter is taken for a household: the file names none." if facts["each_meter_a_household"] else ""
    return (
        f"Readings of {facts['households']:,} households{without} on {facts['days']} days, from {facts['file']}. "
        f"Forecasts are fitted on the weeks before; those of the whole file were {error} off at first.{alone}"
    )
