"""A private door on a real server, with a real state, two zones, and meters that sign."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from tests.ports import free_port

from murmurate.publication.signing import Ed25519Signer
from murmurate.quantities import Demand
from murmurate.service.access import Access, Client
from murmurate.service.clock import Clock
from murmurate.service.doors.current import CurrentIntake
from murmurate.service.doors.http import ReadingsDoor, private_app
from murmurate.service.doors.memory import DoorMemory
from murmurate.service.doors.signed import signed_bytes
from murmurate.service.gathering.closing import close
from murmurate.service.gathering.job import gather
from murmurate.service.gathering.layout import Landing
from murmurate.service.gathering.metertable import pin
from murmurate.service.pool import Pool
from murmurate.service.saying import Say
from murmurate.service.web import server

STEP_S = 900
NOW_S = 1_794_658_500 + 10 * STEP_S  # what the door believes the time is: 14:45
OPEN_S = NOW_S - STEP_S  # the begin of the interval that has just ended
HARBOUR, QUAY = range(200), range(200, 400)
SIGNING = range(380, 400)  # of the quay
KEYS = {meter: Ed25519Signer(meter.to_bytes(32, "big")) for meter in SIGNING}


def silent(_event: str, **_facts: object) -> None:
    """Nobody listens."""


@dataclass
class Gate:
    """The door, and ways to knock."""

    root: Path
    dsn: str
    port: int
    landing: Landing
    intake: CurrentIntake
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
        """What would count for an interval if it were closed now. It is closed by this."""
        table = pin(self.landing, self.root / "meters.csv")
        return gather(self.landing, table, [close(self.landing, start_s, table.version)])[0].demand

    def landed(self) -> int:
        """Readings on disk, duplicates and all."""
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
    start = pa.array(np.full(len(meters), start_s * 10**6), pa.timestamp("us", "UTC"))
    sink = io.BytesIO()
    pq.write_table(pa.table({"meter": meters, "interval_start": start, "energy_wh": [energy_wh] * len(meters)}), sink)
    return sink.getvalue()


@contextmanager
def gate(root: Path, dsn: str, say: Say = silent) -> Iterator[Gate]:
    rows = [
        f"{m},m-{m},{'harbour' if m in HARBOUR else 'quay'},1000,200,{KEYS[m].public if m in KEYS else ''}"
        for m in (*HARBOUR, *QUAY)
    ]
    (root / "meters.csv").write_text("\n".join(["meter,id,zone,bound_wh,imputed_wh,key", *rows]) + "\n")
    landing = Landing.create(root / "landing")
    clock = Clock(played_s=NOW_S, real_s=time.time(), speed=1e-6)  # it stands still
    memories = Pool(lambda: DoorMemory(dsn))
    intake = CurrentIntake(landing, root / "meters.csv", clock, 60, memories, say)
    access = Pool(lambda: Access(dsn))
    port = free_port()
    app = private_app(ReadingsDoor(intake=intake, access=access, say=say).routes(), say)
    web = server(app, "127.0.0.1", port)
    thread = threading.Thread(target=web.run, daemon=True)
    thread.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
        made = Gate(root, dsn, port, landing, intake, client)
        while not web.started:
            time.sleep(0.01)
        with access.one() as one:
            for name, zones in (("north", {"harbour"}), ("south", {"quay"}), ("both", {"harbour", "quay"})):
                made.secrets[name] = one.add(Client(id=name, zones=frozenset(zones)))
        try:
            yield made
        finally:
            web.should_exit = True
            thread.join(10)
            memories.close()
            access.close()
