"""`murmurate zone open`: start the chain of each zone under a proven plan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from murmurate.operations.console import print_json, stderr, stdout
from murmurate.operations.options import AsJson, ComparedTable, Keys, Log, State, optional_imports

with optional_imports():
    from murmurate.operations.publishing import MAX_ZONES_SHOWN, open_zones
    from murmurate.service.storage.databases import Databases
    from murmurate.service.worker.zone_warnings import MIN_LEAD


def open_planned_zones(
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
) -> int:
    """Open the zones, and print when each was opened, or when it will be."""
    databases = Databases.from_dsns(state=state, log=log)
    databases.check_reachable(prepared=False)
    if databases.share_server:
        stderr.print("Warning: state and log are on one server. What destroys one must not reach the other:")
        stderr.print("keep the log on another machine, with other disks, other backups and another administrator.")
    if lead < MIN_LEAD:
        stderr.print(f"Warning: with --lead {lead} no price is in time: use --lead {MIN_LEAD} or more.")
    document, status = open_zones(
        plans, databases, keys, lead_intervals=lead, first=first, zones_file=zones, meters=meters
    )
    if as_json:
        print_json(document)
        return status
    opened = document["zones"]
    for entry in opened[:MAX_ZONES_SHOWN]:
        words = {
            "entering": f"enters shard {entry['shard']} when the intervals before are released.",
            "open already": "open already; it continues as the log says.",
            "open": "open.",
        }[entry["state"]]
        times = (f"{entry[name][:10]} {entry[name][11:16]} UTC" for name in ("first_measured", "first_paid"))
        stdout.print(f"{entry['zone']}: {words} First measured {', first paid '.join(times)}.")
    if len(opened) > MAX_ZONES_SHOWN:
        are_open = sum(entry["state"] != "entering" for entry in opened)
        before = sum(entry["state"] == "open already" for entry in opened)
        stdout.print(f"... {len(opened):,} zones: {are_open:,} are open, {before:,} of them were before.")
    return status
