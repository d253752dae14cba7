"""The scenarios, how often each fault is injected, and the counts that each must reach."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.fault_injection.crashes import database_kills, sigkills
from tests.fault_injection.disk_full import disk_full
from tests.fault_injection.error_leaks import forced_errors, search_evidence
from tests.fault_injection.failover import failovers, restores, split_brains
from tests.fault_injection.network_faults import lost_acknowledgements, unreachable_log
from tests.fault_injection.sample_zones import SampleZones
from tests.fault_injection.store_pair import RunContext
from tests.support.postgres_cluster import clusters

ZONES = tuple(f"zone-{number:02d}" for number in range(12))
BEFORE, CHECK, STATE = "publish before commit", "check then insert", "state only"

EVIDENCE = {
    "double values",
    "in the demand itself",
    "in a verbose log",
}  # what shows that the check sees, at any length

Counts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One kind of fault: its number in full and quick runs, and the least values of other counts.

    A quick run must reach those that are evidence.

    With a protocol it is a control: a broken publisher that must publish double values.
    """

    counted: str  # the count that must reach the number of faults
    inject: Callable[..., Counts]  # context, times, seed, and the protocol if there is one
    full: int
    quick: int
    least: Mapping[str, int] = field(default_factory=dict)
    protocol: str = ""

    @property
    def name(self) -> str:
        return f"{self.counted}, {self.protocol}" if self.protocol else self.counted

    def run(self, context: RunContext, times: int, seed: int) -> Counts:
        return self.inject(context, times, seed, *filter(None, [self.protocol]))

    def missing(self, counts: Counts, *, quick: bool) -> list[str]:
        """Return the counts that are too small."""
        least = {"double values": 1} if self.protocol else self.least
        required = {name: count for name, count in least.items() if name in EVIDENCE or not quick}
        required |= {self.counted: self.quick if quick else self.full}
        return [f"{name} {counts[name]} < {least}" for name, least in required.items() if counts[name] < least]


SCENARIOS = (
    Scenario("SIGKILLs", sigkills, 500, 60, {"named points": 14}),
    Scenario("database kills", database_kills, 30, 4),
    Scenario("failovers", failovers, 10, 2, {"competing tiles": 1}),
    Scenario("split brains", split_brains, 10, 2, {"competing tiles": 1}),
    Scenario("restores", restores, 10, 2),
    Scenario("lost acknowledgements", lost_acknowledgements, 300, 40),
    Scenario("disks full", disk_full, 6, 2),
    Scenario("outages", unreachable_log, 6, 2, {"draws kept and sent later": 1}),
    Scenario("SIGKILLs", sigkills, 60, 30, protocol=BEFORE),
    Scenario("SIGKILLs", sigkills, 60, 30, protocol=CHECK),
    Scenario("failovers", failovers, 2, 1, protocol=STATE),
    Scenario("split brains", split_brains, 2, 1, protocol=STATE),
    Scenario("restores", restores, 2, 1, protocol=STATE),
    Scenario("errors about demand", forced_errors, 6, 6),
    Scenario("files", search_evidence, 100, 5, {"in the demand itself": 1, "in a verbose log": 1}),
)


@contextmanager
def run_context(seed: int) -> Iterator[RunContext]:
    """Provide clusters and directories for the evidence during the block."""
    with clusters() as private:
        directories = [private.root / name for name in ("evidence", "confidential")]
        for directory in directories:
            directory.mkdir()
        yield RunContext(private, SampleZones(seed, ZONES), *directories)
