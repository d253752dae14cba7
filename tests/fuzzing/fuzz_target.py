"""What is fuzzed, and when a case breaks a rule: another error than the documented ones, or too much time or memory.

Time is CPU time, and a case that seems slow is run again before it counts: a busy machine makes no case slow.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

CASES = Path(__file__).parent / "cases"
MAX_CASE_S = 1.0  # CPU time of one case


@dataclass(frozen=True)
class FuzzTarget:
    """A parser: a call that returns, or raises one of its documented errors, for any bytes."""

    name: str
    parse: Callable[[bytes], object]
    seeds: Sequence[bytes]
    errors: tuple[type[BaseException], ...]
    words: Sequence[bytes] = ()
    max_mb: int = 128  # how much one case may add to the resident set

    def stored_cases(self) -> list[bytes]:
        """The cases that were found before."""
        return [path.read_bytes() for path in sorted((CASES / self.name.replace(" ", "-")).glob("*.bin"))]


def resident_mb() -> float:
    """The largest resident set of this process so far; `ru_maxrss` has that of its parent in it."""
    status = Path("/proc/self/status")
    return int(status.read_text(encoding="ascii").split("VmHWM:")[1].split()[0]) / 1024 if status.exists() else 0.0


def describe_error(error: BaseException) -> str:
    """The kind of an error, the last line of the product that it has passed, and its text."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/murmurate/" in frame.filename] or frames
    file = own[-1].filename.rpartition("/murmurate/")[2]
    return f"{type(error).__name__} at {file}:{own[-1].lineno}: {str(error)[:200]}"


def check_case(target: FuzzTarget, data: bytes, *, tries: int = 3) -> str | None:
    """Run one case. Return the rule that it breaks, if any."""
    begun_mb, spent_s = resident_mb(), []
    for _ in range(tries):
        begun_s = time.process_time()
        try:
            target.parse(data)
        except target.errors:
            pass
        except Exception as error:  # noqa: BLE001  any other error is what is searched for
            return describe_error(error)
        spent_s.append(time.process_time() - begun_s)
        if spent_s[-1] <= MAX_CASE_S:
            break
    if min(spent_s) > MAX_CASE_S:
        return f"slow: {min(spent_s):.1f} s of CPU time for {len(data):,} bytes"
    if resident_mb() - begun_mb > target.max_mb:
        return f"large: {resident_mb() - begun_mb:.0f} MB for {len(data):,} bytes"
    return None
