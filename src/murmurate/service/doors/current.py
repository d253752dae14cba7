"""The intake under the meter table of now: meters come and go while the doors stay open."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from murmurate.errors import MurmurateError
from murmurate.quantities import BoolArray, IntArray
from murmurate.service.clock import Clock
from murmurate.service.doors.intake import Intake
from murmurate.service.doors.memory import DoorMemory
from murmurate.service.doors.roster import Roster
from murmurate.service.gathering.layout import Landing
from murmurate.service.pool import Pool
from murmurate.service.saying import Say

LOOK_S = 2.0  # how often to look whether the table has changed


class PooledSeen:
    """`intake.Seen` for many threads."""

    def __init__(self, memories: Pool[DoorMemory]) -> None:
        self._memories = memories

    @contextmanager
    def claim(self, meter: IntArray, start_s: IntArray) -> Iterator[BoolArray]:
        with self._memories.one() as memory, memory.claim(meter, start_s) as first:
            yield first


class CurrentIntake:
    """Call it for the intake of now. A table that cannot be read leaves the one before in force."""

    def __init__(
        self, landing: Landing, meters: Path, clock: Clock, grace_s: int, memories: Pool[DoorMemory], say: Say
    ) -> None:
        self._meters, self._say = meters, say
        self._lock = threading.Lock()
        self._seen_file = _identity(meters)
        self._looked = time.monotonic()
        self._intake = Intake(
            landing=landing,
            roster=Roster.of(meters),
            now=clock.now,
            grace_s=grace_s,
            seen=PooledSeen(memories),
            counts=Counter(),
        )

    @property
    def counts(self) -> Counter[str]:
        return self._intake.counts

    def __call__(self) -> Intake:
        if time.monotonic() - self._looked > LOOK_S and self._lock.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._looked = time.monotonic()
                self._lock.release()
        return self._intake

    def _look(self) -> None:
        try:
            if (found := _identity(self._meters)) == self._seen_file:
                return
            self._intake.roster = Roster.of(self._meters)
            self._seen_file = found
            self._say("meter table read", meters=len(self._intake.roster))
        except (MurmurateError, OSError) as error:
            why = str(error) if isinstance(error, MurmurateError) else type(error).__name__
            self._say("meter table not read", why=why)


def _identity(path: Path) -> tuple[int, ...]:
    """What changes when a file does; of a folder, when one in it does."""
    paths = [path, *sorted(path.glob("*.parquet"))] if path.is_dir() else [path]
    stats = [one.stat() for one in paths]
    return tuple(number for stat in stats for number in (stat.st_mtime_ns, stat.st_size, stat.st_ino))
