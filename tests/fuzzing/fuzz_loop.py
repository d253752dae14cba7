"""The loop: change an input that was kept, run it, keep it if it took a new path, and judge time and memory.

Time is CPU time without tracing, and a case that seems slow is run again alone before it counts: a busy machine makes
no case slow. Memory is the largest resident set; a case that seems to need much is run again alone, in a new process.
"""

from __future__ import annotations

import random
import resource
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from tests.fuzzing.coverage import PRODUCT, EdgeTracer
from tests.fuzzing.mutations import Mutator

MAX_CASE_S = 1.0  # CPU time of one case
_MAX_KEPT_BYTES = 2048  # larger inputs are run, but neither traced nor kept, unless seeds are as large: they are slow


@dataclass(frozen=True, kw_only=True)
class FuzzTarget:
    """A parser: a call that returns, or raises one of its documented errors, for any bytes."""

    name: str
    parse: Callable[[bytes], object]
    seeds: Sequence[bytes]
    errors: tuple[type[BaseException], ...]
    words: Sequence[bytes] = ()
    max_mb: int = 128  # how much one case may add to the resident set
    roots: tuple[str, ...] = (PRODUCT,)


@dataclass(frozen=True)
class FoundCase:
    """An input that breaks a rule."""

    rule: str  # error, slow, memory
    detail: str
    data: bytes


@dataclass
class FuzzResult:
    """What was run, and what was found: one case for each place at which a parser fails."""

    executions: int = 0
    edges: int = 0
    kept: int = 0
    found: dict[str, FoundCase] = field(default_factory=dict)


def resident_mb() -> float:
    """The largest resident set of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Fuzzer:
    """Fuzzes one target. `before_case` gets each input before it is run: a process that dies leaves it behind."""

    def __init__(
        self,
        target: FuzzTarget,
        seed: int,
        *,
        guided: bool = True,
        before_case: Callable[[bytes], None] = lambda _: None,
        needed_mb: Callable[[bytes], float] | None = None,
    ) -> None:
        self._target, self._before_case, self._guided = target, before_case, guided
        self._needed_mb = needed_mb
        self._rng = random.Random(seed)  # noqa: S311
        self._mutator = Mutator(self._rng, target.words)
        self._tracer = EdgeTracer(target.roots)
        self._edges: set[object] = set()
        self._kept: list[bytes] = []
        self._max_kept_bytes = max(_MAX_KEPT_BYTES, *(2 * len(seed) for seed in target.seeds))
        self.result = FuzzResult()

    def run(self, *, seconds: float = float("inf"), executions: int = 2**62) -> FuzzResult:
        """Run until time is up or so many cases were run. Seeds come first."""
        end = time.monotonic() + seconds
        for seed in self._target.seeds:
            self._run_case(seed, keep=True)
        while time.monotonic() < end and self.result.executions < executions:
            self._run_case(self._mutator.mutate(self._choose(), self._choose()))
        self.result.edges, self.result.kept = len(self._edges), len(self._kept)
        return self.result

    def _choose(self) -> bytes:
        """Any input that was kept; every other time one of the newest, from where new paths begin."""
        newest = self._kept[-8:] if self._rng.random() < 0.5 else self._kept
        return self._rng.choice(newest) if newest else b""

    def _run_case(self, data: bytes, *, keep: bool = False) -> None:
        self._before_case(data)
        self.result.executions += 1
        begun_mb, begun_s = resident_mb(), time.process_time()
        run = self._tracer.run if len(data) <= self._max_kept_bytes else _run_untraced
        try:
            run(lambda: self._target.parse(data))
        except self._target.errors:
            pass
        except Exception as error:  # noqa: BLE001  any other error is what is searched for
            self._add(_error_case(error, data), _place(error))
        if time.process_time() - begun_s > MAX_CASE_S:
            self._judge_time(data)
        if resident_mb() - begun_mb > self._target.max_mb:
            self._judge_memory(data, resident_mb() - begun_mb)
        new = self._tracer.edges - self._edges if run == self._tracer.run else set()
        self._edges |= new
        if keep or (self._guided and new):
            self._kept.append(data)

    def _judge_time(self, data: bytes) -> None:
        alone_s = min(case_s(self._target, data) for _ in range(2))
        if alone_s > MAX_CASE_S:
            self._add(FoundCase("slow", f"{alone_s:.1f} s of CPU time for {len(data):,} bytes", data), "slow")

    def _judge_memory(self, data: bytes, seen_mb: float) -> None:
        needed_mb = self._needed_mb(data) if self._needed_mb else seen_mb
        if needed_mb > self._target.max_mb:
            self._add(FoundCase("memory", f"{needed_mb:.0f} MB for {len(data):,} bytes", data), "memory")

    def _add(self, case: FoundCase, place: str) -> None:
        known = self.result.found.get(place)
        if known is None or len(case.data) < len(known.data):
            self.result.found[place] = case


def _run_untraced(call: Callable[[], object]) -> None:
    call()


def case_s(target: FuzzTarget, data: bytes) -> float:
    """The CPU time of a case without tracing."""
    begun = time.process_time()
    with suppress(Exception):  # only time is measured here
        target.parse(data)
    return time.process_time() - begun


def check_case(target: FuzzTarget, data: bytes) -> FoundCase | None:
    """Run one case without tracing. Return what it breaks, if anything."""
    try:
        begun = time.process_time()
        target.parse(data)
    except target.errors:
        pass
    except Exception as error:  # noqa: BLE001
        return _error_case(error, data)
    if time.process_time() - begun > MAX_CASE_S and (alone_s := case_s(target, data)) > MAX_CASE_S:
        return FoundCase("slow", f"{alone_s:.1f} s of CPU time", data)
    return None


def _error_case(error: Exception, data: bytes) -> FoundCase:
    return FoundCase("error", f"{type(error).__name__} at {_place(error)}: {str(error)[:200]}", data)


def _place(error: Exception) -> str:
    """Where an error comes from: the last line of the product that it has passed, or the last line of all."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(PRODUCT)] or frames
    return f"{own[-1].filename.rpartition('murmurate/')[2]}:{own[-1].lineno} {type(error).__name__}"
