"""`murmurate homes`: a page on the error of private prices, and attacks on them, for households of a data set."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from enum import Enum
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from murmurate.errors import ReadingError
from murmurate.lab.data_sets.citylearn import read_citylearn
from murmurate.lab.data_sets.eco import read_eco
from murmurate.lab.data_sets.homes_data import HomesData
from murmurate.lab.data_sets.irish_trial import read_irish_trial
from murmurate.lab.data_sets.low_carbon_london import read_low_carbon_london
from murmurate.lab.real_homes.homes_report import evaluate_homes
from murmurate.lab.real_homes.page import NUMBERS_NAME, PAGE_NAME, write_homes_page
from murmurate.lab.real_homes.page_text import attack_sentences, error_sentences


class DataSetFormat(Enum):
    """The data sets that can be read."""

    CITYLEARN = "citylearn"
    LOW_CARBON_LONDON = "lcl"
    IRISH_TRIAL = "cer"
    ECO = "eco"


def evaluate_data_set(
    paths: Sequence[Path], data_format: DataSetFormat, first_day: date | None, days: int, targets: int, out: Path
) -> None:
    """Read a data set, evaluate it, print what came of it and write the page."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=1.0)
        data_sets = read_data_set(paths, data_format)
        if first_day is not None:
            data_sets = tuple(data.cut_days(first_day, days) for data in data_sets)
        bar.update(task, description="pricing")

        def show_progress(what: str, share: float) -> None:
            bar.update(task, advance=share, description=what)

        report = evaluate_homes(data_sets, targets, show_progress)
        write_homes_page(report, out)
    console = Console(width=min(100, Console().width), highlight=False)
    sentences = error_sentences(report.zones) + ([] if report.attack is None else attack_sentences(report.attack))
    console.print("\n\n".join(sentences), markup=False)
    console.print(f"\n{PAGE_NAME} and {NUMBERS_NAME} are in {out}/", markup=False, soft_wrap=True)


def read_data_set(paths: Sequence[Path], data_format: DataSetFormat) -> tuple[HomesData, ...]:
    """Return the households of files in a format. Raises ReadingError with the file and row."""
    if data_format is DataSetFormat.LOW_CARBON_LONDON:
        return (read_low_carbon_london(paths),)
    if data_format is DataSetFormat.IRISH_TRIAL:
        return (read_irish_trial(paths),)
    if len(paths) != 1:
        raise ReadingError("files", len(paths), f"must be one for --format {data_format.value}")
    return read_citylearn(paths[0]) if data_format is DataSetFormat.CITYLEARN else (read_eco(paths[0]),)
