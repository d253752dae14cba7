"""Commands that show how things stand: status, prices."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from murmurate.cli.app import CHECK, OPERATE, AsJson, Log, State, app, require_database, require_readings
from murmurate.cli.completion import complete_zone


@app.command(name="status", rich_help_panel=OPERATE, epilog="Example: murmurate status service.toml")
def show_service_status(
    settings: Annotated[
        Path | None, typer.Argument(help="Settings of the service, as for serve (TOML).", dir_okay=False)
    ] = None,
    state: State = "",
    log: Log = "",
    zone: Annotated[str | None, typer.Option(help="Show this zone only.", autocompletion=complete_zone)] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show zones, latest prices, incoming readings and problems. Exits 1 if anything needs attention."""
    require_readings()
    from murmurate.commands.status import show_status  # noqa: PLC0415
    from murmurate.service.storage.databases import Databases  # noqa: PLC0415

    raise typer.Exit(show_status(settings, Databases.from_dsns(state=state, log=log), zone, as_json=as_json))


@app.command(
    name="prices", rich_help_panel=CHECK, epilog="Example: murmurate prices https://prices.example/zones/harbour"
)
def show_zone_prices(
    source: Annotated[
        str, typer.Argument(help="Address of a zone, or a log as verify takes it: file, folder, - or URL.")
    ],
    zone: Annotated[str | None, typer.Option(help="Zone, where the source does not name it.")] = None,
    day: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%d"], metavar="YYYY-MM-DD", help="Local day; by default today.")
    ] = None,
    last: Annotated[int | None, typer.Option(help="The last N prices instead of a day.", min=1)] = None,
    time_zone: Annotated[str | None, typer.Option("--timezone", help="Clock to show; by default the zone's.")] = None,
    key: Annotated[str | None, typer.Option(help="The key that must have opened the log; implies --verify.")] = None,
    plans: Annotated[list[Path] | None, typer.Option("--plan", help="A plan.json that the log does not hold.")] = None,
    *,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check the log of an address first; others always are.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the prices of a zone, cheap and dear, by its own clock."""
    if source.lower().startswith(("postgresql://", "postgres://")):
        require_database()
    from murmurate.commands.prices import PriceOptions, show_prices  # noqa: PLC0415

    options = PriceOptions(
        zone=zone,
        day=day and day.date(),
        last=last,
        verify=verify or key is not None,
        key=key,
        plans=tuple(plans or ()),
        time_zone=time_zone,
        as_json=as_json,
    )
    show_prices(source, options)
