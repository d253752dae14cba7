"""Commands that check and copy a public log: verify, export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from murmurate.cli.app import CHECK, Log, app, require_database


@app.command(name="verify", rich_help_panel=CHECK, epilog="Example: murmurate verify log.jsonl --key 3b6a27bc…")
def verify_logs(
    sources: Annotated[list[str], typer.Argument(help="Logs to check, the fullest first: files, - or addresses.")],
    plans: Annotated[list[Path] | None, typer.Option("--plan", help="A plan.json that the log does not hold.")] = None,
    key: Annotated[str | None, typer.Option(help="The key that must have opened each chain.")] = None,
    zones: Annotated[list[str] | None, typer.Option("--zone", help="Check this zone only.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for proofs of misbehaviour, should there be any.")] = Path(),
) -> None:
    """Check a public log from public data alone. Status 0: all holds; 1: something is wrong; 3: a plan is missing."""
    from murmurate.commands.verify import verify_logs  # noqa: PLC0415

    raise typer.Exit(verify_logs(sources, plans or [], key, zones or [], out))


@app.command(name="export", rich_help_panel=CHECK, epilog="Example: murmurate export log.jsonl.gz")
def export_log(
    out: Annotated[Path, typer.Argument(help="File to write; .gz compresses it.", dir_okay=False)],
    log: Log = "",
    zone: Annotated[str | None, typer.Option(help="This zone only.")] = None,
) -> None:
    """Write the public log to a file that every reader can keep and verify."""
    require_database()
    from murmurate.commands.export import export_log  # noqa: PLC0415
    from murmurate.service.storage.databases import Database  # noqa: PLC0415

    export_log(Database("log", log), out, zone)
