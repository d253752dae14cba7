"""Commands that check and copy a public log: verify, export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from murmurate.cli.app import AsJson, Log, log_group, require_database
from murmurate.cli.completion import complete_zone


@log_group.command(name="verify", epilog="Example: murmurate log verify log.tar --key 3b6a27bc…")
def verify_logs(
    sources: Annotated[list[str], typer.Argument(help="Logs to check, the fullest first: files, folders, - or URLs.")],
    plans: Annotated[list[Path] | None, typer.Option("--plan", help="A plan.json that the log does not hold.")] = None,
    key: Annotated[str | None, typer.Option(help="The key that must have opened each chain.")] = None,
    zones: Annotated[list[str] | None, typer.Option("--zone", help="Check this zone only.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for proofs of misbehaviour, should there be any.")] = Path(),
    known: Annotated[
        Path | None,
        typer.Option(help="File of the last check that held: only what is newer is checked; once a week all."),
    ] = None,
    metrics: Annotated[Path | None, typer.Option(help="File for the result as metrics of Prometheus.")] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Check a public log from public data alone. Status 0: all holds; 1: wrong; 3: plan or beginning missing."""
    if any(source.lower().startswith(("postgresql://", "postgres://")) for source in sources):
        require_database()
    from murmurate.commands.verify import verify_logs  # noqa: PLC0415

    raise typer.Exit(
        verify_logs(sources, plans or [], key, zones or [], out, known=known, metrics=metrics, as_json=as_json)
    )


@log_group.command(name="export", epilog="Example: murmurate log export log.tar.gz")
def export_log(
    out: Annotated[Path, typer.Argument(help="File to write, or a folder; .gz compresses a file.")],
    log: Log = "",
    zone: Annotated[
        str | None, typer.Option(help="The lines of this zone only, as log.jsonl.", autocompletion=complete_zone)
    ] = None,
    archive: Annotated[
        Path | None, typer.Option(help="Folder of murmurate log archive: with the tiles in it.", file_okay=False)
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Write the public log, or one zone of it, to files that every reader can keep and verify."""
    require_database()
    from murmurate.commands.export import export_log  # noqa: PLC0415
    from murmurate.service.storage.databases import Database  # noqa: PLC0415

    export_log(Database("log", log), out, zone, archive, as_json=as_json)
