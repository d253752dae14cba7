"""Price and attack the homes of a public data set: `python -m research.real_homes WHEEL --out FOLDER`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from murmurate.errors import ReadingError
from murmurate.lab.report import make_progress_bar
from research.command_line import run_program
from research.data_sets.citylearn import read_citylearn
from research.data_sets.eco import read_eco
from research.data_sets.homes_data import HomesData
from research.data_sets.irish_trial import read_irish_trial
from research.data_sets.low_carbon_london import read_low_carbon_london
from research.real_homes.homes_report import evaluate_homes
from research.real_homes.page import make_homes_report

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class DataSetFormat(Enum):
    """The data sets that can be read."""

    CITYLEARN = "citylearn"
    LOW_CARBON_LONDON = "lcl"
    IRISH_TRIAL = "cer"
    ECO = "eco"


@app.command(
    epilog="Example: python -m research.real_homes CityLearn-2.2b0-py3-none-any.whl --out homes/ "
    "(pip download citylearn==2.2b0 --no-deps fetches that file)",
)
def evaluate_data_set(
    files: Annotated[list[Path], typer.Argument(help="The data set: its files, or the folder of ECO.", exists=True)],
    data_format: Annotated[
        DataSetFormat, typer.Option("--format", help="CityLearn's wheel, Low Carbon London, the Irish trial or ECO.")
    ] = DataSetFormat.CITYLEARN,
    first_day: Annotated[
        datetime | None,
        typer.Option("--from", help="First local day to use.", formats=["%Y-%m-%d"], metavar="YYYY-MM-DD"),
    ] = None,
    days: Annotated[int, typer.Option(help="Days after --from.", min=140)] = 364,
    targets: Annotated[
        int, typer.Option(help="Homes to attack in each place; more give narrower intervals.", min=2)
    ] = 40,
    out: Annotated[Path, typer.Option(help="Folder for the page and its numbers.", file_okay=False)] = Path("homes"),
) -> None:
    """Price and attack the homes of a public data set, and write a page about it."""
    with make_progress_bar() as bar:
        task = bar.add_task("reading", total=1.0)
        data_sets = read_data_set(files, data_format)
        if first_day is not None:
            data_sets = tuple(data.cut_days(first_day.date(), days) for data in data_sets)
        bar.update(task, description="pricing")

        def show_progress(what: str, share: float) -> None:
            bar.update(task, advance=share, description=what)

        found = evaluate_homes(data_sets, targets, show_progress)
    out.mkdir(parents=True, exist_ok=True)
    make_homes_report(found).write_and_print(out, as_json=False, program="python -m research.real_homes")


def read_data_set(paths: Sequence[Path], data_format: DataSetFormat) -> tuple[HomesData, ...]:
    """Return the households of files in a format. Raises ReadingError with the file and row."""
    if data_format is DataSetFormat.LOW_CARBON_LONDON:
        return (read_low_carbon_london(paths),)
    if data_format is DataSetFormat.IRISH_TRIAL:
        return (read_irish_trial(paths),)
    if len(paths) != 1:
        raise ReadingError("files", len(paths), f"must be one for --format {data_format.value}")
    return read_citylearn(paths[0]) if data_format is DataSetFormat.CITYLEARN else (read_eco(paths[0]),)


if __name__ == "__main__":
    run_program(app, "research.real_homes")
