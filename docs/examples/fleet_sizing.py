"""The resources for a fleet of meters, computed from measured figures: the tables of docs/explanation/scale.md.

    python docs/examples/fleet_sizing.py

Arithmetic, not a measurement: each cell follows from `MEASURED` and `ASSUMED`. A test compares the page with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """On two cores of a noisy virtual machine, by the benchmark in brackets."""

    aggregate_ns: float = 75  # core time of a reading: closing, checking, decoding, adding [aggregation]
    spark_factor: float = 1.8  # the same on Spark, in core time [aggregation]
    append_ns: float = 100  # core time of a reading in a durable append of 100,000 [aggregation]
    release_us: float = 190  # of a zone, wall time of one publisher and its two databases [publisher_throughput]
    bytes_shuffled: float = 4.1  # of a reading in Parquet, meters in no order [aggregation]
    record_bytes: float = 95  # on disk with its keys, in the log and again in the state [publisher_throughput]
    zone_kb: float = 8  # of a zone in a public server with three days of prices [server_start]
    meter_bytes: float = 3.2  # of a meter in the pinned table [aggregation]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """Figures that were not measured."""

    homes: int = 1000  # in a zone
    burst_s: int = 60  # in which all readings of an interval arrive
    kept_days: int = 7
    core_hour: float = 0.05  # dollars, a virtual core on demand
    disk_month: float = 0.023  # dollars, a gigabyte in an object store


MEASURED, ASSUMED = Measured(), Assumed()
SIZES = (10**6, 10**8, 10**9)
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
        """To append within the burst, to aggregate within a minute, and two for each publisher."""
        busy = self.append_s / ASSUMED.burst_s + self.aggregate_s / 60
        return max(2, int(busy) + 1 + 2 * self.publishers)

    @property
    def dollars_a_month(self) -> float:
        """The price of the cores, the landing, and a year of the log twice: in the log and in the state's copy."""
        disk = self.landing_gb + 2 * self.log_gb_a_year
        return self.cores * ASSUMED.core_hour * 730 + disk * ASSUMED.disk_month


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
    """Yield the table of the resources."""
    yield (
        "| meters | cores | publishers | into the landing in the burst | meter table | landing, 7 days | log a year"
        " | memory of a server | dollars a month |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for f in fleets():
        stream = f.meters * MEASURED.bytes_shuffled / ASSUMED.burst_s / 1e6
        table = f.meters * MEASURED.meter_bytes / 1e9
        yield (
            f"| {f.name} | {f.cores} | {f.publishers} | {short(stream)} MB/s | {short(table)} GB"
            f" | {short(f.landing_gb)} GB | {short(f.log_gb_a_year)} GB | {short(f.zones * MEASURED.zone_kb / 1e6)} GB"
            f" | {short(f.dollars_a_month)} |"
        )


def main() -> None:
    for table in (work(), means()):
        print("\n".join(table), end="\n\n")


if __name__ == "__main__":
    main()
