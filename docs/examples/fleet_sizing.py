"""The resources for a fleet of meters, computed from measured figures: the tables of docs/explanation/scale.md.

    python docs/examples/fleet_sizing.py

Arithmetic, not a measurement: each cell follows from `MEASURED` and `ASSUMED`. A test compares the page with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """On two cores of a noisy virtual machine, by the benchmark in brackets."""

    aggregate_ns: float = 75  # core time of a reading: closing, checking, decoding, adding [aggregation]
    spark_factor: float = 1.8  # the same on Spark, in core time [aggregation]
    append_ns: float = 100  # core time of a reading in a durable append of 100,000 [aggregation]
    release_us: float = 190  # of a zone, wall time of one publisher and its two databases [publisher_throughput]
    bytes_shuffled: float = 4.1  # of a reading in Parquet, meters in no order [aggregation]
    record_bytes: float = 95  # on disk with its keys, in the log and again in the state [publisher_throughput]
    wal_bytes: float = 232  # of a record in the write-ahead log of both [publisher_throughput]
    zone_kb: float = 8  # of a zone in a public server with three days of prices [server_start]
    meter_bytes: float = 3.2  # of a meter in the pinned table [aggregation]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """Figures that were not measured. Prices are in euros, list prices of 2026."""

    homes: int = 1000  # in a zone
    burst_s: int = 60  # in which all readings of an interval arrive
    kept_days: int = 7
    commit: int = 100_000  # readings in one object of the landing
    meter_memory_bytes: float = 150  # of a meter in a process that takes readings
    answer_kb: float = 0.8  # of a price as a device gets it, with its headers
    machine_cores: int = 2
    machine_gb: float = 8
    machine_month: float = 45.0
    small_machine_month: float = 5.0
    disk_gb_month: float = 0.10  # block storage, under PostgreSQL
    object_gb_month: float = 0.021
    million_puts: float = 4.60
    flat_gb: float = 0.001  # carried by an edge that is paid by the byte or flat
    million_requests: float = 0.60  # of a CDN that is paid by the request


MEASURED, ASSUMED = Measured(), Assumed()
SIZES = (10**6, 10**8, 10**9)
COPIES = 2  # of each service and each database: one may fail
MINUTES = (15, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """A number of meters and the minutes of an interval."""

    meters: int
    minutes: int

    @property
    def zones(self) -> int:
        return self.meters // ASSUMED.homes

    @property
    def name(self) -> str:
        return f"10^{len(str(self.meters)) - 1}, {self.minutes} min"

    @property
    def aggregate_s(self) -> float:
        """Core seconds per interval."""
        return self.meters * MEASURED.aggregate_ns * 1e-9

    @property
    def append_s(self) -> float:
        """Core seconds per interval."""
        return self.meters * MEASURED.append_ns * 1e-9

    @property
    def release_s(self) -> float:
        """Seconds per interval with one publisher."""
        return self.zones * MEASURED.release_us * 1e-6

    @property
    def publishers(self) -> int:
        """The number that releases all zones within a third of the interval. They share the shards."""
        return max(1, -int(-self.release_s // (self.minutes * 20)))

    @property
    def intervals_a_day(self) -> int:
        return 24 * 60 // self.minutes

    @property
    def landing_gb(self) -> float:
        """The size of the landing, meters unordered."""
        return self.meters * self.intervals_a_day * ASSUMED.kept_days * MEASURED.bytes_shuffled / 1e9

    @property
    def log_gb_a_year(self) -> float:
        return self.zones * self.intervals_a_day * 365 * MEASURED.record_bytes / 1e9

    @property
    def cores(self) -> int:
        """To append within the burst, to aggregate within a minute, and one for each publisher. Without databases."""
        busy = self.append_s / ASSUMED.burst_s + self.aggregate_s / 60
        return int(busy) + 1 + self.publishers

    @property
    def memory_gb(self) -> float:
        """Of one service: its meters where readings come in, and three days of prices where they go out."""
        return (self.meters * ASSUMED.meter_memory_bytes + self.zones * MEASURED.zone_kb * 1e3) / 1e9

    @property
    def machines(self) -> int:
        """Of the service, by cores or by memory, and of state and log; and a second one for each."""
        service = max(ceil(self.cores / ASSUMED.machine_cores), ceil(self.memory_gb / ASSUMED.machine_gb))
        return COPIES * (service + 2 * ceil(self.publishers / ASSUMED.machine_cores))

    @property
    def machines_euros(self) -> float:
        """A year, as all below."""
        return self.machines * ASSUMED.machine_month * 12

    @property
    def disk_euros(self) -> float:
        """A year of log and state at its full size on the disks of each copy; the rest are objects."""
        records = self.zones * self.intervals_a_day * 365
        disks = COPIES * 2 * self.log_gb_a_year * ASSUMED.disk_gb_month * 12
        objects = (self.landing_gb + records * MEASURED.wal_bytes / 1e9) * ASSUMED.object_gb_month * 12
        puts = ceil(self.meters / ASSUMED.commit) * self.intervals_a_day * 365 / 1e6 * ASSUMED.million_puts
        return disks + objects + puts

    @property
    def requests_a_year(self) -> float:
        """Each meter's home asks for its price once an interval."""
        return self.meters * self.intervals_a_day * 365

    @property
    def flat_euros(self) -> float:
        return self.requests_a_year * ASSUMED.answer_kb / 1e6 * ASSUMED.flat_gb

    @property
    def cdn_euros(self) -> float:
        return self.requests_a_year / 1e6 * ASSUMED.million_requests


def short(value: float) -> str:
    """Return a number with two digits and its power of 1,000.

    >>> short(0.063), short(6.1), short(61.4), short(1234567.0)
    ('0.063', '6.1', '61', '1.2 M')
    """
    for limit, unit in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if value >= limit:
            scaled = value / (limit if limit > 1e4 else 1e3)
            return f"{scaled:.2g}{unit}" if scaled < 100 else f"{scaled:.0f}{unit}"
    return f"{value:.2g}" if value < 100 else f"{value:,.0f}"


def fleets() -> list[Fleet]:
    return [Fleet(meters=meters, minutes=minutes) for meters in SIZES for minutes in MINUTES]


def work() -> Iterator[str]:
    """Yield the table of the work per interval."""
    yield (
        "| meters | zones | readings/s: mean, burst | append: core s | aggregate: core s, on Spark"
        " | release: s with one publisher |"
    )
    yield "|---|---|---|---|---|---|"
    for f in fleets():
        mean, burst = f.meters / (60 * f.minutes), f.meters / ASSUMED.burst_s
        spark = f.aggregate_s * MEASURED.spark_factor
        yield (
            f"| {f.name} | {short(f.zones)} | {short(mean)}, {short(burst)} | {short(f.append_s)}"
            f" | {short(f.aggregate_s)}, {short(spark)} | {short(f.release_s)} |"
        )


def means() -> Iterator[str]:
    """Yield the table of the resources and of what they cost a year, for the longer intervals."""
    yield (
        "| meters | machines | landing, 7 days | log a year | machines: € a year | disks and objects: €"
        " | fan-out: € by the byte | sum: € a year | fan-out paid by request: € |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    small = 2 * ASSUMED.small_machine_month * 12
    yield f"| 500, who need none of this | 2 small | 0.002 GB | 0.03 GB | {short(small)} | 0 | 0 | {short(small)} | - |"
    for f in (fleet for fleet in fleets() if fleet.minutes == max(MINUTES)):
        total = f.machines_euros + f.disk_euros + f.flat_euros
        yield (
            f"| {f.name} | {f.machines} | {short(f.landing_gb)} GB | {short(f.log_gb_a_year)} GB"
            f" | {short(f.machines_euros)} | {short(f.disk_euros)} | {short(f.flat_euros)} | {short(total)}"
            f" | {short(f.cdn_euros)} |"
        )


def main() -> None:
    for table in (work(), means()):
        print("\n".join(table), end="\n\n")


if __name__ == "__main__":
    main()
