"""The command for research: habits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from murmurate.cli.app import EVALUATE, app, require_parquet, require_planning


@app.command(
    name="habits",
    rich_help_panel=EVALUATE,
    epilog="Example: murmurate habits imported/readings.parquet --epsilon 1 --out habits.toml",
)
def run_habits_command(
    sample_file: Annotated[
        Path,
        typer.Argument(
            help="Readings of households that agreed, imported from a file with a column occupied.", dir_okay=False
        ),
    ],
    epsilon: Annotated[str, typer.Option(help="What each household of the sample spends, such as 1 or 1/2.")],
    out: Annotated[Path, typer.Option(help="Where the models are written.", dir_okay=False)] = Path("habits.toml"),
    name: Annotated[str, typer.Option(help="Name of the occupancy model.")] = "learned",
    kind: Annotated[str, typer.Option(help="Take the households of this kind only.")] = "",
    periods: Annotated[str, typer.Option(help="Starts of the periods of the day.")] = "06:00,09:00,16:00,22:00",
    holidays: Annotated[list[str] | None, typer.Option("--holiday", help="A date that counts as a Sunday.")] = None,
    confidence: Annotated[float, typer.Option(help="Chance that all ranges hold together.")] = 0.99,
    interval_minutes: Annotated[int, typer.Option(help="Length of an interval of the sample.", min=1)] = 15,
    max_changes: Annotated[
        int, typer.Option(help="A household is counted until it has arrived or left this often in a day.", min=1)
    ] = 6,
    spread: Annotated[
        float, typer.Option(help="Factor by which the chances of one household may differ from the common ones.", min=1)
    ] = 1.0,
    *,
    day_types: Annotated[
        bool, typer.Option("--day-types", help="Learn workdays, Saturdays and Sundays apart.")
    ] = False,
    tested_bound: Annotated[
        bool, typer.Option("--tested-bound", help="A bound with less noise, supported by tests but not by a proof.")
    ] = False,
) -> None:
    """Estimate occupancy models from a consented sample, with pure epsilon-DP for each of its households."""
    require_planning()
    require_parquet()
    from murmurate.commands.habits import HabitOptions, learn_habits  # noqa: PLC0415

    options = HabitOptions(
        epsilon=epsilon,
        confidence=confidence,
        name=name,
        kind=kind,
        periods=periods,
        interval_minutes=interval_minutes,
        max_changes=max_changes,
        day_types=day_types,
        holidays=tuple(holidays or ()),
        proven=not tested_bound,
        spread=spread,
    )
    learn_habits(sample_file, out, options)
