"""The scenarios, how often each fault is injected, and the counts that each must reach."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tests.fault_injection.crashes import database_kills, sigkills
from tests.fault_injection.disk_full import disk_full
from tests.fault_injection.error_leaks import forced_errors, search_evidence
from tests.fault_injection.failover import failovers, restores, split_brains
from tests.fault_injection.network_faults import lost_acknowledgements, unreachable_log
from tests.fault_injection.sample_zones import SampleZones
from tests.fault_injection.store_pair import RunContext, Violation
from tests.support.postgres_cluster import clusters

ZONES = tuple(f"zone-{number:02d}" for number in range(12))
BEFORE, CHECK, STATE = "publish before commit", "check then insert", "state only"

Counts = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One kind of fault: its number in full and quick runs, and the least counts."""

    name: str
    run: Callable[[RunContext, int, int], Counts]  # context, times, seed
    full: int
    quick: int
    counted: str  # the count that must reach the number of faults
    least: Mapping[str, int]  # least values of other counts in a full run

    def missing(self, counts: Counts, *, quick: bool) -> list[str]:
        """Return the counts that are too small."""
        required = {self.counted: self.quick if quick else self.full} | ({} if quick else dict(self.least))
        return [f"{name} {counts[name]} < {least}" for name, least in required.items() if counts[name] < least]


def _search(context: RunContext, _: int, __: int) -> Counts:
    """Search the evidence as a scenario. A hit is a violation."""
    result, controls = search_evidence(context)
    if result.hits:
        raise Violation(
            f"{result.hits[0][0]} contains a demand as {result.hits[0][1]}; {len(result.hits) - 1} more hits"
        )
    return {"files": result.files, "bytes": result.size, "hits": len(result.hits)} | controls


def _with_protocol(run: Callable[..., Counts], protocol: str) -> Callable[[RunContext, int, int], Counts]:
    return lambda context, times, seed: run(context, times, seed, protocol)


def _control(name: str, protocol: str, run: Callable[..., Counts], counted: str, full: int, quick: int) -> Scenario:
    least = {"double values": 1}
    run = _with_protocol(run, protocol)
    return Scenario(name=f"{name}, {protocol}", run=run, full=full, quick=quick, counted=counted, least=least)


def _real(name: str, run: Callable[..., Counts], full: int, quick: int, counted: str = "", **least: int) -> Scenario:
    return Scenario(name=name, run=run, full=full, quick=quick, counted=counted or name, least=least)


SCENARIOS = (
    _real("SIGKILLs", sigkills, 500, 60, **{"named points": 14}),
    _real("database kills", database_kills, 30, 4),
    _real("failovers", failovers, 10, 2, **{"competing tiles": 1}),
    _real("split brains", split_brains, 10, 2, **{"competing tiles": 1}),
    _real("restores", restores, 10, 2),
    _real("lost acknowledgements", lost_acknowledgements, 300, 40),
    _real("disks full", disk_full, 6, 2),
    _real("outages", unreachable_log, 6, 2, **{"draws kept and sent later": 1}),
    _control("SIGKILLs", BEFORE, sigkills, "SIGKILLs", 60, 30),
    _control("SIGKILLs", CHECK, sigkills, "SIGKILLs", 60, 30),
    _control("failovers", STATE, failovers, "failovers", 2, 1),
    _control("split brains", STATE, split_brains, "split brains", 2, 1),
    _control("restores", STATE, restores, "restores", 2, 1),
    _real("errors about demand", forced_errors, 6, 6),
    _real("canary", _search, 100, 5, "files", **{"in the demand itself": 1, "in a verbose log": 1}),
)


@contextmanager
def run_context(seed: int) -> Iterator[RunContext]:
    """Provide clusters and directories for the evidence during the block."""
    with clusters() as private:
        directories = [private.root / name for name in ("evidence", "confidential")]
        for directory in directories:
            directory.mkdir()
        yield RunContext(private, SampleZones(seed, ZONES), *directories)
