"""`murmurate demo`: a simulated town through the real service, at sixty times the real speed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psycopg
from psycopg.conninfo import make_conninfo
from rich.progress import BarColumn, Progress, TextColumn

from murmurate.commands.console import stderr, stdout
from murmurate.commands.open import open_zones
from murmurate.errors import MurmurateError
from murmurate.planning.plan import Plan, make_plan
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.service.auth import ApiClient, AuthStore
from murmurate.service.clock import ServiceClock
from murmurate.service.demo.simulated_town import AttackAccuracy, DemoZone, attack_homes, demand_from_prices
from murmurate.service.keyring import create_keyring
from murmurate.service.landing.layout import Landing
from murmurate.service.storage.databases import Databases
from murmurate.units import SECONDS_PER_DAY

DEMO_INTERVAL_S = 900
DEMO_LEAD_INTERVALS = 2
_MAX_START_S = 180.0  # on a busy machine
DEMO_GRACE_S = 240  # of the town's time: four seconds at sixty times
DEMO_START_S = 15 * 3600  # in the middle of an afternoon: people are about to come home


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSetup:
    """Where the demonstration takes place."""

    root: Path
    databases: Databases
    plan: Plan
    terms: ReleaseTerms
    clock: ServiceClock
    first_s: int  # when the first measured interval begins
    public_port: int
    private_port: int
    token: str = ""


def run_demo(server: str, *, homes: int, minutes: float, speed: float, port: int) -> int:
    """Set up a service, simulate a town, print the result, and delete everything."""
    intervals = max(2, int(minutes * 60 * speed // DEMO_INTERVAL_S))
    with tempfile.TemporaryDirectory(prefix="murmurate-demo-") as folder, _temporary_databases(server) as databases:
        setup = _prepare(Path(folder), databases, homes, speed, port)
        town = DemoZone(
            kind=setup.plan.zone.kinds[0], first_interval=DEMO_START_S // DEMO_INTERVAL_S, rng=np.random.default_rng()
        )
        with _running_service(setup):
            stdout.print(f"A town of {homes:,} homes. Look at http://127.0.0.1:{setup.public_port}/zones/harbour")
            stdout.print(f"A quarter of an hour takes {DEMO_INTERVAL_S / speed:.0f} s here. Ctrl-C ends it.\n")
            interval_count = _simulate(setup, town, intervals)
            _attack_and_report(setup, town, interval_count)
    return 0


@contextmanager
def _temporary_databases(postgres: str) -> Iterator[Databases]:
    """Two new databases that are gone afterwards. A real operator keeps the log on another machine."""
    names = {store: f"murmurate_demo_{store}_{os.urandom(4).hex()}" for store in ("state", "log")}
    try:
        connection = psycopg.connect(postgres, autocommit=True, connect_timeout=5)
    except psycopg.Error as error:
        allowed = f"{type(error).__name__}; name a server with --postgres postgresql://user@host:5432/postgres"
        raise MurmurateError("PostgreSQL", "out of reach", allowed) from None
    with connection:
        try:
            for name in names.values():
                connection.execute(f'CREATE DATABASE "{name}"')
        except psycopg.Error as error:
            allowed = f"{type(error).__name__}; the user must be allowed to CREATE DATABASE"
            raise MurmurateError("a database", "not created", allowed) from None
        try:
            yield Databases.from_dsns(**{store: make_conninfo(postgres, dbname=name) for store, name in names.items()})
        finally:
            for name in names.values():
                connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def _prepare(root: Path, databases: Databases, homes: int, speed: float, port: int) -> DemoSetup:
    text = EXAMPLE_ZONE_FILE.replace("count = 800", f"count = {homes}").split('\n[[households]]\nname = "fish market"')[
        0
    ]
    with stderr.status("proving a plan"):
        plan = make_plan(parse_zone(text))
    (root / "plan.json").write_text(plan.to_json(), encoding="utf-8")
    create_keyring(root / "keys")
    Landing.create(root / "landing", interval_s=DEMO_INTERVAL_S)
    kind = plan.zone.kinds[0]
    imputed_wh = int(kind.secret_pair.away @ np.arange(len(kind.secret_pair.away)))
    rows = (f"{home},harbour,{kind.bound_wh},{imputed_wh}" for home in range(homes))
    (root / "meters.csv").write_text("\n".join(["meter,zone,bound_wh,imputed_wh", *rows]) + "\n", encoding="utf-8")
    first_s = (
        int(time.time()) // SECONDS_PER_DAY * SECONDS_PER_DAY - SECONDS_PER_DAY + DEMO_START_S
    )  # yesterday: the log takes nothing from the future
    with stderr.status("opening the zone"):
        first = time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(first_s))
        open_zones(
            [root / "plan.json"], databases, root / "keys", lead_intervals=DEMO_LEAD_INTERVALS, first=first, quiet=True
        )
        token = _issue_token(databases.state.dsn)
    clock = ServiceClock(simulated_s=first_s, wall_s=time.time() + 4, speed=speed)
    setup = DemoSetup(
        root=root,
        databases=databases,
        plan=plan,
        terms=ReleaseTerms.from_json(plan.to_json()),
        clock=clock,
        first_s=first_s,
        public_port=_free_port(port),
        private_port=_free_port(port + 1),
        token=token,
    )
    (root / "service.toml").write_text(_settings_toml(setup), encoding="utf-8")
    return setup


def _issue_token(state: str) -> str:
    access = AuthStore(state)
    try:
        secret = access.add_client(ApiClient(id="town", zones=frozenset({"harbour"})))
        return access.issue_token(access.authenticate("town", secret)).value
    finally:
        access.close()


def _settings_toml(setup: DemoSetup) -> str:
    clock = setup.clock
    return f"""
        public = "127.0.0.1:{setup.public_port}"
        private = "127.0.0.1:{setup.private_port}"
        grace_s = {DEMO_GRACE_S}
        release_slot_s = 0.25
        [clock]
        simulated_s = {clock.simulated_s}
        wall_s = {clock.wall_s}
        speed = {clock.speed}
    """


def _free_port(port: int) -> int:
    """This port, or the next one that is free."""
    for candidate in range(port, port + 200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", candidate)):
                return candidate
    raise MurmurateError("--port", port, "and the 200 after it are all taken; name another one")


@contextmanager
def _running_service(setup: DemoSetup) -> Iterator[None]:
    """`murmurate serve`, as an operator would run it."""
    environment = os.environ | {"MURMURATE_STATE": setup.databases.state.dsn, "MURMURATE_LOG": setup.databases.log.dsn}
    command = [sys.executable, "-m", "murmurate", "serve", str(setup.root / "service.toml")]
    with (setup.root / "serve.log").open("wb") as log:
        running = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)  # noqa: S603
    try:
        with stderr.status("starting the service"):
            _wait_until_ready(setup, running)
        yield
    finally:
        running.terminate()
        running.wait(20)


def _wait_until_ready(setup: DemoSetup, running: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _MAX_START_S
    while time.monotonic() < end and running.poll() is None:
        try:
            for port in (setup.public_port, setup.private_port):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    lines = (setup.root / "serve.log").read_text(errors="replace").splitlines()[-1:]
    raise MurmurateError("the service", "not starting", lines[0] if lines else "its log is empty")


def _simulate(setup: DemoSetup, zone: DemoZone, intervals: int) -> int:
    """Send what every home draws at the end of each interval. Returns how many intervals were simulated."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total} quarter hours"))
    with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as bar:
        task = bar.add_task("living", total=intervals)
        try:
            for number in range(intervals):
                start_s = setup.first_s + number * DEMO_INTERVAL_S
                time.sleep(max(0.0, setup.clock.wall_at(start_s + DEMO_INTERVAL_S) - time.time()))
                _send_readings(setup, start_s, zone.simulate_interval())
                price = _current_price(setup)
                clock = time.strftime("%H:%M", time.gmtime(start_s + DEMO_INTERVAL_S))
                bar.update(task, advance=1, description=f"{clock}  {price}")
            time.sleep((DEMO_GRACE_S + DEMO_INTERVAL_S / 2) / setup.clock.speed + 1)
        except KeyboardInterrupt:
            stdout.print("Ended.")
    return len(zone.occupied)


def _send_readings(setup: DemoSetup, start_s: int, energy_wh: np.ndarray) -> None:
    rows = ({"meter": home, "interval_start": start_s, "energy_wh": int(drew)} for home, drew in enumerate(energy_wh))
    body = "\n".join(map(json.dumps, rows)).encode()
    headers = {"Authorization": f"Bearer {setup.token}", "Content-Type": "application/x-ndjson"}
    request = urllib.request.Request(f"http://127.0.0.1:{setup.private_port}/readings", body, headers)
    urllib.request.urlopen(request, timeout=30).close()  # noqa: S310


def _current_price(setup: DemoSetup) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{setup.public_port}/zones/harbour/now", timeout=5) as answer:
            document = json.load(answer)
    except urllib.error.HTTPError:
        return "no price yet"
    return f"{document['price']:.5f} {document['currency']}/kWh"


def _attack_and_report(setup: DemoSetup, zone: DemoZone, interval_count: int) -> None:
    """What was published, how to check it, and what it reveals to an attacker."""
    with urllib.request.urlopen(f"http://127.0.0.1:{setup.public_port}/zones/harbour/log.jsonl", timeout=30) as answer:
        lines = [json.loads(line) for line in answer]
    measured = {row["interval"]: row for row in lines if row.get("kind") == "measured"}
    simulated = [setup.first_s // DEMO_INTERVAL_S + number for number in range(interval_count)]
    known = simulated[: next((at for at, interval in enumerate(simulated) if interval not in measured), len(simulated))]
    if not known:
        raise MurmurateError("the town", "too slow", "no interval was released in time; try --speed 30")
    ticks = np.array([measured[interval]["price_ticks"] for interval in known], np.int64)
    published_wh = demand_from_prices(ticks, setup.terms, zone.kind.count * zone.kind.bound_wh)
    slots = np.array([setup.terms.slot_of_day(interval) for interval in known], np.int64)
    with stderr.status("attacking every home"):
        guesses = attack_homes(zone, published_wh, setup.terms, slots)
    _print_accuracy(setup, len(known), guesses)


def _print_accuracy(setup: DemoSetup, releases: int, accuracy: AttackAccuracy) -> None:
    stdout.print(f"{releases} prices were published, from {releases * setup.plan.zone.household_count:,} readings.\n")
    stdout.print("An attacker who knew the model and every reading but one was right about who is home")
    for words, part in (
        ("by the model alone, without any price", accuracy.model_only),
        ("with the published prices", accuracy.with_prices),
        ("had the exact rates been published", accuracy.with_exact_rates),
    ):
        stdout.print(f"  {words:<40} {part:6.1%}")
    url = f"http://127.0.0.1:{setup.public_port}"
    stdout.print(f"\nThe page:   {url}/zones/harbour")
    stdout.print(f"The log:    murmurate verify {url}/log.jsonl")
    stdout.print(f"A charger:  {url}/zones/harbour/evcc and {url}/openadr3/3.1.0/events")
    if sys.stdin.isatty():
        stdout.input("\nEnter ends it, and deletes everything.")
