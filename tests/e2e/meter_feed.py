"""The meters of a zone: their energy, and how it reaches the service. Four ways in, with the faults of each."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field

import numpy as np

from murmurate.public_log.signing import Ed25519Signer
from murmurate.service.ingest.meter_registry import signed_bytes
from tests.e2e.harbour import BOUND_WH, HOMES, STEP_S
from tests.support.broker import start_client, stop_client
from tests.support.request_bodies import readings_parquet
from tests.support.running_service import HeadEnd, RunningService, ServiceOperator

PARQUET, SIGNED, BATCHED, REGISTERS = range(400), range(400, 450), range(450, 900), range(900, HOMES)
SIGNERS = {home: Ed25519Signer(home.to_bytes(32, "big")) for home in SIGNED}
RESET_AT = 30  # the interval in which one register falls back to nearly nothing: it reports, and counts 0
FEED_IN = [(way[-1], way[-2], way[-3]) for way in (PARQUET, SIGNED, BATCHED)]  # they send less than 0, and count 0
MORE_WH = 2**40  # a reading far beyond its bound


@dataclass
class Feed:
    """Sends the readings of a day. `expected` is the demand: interval → (energy, reported, imputed)."""

    operator: ServiceOperator
    service: RunningService
    seed: int = 7
    expected: dict[int, tuple[int, int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.registers = self.rng.integers(0, 10**7, len(REGISTERS))
        self.mqtt = start_client()
        self.head_end = HeadEnd(self.operator)

    def close(self) -> None:
        stop_client(self.mqtt)
        self.head_end.close()

    def post(self, body: bytes, kind: str, count: int) -> None:
        receipt = self.head_end.post(self.service, body, kind).json()
        assert (receipt["late"], receipt["accepted"]) == (0, count), receipt

    def play(self, number: int) -> None:
        """Send everything that the meters report for one interval, once it is over."""
        start_s = self.operator.first_s + number * STEP_S
        if number == 0:
            time.sleep(max(0.0, self.operator.clock.wall_at(start_s) - time.time()))  # no point is of the future
            self._send_registers(start_s, self.registers)
        time.sleep(max(0.0, self.operator.clock.wall_at(start_s + STEP_S) - time.time()))
        energy = self.rng.integers(0, 600, HOMES)
        energy[number % len(PARQUET)] = MORE_WH  # clipped by the service
        energy[[homes[number % len(homes)] for homes in FEED_IN]] *= -1
        body = readings_parquet(PARQUET, start_s, energy[PARQUET])
        for _ in range(1 + (start_s // STEP_S) % 2):  # every other batch is sent twice
            self.post(body, "application/vnd.apache.parquet", len(PARQUET))
        self._signed(start_s, energy)
        self._batched(start_s, energy)
        self._registers(start_s, number, energy)
        counted = energy.clip(0, BOUND_WH)
        if number == RESET_AT:
            counted[REGISTERS[0]] = 0
        self.expected[start_s // STEP_S] = (int(counted.sum()), HOMES, 0)

    def _signed(self, start_s: int, energy: np.ndarray) -> None:
        rows = []
        for home in SIGNED:
            name, drew = f"home-{home:04}", int(energy[home])
            signature = SIGNERS[home].sign(signed_bytes(name, start_s, drew))
            rows.append({"meter": name, "interval_start": start_s, "energy_wh": drew, "signature": signature})
        self.post("\n".join(map(json.dumps, rows)).encode(), "application/x-ndjson", len(SIGNED))

    def _batched(self, start_s: int, energy: np.ndarray) -> None:
        for some in np.array_split(np.array(BATCHED), 3):
            rows = ({"meter": f"home-{n:04}", "interval_start": start_s, "energy_wh": int(energy[n])} for n in some)
            self.mqtt.publish("murmurate/readings", "\n".join(map(json.dumps, rows)), qos=1)

    def _registers(self, start_s: int, number: int, energy: np.ndarray) -> None:
        """Registers move on. All are read on the edge of an interval, every third also within it."""
        before = self.registers
        self.registers = before + energy[list(REGISTERS)]
        self._send_registers(start_s + STEP_S // 3, before + energy[list(REGISTERS)] // 2, every=3)
        if number == RESET_AT:
            self.registers[0] = 5
        self._send_registers(start_s + STEP_S, self.registers)

    def _send_registers(self, at_s: int, shown: np.ndarray, every: int = 1) -> None:
        for home, total in list(zip(REGISTERS, shown.tolist(), strict=True))[::every]:
            message = json.dumps({"timestamp": at_s, "value": total})
            self.mqtt.publish(f"smartmeter/home-{home:04}/ACTIVE_ENERGY_P", message, qos=1)
