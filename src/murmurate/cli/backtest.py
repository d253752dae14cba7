"""The command that bills the past under a plan: backtest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from murmurate.cli.app import EVALUATE, AsJson, app, require_lab, require_parquet


@app.command(
    name="backtest",
    rich_help_panel=EVALUATE,
    epilog="Example: murmurate backtest plan.json --readings imported/readings.parquet --out bills",
)
def run_backtest_command(
    plan_file: Annotated[
        Path, typer.Argument(help="A plan.json written by murmurate plan.", exists=True, dir_okay=False)
    ],
    readings: Annotated[
        Path,
        typer.Option(
            help="Past readings of the zone, such as murmurate readings import writes.", exists=True, dir_okay=False
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
    """Bill past readings at a flat rate, a forecast, the plan's private price and exact data."""
    require_lab()
    require_parquet()
    from murmurate.commands.backtest import back_test_bills  # noqa: PLC0415
    from murmurate.lab.backtest.zone_back_test import BackTestOptions  # noqa: PLC0415

    options = BackTestOptions(lead=lead, draws=draws, seed=seed, above_percent=above)
    back_test_bills(plan_file, readings, options, out=out, households=households, as_json=as_json)
