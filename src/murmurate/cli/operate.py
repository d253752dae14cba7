"""Commands that set up and maintain a service, and single steps of the pipeline for other schedulers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from murmurate.cli.app import (
    OPERATE,
    AsJson,
    Grace,
    Keys,
    LandingFolder,
    Log,
    State,
    app,
    keys_group,
    log_group,
    require_database,
    require_publisher,
    require_readings,
    step_group,
    zone_group,
)
from murmurate.cli.completion import complete_words, complete_zone
from murmurate.errors import require_extra

ComparedTable = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        show_default="that of a running service",
        help="Meter table, CSV or Parquet: the plan must hide each of its households.",
    ),
]


@app.command(name="init", rich_help_panel=OPERATE, epilog="Example: murmurate init --minutes 15")
def initialize(
    folder: Annotated[Path, typer.Argument(help="Folder of the service: gets keys/ and landing/.", file_okay=False)] = (
        Path()
    ),
    state: State = "",
    log: Log = "",
    minutes: Annotated[int, typer.Option(help="Length of an interval.", min=1)] = 15,
    shard_meters: Annotated[int, typer.Option(help="Meters that share a folder of the landing.", min=1)] = 131_072,
    *,
    roles: Annotated[
        bool, typer.Option("--roles", help="Also create a database role for each process, with the least rights.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create signing keys, the folder for readings, and the tables of both databases. Run it again at any time."""
    require_readings()
    from murmurate.commands.init import initialize  # noqa: PLC0415
    from murmurate.service.storage.databases import Databases  # noqa: PLC0415

    both = Databases.from_dsns(state=state, log=log) if state or log or roles else None
    initialize(folder, both, minutes=minutes, shard_meters=shard_meters, with_roles=roles, as_json=as_json)


@zone_group.command(name="open", epilog="Example: murmurate zone open plan.json")
def open_(
    plans: Annotated[list[Path], typer.Argument(help="Plans, each for the zone it names.", dir_okay=False)],
    state: State = "",
    log: Log = "",
    keys: Keys = Path("keys"),
    lead: Annotated[int, typer.Option(help="Intervals from the one that is measured to the one that pays.", min=0)] = 2,
    first: Annotated[
        str | None, typer.Option(help="Start of the first measured interval; by default the next one.")
    ] = None,
    zones: Annotated[
        Path | None, typer.Option(help="Names of zones, one a line: all of them under one plan.", dir_okay=False)
    ] = None,
    meters: ComparedTable = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Prepare the databases, publish the plans, and start the chain of each zone."""
    require_readings()
    from murmurate.commands.open import open_zones  # noqa: PLC0415
    from murmurate.service.storage.databases import Databases  # noqa: PLC0415

    both = Databases.from_dsns(state=state, log=log)
    status = open_zones(
        plans, both, keys, lead_intervals=lead, first=first, zones_file=zones, meters=meters, as_json=as_json
    )
    raise typer.Exit(status)


@zone_group.command(name="change", epilog="Example: murmurate zone change new-plan.json")
def change_plan(
    plan_file: Annotated[Path, typer.Argument(help="The new plan, for the zone it names.", dir_okay=False)],
    state: State = "",
    log: Log = "",
    keys: Keys = Path("keys"),
    zones: Annotated[
        Path | None, typer.Option(help="Names of zones, one a line: all of them change to the plan.", dir_okay=False)
    ] = None,
    meters: ComparedTable = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Put zones under another plan, if every promise holds across the change."""
    require_readings()
    from murmurate.commands.change import change_plan  # noqa: PLC0415
    from murmurate.service.storage.databases import Databases  # noqa: PLC0415

    both = Databases.from_dsns(state=state, log=log)
    raise typer.Exit(change_plan(plan_file, both, keys, zones, meters, as_json=as_json))


@zone_group.command(name="close", epilog="Example: murmurate zone close harbour")
def close_open_zones(
    zones: Annotated[list[str], typer.Argument(help="Names of zones.", autocompletion=complete_zone)],
    state: State = "",
    log: Log = "",
    keys: Keys = Path("keys"),
    *,
    as_json: AsJson = False,
) -> None:
    """Close zones for ever: a last signed entry with the final total, and never a price again under the name."""
    require_publisher()
    from murmurate.commands.close import close_zones  # noqa: PLC0415
    from murmurate.service.storage.databases import Databases  # noqa: PLC0415

    raise typer.Exit(close_zones(zones, Databases.from_dsns(state=state, log=log), keys, as_json=as_json))


@app.command(name="client", rich_help_panel=OPERATE, epilog="Example: murmurate client add head-end --zone harbour")
def manage_clients(
    action: Annotated[
        str, typer.Argument(help="add, remove or list.", autocompletion=complete_words("add", "remove", "list"))
    ],
    name: Annotated[str, typer.Argument(help="Name of the client.")] = "",
    zones: Annotated[
        list[str] | None,
        typer.Option("--zone", help="A zone whose readings it may send.", autocompletion=complete_zone),
    ] = None,
    state: State = "",
    *,
    is_operator: Annotated[bool, typer.Option("--operator", help="It may see the operator's page.")] = False,
    as_json: AsJson = False,
) -> None:
    """Manage the clients that may send readings. Adding a client again replaces its secret."""
    require_readings()
    from murmurate.commands.client import manage_clients  # noqa: PLC0415

    manage_clients(action, name, zones or [], state, operator=is_operator, as_json=as_json)


@keys_group.command(name="rotate", epilog="Example: murmurate keys rotate")
def rotate_signing_key(state: State = "", log: Log = "", keys: Keys = Path("keys"), *, as_json: AsJson = False) -> None:
    """Sign with a new key from now on. The old key signs the change."""
    require_database()
    from murmurate.commands.rotate import rotate_keys  # noqa: PLC0415
    from murmurate.service.storage.databases import Databases  # noqa: PLC0415

    raise typer.Exit(rotate_keys(Databases.from_dsns(state=state, log=log), keys, as_json=as_json))


@step_group.command(
    name="aggregate",
    epilog="Example: murmurate step aggregate --landing landing/ --meters meters.csv --out demand.parquet",
)
def aggregate(
    landing: LandingFolder,
    meters: Annotated[
        Path | None, typer.Option(help="Meter table, CSV or Parquet; not needed for an interval that is closed.")
    ] = None,
    interval: Annotated[
        str | None, typer.Option(help="Its start, or START/END for several; by default the last that has ended.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Parquet file for the demand; by default it goes to the state.", dir_okay=False)
    ] = None,
    state: State = "",
    grace: Grace = 60,
    engine: Annotated[
        str, typer.Option(help="process, or spark.", autocompletion=complete_words("process", "spark"))
    ] = "process",
    master: Annotated[str, typer.Option(help="Spark master, such as spark://host:7077.")] = "local[*]",
    keep_days: Annotated[
        float | None,
        typer.Option(help="Then delete readings that are older: their intervals can never be aggregated again.", min=0),
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Close intervals and sum the readings of each zone. The sum is the demand that a release is computed from."""
    require_readings()
    if engine == "spark":
        require_extra("service,spark", "pyspark", "pandas")
    from murmurate.commands.aggregate import AggregationEngine, aggregate_intervals  # noqa: PLC0415

    chosen = AggregationEngine(name=engine, master=master)
    raise typer.Exit(
        aggregate_intervals(
            landing,
            meters,
            interval,
            to=out,
            state=state,
            grace_s=grace,
            engine=chosen,
            keep_days=keep_days,
            as_json=as_json,
        )
    )


@step_group.command(name="release", epilog="Example, from cron, each minute: murmurate step release")
def release_due_intervals(
    state: State = "",
    log: Log = "",
    keys: Keys = Path("keys"),
    grace: Grace = 60,
    slot: Annotated[float, typer.Option(help="Seconds between the moments at which releases leave.", min=0.01)] = 1.0,
    timeout: Annotated[float, typer.Option(help="Seconds until it gives up, to be run again.", min=1)] = 60.0,
    *,
    as_json: AsJson = False,
) -> None:
    """Publish every interval that is due, in every zone, exactly once."""
    require_publisher()
    from murmurate.commands.release import release_due_intervals  # noqa: PLC0415
    from murmurate.service.storage.databases import Databases  # noqa: PLC0415

    both = Databases.from_dsns(state=state, log=log)
    raise typer.Exit(release_due_intervals(both, keys, grace_s=grace, slot_s=slot, timeout_s=timeout, as_json=as_json))


@log_group.command(name="archive", epilog="Example, from cron, each night: murmurate log archive archive/")
def archive(
    folder: Annotated[Path, typer.Argument(help="Folder of the archive; it is made, or continued.", file_okay=False)],
    state: State = "",
    log: Log = "",
    days: Annotated[float, typer.Option(help="Keep the tiles of this many days in the databases.", min=370)] = 400,
    *,
    as_json: AsJson = False,
) -> None:
    """Move old tiles from both databases to files that verify, so that the databases do not grow for ever."""
    require_database()
    from murmurate.commands.archive import archive_log  # noqa: PLC0415
    from murmurate.service.storage.databases import Databases  # noqa: PLC0415

    raise typer.Exit(archive_log(Databases.from_dsns(state=state, log=log), folder, days, as_json=as_json))


@log_group.command(name="repair", epilog="Example: murmurate log repair")
def repair(
    state: State = "",
    log: Log = "",
    copy: Annotated[
        str | None, typer.Option("--from", help="Also from this copy of the log or archive: file, folder or address.")
    ] = None,
    unclaim: Annotated[
        str | None, typer.Option(metavar="ZONE", help="Set aside the claim of a zone that is in no shard.")
    ] = None,
    *,
    set_aside: Annotated[
        bool, typer.Option("--set-aside", help="Move tiles that no reader accepts out of the log, as evidence.")
    ] = False,
) -> None:
    """Restore what the public log has lost, and name what it holds that no reader accepts."""
    require_database()
    from murmurate.commands.repair import repair_log  # noqa: PLC0415
    from murmurate.service.storage.databases import Databases  # noqa: PLC0415

    both = Databases.from_dsns(state=state, log=log)
    raise typer.Exit(repair_log(both, copy, set_aside=set_aside, unclaim=unclaim))
