"""The command line: a table of commands. The file of a command is imported when it runs or shows its own help.

So `murmurate --help` is quick, and works without extras. Private: this module may change in any version. The public
interface is `import murmurate as mm`.
"""

from __future__ import annotations

import io
import signal
import sys
from functools import wraps
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from murmurate import __version__
from murmurate.errors import MurmurateError
from murmurate.extras import require_extra
from murmurate.files import describe_os_error

PLAN, EVALUATE = ("plan", "scipy", "opendp"), ("lab", "matplotlib", "scipy", "opendp")  # extras, and what they bring
DATABASE, PUBLISHER = ("service", "psycopg"), ("service", "psycopg", "opendp")
READINGS = ("service", "psycopg", "pyarrow")
PUBLIC = ("psycopg", "psycopg_pool", "starlette", "uvicorn", "httptools", "jinja2", "paho", "prometheus_client")


class LazyCommand(TyperCommand):
    """A command of which the table knows the name and a summary. Its function is loaded to parse its arguments."""

    def __init__(self, target: str, summary: str, example: str, needs: tuple[str, ...] = ()) -> None:
        """`target` is the file in `commands` and the function in it; `needs` an extra and its packages."""
        super().__init__(None, help=summary)
        self._target, self._example, self.needs = target, example, needs

    def load(self) -> Any:
        """Return the command with its options. Ctrl-C while modules are loaded ends the process."""
        module, _, name = self._target.partition(".")
        before = signal.getsignal(signal.SIGINT)
        if before is signal.default_int_handler:  # the exception that it raises could be lost
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        function = getattr(import_module(f"murmurate.commands.{module}"), name)
        if before is signal.default_int_handler:
            signal.signal(signal.SIGINT, before)

        @wraps(function)
        def run(**options: Any) -> None:
            if self.needs:
                require_extra(*self.needs)
            raise typer.Exit(function(**options) or 0)

        loaded = typer.Typer(add_completion=False)
        loaded.command(help=self.help, epilog=f"Example: {self._example}")(run)
        return typer.main.get_command(loaded)

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        return self.load().make_context(*arguments, **options)


PANELS = {  # of `--help`: commands and groups
    "Plan and evaluate": ("readings", "plan", "forecast", "audit", "evaluate", "habits", "backtest"),
    "Run": ("demo", "serve"),
    "Operate": ("zone", "keys", "step", "init", "client", "status"),
    "Check": ("log", "prices"),
}
GROUPS = {
    "readings": "Files of readings: import, ingest.",
    "zone": "Zones of the public log: open, change, close.",
    "keys": "Keys that sign releases: rotate.",
    "step": "Single steps of the service, for other schedulers: aggregate, release.",
    "log": "The public log: verify, export, repair, archive.",
}
COMMANDS = {
    "readings import": LazyCommand(
        "import_readings.import_files",
        "Turn your files of readings into what evaluate, plan and ingest read, and say what was not taken and why.",
        "murmurate readings import meters-2025.csv --timezone Europe/Zurich --out imported (murmurate readings "
        "import --example . writes a file to try it with)",
    ),
    "readings ingest": LazyCommand(
        "ingest.ingest_files",
        "Check the readings in files and write them to the landing folder.",
        "murmurate readings ingest readings.csv --landing landing/ --meters meters.csv",
        READINGS,
    ),
    "plan": LazyCommand(
        "plan.plan_zone",
        "Find the least noise that keeps a promise, and prove it.",
        "murmurate plan zone.toml --out plan.json (murmurate plan --example > zone.toml to begin). For the registry "
        "of deployments: murmurate plan zone.toml --registry harbour.yaml",
    ),
    "forecast": LazyCommand(
        "forecast.make_forecast",
        "Make a public forecast, so that prices are predicted and not an echo of the last release.",
        "murmurate forecast --history demand.csv --households 1000 --time-zone Europe/Berlin; murmurate forecast "
        "--log log.jsonl --zone harbour",
        PLAN,
    ),
    "audit": LazyCommand(
        "audit.audit_plan",
        "Attack a plan, and compare what is learnt with what it promises.",
        "murmurate audit plan.json --out audit/",
        EVALUATE,
    ),
    "evaluate": LazyCommand(
        "evaluate.evaluate_prices",
        "Compare a private price with a forecast, an echo and exact data.",
        "murmurate evaluate --quick (seconds); murmurate evaluate (minutes, zones up to 100,000 homes)",
        EVALUATE,
    ),
    "habits": LazyCommand(
        "habits.learn_sample_habits",
        "Estimate occupancy models from a consented sample, with pure epsilon-DP for each of its households.",
        "murmurate habits imported/readings.parquet --epsilon 1 --out habits.toml",
        PLAN,
    ),
    "backtest": LazyCommand(
        "backtest.back_test_bills",
        "Bill past readings at a flat rate, a forecast, the plan's private price and exact data.",
        "murmurate backtest plan.json --readings imported/readings.parquet --out bills",
        EVALUATE,
    ),
    "demo": LazyCommand(
        "demo.run_demo",
        "Watch a simulated town on the real service, and see what an attacker learns.",
        "murmurate demo --minutes 1. Databases to try things on: murmurate demo --databases > databases & (then: . "
        "./databases)",
        ("demo", *PUBLIC, "msgspec", "pyarrow", "opendp", "scipy"),
    ),
    "serve": LazyCommand(
        "serve.run_service",
        "Accept readings, release prices on schedule, and serve them over HTTP and MQTT.",
        "murmurate serve service.toml (murmurate serve --example > service.toml to begin)",
        ("service", *PUBLIC),
    ),
    "zone open": LazyCommand(
        "open.open_planned_zones",
        "Prepare the databases, publish the plans, and start the chain of each zone.",
        "murmurate zone open plan.json",
        READINGS,
    ),
    "zone change": LazyCommand(
        "change.change_plan",
        "Put zones under another plan, if every promise holds across the change.",
        "murmurate zone change new-plan.json",
        READINGS,
    ),
    "zone close": LazyCommand(
        "close.close_zones",
        "Close zones: a last signed entry with the final total. A name never has a price again.",
        "murmurate zone close harbour",
        PUBLISHER,
    ),
    "keys rotate": LazyCommand(
        "rotate.rotate_keys",
        "Sign with a new key from now on. The old key signs the change.",
        "murmurate keys rotate",
        DATABASE,
    ),
    "step aggregate": LazyCommand(
        "aggregate.aggregate_intervals",
        "Close intervals and sum the readings of each zone. The sum is the demand that a release is computed from.",
        "murmurate step aggregate --landing landing/ --meters meters.csv --out demand.parquet",
        READINGS,
    ),
    "step release": LazyCommand(
        "release.release_due_intervals",
        "Publish every interval that is due, in every zone, exactly once.",
        "murmurate step release (from cron, each minute)",
        PUBLISHER,
    ),
    "init": LazyCommand(
        "init.initialize",
        "Create signing keys, the folder for readings, and the tables of both databases. Run it again at any time.",
        "murmurate init --minutes 15",
        READINGS,
    ),
    "client": LazyCommand(
        "client.manage_clients",
        "Manage the clients that may send readings. `grant` and `revoke` keep the secret; adding again replaces it.",
        "murmurate client add head-end --zone harbour; another zone later: murmurate client grant head-end --zone quay",
        READINGS,
    ),
    "status": LazyCommand(
        "status.show_status",
        "Show zones, latest prices, incoming readings and problems. Exits 1 if anything needs attention.",
        "murmurate status service.toml",
        READINGS,
    ),
    "log verify": LazyCommand(
        "verify.verify_logs",
        "Check a public log from public data alone. Status 0: all holds; 1: wrong; 3: plan or beginning missing.",
        "murmurate log verify log.tar --key 3b6a27bc…",
    ),
    "log export": LazyCommand(
        "export.export_log",
        "Write the public log, or one zone of it, to files that every reader can keep and verify.",
        "murmurate log export log.tar.gz",
        DATABASE,
    ),
    "log repair": LazyCommand(
        "repair.repair_log",
        "Restore what the public log has lost, and name what it holds that no reader accepts.",
        "murmurate log repair",
        DATABASE,
    ),
    "log archive": LazyCommand(
        "archive.archive_log",
        "Move old tiles from both databases to files that verify, so that the databases do not grow.",
        "murmurate log archive archive/ (from cron, each night)",
        DATABASE,
    ),
    "prices": LazyCommand(
        "prices.show_prices",
        "Show the prices of a zone, cheap and dear, by its own clock.",
        "murmurate prices https://prices.example/zones/harbour",
    ),
}


class CommandGroup(TyperGroup):
    """The commands of the table."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        groups = {name: TyperGroup(name=name, help=summary, no_args_is_help=True) for name, summary in GROUPS.items()}
        for name, command in COMMANDS.items():
            group, _, command.name = name.rpartition(" ")
            if group:
                groups[group].add_command(command)
        for panel, names in PANELS.items():
            for name in names:
                entry = groups.get(name) or COMMANDS[name]
                entry.rich_help_panel = panel
                self.add_command(entry)


app = typer.Typer(
    cls=CommandGroup,
    help="Publish real-time electricity rates without publishing who is home.",
    epilog="Exit status: 0 done, 1 something is not well, 2 not done, 3 a plan is missing: docs/reference/exit-status",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"murmurate {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version


def main() -> None:
    """Run a command; say what went wrong in one line that a person can act on."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ± gets a question mark, not a traceback
    try:
        app()
    except (MurmurateError, OSError) as error:
        words = describe_os_error(error) if isinstance(error, OSError) else str(error)
        typer.echo(f"murmurate: {words}", err=True)
        sys.exit(2)
