"""`murmurate backtest`: what each household would have paid under a plan, computed from readings of the past."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from murmurate.commands.plan_documents import read_plan_document
from murmurate.lab.backtest.back_test_report import make_back_test_report, write_household_bills
from murmurate.lab.backtest.zone_back_test import BackTestOptions, ZonePlan, back_test_zone
from murmurate.lab.report import make_progress_bar
from murmurate.readings.imported_file import read_past_readings


def back_test_bills(
    plan_file: Path,
    readings_file: Path,
    options: BackTestOptions,
    *,
    out: Path,
    households: Path | None,
    as_json: bool,
) -> None:
    """Run the back-test, write and print the report. The bills of each household go to the file `households`."""
    plan = ZonePlan.from_json(read_plan_document(plan_file))
    out.mkdir(parents=True, exist_ok=True)
    with make_progress_bar() as bar:
        task = bar.add_task("reading", total=None)
        readings = read_past_readings(readings_file, plan.terms.interval_s, plan.terms.zone)
        bar.update(task, description="pricing intervals", total=readings.intervals)
        test = back_test_zone(plan, readings, options, lambda done: bar.advance(task, done))
    report = make_back_test_report(test, readings_file.name)
    if households is not None:
        write_household_bills(test, households)
        written = f"The bills of each household are in {households}. It is personal data: only you may read the file."
        Console(stderr=True, soft_wrap=True, highlight=False).print(written, markup=False)
    report.write_and_print(out, as_json=as_json)
