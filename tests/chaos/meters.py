"""The meters of two zones: what each one measures in each interval, and how it is sent."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE
from murmurate.prediction.forecast_sources import forecast_from_table
from murmurate.prediction.public_forecast import PublicForecast
from murmurate.prediction.public_inputs import InputSeries
from murmurate.public_log.signing import Ed25519Signer
from murmurate.service.ingest.meter_registry import signed_bytes
from tests.support.request_bodies import readings_parquet

STEP_S = 900
GRACE_INTERVALS, LEAD = 4, 10
BOUND_WH, EXPORT_BOUND_WH = 1000, 800  # the latter of homes that feed in and live in `quay`; it is 0 elsewhere
ZONES = ("harbour", "quay")
SERIES = InputSeries("quay temperature", "quay sun", "quay use")  # that the prices of `quay` are predicted from
HTTP, BARE, SIGNED, BATCHED = range(30), range(30, 40), range(40, 50), range(50, 70)
REGISTERS, FILES = range(70, 80), range(80, 99)
FENCE = 99  # a register that always shows 0: when its message is stored, those sent before it are stored too
METERS = 100
POINTS_PER_INTERVAL = 3  # of a register: energy is a multiple of it, so any two of its points give the same energy
FEEDS_IN = np.arange(METERS) % 3 == 0  # [meter] homes that feed in, half of the time; their registers are two
EXPORT_WH = np.where(FEEDS_IN & (np.arange(METERS) % 2 == 1), EXPORT_BOUND_WH, 0)  # [meter] export bound
EXPORTING = tuple(meter for meter in (*BARE, *REGISTERS) if FEEDS_IN[meter])  # they have a register of export
SILENT_INTERVALS, SILENT_SHARE = 5, 0.2  # how long a meter is silent, and how many meters are
_FAR_BEYOND_BOUND_WH = 2**40
BARE_WH = 4 * BOUND_WH  # a bare register draws this or nothing: however it is stretched, it counts its bound or 0
BARE_TIMES = (0.1, 0.2, 0.3, 0.7, 0.8, 0.9)  # of its points, as shares of an interval; it moves in the middle
_SIGNERS = {meter: Ed25519Signer(meter.to_bytes(32, "big")) for meter in SIGNED}


def zone_file(zone: str) -> str:
    """A zone file whose plan takes no time to prove, with little noise: what is published shows what was summed."""
    text = EXAMPLE_ZONE_FILE.replace('"harbour"', f'"{zone}"').split('[[households]]\nname = "fish market"')[0]
    text = text.replace("count = 800", f"count = {METERS // len(ZONES)}")
    text = text.replace('["any 24 h: epsilon 1, delta 1e-6", "any moment: 1"]', '["any 24 h: epsilon 3000"]')
    if zone == "harbour":
        return text
    text = text.replace("bound_wh = 1000", f"bound_wh = {BOUND_WH}\nexport_bound_wh = {EXPORT_BOUND_WH}")
    named = "\n".join(f'{role} = "{name}"' for role, name in SERIES._asdict().items())
    return f'{text}\n[forecast]\nfile = "forecast.json"\n{named}\n'


def public_forecast() -> PublicForecast:
    """What a home of `quay` uses: more in the cold, and less than nothing while the sun shines brightly."""
    table = np.full((12, 3, 24 * 3600 // STEP_S), 300.0)
    public = forecast_from_table(table, source="a made profile", time_zone="Europe/Lisbon")
    weather = {"heat_wh_per_k": np.full(24, 5.0), "usual_cold_k": np.full(12, 3.0), "dark_wh": 10.0, "sun_wh": -300.0}
    return replace(public, demand=replace(public.demand, **weather, usual_irradiance=np.full((12, 24), 100.0)))


def zone_of(meter: int) -> str:
    return ZONES[meter % len(ZONES)]


def meter_name(meter: int) -> str:
    return f"m{meter:03}"


def meter_table() -> str:
    """The operator's table, as CSV."""
    rows = ["meter,id,zone,bound_wh,export_bound_wh,key"]
    for meter in range(METERS):
        key = _SIGNERS[meter].public_key if meter in _SIGNERS else ""
        rows.append(f"{meter},{meter_name(meter)},{zone_of(meter)},{BOUND_WH},{EXPORT_WH[meter]},{key}")
    return "\n".join(rows) + "\n"


@dataclass(frozen=True)
class TrueEnergy:
    """What every meter measures, from a seed: the same for each process that asks."""

    seed: int
    first: int  # number of the first interval
    _totals: dict[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def register_energy_wh(self, interval: int) -> tuple[np.ndarray, np.ndarray]:
        """[meter] what registers of import and of export rise by. Their difference is what a meter measures."""
        rng = np.random.default_rng((self.seed, interval))
        used, fed_in = rng.integers(0, 900, (2, METERS)) // POINTS_PER_INTERVAL * POINTS_PER_INTERVAL
        used[list(BARE)], fed_in[list(BARE)] = BARE_WH * np.eye(3, dtype=np.int64)[rng.integers(0, 3, len(BARE))].T[:2]
        fed_in[~FEEDS_IN] = used[FENCE] = fed_in[FENCE] = 0
        return used, fed_in

    def energy_wh(self, interval: int) -> np.ndarray:
        """[meter] net energy of an interval, some of it far beyond the bounds."""
        used, fed_in = self.register_energy_wh(interval)
        energy = used - fed_in
        energy[HTTP[interval % len(HTTP)]] = _FAR_BEYOND_BOUND_WH
        energy[FILES[interval % len(FILES)]] = -_FAR_BEYOND_BOUND_WH
        return energy

    def is_silent(self, interval: int) -> np.ndarray:
        """[meter] whether a meter sends nothing of an interval; one with two registers, nothing of its export."""
        rng = np.random.default_rng((self.seed, interval // SILENT_INTERVALS, METERS))
        return rng.random(METERS) < SILENT_SHARE

    def reporting(self, interval: int, meters: Iterable[int]) -> list[int]:
        """Those of some meters that send what they measured in an interval."""
        silent = self.is_silent(interval)
        return [meter for meter in meters if not silent[meter]]

    def counted_wh(self, interval: int) -> np.ndarray:
        """[meter] what a meter that reports adds to the demand."""
        return self.energy_wh(interval).clip(-EXPORT_WH, BOUND_WH)

    def register_wh(self, interval: int) -> tuple[np.ndarray, np.ndarray]:
        """[meter] what registers of import and of export show at the begin of an interval."""
        if interval <= self.first:
            shown = np.full(METERS, 10_000) * (np.arange(METERS) != FENCE)
            return shown, shown
        if interval not in self._totals:
            before, risen = self.register_wh(interval - 1), self.register_energy_wh(interval - 1)
            self._totals[interval] = before[0] + risen[0], before[1] + risen[1]
        return self._totals[interval]


def parquet_body(interval: int, meters: Sequence[int], energy: np.ndarray) -> bytes:
    return readings_parquet(meters, interval * STEP_S, energy[list(meters)])


def json_body(interval: int, meters: Sequence[int], energy: np.ndarray) -> bytes:
    rows = []
    for meter in meters:
        row = {"meter": meter_name(meter), "interval_start": interval * STEP_S, "energy_wh": int(energy[meter])}
        if meter in _SIGNERS:
            reading = (row["meter"], row["interval_start"], row["energy_wh"])
            row["signature"] = _SIGNERS[meter].sign(signed_bytes(*reading))
        rows.append(json.dumps(row))
    return "\n".join(rows).encode()


def csv_body(interval: int, meters: Sequence[int], energy: np.ndarray) -> bytes:
    rows = [f"{meter_name(meter)},{interval * STEP_S},{energy[meter]}" for meter in meters]
    return "\n".join(["meter_id,interval_start,energy_wh", *rows]).encode() + b"\n"


def http_body(interval: int, meters: Sequence[int], energy: np.ndarray) -> tuple[bytes, str]:
    """The body of unsigned meters, in another format in each interval, and its media type."""
    formats = (
        (parquet_body, "application/vnd.apache.parquet"),
        (json_body, "application/x-ndjson"),
        (csv_body, "text/csv"),
    )
    make_body, kind = formats[interval % len(formats)]
    return make_body(interval, meters, energy), kind


def register_points(truth: TrueEnergy, interval: int, meter: int) -> list[tuple[str, bytes]]:
    """The messages of a meter's registers in an interval, its begin left out and its end included: topic and payload.

    A silent meter that has two registers sends the points of one: so it has no reading.
    """
    silent, shown = truth.is_silent(interval)[meter], truth.register_wh(interval)
    risen = truth.register_energy_wh(interval)
    exports = [is_export for is_export in registers_of(meter) if not silent or (meter in EXPORTING and not is_export)]
    points = []
    for part in range(1, POINTS_PER_INTERVAL + 1):
        at_s = interval * STEP_S + part * STEP_S // POINTS_PER_INTERVAL
        for is_export in exports:
            total_wh = int(shown[is_export][meter]) + part * int(risen[is_export][meter]) // POINTS_PER_INTERVAL
            points.append(register_message(meter, at_s, total_wh, is_export=is_export))
    return points


def registers_of(meter: int) -> tuple[bool, ...]:
    """Whether each register of a meter is one of export."""
    return (False, True) if meter in EXPORTING else (False,)


def bare_messages(truth: TrueEnergy, meter: int, at_s: float) -> list[tuple[str, bytes]]:
    """What bare registers show at a time: numbers without their time. Topics and payloads; none of a silent meter."""
    if truth.is_silent(int(at_s // STEP_S))[meter]:
        return []
    interval = int(at_s // STEP_S) + (at_s % STEP_S >= STEP_S / 2)
    shown = truth.register_wh(interval)
    return [(_topic(meter, is_export), str(int(shown[is_export][meter])).encode()) for is_export in registers_of(meter)]


def register_message(meter: int, at_s: int, total_wh: int, *, is_export: bool = False) -> tuple[str, bytes]:
    return _topic(meter, is_export), json.dumps({"timestamp": at_s, "value": total_wh}).encode()


def _topic(meter: int, is_export: bool) -> str:
    return f"smartmeter/{meter_name(meter)}/ACTIVE_ENERGY_{'N' if is_export else 'P'}"
