"""Commands that plan a zone and evaluate the plan: plan, forecast, audit, evaluate."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from murmurate.cli.app import (
    EVALUATE,
    AsJson,
    app,
    require_database,
    require_lab,
    require_parquet,
    require_planning,
    stop,
)

ComparedPromises = Annotated[
    list[str] | None,
    typer.Option(
        help="A promise, or several separated by semicolons; give it again to compare.",
        show_default="epsilon 1 and any moment 1; epsilon 2; epsilon 4",
    ),
]
OwnReadings = Annotated[
    Path | None,
    typer.Option(
        help="Your own readings instead of a simulated region, from murmurate import: five weeks of quarter hours.",
        exists=True,
        dir_okay=False,
    ),
]
ForecastH25 = Annotated[
    float | None, typer.Option("--h25", help="From the German standard load profile: kWh a household and year.")
]
ForecastProfile = Annotated[
    Path | None, typer.Option(help="With --h25: h25.csv or the wheel of demandlib; else the installed package.")
]
ForecastHistory = Annotated[
    Path | None, typer.Option(help="From a public history: CSV start,kwh[,temperature_c], five weeks or more.")
]
ForecastSample = Annotated[
    Path | None,
    typer.Option(help="From households that agreed: readings from murmurate import, a week or more."),
]
ForecastWeather = Annotated[
    Path | None, typer.Option(help="With --sample or --log: CSV start,temperature_c, for the response to cold.")
]
ForecastLog = Annotated[
    str | None,
    typer.Option(help="From a public log of predicted prices, as verify takes it: a file, a folder, - or a URL."),
]
ForecastPlans = Annotated[
    list[Path] | None, typer.Option("--plan", help="With --log: a plan.json that the log does not hold.")
]
ForecastClock = Annotated[
    str | None, typer.Option(help="Whose clocks people live by.", show_default="UTC; with --log that of the plan")
]
ForecastInterval = Annotated[
    int | None, typer.Option(help="Length of an interval.", min=1, show_default="15; with --log that of the log")
]
PlanRegistry = Annotated[
    Path | None,
    typer.Option(help="Also write an entry of the OpenDP deployments registry, such as harbour.yaml.", dir_okay=False),
]


@app.command(
    name="plan",
    rich_help_panel=EVALUATE,
    epilog="Example: murmurate plan zone.toml --out plan.json (murmurate plan --example > zone.toml to begin). "
    "For the registry of deployments: murmurate plan zone.toml --registry harbour.yaml",
)
def run_plan_command(
    zone_file: Annotated[Path | None, typer.Argument(help="The zone file (TOML).", dir_okay=False)] = None,
    out: Annotated[Path, typer.Option(help="Where the plan is written.", dir_okay=False)] = Path("plan.json"),
    noise_plan_file: Annotated[
        Path | None,
        typer.Option(
            "--noise-of", help="Use the noise of this plan.json, not the least: to promise less now and change later."
        ),
    ] = None,
    registry: PlanRegistry = None,
    *,
    example: Annotated[bool, typer.Option("--example", help="Print a zone file to start from.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find the least noise that keeps a promise, and prove it."""
    if example:
        from murmurate.planning.zone_file import EXAMPLE_FORECAST, EXAMPLE_ZONE_FILE  # noqa: PLC0415

        typer.echo(EXAMPLE_ZONE_FILE + EXAMPLE_FORECAST, nl=False)
        return
    if zone_file is None:
        stop("a zone file is needed; murmurate plan --example > zone.toml writes one to begin with", 2)
        return
    require_planning()
    if registry is not None and registry.exists():
        stop(f"{registry} is there already: it may hold what you filled in; name another file", 2)
    from murmurate.commands.plan import plan_zone  # noqa: PLC0415

    plan = plan_zone(zone_file, out, noise_plan_file, as_json=as_json)
    if registry is not None:
        from murmurate.commands.registry_entry import write_registry_entry  # noqa: PLC0415

        write_registry_entry(plan, registry, as_json=as_json)


@app.command(
    name="forecast",
    rich_help_panel=EVALUATE,
    epilog="Examples: murmurate forecast --history demand.csv --households 1000 --time-zone Europe/Berlin; "
    "murmurate forecast --log log.jsonl --zone harbour",
)
def make_forecast_file(
    h25_kwh: ForecastH25 = None,
    profile: ForecastProfile = None,
    history: ForecastHistory = None,
    households: Annotated[int | None, typer.Option(help="With --history: whose demand it is.")] = None,
    sample: ForecastSample = None,
    epsilon: Annotated[
        str | None, typer.Option(help="With --sample: what each of its households spends, for example 1.")
    ] = None,
    max_day_kwh: Annotated[
        float, typer.Option(help="With --sample: what a household uses a day at most; more is cut off.", min=1)
    ] = 25.0,
    temperature: ForecastWeather = None,
    log: ForecastLog = None,
    zone: Annotated[str | None, typer.Option(help="With --log: whose noised demand is taken.")] = None,
    plans: ForecastPlans = None,
    key: Annotated[str | None, typer.Option(help="With --log: the key that must have opened the chain.")] = None,
    holidays: Annotated[Path | None, typer.Option(help="Dates that count as Sundays, one a line.")] = None,
    time_zone: ForecastClock = None,
    interval_minutes: ForecastInterval = None,
    out: Annotated[Path, typer.Option(help="Where the forecast is written.", dir_okay=False)] = Path("forecast.json"),
) -> None:
    """Make a public forecast, so that prices are predicted and not an echo of the last release."""
    if log is not None and log.lower().startswith(("postgresql://", "postgres://")):
        require_database()
    require_planning()
    if sample is not None:
        require_parquet()
    from murmurate.commands.forecast import ForecastOptions, make_forecast  # noqa: PLC0415
    from murmurate.commands.log_forecast import LogOptions  # noqa: PLC0415

    clock = (time_zone, interval_minutes)
    options = ForecastOptions(
        h25_kwh=h25_kwh,
        profile=profile,
        history=history,
        households=households,
        sample=sample,
        epsilon=epsilon,
        max_day_kwh=max_day_kwh,
        temperature=temperature,
        holidays=holidays,
        time_zone=time_zone or "UTC",
        interval_minutes=interval_minutes or 15,
        log=None if log is None else LogOptions(log, zone, tuple(plans or ()), key, *clock),
    )
    make_forecast(options, out)


@app.command(name="audit", rich_help_panel=EVALUATE, epilog="Example: murmurate audit plan.json --out audit/")
def audit_plan_file(
    plan_file: Annotated[Path, typer.Argument(help="A plan.json written by murmurate plan.", dir_okay=False)],
    out: Annotated[Path, typer.Option(help="Folder for the report and its figures.", file_okay=False)] = Path("audit"),
    days: Annotated[int, typer.Option(help="Simulated days; more days detect smaller leaks.", min=2)] = 200,
    samples: Annotated[
        int, typer.Option(help="Releases drawn in each of two cases; more samples detect rarer faults.", min=1000)
    ] = 1_000_000,
    *,
    as_json: AsJson = False,
) -> None:
    """Attack a plan, and compare what is learnt with what it promises."""
    require_lab()
    from murmurate.commands.audit import audit_plan  # noqa: PLC0415

    if not audit_plan(plan_file, out, days, samples, as_json=as_json):
        raise typer.Exit(1)


@app.command(
    name="evaluate",
    rich_help_panel=EVALUATE,
    epilog="Example: murmurate evaluate --quick (seconds); murmurate evaluate (minutes, zones up to 100,000 homes)",
)
def run_evaluate_command(
    sizes: Annotated[
        str | None, typer.Option(help="Homes in a zone.", show_default="300,1000,3000,10000,100000")
    ] = None,
    promise: ComparedPromises = None,
    seed: Annotated[int, typer.Option(help="Another seed simulates another region.", min=0)] = 1,
    supply: Annotated[str, typer.Option(help="Marginal cost of electricity: linear or convex.")] = "convex",
    elasticity: Annotated[float, typer.Option(help="How strongly demand answers to its price.")] = 0.1,
    readings: OwnReadings = None,
    out: Annotated[Path, typer.Option(help="Folder for the page and its figures.", file_okay=False)] = Path("evaluate"),
    jobs: Annotated[int, typer.Option(help="Processes; 0 uses every core. The result is the same.", min=0)] = 0,
    *,
    quick: Annotated[bool, typer.Option("--quick", help="A small region: shows the page, not its figures.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare a private price with a forecast, an echo and exact data."""
    require_lab()
    if readings is not None:
        require_parquet()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # every core has a process of ours already
    from murmurate.commands.evaluate import EvaluateOptions, evaluate_prices, make_setting, parse_sizes  # noqa: PLC0415

    evaluate_prices(
        EvaluateOptions(
            sizes=() if sizes is None else parse_sizes(sizes),
            promises=tuple(promise or ()),
            seed=seed,
            setting=make_setting(supply, elasticity),
            out=out,
            jobs=jobs,
            readings=readings,
            quick=quick,
            as_json=as_json,
        )
    )
