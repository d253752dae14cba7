"""Commands that plan a zone and evaluate the plan: plan, audit, paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from murmurate.cli.app import EVALUATE, app, require, stop


@app.command(
    name="plan",
    rich_help_panel=EVALUATE,
    epilog="Example: murmurate plan zone.toml --out plan.json (murmurate plan --example > zone.toml to begin)",
)
def run_plan_command(
    zone_file: Annotated[Path | None, typer.Argument(help="The zone file (TOML).", dir_okay=False)] = None,
    out: Annotated[Path, typer.Option(help="Where the plan is written.", dir_okay=False)] = Path("plan.json"),
    sample_file: Annotated[
        Path | None,
        typer.Option(
            "--sample",
            help="Sample CSV interval,household,energy_wh,occupied[,kind] from households that agreed: "
            "tests the models for exact and robust, suggests a bound.",
        ),
    ] = None,
    noise_plan_file: Annotated[
        Path | None,
        typer.Option(
            "--noise-of", help="Use the noise of this plan.json, not the least: to promise less now and change later."
        ),
    ] = None,
    *,
    example: Annotated[bool, typer.Option("--example", help="Print a zone file to start from.")] = False,
) -> None:
    """Find the least noise that keeps a promise, and prove it."""
    if example:
        from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE  # noqa: PLC0415

        typer.echo(EXAMPLE_ZONE_FILE, nl=False)
        return
    if zone_file is None:
        stop("a zone file is needed; murmurate plan --example > zone.toml writes one to begin with", 2)
        return
    from murmurate.commands.plan import plan_zone  # noqa: PLC0415

    plan_zone(zone_file, out, sample_file, noise_plan_file)


@app.command(name="audit", rich_help_panel=EVALUATE, epilog="Example: murmurate audit plan.json --out audit/")
def audit_plan_file(
    plan_file: Annotated[Path, typer.Argument(help="A plan.json written by murmurate plan.", dir_okay=False)],
    out: Annotated[Path, typer.Option(help="Folder for the report and its figures.", file_okay=False)] = Path("audit"),
    days: Annotated[int, typer.Option(help="Simulated days; more days detect smaller leaks.", min=2)] = 200,
    samples: Annotated[
        int, typer.Option(help="Releases drawn in each of two cases; more samples detect rarer faults.", min=1000)
    ] = 1_000_000,
) -> None:
    """Attack a plan, and compare what is learnt with what it promises."""
    require("matplotlib", extra="lab")
    from murmurate.commands.audit import audit_plan  # noqa: PLC0415

    if not audit_plan(plan_file, out, days, samples):
        raise typer.Exit(1)


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
    require("matplotlib", extra="lab")
    from murmurate.commands.paper import reproduce_paper  # noqa: PLC0415

    reproduce_paper(
        seeds=seeds, households=households, intervals=intervals, epsilon=epsilon, out=out, jobs=jobs or None
    )
