"""Two zones with three whole local days behind them, and both doors open on real ports."""

import re
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Thread

import httpx

from murmurate.curator.plan import make_plan
from murmurate.curator.terms import Terms
from murmurate.curator.zonefile import EXAMPLE, parse_zone
from murmurate.privacy.noise import SystemNoise
from murmurate.publication.desk import Desk
from murmurate.publication.signing import Ed25519Signer
from murmurate.publication.wish import Opening, Wish, next_task
from murmurate.service.access import Access, Client
from murmurate.service.board.app import public_app
from murmurate.service.board.board import Board
from murmurate.service.clock import Clock
from murmurate.service.databases import Databases
from murmurate.service.doors.current import CurrentIntake
from murmurate.service.doors.http import ReadingsDoor, private_app
from murmurate.service.doors.memory import DoorMemory
from murmurate.service.gathering.layout import Landing
from murmurate.service.operator.door import OperatorDoor
from murmurate.service.pool import Pool
from murmurate.service.publiclog import PostgresLog
from murmurate.service.settings import Broker, Settings
from murmurate.service.web import server
from tests.ports import free_port
from tests.publication.chains import NO_DEMAND, demand

STEP_S, LEAD = 900, 2
ZONES = {"harbour": ("CHF", "Europe/Zurich"), "old town": ("USD", "America/New_York")}
SIGNER = Ed25519Signer(bytes(32))
WHOLE_DAYS = ("2025-10-25", "2025-10-26", "2025-10-27")  # the second has 25 hours in Zurich
TODAY = "2025-10-28"
_BEGIN = datetime(2025, 10, 24, 20, tzinfo=UTC)
NOW = datetime(2025, 10, 28, 11, 40, tzinfo=UTC)
NOW_S = int(NOW.timestamp())
FIRST = int(_BEGIN.timestamp()) // STEP_S
LAST = NOW_S // STEP_S  # the last interval that is measured; LEAD more have a price
OVER_S = (LAST - 1) * STEP_S  # begin of an interval that is over, and not closed yet
METERS = "meter,zone,bound_wh,imputed_wh,id\n1,harbour,1000,300,h1\n2,harbour,1000,300,h2\n3,old town,1000,300,o1\n"


def plan_of(zone: str) -> str:
    """A plan that takes no time to prove."""
    text = re.sub(r"^promise = .*$", 'promise = ["any 24 h: epsilon 3"]', EXAMPLE, flags=re.MULTILINE)
    text = text.replace('name = "harbour"', f'name = "{zone}"').replace('"EUR"', f'"{ZONES[zone][0]}"')
    return make_plan(parse_zone(text)).to_json()


def write_log(dsn: str) -> dict[str, str]:
    """Every kind of release in both zones. Returns the digest of each zone's plan."""
    plans = {zone: plan_of(zone) for zone in ZONES}
    terms = {zone: Terms.of(text) for zone, text in plans.items()}
    by_digest = {one.plan: one for one in terms.values()}
    desk = Desk(terms=by_digest.get, signers={SIGNER.public: SIGNER}, noise=SystemNoise())
    log = PostgresLog(dsn)
    for zone, text in plans.items():
        log.publish_plan(terms[zone].plan, text)
    heads = dict.fromkeys(ZONES)
    for interval in range(FIRST - 1, LAST + 1):
        drafts = desk.write(
            {zone: (heads[zone], _task(zone, interval, heads, terms)) for zone in ZONES}, _used(interval)
        )
        assert not drafts.refused
        log.append(drafts.written.values())
        heads = drafts.written
    log.close()
    return {zone: one.plan for zone, one in terms.items()}


def _task(zone, interval, heads, terms):
    withheld = interval % 50 == 7
    opening = Opening(plan=terms[zone].plan, key=SIGNER.public, first=FIRST, lead=LEAD)
    return next_task(heads[zone], Wish(until=interval, in_time_from=interval + 1 if withheld else 0, opening=opening))


def _used(interval):
    return NO_DEMAND if interval % 5 == 1 else demand(**dict.fromkeys(ZONES, 400_000 + interval % 96 * 1000))


@contextmanager
def listening(app, port):
    """A server in a thread of its own, ended and waited for."""
    web = server(app, "127.0.0.1", port)
    thread = Thread(target=web.run, daemon=True)
    thread.start()
    end = time.monotonic() + 10
    while not web.started:
        assert time.monotonic() < end
        time.sleep(0.01)
    try:
        yield web
    finally:
        web.should_exit = True
        thread.join(10)
        assert not thread.is_alive()


@dataclass
class World:
    """Where the doors are, and who may come in."""

    settings: Settings
    plans: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    said: list = field(default_factory=list)
    board: Board | None = None
    private_routes: list = field(default_factory=list)

    def url(self, door: str) -> str:
        return f"http://{self.settings.public if door == 'public' else self.settings.private}"

    def address(self, door: str):
        return self.settings.public_address if door == "public" else self.settings.private_address

    def say(self, what, **facts):
        self.said.append((what, facts))


@contextmanager
def a_world(folder, state_dsn, log_dsn):
    (folder / "meters.csv").write_text(METERS)
    Landing.create(folder / "landing", interval_s=STEP_S)
    public, private = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    settings = Settings(
        landing=folder / "landing",
        meters=folder / "meters.csv",
        keys=folder / "keys",
        grace_s=7200,
        public=public,
        private=private,
        country="CH",
        mqtt=Broker(),
        zones={zone: {"timezone": timezone} for zone, (_, timezone) in ZONES.items()},
        playback=Clock(played_s=NOW_S, real_s=time.time(), speed=1e-6),
    )
    world = World(settings)
    world.plans = write_log(log_dsn)
    access, memories = Pool(lambda: Access(state_dsn)), Pool(lambda: DoorMemory(state_dsn))
    clients = [Client(id=zone.replace(" ", "-"), zones=frozenset({zone})) for zone in ZONES]
    clients += [Client(id="both", zones=frozenset(ZONES)), Client(id="boss", zones=frozenset(), operator=True)]
    with access.one() as one:
        world.secrets = {client.id: one.add(client) for client in clients}
    intake = CurrentIntake(
        Landing.open(settings.landing), settings.meters, settings.playback, 7200, memories, world.say
    )
    routes = ReadingsDoor(intake=intake, access=access, say=world.say).routes()
    databases = Databases.of(state=state_dsn, log=log_dsn)
    operator = OperatorDoor(databases=databases, settings=settings, access=access, counts=intake.counts)
    routes += operator.routes()
    world.private_routes = routes
    board = world.board = Board(log_dsn, settings, world.say)
    with (
        listening(public_app(board), settings.public_address[1]),
        listening(private_app(routes, world.say), settings.private_address[1]),
    ):
        for name in ("harbour", "old-town", "both"):
            world.tokens[name] = token_of(world, name)
        yield world
    for pool in (access, memories, board.archives, board._follower, operator):
        pool.close()


def token_of(world, name):
    form = {"grant_type": "client_credentials", "client_id": name, "client_secret": world.secrets[name]}
    answer = httpx.post(f"{world.url('private')}/auth/token", data=form, trust_env=False)
    return answer.json()["access_token"]
