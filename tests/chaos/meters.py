"""The meters of two zones: what each one measures in each interval, and how it is sent."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np

from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE
from murmurate.public_log.signing import Ed25519Signer
from murmurate.service.ingest.meter_registry import signed_bytes
from tests.support.request_bodies import readings_parquet

STEP_S = 900
GRACE_INTERVALS, LEAD = 4, 10
BOUND_WH, IMPUTED_WH = 1000, 200
ZONES = ("harbour", "quay")
HTTP, BARE, SIGNED, BATCHED = range(30), range(30, 40), range(40, 50), range(50, 70)
REGISTERS, FILES = range(70, 80), range(80, 99)
FENCE = 99  # a register that always shows 0: when its message is stored, those sent before it are stored too
METERS = 100
POINTS_PER_INTERVAL = 3  # of a register: energy is a multiple of it, so any two of its points give the same energy
_FAR_BEYOND_BOUND_WH = 2**40
BARE_WH = 4 * BOUND_WH  # a bare register draws this or nothing: however it is stretched, it counts its bound or 0
BARE_TIMES = (0.1, 0.2, 0.3, 0.7, 0.8, 0.9)  # of its points, as shares of an interval; it moves in the middle
_SIGNERS = {meter: Ed25519Signer(meter.to_bytes(32, "big")) for meter in SIGNED}


def zone_file(zone: str) -> str:
    """A zone file whose plan takes no time to prove."""
    text = EXAMPLE_ZONE_FILE.replace('"harbour"', f'"{zone}"').split('[[households]]\nname = "fish market"')[0]
    text = text.replace("count = 800", f"count = {METERS}")
    return text.replace('["any 24 h: epsilon 1, delta 1e-6", "any moment: 1"]', '["any 24 h: epsilon 3"]')


def zone_of(meter: int) -> str:
    return ZONES[meter % len(ZONES)]


def meter_name(meter: int) -> str:
    return f"m{meter:03}"


def meter_table() -> str:
    """The operator's table, as CSV."""
    rows = ["meter,id,zone,bound_wh,imputed_wh,key"]
    for meter in range(METERS):
        key = _SIGNERS[meter].public_key if meter in _SIGNERS else ""
        rows.append(f"{meter},{meter_name(meter)},{zone_of(meter)},{BOUND_WH},{IMPUTED_WH},{key}")
    return "\n".join(rows) + "\n"


@dataclass(frozen=True)
class TrueEnergy:
    """What every meter measures, from a seed: the same for each process that asks."""

    seed: int
    first: int  # number of the first interval
    _totals: dict[int, np.ndarray] = field(default_factory=dict)

    def energy_wh(self, interval: int) -> np.ndarray:
        """[meter] energy of an interval, some of it far beyond the bound or below 0."""
        rng = np.random.default_rng((self.seed, interval))
        energy = rng.integers(0, 900, METERS)
        energy[list(REGISTERS)] = POINTS_PER_INTERVAL * rng.integers(0, 300, len(REGISTERS))
        energy[list(BARE)] = BARE_WH * rng.integers(0, 2, len(BARE))
        energy[HTTP[interval % len(HTTP)]] = _FAR_BEYOND_BOUND_WH
        energy[FILES[interval % len(FILES)]] *= -1
        energy[FENCE] = 0
        return energy

    def stored_wh(self, interval: int) -> np.ndarray:
        """[meter] what a file of readings may hold; ingest stores 0 for an energy below 0, a file keeps it."""
        return np.maximum(self.energy_wh(interval), 0)

    def counted_wh(self, interval: int) -> np.ndarray:
        """[meter] what a meter that reports adds to the demand."""
        return self.energy_wh(interval).clip(0, BOUND_WH)

    def register_wh(self, interval: int) -> np.ndarray:
        """[meter] what registers show at the begin of an interval."""
        if interval <= self.first:
            return np.full(METERS, 10_000) * (np.arange(METERS) != FENCE)
        if interval not in self._totals:
            self._totals[interval] = self.register_wh(interval - 1) + self.energy_wh(interval - 1)
        return self._totals[interval]


def parquet_body(interval: int, meters: range, energy: np.ndarray) -> bytes:
    return readings_parquet(meters, interval * STEP_S, energy[meters])


def json_body(interval: int, meters: range, energy: np.ndarray) -> bytes:
    rows = []
    for meter in meters:
        row = {"meter": meter_name(meter), "interval_start": interval * STEP_S, "energy_wh": int(energy[meter])}
        if meter in _SIGNERS:
            reading = (row["meter"], row["interval_start"], row["energy_wh"])
            row["signature"] = _SIGNERS[meter].sign(signed_bytes(*reading))
        rows.append(json.dumps(row))
    return "\n".join(rows).encode()


def csv_body(interval: int, meters: range, energy: np.ndarray) -> bytes:
    rows = [f"{meter_name(meter)},{interval * STEP_S},{energy[meter]}" for meter in meters]
    return "\n".join(["meter_id,interval_start,energy_wh", *rows]).encode() + b"\n"


def http_body(interval: int, energy: np.ndarray) -> tuple[bytes, str]:
    """The body of the unsigned meters, in another format in each interval, and its media type."""
    formats = (
        (parquet_body, "application/vnd.apache.parquet"),
        (json_body, "application/x-ndjson"),
        (csv_body, "text/csv"),
    )
    make_body, kind = formats[interval % len(formats)]
    return make_body(interval, HTTP, energy), kind


def register_points(truth: TrueEnergy, interval: int, meter: int) -> list[tuple[str, bytes]]:
    """The messages of a register in an interval, its begin left out and its end included: topic and payload."""
    before, energy = int(truth.register_wh(interval)[meter]), int(truth.energy_wh(interval)[meter])
    points = []
    for part in range(1, POINTS_PER_INTERVAL + 1):
        at_s = interval * STEP_S + part * STEP_S // POINTS_PER_INTERVAL
        points.append(register_message(meter, at_s, before + part * energy // POINTS_PER_INTERVAL))
    return points


def bare_message(truth: TrueEnergy, meter: int, at_s: float) -> tuple[str, bytes]:
    """What a bare register shows at a time: a number without its time. Topic and payload."""
    interval = int(at_s // STEP_S) + (at_s % STEP_S >= STEP_S / 2)
    return f"smartmeter/{meter_name(meter)}/ACTIVE_ENERGY_P", str(int(truth.register_wh(interval)[meter])).encode()


def register_message(meter: int, at_s: int, total_wh: int) -> tuple[str, bytes]:
    message = json.dumps({"timestamp": at_s, "value": total_wh}).encode()
    return f"smartmeter/{meter_name(meter)}/ACTIVE_ENERGY_P", message
