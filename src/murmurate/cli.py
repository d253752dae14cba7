"""The command line. Whatever is heavy is loaded by the command that needs it, so that `--help` is quick."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Annotated

import typer

from murmurate import __version__
from murmurate.errors import MurmurateError

app = typer.Typer(
    help="Publish real-time electricity rates without publishing who is home.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run a command; say what went wrong in one line that a person can act on."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ± gets a question mark, not a traceback
    try:
        app()
    except MurmurateError as error:
        _stop(str(error), 2)
    except OSError as error:
        _stop(f"{error.strerror}: {error.filename}" if error.strerror else str(error), 2)


def _stop(why: str, status: int) -> None:
    typer.echo(f"murmurate: {why}", err=True)
    sys.exit(status)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"murmurate {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version


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
    _need("matplotlib", extra="lab")
    from murmurate.lab import command  # noqa: PLC0415

    command.paper(seeds=seeds, households=households, intervals=intervals, epsilon=epsilon, out=out, jobs=jobs or None)


@app.command(epilog="Example: murmurate plan zone.toml --out plan.json (murmurate plan --example > zone.toml to begin)")
def plan(
    zone_file: Annotated[Path | None, typer.Argument(help="The zone file (TOML).", dir_okay=False)] = None,
    out: Annotated[Path, typer.Option(help="Where the plan is written.", dir_okay=False)] = Path("plan.json"),
    readings: Annotated[
        Path | None,
        typer.Option(help="Sample CSV interval,household,energy_wh,occupied: tests memory, finds the bound."),
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
        _stop("a zone file is needed; murmurate plan --example > zone.toml writes one to begin with", 2)
        return
    from murmurate.lab import plan_page  # noqa: PLC0415

    plan_page.plan(zone_file, out, readings)


@app.command(epilog="Example: murmurate audit plan.json --out audit/")
def audit(
    plan_file: Annotated[Path, typer.Argument(help="A plan.json written by murmurate plan.", dir_okay=False)],
    out: Annotated[Path, typer.Option(help="Folder for the report and its figures.", file_okay=False)] = Path("audit"),
    days: Annotated[int, typer.Option(help="Days that the zone lives; more see finer.", min=2)] = 200,
) -> None:
    """Attack a plan, and hold what is learnt against what it promises."""
    _need("matplotlib", extra="lab")
    from murmurate.lab import audit_report  # noqa: PLC0415

    if not audit_report.audit(plan_file, out, days):
        raise typer.Exit(1)


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


_State = Annotated[
    str, typer.Option(envvar="MURMURATE_STATE", show_default=False, help="Connection string of the state (PostgreSQL).")
]
_Log = Annotated[
    str, typer.Option(envvar="MURMURATE_LOG", show_default=False, help="Connection string of the public log.")
]
_Keys = Annotated[
    Path, typer.Option(envvar="MURMURATE_KEYS", file_okay=False, help="Folder that murmurate keys has made.")
]


@app.command(epilog="Example: murmurate keys keys/")
def keys(folder: Annotated[Path, typer.Argument(help="Folder for the new keys.", file_okay=False)]) -> None:
    """Make the keys that releases are signed with."""
    _need_service()
    from murmurate.service import commands  # noqa: PLC0415

    commands.new_keys(folder)


@app.command(epilog="Example: murmurate landing landing/ --minutes 15")
def landing(
    folder: Annotated[Path, typer.Argument(help="Folder for the readings.", file_okay=False)],
    minutes: Annotated[int, typer.Option(help="Length of an interval.", min=1)] = 15,
    shard_meters: Annotated[int, typer.Option(help="Meters that share a folder.", min=1)] = 131_072,
) -> None:
    """Make the folder that readings land in."""
    _need_gathering()
    from murmurate.service.gathering import command  # noqa: PLC0415

    command.new_landing(folder, minutes, shard_meters)


@app.command(epilog="Example: murmurate gather --readings landing/ --meters meters.csv --out demand.parquet")
def gather(
    readings: Annotated[Path, typer.Option(help="Folder that readings land in.", file_okay=False)],
    meters: Annotated[
        Path | None, typer.Option(help="Meter table, CSV or Parquet; not needed to gather an interval again.")
    ] = None,
    interval: Annotated[
        str | None, typer.Option(help="Its begin, or BEGIN/END for several; otherwise the last that is over.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Parquet file for the demand; otherwise it goes to the state.", dir_okay=False)
    ] = None,
    state: _State = "",
    grace: Annotated[int, typer.Option(help="Seconds that an interval waits for its readings.", min=0)] = 60,
    engine: Annotated[str, typer.Option(help="process, or spark.")] = "process",
    master: Annotated[str, typer.Option(help="Spark master, such as spark://host:7077.")] = "local[*]",
) -> None:
    """Close intervals and add up the readings of each zone: the demand that a release is made of."""
    _need_gathering()
    if engine == "spark":
        _need("pyspark", "pandas", extra="spark engine", install="'pyspark>=4' 'pandas<3'")
    from murmurate.service.gathering import command  # noqa: PLC0415

    where = command.Engine(name=engine, master=master)
    done = command.gather_intervals(readings, meters, interval, to=out, state=state, grace_s=grace, engine=where)
    raise typer.Exit(done)


@app.command(epilog="Example, from cron, each night: murmurate forget landing/ --days 7")
def forget(
    folder: Annotated[Path, typer.Argument(help="Folder that readings land in.", file_okay=False)],
    days: Annotated[float, typer.Option(help="Keep the readings of so many days.", min=0)] = 7,
) -> None:
    """Delete old readings. Intervals that are forgotten can never be gathered again."""
    _need_gathering()
    from murmurate.service.gathering import command  # noqa: PLC0415

    command.forget_readings(folder, days)


@app.command(name="open", epilog="Example: murmurate open plan.json")
def open_(
    plans: Annotated[list[Path], typer.Argument(help="Proven plans, one for each zone.", dir_okay=False)],
    state: _State = "",
    log: _Log = "",
    keys: _Keys = Path("keys"),
    lead: Annotated[int, typer.Option(help="Intervals from the one measured to the one that pays.", min=0)] = 2,
    first: Annotated[
        str | None, typer.Option(help="When the first measured interval begins; otherwise the next one.")
    ] = None,
) -> None:
    """Prepare the databases, show the plans, and begin the chain of each zone."""
    _need_service()
    from murmurate.service import databases, plan_commands  # noqa: PLC0415

    both = databases.Databases.of(state=state, log=log)
    raise typer.Exit(plan_commands.open_zones(plans, both, keys, lead=lead, first=first))


@app.command(epilog="Example, from cron, each minute: murmurate release")
def release(
    state: _State = "",
    log: _Log = "",
    keys: _Keys = Path("keys"),
    grace: Annotated[int, typer.Option(help="Seconds that an interval waits for its readings.", min=0)] = 60,
    beat: Annotated[float, typer.Option(help="Seconds of the clock that releases leave on.", min=0.01)] = 1.0,
    patience: Annotated[float, typer.Option(help="Seconds until it gives up, to be run again.", min=1)] = 60.0,
) -> None:
    """Publish every interval that is due, in every zone, exactly once."""
    _need_service()
    from murmurate.service import commands, databases  # noqa: PLC0415

    both = databases.Databases.of(state=state, log=log)
    raise typer.Exit(commands.release(both, keys, grace_s=grace, beat_s=beat, patience_s=patience))


@app.command(epilog="Example: murmurate change new-plan.json")
def change(
    plan_file: Annotated[Path, typer.Argument(help="The new plan of a zone.", dir_okay=False)],
    state: _State = "",
    log: _Log = "",
    keys: _Keys = Path("keys"),
) -> None:
    """Put a zone under another plan, if every window across the change keeps its promise."""
    _need_service()
    from murmurate.service import databases, plan_commands  # noqa: PLC0415

    raise typer.Exit(plan_commands.change(plan_file, databases.Databases.of(state=state, log=log), keys))


@app.command(epilog="Example: murmurate rotate")
def rotate(state: _State = "", log: _Log = "", keys: _Keys = Path("keys")) -> None:
    """Sign with a new key from now on; the old one signs that this is so."""
    _need_service()
    from murmurate.service import commands, databases  # noqa: PLC0415

    raise typer.Exit(commands.rotate(databases.Databases.of(state=state, log=log), keys))


@app.command(epilog="Example: murmurate export log.jsonl.gz")
def export(
    out: Annotated[Path, typer.Argument(help="File to write; .gz packs it.", dir_okay=False)],
    log: _Log = "",
    zone: Annotated[str | None, typer.Option(help="This zone only.")] = None,
) -> None:
    """Write the public log to a file that anybody may keep and verify."""
    _need_service()
    from murmurate.service import databases  # noqa: PLC0415
    from murmurate.service import export as exporting  # noqa: PLC0415

    exporting.export(databases.Database("log", log), out, zone)


@app.command(epilog="Example: murmurate mend")
def mend(
    state: _State = "",
    log: _Log = "",
    copy: Annotated[str | None, typer.Option("--from", help="Also from this copy of the log: file or address.")] = None,
) -> None:
    """Give the public log back what it has lost, from what the state has seen of it."""
    _need_service()
    from murmurate.service import databases, mending  # noqa: PLC0415

    raise typer.Exit(mending.mend(databases.Databases.of(state=state, log=log), copy))


def _need_service() -> None:
    _need("psycopg", extra="service", install="'psycopg[binary]'")


def _need_gathering() -> None:
    _need("psycopg", "pyarrow", extra="service", install="'psycopg[binary]' pyarrow")


def _need(*modules: str, extra: str, install: str = "") -> None:
    """Stop with the remedy where an optional part is not installed."""
    from importlib.util import find_spec  # noqa: PLC0415

    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        _stop(f"the {extra} needs more than is installed. Run: pip install {install or ' '.join(missing)}", 2)
