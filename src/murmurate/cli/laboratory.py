"""Commands of the laboratory: the paper, plans, attacks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from murmurate.cli.app import app, need, stop


@app.command(epilog="Example: murmurate paper --seeds 1000 --out out/")
def paper(
    seeds: Annotated[int, typer.Option(help="Independent repetitions of the experiment.", min=1)] = 1000,
    households: Annotated[int, typer.Option("--households", "-N", help="Households in the zone.", min=1)] = 1000,
    intervals: Annotated[int, typer.Option("--intervals", "-T", help="Quarter hours, from midnight.", min=1)] = 96,
    epsilon: Annotated[str, typer.Option(help="Privacy parameter of one interval.")] = "0.5",
    out: Annotated[Path, typer.Option(help="Folder for figures and results.json.", file_okay=False)] = Path("out"),
    jobs: Annotated[int, typer.Option(help="Processes; 0 takes every core. The result is the same.", min=0)] = 0,
) -> None:
    """Repeat the paper's experiment over many seeds and in each reading of its text."""
    need("matplotlib", extra="lab")
    from murmurate.lab import command  # noqa: PLC0415

    command.paper(seeds=seeds, households=households, intervals=intervals, epsilon=epsilon, out=out, jobs=jobs or None)


@app.command(epilog="Example: murmurate plan zone.toml --out plan.json (murmurate plan --example > zone.toml to begin)")
def plan(
    zone_file: Annotated[Path | None, typer.Argument(help="The zone file (TOML).", dir_okay=False)] = None,
    out: Annotated[Path, typer.Option(help="Where the plan is written.", dir_okay=False)] = Path("plan.json"),
    readings: Annotated[
        Path | None,
        typer.Option(
            help="Sample CSV interval,household,energy_wh,occupied[,kind] from households that agreed: "
            "tests the laws for exact and robust, suggests a bound."
        ),
    ] = None,
    noise_of: Annotated[
        Path | None,
        typer.Option(help="Take the noise of this plan.json, not the least: to promise less now and change later."),
    ] = None,
    *,
    example: Annotated[bool, typer.Option("--example", help="Print a zone file to start from.")] = False,
) -> None:
    """Find the least noise that keeps a promise, and prove it."""
    if example:
        from murmurate.curator.zonefile import EXAMPLE  # noqa: PLC0415

        typer.echo(EXAMPLE, nl=False)
        return
    if zone_file is None:
        stop("a zone file is needed; murmurate plan --example > zone.toml writes one to begin with", 2)
        return
    from murmurate.lab import plan_page  # noqa: PLC0415

    plan_page.plan(zone_file, out, readings, noise_of)


@app.command(epilog="Example: murmurate audit plan.json --out audit/")
def audit(
    plan_file: Annotated[Path, typer.Argument(help="A plan.json written by murmurate plan.", dir_okay=False)],
    out: Annotated[Path, typer.Option(help="Folder for the report and its figures.", file_okay=False)] = Path("audit"),
    days: Annotated[int, typer.Option(help="Days that the zone lives; more see finer.", min=2)] = 200,
    samples: Annotated[
        int, typer.Option(help="Releases drawn in each of two worlds; more see rarer faults.", min=1000)
    ] = 1_000_000,
) -> None:
    """Attack a plan, and compare what is learnt with what it promises."""
    need("matplotlib", extra="lab")
    from murmurate.lab import audit_report  # noqa: PLC0415

    if not audit_report.audit(plan_file, out, days, samples):
        raise typer.Exit(1)
