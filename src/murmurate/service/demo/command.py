"""`murmurate demo`: a simulated town through the real service, at sixty times the speed of life."""

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

from murmurate.curator.plan import Plan, make_plan
from murmurate.curator.terms import Terms
from murmurate.curator.zonefile import EXAMPLE, parse_zone
from murmurate.errors import MurmurateError
from murmurate.service.access import Access, Client
from murmurate.service.clock import Clock
from murmurate.service.databases import Databases
from murmurate.service.demo.simulated import Guesses, Town, attack, read_back
from murmurate.service.gathering.layout import Landing
from murmurate.service.keyring import make_keys
from murmurate.service.office import aside, out
from murmurate.service.plan_commands import open_zones

STEP_S = 900
LEAD = 2
GRACE_S = 240  # of the town's time: four seconds at sixty times
BEGIN_S = 15 * 3600  # in the middle of an afternoon: people are about to come home
DAY_S = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Where the demonstration takes place."""

    root: Path
    databases: Databases
    plan: Plan
    terms: Terms
    clock: Clock
    first_s: int  # when the first measured interval begins
    public: int
    private: int
    token: str = ""


def demo(server: str, *, homes: int, minutes: float, speed: float, port: int) -> int:
    """Make everything, play, say what came of it, and leave nothing behind."""
    intervals = max(2, int(minutes * 60 * speed // STEP_S))
    with tempfile.TemporaryDirectory(prefix="murmurate-demo-") as folder, _databases(server) as databases:
        scene = _prepare(Path(folder), databases, homes, speed, port)
        town = Town(kind=scene.plan.zone.kinds[0], first=BEGIN_S // STEP_S, rng=np.random.default_rng())
        with _service(scene):
            out.print(f"A town of {homes:,} homes. Look at http://127.0.0.1:{scene.public}/zones/harbour")
            out.print(f"A quarter of an hour takes {STEP_S / speed:.0f} s here. Ctrl-C ends it.\n")
            played = _play(scene, town, intervals)
            _conclude(scene, town, played)
    return 0


@contextmanager
def _databases(server: str) -> Iterator[Databases]:
    """Two new databases that are gone afterwards. A real operator keeps the log on another machine."""
    names = {store: f"murmurate_demo_{store}_{os.urandom(4).hex()}" for store in ("state", "log")}
    try:
        connection = psycopg.connect(server, autocommit=True, connect_timeout=5)
    except psycopg.Error as error:
        allowed = f"{type(error).__name__}; say where one is: --postgres postgresql://user@host:5432/postgres"
        raise MurmurateError("PostgreSQL", "out of reach", allowed) from None
    with connection:
        try:
            for name in names.values():
                connection.execute(f'CREATE DATABASE "{name}"')
        except psycopg.Error as error:
            allowed = f"{type(error).__name__}; the user must be allowed to CREATE DATABASE"
            raise MurmurateError("a database", "not made", allowed) from None
        try:
            yield Databases.of(**{store: make_conninfo(server, dbname=name) for store, name in names.items()})
        finally:
            for name in names.values():
                connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def _prepare(root: Path, databases: Databases, homes: int, speed: float, port: int) -> Scene:
    text = EXAMPLE.replace("count = 800", f"count = {homes}").split('\n[[households]]\nname = "fish market"')[0]
    with aside.status("proving a plan"):
        plan = make_plan(parse_zone(text))
    (root / "plan.json").write_text(plan.to_json(), encoding="utf-8")
    make_keys(root / "keys")
    Landing.create(root / "landing", interval_s=STEP_S)
    kind = plan.zone.kinds[0]
    imputed_wh = int(kind.secret.away @ np.arange(len(kind.secret.away)))
    rows = (f"{home},harbour,{kind.bound_wh},{imputed_wh}" for home in range(homes))
    (root / "meters.csv").write_text("\n".join(["meter,zone,bound_wh,imputed_wh", *rows]) + "\n", encoding="utf-8")
    first_s = int(time.time()) // DAY_S * DAY_S - DAY_S + BEGIN_S  # yesterday: the log takes nothing from the future
    with aside.status("opening the zone"):
        first = time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(first_s))
        open_zones([root / "plan.json"], databases, root / "keys", lead=LEAD, first=first, quiet=True)
        token = _token(databases.state.dsn)
    clock = Clock(played_s=first_s, real_s=time.time() + 4, speed=speed)
    scene = Scene(
        root=root,
        databases=databases,
        plan=plan,
        terms=Terms.of(plan.to_json()),
        clock=clock,
        first_s=first_s,
        public=_free(port),
        private=_free(port + 1),
        token=token,
    )
    (root / "service.toml").write_text(_settings(scene), encoding="utf-8")
    return scene


def _token(state: str) -> str:
    access = Access(state)
    try:
        secret = access.add(Client(id="town", zones=frozenset({"harbour"})))
        return access.grant(access.know("town", secret)).token
    finally:
        access.close()


def _settings(scene: Scene) -> str:
    clock = scene.clock
    return f"""
        public = "127.0.0.1:{scene.public}"
        private = "127.0.0.1:{scene.private}"
        grace_s = {GRACE_S}
        beat_s = 0.25
        [playback]
        played_s = {clock.played_s}
        real_s = {clock.real_s}
        speed = {clock.speed}
    """


def _free(port: int) -> int:
    """This port, or the next one that nobody has."""
    for candidate in range(port, port + 200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", candidate)):
                return candidate
    raise MurmurateError("--port", port, "and the 200 after it are all taken; name another one")


@contextmanager
def _service(scene: Scene) -> Iterator[None]:
    """`murmurate serve`, as anybody would run it."""
    environment = os.environ | {"MURMURATE_STATE": scene.databases.state.dsn, "MURMURATE_LOG": scene.databases.log.dsn}
    command = [sys.executable, "-m", "murmurate", "serve", str(scene.root / "service.toml")]
    with (scene.root / "serve.log").open("wb") as log:
        running = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)  # noqa: S603
    try:
        with aside.status("starting the service"):
            _until_ready(scene, running)
        yield
    finally:
        running.terminate()
        running.wait(20)


def _until_ready(scene: Scene, running: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        if running.poll() is not None:
            break
        try:
            for port in (scene.public, scene.private):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    told = (scene.root / "serve.log").read_text(errors="replace").splitlines()[-1:]
    raise MurmurateError("the service", "not starting", told[0] if told else "it said nothing")


def _play(scene: Scene, town: Town, intervals: int) -> int:
    """Send what every home draws at the end of each interval. Returns how many were played."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total} quarter hours"))
    with Progress(*columns, console=aside, transient=True, disable=not aside.is_terminal) as bar:
        task = bar.add_task("living", total=intervals)
        try:
            for number in range(intervals):
                start_s = scene.first_s + number * STEP_S
                time.sleep(max(0.0, scene.clock.real(start_s + STEP_S) - time.time()))
                _send(scene, start_s, town.live())
                price = _now(scene)
                clock = time.strftime("%H:%M", time.gmtime(start_s + STEP_S))
                bar.update(task, advance=1, description=f"{clock}  {price}")
            time.sleep((GRACE_S + STEP_S / 2) / scene.clock.speed + 1)
        except KeyboardInterrupt:
            out.print("Ended.")
    return len(town.occupied)


def _send(scene: Scene, start_s: int, energy_wh: np.ndarray) -> None:
    rows = ({"meter": home, "interval_start": start_s, "energy_wh": int(drew)} for home, drew in enumerate(energy_wh))
    body = "\n".join(map(json.dumps, rows)).encode()
    headers = {"Authorization": f"Bearer {scene.token}", "Content-Type": "application/x-ndjson"}
    request = urllib.request.Request(f"http://127.0.0.1:{scene.private}/readings", body, headers)
    urllib.request.urlopen(request, timeout=30).close()  # noqa: S310


def _now(scene: Scene) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{scene.public}/zones/harbour/now", timeout=5) as answer:
            found = json.load(answer)
    except urllib.error.HTTPError:
        return "no price yet"
    return f"{found['price']:.5f} {found['currency']}/kWh"


def _conclude(scene: Scene, town: Town, played: int) -> None:
    """What was published, how to check it, and what it told an attacker."""
    with urllib.request.urlopen(f"http://127.0.0.1:{scene.public}/zones/harbour/log.jsonl", timeout=30) as answer:
        lines = [json.loads(line) for line in answer]
    measured = {row["interval"]: row for row in lines if row.get("kind") == "measured"}
    mine = [scene.first_s // STEP_S + number for number in range(played)]
    known = mine[: next((at for at, interval in enumerate(mine) if interval not in measured), len(mine))]
    if not known:
        raise MurmurateError("the town", "too slow", "no interval was released in time; try --speed 30")
    ticks = np.array([measured[interval]["price_ticks"] for interval in known], np.int64)
    published_wh = read_back(ticks, scene.terms, town.kind.count * town.kind.bound_wh)
    slots = np.array([scene.terms.slot(interval) for interval in known], np.int64)
    with aside.status("attacking every home"):
        guesses = attack(town, published_wh, scene.terms, slots)
    _say(scene, len(known), guesses)


def _say(scene: Scene, releases: int, guesses: Guesses) -> None:
    out.print(f"{releases} prices were published, from {releases * scene.plan.zone.households:,} readings.\n")
    out.print("An attacker who knew the model and every reading but one was right about who is home")
    for words, part in (
        ("by the model alone, without any price", guesses.by_the_model),
        ("with the published prices", guesses.with_prices),
        ("had the exact rates been published", guesses.with_exact_rates),
    ):
        out.print(f"  {words:<40} {part:6.1%}")
    url = f"http://127.0.0.1:{scene.public}"
    out.print(f"\nThe page:   {url}/zones/harbour")
    out.print(f"The log:    murmurate verify {url}/log.jsonl")
    out.print(f"A charger:  {url}/zones/harbour/evcc and {url}/openadr3/3.1.0/events")
    if sys.stdin.isatty():
        out.input("\nEnter ends it, and deletes everything.")
