"""Commands for research: paper, habits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from murmurate.cli.app import EVALUATE, app, require_lab, require_planning


@app.command(name="paper", rich_help_panel=EVALUATE, epilog="Example: murmurate paper --seeds 1000 --out out/")
def run_paper_command(
    seeds: Annotated[int, typer.Option(help="Independent repetitions of the experiment.", min=1)] = 1000,
    households: Annotated[int, typer.Option("--households", "-N", help="Households in the zone.", min=1)] = 1000,
    intervals: Annotated[int, typer.Option("--intervals", "-T", help="Quarter hours, from midnight.", min=1)] = 96,
    epsilon: Annotated[str, typer.Option(help="Privacy parameter of one interval.")] = "0.5",
    out: Annotated[Path, typer.Option(help="Folder for figures and results.json.", file_okay=False)] = Path("out"),
    jobs: Annotated[int, typer.Option(help="Processes; 0 uses every core. The result is the same.", min=0)] = 0,
) -> None:
    """Repeat the paper's experiment over many seeds and in each reading of its text."""
    require_lab()
    from murmurate.commands.paper import reproduce_paper  # noqa: PLC0415

    reproduce_paper(
        seeds=seeds, households=households, intervals=intervals, epsilon=epsilon, out=out, jobs=jobs or None
    )


@app.command(
    name="habits", rich_help_panel=EVALUATE, epilog="Example: murmurate habits sample.csv --epsilon 1 --out habits.toml"
)
def run_habits_command(
    sample_file: Annotated[
        Path, typer.Argument(help="CSV interval,household,energy_wh,occupied[,kind] from households that agreed.")
    ],
    epsilon: Annotated[str, typer.Option(help="What each household of the sample spends, such as 1 or 1/2.")],
    out: Annotated[Path, typer.Option(help="Where the models are written.", dir_okay=False)] = Path("habits.toml"),
    name: Annotated[str, typer.Option(help="Name of the occupancy model.")] = "learned",
    kind: Annotated[str, typer.Option(help="Take the households of this kind only.")] = "",
    periods: Annotated[str, typer.Option(help="Starts of the periods of the day.")] = "06:00,09:00,16:00,22:00",
    first_day: Annotated[
        str, typer.Option(help="Date of interval 0: learn workdays, Saturdays and Sundays apart.")
    ] = "",
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
    tested_bound: Annotated[
        bool, typer.Option("--tested-bound", help="A bound with less noise, supported by tests but not by a proof.")
    ] = False,
) -> None:
    """Estimate occupancy models from a consented sample, with pure epsilon-DP for each of its households."""
    require_planning()
    from murmurate.commands.habits import HabitOptions, learn_habits  # noqa: PLC0415

    options = HabitOptions(
        epsilon=epsilon,
        confidence=confidence,
        name=name,
        kind=kind,
        periods=periods,
        interval_minutes=interval_minutes,
        max_changes=max_changes,
        first_day=first_day,
        holidays=tuple(holidays or ()),
        proven=not tested_bound,
        spread=spread,
    )
    learn_habits(sample_file, out, options)
