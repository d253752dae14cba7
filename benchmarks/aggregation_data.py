"""A landing with readings for `benchmarks.aggregation`, including all kinds of faulty readings.

In each interval a hundredth of the meters sends no reading and a hundredth sends two different ones. Some readings
exceed their bound or are negative, where a quarter of the meters may feed in. Some come from unknown meters, and some
name another interval, a day or one interval off. The readings are shuffled over several appends per shard.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from murmurate.service.landing.append import append_readings
from murmurate.service.landing.layout import Landing, interval_name
from murmurate.service.landing.meter_table import MeterTable, pin_table
from murmurate.service.landing.readings_file import READINGS_SCHEMA
from murmurate.types import Readings
from murmurate.units import SECONDS_PER_DAY, IntArray

SEED = 20_261_114
FIRST_S = 1_794_614_400  # 14 November 2026, 00:00 UTC
INTERVALS = 10
FILES_PER_SHARD = 4
ZONE_METERS = 2000
ZONE_NUMBERS = ZONE_METERS + ZONE_METERS // 1000  # one number in 1001 belongs to no meter
UNKNOWN_READINGS = 500  # readings in a shard without a meter in the table
_MICRO = 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleLanding:
    """A landing, the operator's meter table, and the number of meters."""

    landing: Landing
    meters: int

    @property
    def source(self) -> Path:
        return self.landing.root.parent / "meters.parquet"

    @property
    def starts_s(self) -> list[int]:
        return [FIRST_S + n * self.landing.interval_s for n in range(INTERVALS)]

    @property
    def readings(self) -> int:
        return sum(pq.read_metadata(path).num_rows for path in self.files())

    def files(self) -> Iterator[Path]:
        return self.landing.root.glob("interval=*/shard=*/*.parquet")

    def table(self) -> MeterTable:
        return pin_table(self.landing, self.source)

    def reopen(self) -> None:
        """Delete all manifests, so that no interval is closed."""
        shutil.rmtree(self.landing.root / "_closed", ignore_errors=True)


def make_sample_landing(folder: Path, meters: int) -> SampleLanding:
    """Return the landing for this number of meters. It is created if it does not exist."""
    sample = SampleLanding(landing=Landing.create(folder / "landing"), meters=meters)
    if not sample.source.exists():
        _write_readings(sample)
        pq.write_table(meter_rows(meters), sample.source)
    return sample


def numbers(meters: int) -> IntArray:
    """Return the numbers of the meters: 0, 1, 2 and so on, without one in 1001."""
    row = np.arange(meters)
    return row + row // 1000


def meter_rows(meters: int) -> pa.Table:
    rng = np.random.default_rng([SEED, meters])
    number = numbers(meters)
    names = pa.array([f"zone-{zone:05d}" for zone in range(number[-1] // ZONE_NUMBERS + 1)])
    zone = pa.DictionaryArray.from_arrays(pa.array(number // ZONE_NUMBERS, pa.int32()), names).cast(pa.string())
    columns = {"meter": number, "zone": zone, "bound_wh": rng.integers(1500, 9000, meters)}
    columns |= {"imputed_wh": rng.integers(0, 400, meters), "protected": rng.random(meters) < 0.9}
    order = rng.permutation(meters)
    columns |= {"export_bound_wh": np.where(rng.random(meters) < 0.25, rng.integers(1, 1000, meters), 0)}
    return pa.table(columns).take(order)


def _write_readings(sample: SampleLanding) -> None:
    number = numbers(sample.meters)
    first_of = np.arange(0, number[-1] + 1, sample.landing.shard_meters)
    parts = np.split(number, np.searchsorted(number, first_of[1:]))

    def one(job: tuple[int, int]) -> None:
        start_s, shard = job
        rng = np.random.default_rng([SEED, start_s, shard])
        _write(sample.landing, start_s, shard, _sample_readings(parts[shard], start_s, rng), rng)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, product(sample.starts_s, range(len(parts)))))
    beyond = len(parts) + 2
    for start_s in sample.starts_s:
        meter = beyond * sample.landing.shard_meters + np.arange(UNKNOWN_READINGS)
        start = np.full(UNKNOWN_READINGS, start_s * _MICRO)
        _write(sample.landing, start_s, beyond, (meter, start, meter % 1000), np.random.default_rng(0))


def _sample_readings(number: IntArray, start_s: int, rng: np.random.Generator) -> tuple[IntArray, IntArray, IntArray]:
    """(meter, interval_start, energy_wh) of one shard in one interval, not yet shuffled."""
    count = len(number)
    reporting = number[rng.random(count) >= 0.01]
    repeated = rng.choice(reporting, count // 100)
    unknown = rng.choice(np.arange(number[0] // 1001 + 1, number[-1] // 1001) * 1001 - 1, count // 1000)
    wrong_interval = rng.choice(number, count // 200)
    meter = np.concatenate([reporting, repeated, unknown, wrong_interval])
    energy_wh = rng.integers(0, 1400, len(meter))
    odd = rng.integers(0, 200, len(meter), np.uint8)
    energy_wh[odd < 2] *= 12  # most of these lie beyond the bound
    energy_wh[odd == 2] *= -1
    start = np.full(len(meter), start_s * _MICRO)
    start[-len(wrong_interval) :] += (
        rng.choice(np.array([SECONDS_PER_DAY, -SECONDS_PER_DAY, 900, -900]), len(wrong_interval)) * _MICRO
    )
    return meter, start, energy_wh


def _write(
    landing: Landing, start_s: int, shard: int, columns: tuple[IntArray, IntArray, IntArray], rng: np.random.Generator
) -> None:
    """Write the readings as the service does, and those that name another interval as another program may."""
    meter, start, energy_wh = columns
    in_time = start == start_s * _MICRO
    for some in np.array_split(rng.permutation(np.flatnonzero(in_time)), FILES_PER_SHARD):
        assert append_readings(landing, start_s, Readings(meter=meter[some], energy_wh=energy_wh[some]))
    kind = READINGS_SCHEMA.field("interval_start").type
    other = [pa.array(meter[~in_time]), pa.array(start[~in_time], kind), pa.array(energy_wh[~in_time])]
    pq.write_table(pa.table(other, schema=READINGS_SCHEMA), landing.shard_folder(start_s, shard) / "clocks.parquet")


def change_one_reading(sample: SampleLanding) -> None:
    """Add 1 Wh to a reading of the first interval that counts. No interval is closed afterwards."""
    sample.reopen()
    folder = sample.landing.shard_folder(FIRST_S, 0)
    path, *others = sorted(folder.glob("*-*.parquet"))
    meter, energy_wh = (pq.read_table(path, partitioning=None)[name].to_numpy() for name in ("meter", "energy_wh"))
    more = [pq.read_table(other, partitioning=None)["meter"].to_numpy() for other in others]
    once = np.bincount(np.concatenate([meter, *more]))[meter] == 1
    counts = once & (energy_wh > 0) & (energy_wh < 1400) & (meter % 1001 != 1000)
    path.unlink()
    changed = Readings(meter=meter, energy_wh=energy_wh + (np.arange(len(meter)) == counts.argmax()))
    assert append_readings(sample.landing, FIRST_S, changed)


def digest(rows: pa.Table) -> str:
    """SHA-256 of the demand: a line for each interval and zone, in order."""
    rows = rows.sort_by([("interval_start", "ascending"), ("zone", "ascending")])
    start_s = rows["interval_start"].cast(pa.timestamp("s", "UTC")).cast(pa.int64()).to_pylist()
    columns = [rows[name].to_pylist() for name in ("zone", "energy_wh", "reported", "imputed")]
    lines = (
        f"{interval_name(begin)},{','.join(map(str, row))}\n" for begin, *row in zip(start_s, *columns, strict=True)
    )
    return hashlib.sha256("".join(lines).encode()).hexdigest()
