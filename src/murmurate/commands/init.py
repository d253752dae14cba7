"""`murmurate init`: what a service needs before its first zone: keys, a landing, tables and, if wanted, roles."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from murmurate.errors import MurmurateError
from murmurate.operations.console import print_json, stderr, stdout
from murmurate.operations.options import AsJson, Log, State, optional_imports
from murmurate.units import SECONDS_PER_DAY

with optional_imports():
    from murmurate.operations.publishing import migrate_databases
    from murmurate.service.keyring import create_keyring, has_keys
    from murmurate.service.landing.layout import Landing
    from murmurate.service.storage.databases import Databases, mask_database_errors
    from murmurate.service.storage.migrate import create_roles


def initialize(
    folder: Annotated[Path, typer.Argument(help="Folder of the service: gets keys/ and landing/.", file_okay=False)] = (
        Path()
    ),
    state: State = "",
    log: Log = "",
    address: Annotated[
        str, typer.Option("--landing", help="Where readings go, such as s3://bucket/readings. Default: landing/.")
    ] = "",
    minutes: Annotated[int, typer.Option(help="Length of an interval.", min=1)] = 15,
    shard_meters: Annotated[int, typer.Option(help="Meters that share a folder of the landing.", min=1)] = 131_072,
    *,
    with_roles: Annotated[
        bool, typer.Option("--roles", help="Also create a database role for each process, with the least rights.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create what is missing. What is there already stays as it is."""
    databases = Databases.from_dsns(state=state, log=log) if state or log or with_roles else None
    if SECONDS_PER_DAY % (60 * minutes):
        raise MurmurateError("--minutes", minutes, "must divide a day, such as 5, 15, 30 or 60")
    if databases is not None:
        databases.check_reachable(prepared=False)
    where = address or folder / "landing"
    landing = Landing.create(where, interval_s=60 * minutes, shard_meters=shard_meters)
    keys = folder / "keys"
    are_new = not has_keys(keys)
    public_key = create_keyring(keys).newest_signer.public_key
    if not as_json:
        start_s = int(time.time()) // landing.interval_s * landing.interval_s
        example = f"{where}/{landing.readings_folder(start_s)}/shard=0"
        stdout.print(f"Public key: {public_key}")
        if are_new:
            stdout.print("Publish it in a place other than the log. Readers verify the log with it.")
            stdout.print(f"Keep a copy of {keys}/ where only you can read it: its holder can sign for you.")
        stdout.print(f"Readings go to {example}/*.parquet")
        stdout.print(f"and so on: a folder for each {minutes} min of UTC, in it one for each {shard_meters:,} meters.")
        stdout.print("Columns: meter, interval_start, energy_wh. Keep this folder where only the service can read it.")
    roles = {} if databases is None else prepare_databases(databases, with_roles=with_roles)
    if as_json:
        print_json({"public_key": public_key, "keys": str(keys), "landing": str(where), "databases": roles})
        return
    if databases is None:
        stdout.print("No database was prepared: set MURMURATE_STATE and MURMURATE_LOG, and run it again.")
    for store, names in roles.items():
        stdout.print(f"Tables of the {store} are ready." + (f" Roles: {', '.join(names)}." if names else ""))
    if with_roles:
        stderr.print("The roles have no login. For each process: CREATE ROLE .. LOGIN PASSWORD .. IN ROLE ..;")


def prepare_databases(databases: Databases, *, with_roles: bool = False) -> dict[str, list[str]]:
    """Bring both databases to this version. Return the roles of each: none if none are wanted."""
    with mask_database_errors():
        migrate_databases(databases)
        return {
            database.store: list(create_roles(database.dsn, database.store)) if with_roles else []
            for database in (databases.state, databases.log)
        }
