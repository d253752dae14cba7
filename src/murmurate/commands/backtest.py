"""`murmurate backtest`: what each household would have paid under a plan, computed from readings of the past."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from murmurate.extras import require_extra
from murmurate.operations.console import stderr
from murmurate.operations.options import AsJson, optional_imports

with optional_imports():
    from murmurate.lab.backtest.back_test_report import make_back_test_report, write_household_bills
    from murmurate.lab.backtest.zone_back_test import BackTestOptions, ZonePlan, back_test_zone
    from murmurate.lab.report import make_progress_bar
    from murmurate.operations.plan_files import read_plan_document
    from murmurate.readings.imported_file import BELOW_ZERO_NOTE, read_past_readings


def back_test_bills(
    plan_file: Annotated[
        Path, typer.Argument(help="A plan.json written by murmurate plan.", exists=True, dir_okay=False)
    ],
    readings_file: Annotated[
        Path,
        typer.Option(
            "--readings",
            help="Past readings of the zone, such as murmurate readings import writes.",
            exists=True,
            dir_okay=False,
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the page and its figure.", file_okay=False)] = Path("backtest"),
    lead: Annotated[int, typer.Option(help="Intervals from a release to the one that pays.", min=1, max=48)] = 2,
    draws: Annotated[int, typer.Option(help="Draws of the noise; more show its effect better.", min=2, max=1000)] = 20,
    seed: Annotated[int, typer.Option(help="Another seed draws other noise.", min=0)] = 1,
    above: Annotated[float, typer.Option(help="Count homes that pay over this percentage more.", min=0)] = 5.0,
    households: Annotated[
        Path | None, typer.Option(help="Write the bills of each household to this CSV: personal data.", dir_okay=False)
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Run the back-test, write and print the report. The bills of each household go to the file `households`."""
    require_extra("service", "pyarrow")
    plan = ZonePlan.from_json(read_plan_document(plan_file))
    out.mkdir(parents=True, exist_ok=True)
    options = BackTestOptions(lead=lead, draws=draws, seed=seed, above_percent=above)
    with make_progress_bar() as bar:
        task = bar.add_task("reading", total=None)
        readings = read_past_readings(readings_file, plan.terms.interval_s, plan.terms.zone)
        bar.update(task, description="pricing intervals", total=readings.intervals)
        test = back_test_zone(plan, readings, options, lambda done: bar.advance(task, done))
    if readings.below_zero:
        stderr.print(BELOW_ZERO_NOTE)
    report = make_back_test_report(test, readings_file.name)
    if households is not None:
        write_household_bills(test, households)
        stderr.print(
            f"The bills of each household are in {households}. It is personal data: only you may read the file."
        )
    report.write_and_print(out, as_json=as_json)
