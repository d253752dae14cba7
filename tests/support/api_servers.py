"""Both APIs on real ports, with a log of two zones that covers three complete local days."""

from __future__ import annotations

import re
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any

import httpx

from murmurate.planning.plan import make_plan
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.service.auth import ApiClient, AuthStore
from murmurate.service.clock import ServiceClock
from murmurate.service.ingest.http_api import IngestApi, private_app
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.ingest.ingestor import ReloadingIngestor
from murmurate.service.landing.layout import Landing
from murmurate.service.operator_api.public_inputs import PublicInputsApi
from murmurate.service.operator_api.routes import OperatorApi
from murmurate.service.public_api.app import public_app
from murmurate.service.public_api.home_assistant import HomeAssistantTopics
from murmurate.service.public_api.live_state import LiveState
from murmurate.service.public_api.metrics import metrics_routes
from murmurate.service.public_api.pages.routes import page_routes
from murmurate.service.settings import MqttBroker, ServiceSettings
from murmurate.service.storage.databases import Databases
from murmurate.service.storage.session import SessionPool
from murmurate.service.web.server import ConnectionLimits, make_server
from tests.support.ports import free_port
from tests.support.postgres_stores import ShardWriter
from tests.support.recorded_log import recorded_log
from tests.support.waiting import wait_until

STEP_S, LEAD = 900, 2
ZONES = {"harbour": ("CHF", "Europe/Zurich"), "old town": ("USD", "America/New_York")}
SHARDS = {"harbour": "00000000-0000", "old town": "00000000-0001"}
WHOLE_DAYS = ("2025-10-25", "2025-10-26", "2025-10-27")  # the second has 25 hours in Zurich
TODAY = "2025-10-28"
_BEGIN = datetime(2025, 10, 24, 20, tzinfo=UTC)
NOW = datetime(2025, 10, 28, 11, 40, tzinfo=UTC)
NOW_S = int(NOW.timestamp())
FIRST = int(_BEGIN.timestamp()) // STEP_S
LAST = NOW_S // STEP_S  # the last interval that is measured; LEAD more have a price
OVER_S = (LAST - 1) * STEP_S  # begin of an interval that is over, and not closed yet
METERS = "meter,zone,bound_wh,imputed_wh,id\n1,harbour,1000,300,h1\n2,harbour,1000,300,h2\n3,old town,1000,300,o1\n"


def plan_of(zone: str, currency: str = "") -> str:
    """A plan that takes no time to prove."""
    text = re.sub(r"^promise = .*$", 'promise = ["any 24 h: epsilon 3"]', EXAMPLE_ZONE_FILE, flags=re.MULTILINE)
    text = text.replace('name = "harbour"', f'name = "{zone}"').replace('"EUR"', f'"{currency or ZONES[zone][0]}"')
    return make_plan(parse_zone(text)).to_json()


def write_log(dsn: str) -> dict[str, str]:
    """Every kind of release in both zones, each in a shard of its own. Returns the digest of each zone's plan."""
    digests = {}
    for zone in ZONES:
        writer = ShardWriter(dsn, {zone: plan_of(zone)}, shard=SHARDS[zone], first=FIRST, lead=LEAD)
        for interval in range(FIRST - 1, LAST + 1):
            used = None if interval % 5 == 1 else 400_000 + interval % 96 * 1000
            writer.write(1, used, priced_from=interval + 1 if interval % 50 == 7 else 0)
        writer.close()
        digests[zone] = writer.terms[zone].plan_digest
    return digests


@contextmanager
def listening(app: Any, port: int, limits: ConnectionLimits | None = None) -> Iterator[Any]:
    """Run a server in a thread. The thread ends with the block."""
    web = make_server(app, "127.0.0.1", port, limits)
    thread = Thread(target=web.run, daemon=True)
    thread.start()
    assert wait_until(lambda: web.started, pause_s=0.01)
    try:
        yield web
    finally:
        web.should_exit = True
        thread.join(120)
        assert not thread.is_alive(), _describe(web, thread)


def _describe(web: Any, thread: Thread) -> str:
    """Where a server stands that does not end."""
    stack = traceback.format_stack(sys._current_frames()[thread.ident or 0])
    return f"{web.server_state.connections} {web.server_state.tasks}\n{''.join(stack)}"


def await_backfill(live_state: LiveState) -> None:
    """Wait until the prices of the days before are there: the port opens without them."""
    assert wait_until(lambda: live_state.is_backfilled, pause_s=0.01)


@contextmanager
def public_process(
    dsn: str, now_s: float, *, speed: float = 1e-6, home_assistant: HomeAssistantTopics | None = None, **settings: Any
) -> Iterator[tuple[httpx.Client, LiveState]]:
    """Run the public process of a log, with a clock that begins at `now_s` and all but stands still."""
    clock = ServiceClock(simulated_s=now_s, wall_s=time.time(), speed=speed)
    own = ServiceSettings(**{"public": f"127.0.0.1:{free_port()}"} | settings, clock=clock)
    state = LiveState(dsn, own, home_assistant=home_assistant)
    address = state.settings.public_address
    app = public_app(state, [*page_routes(state), *metrics_routes(state)])
    try:
        with (
            listening(app, address[1], state.connections),
            httpx.Client(base_url=f"http://127.0.0.1:{address[1]}", trust_env=False, timeout=60) as client,
        ):
            await_backfill(state)
            yield client, state
    finally:
        state.close()


@dataclass
class RunningApis:
    """The settings of both APIs, the secrets and tokens of their clients, and what the service logged."""

    settings: ServiceSettings
    plans: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    logged: list[Any] = field(default_factory=list)
    live_state: LiveState | None = None
    public_routes: list[Any] = field(default_factory=list)
    private_routes: list[Any] = field(default_factory=list)

    def url(self, api: str) -> str:
        return f"http://{self.settings.public if api == 'public' else self.settings.private}"

    def address(self, api: str) -> tuple[str, int]:
        return self.settings.public_address if api == "public" else self.settings.private_address


@contextmanager
def run_apis(folder: Path, state_dsn: str, log_dsn: str) -> Iterator[RunningApis]:
    """Run the public and the private API while the block runs."""
    (folder / "meters.csv").write_text(METERS)
    Landing.create(folder / "landing", interval_s=STEP_S)
    public, private = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    settings = ServiceSettings(
        landing=folder / "landing",
        meters=folder / "meters.csv",
        keys=folder / "keys",
        grace_s=7200,
        public=public,
        private=private,
        country="CH",
        mqtt=MqttBroker(),
        zones={zone: {"timezone": timezone} for zone, (_, timezone) in ZONES.items()},
        clock=ServiceClock(simulated_s=NOW_S, wall_s=time.time(), speed=1e-6),
        static_files=folder / "static",
    )
    apis = RunningApis(settings)
    apis.plans = write_log(log_dsn)
    state = SessionPool(state_dsn)
    access = AuthStore(state)
    clients = [ApiClient(id=zone.replace(" ", "-"), zones=frozenset({zone})) for zone in ZONES]
    clients += [ApiClient(id="both", zones=frozenset(ZONES)), ApiClient(id="boss", zones=frozenset(), is_operator=True)]
    apis.secrets = {client.id: access.add_client(client) for client in clients}
    ingestor = ReloadingIngestor(
        Landing.open(settings.landing), settings.meters, settings.clock, 7200, IngestStore(state)
    )
    routes = IngestApi(current_ingestor=ingestor, access=access).routes()
    databases = Databases.from_dsns(state=state_dsn, log=log_dsn)
    operator = OperatorApi(databases=databases, settings=settings, state=state, counts=ingestor.counts)
    routes += operator.routes() + PublicInputsApi(state=state, access=operator.operators, interval_s=STEP_S).routes()
    apis.private_routes = routes
    live_state = apis.live_state = LiveState(log_dsn, settings)
    app: Any = public_app(live_state, page_routes(live_state))
    apis.public_routes = app._inner.routes
    with (
        recorded_log(apis.logged),
        listening(app, settings.public_address[1]),
        listening(private_app(routes), settings.private_address[1]),
    ):
        await_backfill(live_state)
        for name in ("harbour", "old-town", "both"):
            apis.tokens[name] = token_of(apis, name)
        yield apis
    for closing in (state, live_state, operator):
        closing.close()


def token_of(apis: RunningApis, name: str) -> str:
    form = {"grant_type": "client_credentials", "client_id": name, "client_secret": apis.secrets[name]}
    answer = httpx.post(f"{apis.url('private')}/auth/token", data=form, trust_env=False)
    return answer.json()["access_token"]
