"""`murmurate backtest`: what each household would have paid under a plan, computed from readings of the past."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from murmurate.commands.plan_documents import read_plan_document
from murmurate.lab.backtest.back_test_figures import write_bills_figure
from murmurate.lab.backtest.back_test_page import make_back_test_page
from murmurate.lab.backtest.back_test_report import (
    change_cells,
    change_columns,
    noise_sentences,
    rules_sentences,
    source_sentence,
    write_household_bills,
)
from murmurate.lab.backtest.past_readings import read_past_readings
from murmurate.lab.backtest.zone_back_test import BackTestOptions, ZoneBackTest, ZonePlan, back_test_zone


@dataclass(frozen=True, slots=True, kw_only=True)
class BackTestFiles:
    """What a back-test reads and writes."""

    plan: Path
    readings: Path
    out: Path
    households: Path | None  # bills of each household: personal data


def back_test_bills(files: BackTestFiles, options: BackTestOptions, *, command: str, as_json: bool) -> None:
    """Run the back-test with a progress bar, write the page, figure and results, print the findings."""
    plan = ZonePlan.from_json(read_plan_document(files.plan))
    files.out.mkdir(parents=True, exist_ok=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None)
        readings = read_past_readings(files.readings, plan.terms.interval_s, plan.terms.zone)
        bar.update(task, description="pricing intervals", total=readings.intervals)
        test = back_test_zone(plan, readings, options, lambda done: bar.advance(task, done))
    document = json.dumps(test.to_document(), indent=1)
    (files.out / "results.json").write_text(document + "\n", encoding="utf-8")
    write_bills_figure(test, files.out)
    page = make_back_test_page(test, files.readings.name, command, files.out)
    (files.out / "index.html").write_text(page, encoding="utf-8")
    if files.households is not None:
        write_household_bills(test, files.households)
        written = (
            f"The bills of each household are in {files.households}. It is personal data: only you may read the file."
        )
        Console(stderr=True, soft_wrap=True, highlight=False).print(written, markup=False)
    if as_json:
        print(document)  # noqa: T201 - without the line breaks of a console
    else:
        _print_findings(test, files)


def _print_findings(test: ZoneBackTest, files: BackTestFiles) -> None:
    console = Console(width=None if Console().is_terminal else 110, highlight=False)
    console.print(source_sentence(test, files.readings.name), markup=False)
    for sentence in rules_sentences(test):
        console.print(f"- {sentence}", markup=False)
    console.print("", "Change of the bill beside the flat rate, over homes", sep="\n")
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for at, name in enumerate(change_columns(test)):
        table.add_column(name, justify="left" if at == 0 else "right", no_wrap=at == 0)
    for cells in change_cells(test):
        table.add_row(*cells)
    console.print(table)
    for sentence in noise_sentences(test):
        console.print(f"- {sentence}", markup=False)
    console.print(f"\nThe page is {files.out / 'index.html'}; the figure and results.json are beside it.", markup=False)
