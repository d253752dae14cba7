"""An ingest API on a real server, with a real state, two zones and meters that sign."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psycopg
import pyarrow.parquet as pq

from murmurate.public_log.signing import Ed25519Signer
from murmurate.service.aggregation.job import aggregate_landing
from murmurate.service.auth import ApiClient, AuthStore
from murmurate.service.clock import ServiceClock
from murmurate.service.ingest.http_api import IngestApi, private_app
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.ingest.ingestor import ReloadingIngestor
from murmurate.service.ingest.meter_registry import signed_bytes
from murmurate.service.landing.interval_manifest import close_interval
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.meter_table import pin_table
from murmurate.service.settings import ClientLimits
from murmurate.service.storage.session import SessionPool
from murmurate.service.web.server import ConnectionLimits
from murmurate.types import Demand
from tests.support.api_servers import listening
from tests.support.ports import free_port
from tests.support.request_bodies import readings_parquet

STEP_S = 900
NOW_S = 1_794_658_500 + 10 * STEP_S  # the time of the service: 14:45
OPEN_S = NOW_S - STEP_S  # the begin of the interval that has just ended
HARBOUR, QUAY = range(200), range(200, 400)
SIGNING = range(380, 400)  # of the quay
KEYS = {meter: Ed25519Signer(meter.to_bytes(32, "big")) for meter in SIGNING}
_LIMITS = ClientLimits()


@dataclass
class IngestServer:
    """A running ingest API and the requests that a client sends to it."""

    root: Path
    dsn: str
    port: int
    landing: Landing
    ingestor: ReloadingIngestor
    api: IngestApi
    web: httpx.Client
    secrets: dict[str, str] = field(default_factory=dict)

    def token(self, name: str, scope: str | None = None) -> httpx.Response:
        form = {"grant_type": "client_credentials", "client_id": name, "client_secret": self.secrets[name]}
        return self.web.post("/auth/token", data=form | ({"scope": scope} if scope else {}))

    def bearer(self, name: str) -> str:
        return str(self.token(name).raise_for_status().json()["access_token"])

    def post(self, token: str, body: bytes, kind: str = "application/x-ndjson") -> httpx.Response:
        headers = {"authorization": f"Bearer {token}", "content-type": kind}
        return self.web.post("/readings", content=body, headers=headers)

    def counted(self, start_s: int = OPEN_S) -> Demand:
        """Close the interval and return its demand."""
        table = pin_table(self.landing, self.root / "meters.csv")
        return aggregate_landing(self.landing, table, [close_interval(self.landing, start_s, table.version)])[start_s]

    def landed(self) -> int:
        """The number of readings on disk, duplicates included."""
        return sum(pq.read_metadata(path).num_rows for path in self.landing.root.glob("interval=*/**/*.parquet"))

    def query(self, text: str, *values: object) -> None:
        with psycopg.connect(self.dsn) as connection:
            connection.execute(text, values)


def lines(rows: list[dict[str, object]]) -> bytes:
    return "\n".join(json.dumps(row) for row in rows).encode()


def reading(meter: int, start_s: int = OPEN_S, energy_wh: int = 250, **more: object) -> dict[str, object]:
    return {"meter": f"m-{meter}", "interval_start": start_s, "energy_wh": energy_wh} | more


def signed(meter: int, start_s: int = OPEN_S, energy_wh: int = 250) -> dict[str, object]:
    signature = KEYS[meter].sign(signed_bytes(f"m-{meter}", start_s, energy_wh))
    return reading(meter, start_s, energy_wh, signature=signature)


def parquet(meters: list[int], start_s: int = OPEN_S, energy_wh: int = 250) -> bytes:
    return readings_parquet(meters, start_s, [energy_wh] * len(meters))


@contextmanager
def run_ingest_server(root: Path, dsn: str, limits: ClientLimits = _LIMITS) -> Iterator[IngestServer]:
    """Run an ingest API for 400 meters and three clients while the block runs."""
    rows = [
        f"{m},m-{m},{'harbour' if m in HARBOUR else 'quay'},1000,200,{KEYS[m].public_key if m in KEYS else ''}"
        for m in (*HARBOUR, *QUAY)
    ]
    (root / "meters.csv").write_text("\n".join(["meter,id,zone,bound_wh,imputed_wh,key", *rows]) + "\n")
    landing = Landing.create(root / "landing")
    clock = ServiceClock(simulated_s=NOW_S, wall_s=time.time(), speed=1e-6)  # it stands still
    state = SessionPool(dsn)
    ingestor = ReloadingIngestor(landing, root / "meters.csv", clock, 60, IngestStore(state))
    access = AuthStore(state)
    port = free_port()
    api = IngestApi(current_ingestor=ingestor, access=access)
    app = private_app(api.routes(), limits.trusted)
    with (
        listening(app, port, ConnectionLimits(limits)),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client,
        closing(state),
    ):
        server = IngestServer(root, dsn, port, landing, ingestor, api, client)
        for name, zones in (("north", {"harbour"}), ("south", {"quay"}), ("both", {"harbour", "quay"})):
            server.secrets[name] = access.add_client(ApiClient(id=name, zones=frozenset(zones)))
        yield server
