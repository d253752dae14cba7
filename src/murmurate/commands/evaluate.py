"""`murmurate evaluate`: compare ways to price zones, and write a page that says what a private price is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from murmurate.commands.json_output import print_json_file
from murmurate.errors import ModelError
from murmurate.lab.evaluate.evaluation import Evaluation, count_tasks, evaluate_region
from murmurate.lab.evaluate.evaluation_figures import write_figures
from murmurate.lab.evaluate.evaluation_page import make_page
from murmurate.lab.evaluate.evaluation_report import (
    homes_sentences,
    promise_sentences,
    results_document,
    stress_sentences,
    summary_table,
)
from murmurate.lab.evaluate.parallel import run_tasks
from murmurate.lab.evaluate.promised_noise import DEFAULT_PROMISES, PromisedNoise, parse_promises, plan_noise
from murmurate.lab.evaluate.readings_file import HouseholdReadings, read_households
from murmurate.lab.evaluate.readings_region import choose_sizes, region_of_readings
from murmurate.lab.evaluate.region import Region
from murmurate.lab.evaluate.simulated_region import USUAL_REGION, RegionSize, simulate_region
from murmurate.lab.evaluate.supply import Supply
from murmurate.lab.evaluate.zone_pricing import Setting

DEFAULT_SIZES, QUICK_SIZES = (300, 1_000, 3_000, 10_000, 100_000), (300, 1_000)
_QUICK_REGION = RegionSize(sample=3_000, whole=6_000, zones=3, days=49)
_MIN_HOMES, _MAX_HOMES = 20, 10_000_000


@dataclass(frozen=True, slots=True)
class EvaluateOptions:
    """What the command line asks for."""

    sizes: tuple[int, ...]  # empty: the usual ones
    promises: tuple[str, ...]  # empty: three usual ones
    seed: int
    setting: Setting
    out: Path
    jobs: int
    readings: Path | None
    quick: bool
    command: str  # as it was typed
    as_json: bool = False  # print results.json instead of the findings

    @property
    def simulated_sizes(self) -> tuple[int, ...]:
        return self.sizes or (QUICK_SIZES if self.quick else DEFAULT_SIZES)


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
    return Setting(Supply(supply), elasticity, elasticity)


def evaluate_prices(options: EvaluateOptions) -> None:
    """Run the evaluation with a progress bar, write the page, figures and results, print the findings."""
    promises = options.promises or DEFAULT_PROMISES
    for text in promises:
        parse_promises(text)  # a wrong one is refused before the work begins
    readings = None if options.readings is None else read_households(options.readings)
    sizes = options.simulated_sizes if readings is None else choose_sizes(readings.households, options.sizes)
    options.out.mkdir(parents=True, exist_ok=True)
    results = options.out / "results.json"
    results.write_text("{}\n", encoding="utf-8")  # better to fail now than after the run
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        noises = _plan_noises(promises, options.jobs, bar)
        region, facts = _make_region(options, sizes, readings, bar)
        task = bar.add_task("pricing zones", total=count_tasks(len(region.zones), len(noises)))
        evaluation = evaluate_region(
            region, noises, options.setting, jobs=options.jobs, progress=lambda: bar.advance(task)
        )
    results.write_text(results_document(evaluation, facts), encoding="utf-8")
    write_figures(evaluation, options.out)
    source = _describe_source(facts, evaluation)
    page = make_page(evaluation, source, options.command, options.out, simulated=readings is None)
    (options.out / "index.html").write_text(page, encoding="utf-8")
    if options.as_json:
        print_json_file(results)
    else:
        _print_findings(evaluation, source, options)


def _plan_noises(promises: Sequence[str], jobs: int, bar: Progress) -> list[PromisedNoise]:
    task = bar.add_task("planning noise", total=len(promises))
    return run_tasks(plan_noise, promises, jobs, lambda _: bar.advance(task))


def _make_region(
    options: EvaluateOptions, sizes: tuple[int, ...], readings: HouseholdReadings | None, bar: Progress
) -> tuple[Region, dict[str, Any]]:
    """The region, and facts on where it comes from."""
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


def _describe_source(facts: dict[str, Any], evaluation: Evaluation) -> str:
    error = f"{100 * evaluation.forecast_error:.1f} %"
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


def _print_findings(evaluation: Evaluation, source: str, options: EvaluateOptions) -> None:
    console = Console(width=None if Console().is_terminal else 100, highlight=False)
    console.print(source, markup=False)
    console.print("", f"Error of the demand that is priced; promise: {evaluation.promises[0].promise}", sep="\n")
    console.print(summary_table(evaluation))
    for sentence in (*homes_sentences(evaluation), *promise_sentences(evaluation), *stress_sentences(evaluation)):
        console.print(f"- {sentence}", markup=False)
    console.print(f"\nThe page is {options.out / 'index.html'}; figures and results.json are beside it.", markup=False)
