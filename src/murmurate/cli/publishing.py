"""Commands from demand to the public log, and whoever checks it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from murmurate.cli.app import Keys, Log, State, app, need_service


@app.command(epilog="Example: murmurate verify log.jsonl --key 3b6a27bc…")
def verify(
    sources: Annotated[list[str], typer.Argument(help="Logs to check, the fullest first: files, - or addresses.")],
    plans: Annotated[list[Path] | None, typer.Option("--plan", help="A plan.json that the log does not hold.")] = None,
    key: Annotated[str | None, typer.Option(help="The key that must have opened each chain.")] = None,
    zones: Annotated[list[str] | None, typer.Option("--zone", help="Check this zone only.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for proofs of misbehaviour, should there be any.")] = Path(),
) -> None:
    """Check a public log from public data alone. Status 0: all holds; 1: something is wrong; 3: a plan is missing."""
    from murmurate.service import verify_command  # noqa: PLC0415

    raise typer.Exit(verify_command.verify(sources, plans or [], key, zones or [], out))


@app.command(epilog="Example: murmurate keys keys/")
def keys(folder: Annotated[Path, typer.Argument(help="Folder for the new keys.", file_okay=False)]) -> None:
    """Make the keys that releases are signed with."""
    need_service()
    from murmurate.service import commands  # noqa: PLC0415

    commands.new_keys(folder)


@app.command(name="open", epilog="Example: murmurate open plan.json")
def open_(
    plans: Annotated[list[Path], typer.Argument(help="Proven plans, one for each zone.", dir_okay=False)],
    state: State = "",
    log: Log = "",
    keys: Keys = Path("keys"),
    lead: Annotated[int, typer.Option(help="Intervals from the one measured to the one that pays.", min=0)] = 2,
    first: Annotated[
        str | None, typer.Option(help="When the first measured interval begins; otherwise the next one.")
    ] = None,
) -> None:
    """Prepare the databases, show the plans, and begin the chain of each zone."""
    need_service()
    from murmurate.service import databases, plan_commands  # noqa: PLC0415

    both = databases.Databases.of(state=state, log=log)
    raise typer.Exit(plan_commands.open_zones(plans, both, keys, lead=lead, first=first))


@app.command(epilog="Example, from cron, each minute: murmurate release")
def release(
    state: State = "",
    log: Log = "",
    keys: Keys = Path("keys"),
    grace: Annotated[int, typer.Option(help="Seconds that an interval waits for its readings.", min=0)] = 60,
    beat: Annotated[float, typer.Option(help="Seconds of the clock that releases leave on.", min=0.01)] = 1.0,
    patience: Annotated[float, typer.Option(help="Seconds until it gives up, to be run again.", min=1)] = 60.0,
) -> None:
    """Publish every interval that is due, in every zone, exactly once."""
    need_service()
    from murmurate.service import commands, databases  # noqa: PLC0415

    both = databases.Databases.of(state=state, log=log)
    raise typer.Exit(commands.release(both, keys, grace_s=grace, beat_s=beat, patience_s=patience))


@app.command(epilog="Example: murmurate change new-plan.json")
def change(
    plan_file: Annotated[Path, typer.Argument(help="The new plan of a zone.", dir_okay=False)],
    state: State = "",
    log: Log = "",
    keys: Keys = Path("keys"),
) -> None:
    """Put a zone under another plan, if every window across the change keeps its promise."""
    need_service()
    from murmurate.service import databases, plan_commands  # noqa: PLC0415

    raise typer.Exit(plan_commands.change(plan_file, databases.Databases.of(state=state, log=log), keys))


@app.command(epilog="Example: murmurate rotate")
def rotate(state: State = "", log: Log = "", keys: Keys = Path("keys")) -> None:
    """Sign with a new key from now on; the old one signs that this is so."""
    need_service()
    from murmurate.service import commands, databases  # noqa: PLC0415

    raise typer.Exit(commands.rotate(databases.Databases.of(state=state, log=log), keys))


@app.command(epilog="Example: murmurate export log.jsonl.gz")
def export(
    out: Annotated[Path, typer.Argument(help="File to write; .gz packs it.", dir_okay=False)],
    log: Log = "",
    zone: Annotated[str | None, typer.Option(help="This zone only.")] = None,
) -> None:
    """Write the public log to a file that anybody may keep and verify."""
    need_service()
    from murmurate.service import databases  # noqa: PLC0415
    from murmurate.service import export as exporting  # noqa: PLC0415

    exporting.export(databases.Database("log", log), out, zone)


@app.command(epilog="Example: murmurate mend")
def mend(
    state: State = "",
    log: Log = "",
    copy: Annotated[str | None, typer.Option("--from", help="Also from this copy of the log: file or address.")] = None,
) -> None:
    """Give the public log back what it has lost, from what the state has seen of it."""
    need_service()
    from murmurate.service import databases, mending  # noqa: PLC0415

    raise typer.Exit(mending.mend(databases.Databases.of(state=state, log=log), copy))
