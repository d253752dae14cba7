"""What is run, how often, and what each must show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tests.live.cluster import clusters
from tests.live.disk import disk_full
from tests.live.killing import database_kills, sigkills
from tests.live.leaks import forced_errors, look
from tests.live.network import lost_acknowledgements, unreachable_log
from tests.live.nursery import nursery
from tests.live.pair import Room, Violation
from tests.live.replicas import failovers, restores, split_brains
from tests.live.world import World

ZONES = tuple(f"zone-{number:02d}" for number in range(12))
BEFORE, CHECK, STATE = "publish before commit", "check then insert", "state only"

Counts = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One kind of fault: how often in full and in quick, and the least that its counts must reach."""

    name: str
    run: Callable[[Room, int, int], Counts]  # room, times, seed
    full: int
    quick: int
    counted: str  # must reach the number of times
    least: Mapping[str, int]  # others that must be reached in a full run

    def missing(self, counts: Counts, *, quick: bool) -> list[str]:
        """What the counts fall short of."""
        wanted = {self.counted: self.quick if quick else self.full} | ({} if quick else dict(self.least))
        return [f"{name} {counts[name]} < {least}" for name, least in wanted.items() if counts[name] < least]


def _searched(room: Room, _: int, __: int) -> Counts:
    """The search, as a scenario whose violation is a hit."""
    found, controls = look(room)
    if found.hits:
        raise Violation(f"a demand stands in {found.hits[0][0]} as {found.hits[0][1]}, and {len(found.hits) - 1} more")
    return {"files": found.files, "bytes": found.size, "hits": len(found.hits)} | controls


def _of(run: Callable[..., Counts], protocol: str) -> Callable[[Room, int, int], Counts]:
    return lambda room, times, seed: run(room, times, seed, protocol)


def _control(name: str, protocol: str, run: Callable[..., Counts], counted: str, full: int, quick: int) -> Scenario:
    least = {"double values": 1}
    run = _of(run, protocol)
    return Scenario(name=f"{name}, {protocol}", run=run, full=full, quick=quick, counted=counted, least=least)


def _real(name: str, run: Callable[..., Counts], full: int, quick: int, counted: str = "", **least: int) -> Scenario:
    return Scenario(name=name, run=run, full=full, quick=quick, counted=counted or name, least=least)


SCENARIOS = (
    _real("SIGKILLs", sigkills, 500, 60, **{"named points": 14}),
    _real("database kills", database_kills, 30, 4),
    _real("failovers", failovers, 10, 2, rivals=1),
    _real("split brains", split_brains, 10, 2, rivals=1),
    _real("restores", restores, 10, 2),
    _real("lost acknowledgements", lost_acknowledgements, 300, 40),
    _real("disks full", lambda room, times, _: disk_full(room, times), 6, 2),
    _real("outages", lambda room, times, _: unreachable_log(room, times), 6, 2, **{"draws kept and sent later": 1}),
    _control("SIGKILLs", BEFORE, sigkills, "SIGKILLs", 60, 30),
    _control("SIGKILLs", CHECK, sigkills, "SIGKILLs", 60, 30),
    _control("failovers", STATE, failovers, "failovers", 2, 1),
    _control("split brains", STATE, split_brains, "split brains", 2, 1),
    _control("restores", STATE, restores, "restores", 2, 1),
    _real("errors about demand", lambda room, _, __: forced_errors(room), 6, 6),
    _real("canary", _searched, 100, 5, "files", **{"in the demand itself": 1, "in a careless log": 1}),
)


@contextmanager
def room(seed: int) -> Iterator[Room]:
    """Clusters, publishers and a place for the evidence, for as long as the block lasts."""
    world = World(seed, ZONES)
    with clusters() as private, nursery(world.setup()) as house:
        folders = [private.root / name for name in ("evidence", "confidential")]
        for folder in folders:
            folder.mkdir()
        yield Room(private, house, world, *folders)
