"""What the worker counts and measures of itself.

It has no port: the operator's metrics read the figures from the state. Counts and times only, never a
demand. Counts begin at 0 when the worker starts.
"""

from __future__ import annotations

import errno
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from murmurate.errors import MeterError, MurmurateError, ReadingError

# Of the machine, not of a file's contents: they may be over in a moment, so it is worth trying again.
_PASSING_ERRORS = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE),
        *(errno.EAGAIN, errno.EBUSY, errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.ENOTCONN),
    }
)


def error_reason(error: Exception) -> str:
    """Our own errors name files, intervals and rules, never a reading. Of other errors only the class is safe."""
    return str(error) if isinstance(error, MurmurateError) else type(error).__name__


def error_cause(error: Exception) -> str:
    """The label of an error in a metric."""
    if isinstance(error, MeterError):
        return "meter table"
    if isinstance(error, ReadingError):
        return "readings"
    return "disk" if isinstance(error, OSError) else "other"


def may_pass(error: Exception) -> bool:
    """Whether the same step may succeed a moment later without an operator."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _PASSING_ERRORS)


LATENESS_BUCKETS_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)
AGGREGATION_BUCKETS_S = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


class TimeHistogram:
    """How often a time lay in each bucket, as Prometheus has it."""

    def __init__(self, bounds_s: tuple[float, ...]) -> None:
        self.bounds_s = bounds_s
        self.counts = [0] * (len(bounds_s) + 1)  # one more than bounds: what lies above the last
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds_s, seconds)] += 1
        self.sum_s += seconds

    def to_report(self) -> dict[str, object]:
        return {"bounds_s": self.bounds_s, "counts": self.counts, "sum_s": round(self.sum_s, 3)}


@dataclass(slots=True)
class WorkerFigures:
    """The figures of one worker since it was started."""

    lateness: TimeHistogram = field(default_factory=lambda: TimeHistogram(LATENESS_BUCKETS_S))
    aggregation: TimeHistogram = field(default_factory=lambda: TimeHistogram(AGGREGATION_BUCKETS_S))
    not_aggregated: Counter[str] = field(default_factory=Counter)  # intervals, by cause
    retention_failed: Counter[str] = field(default_factory=Counter)  # by cause
    oldest_readings_age_s: float = 0.0
    clock_difference_s: dict[str, float] = field(default_factory=dict)  # ahead of the state and of the log
    damage: Mapping[str, str] = field(default_factory=dict)  # damaged or stray files of the landing, and the reason
    table_problem: tuple[str, str] | None = None  # cause and reason why the newest meter table is not in force

    def to_report(self) -> dict[str, object]:
        return {
            "lateness": self.lateness.to_report(),
            "aggregation": self.aggregation.to_report(),
            "not_aggregated": dict(self.not_aggregated),
            "retention_failed": dict(self.retention_failed),
            "oldest_readings_age_s": round(self.oldest_readings_age_s),
            "clock_difference_s": {name: round(value, 1) for name, value in self.clock_difference_s.items()},
            "damaged_files": len(self.damage),
            "table_problem": None if self.table_problem is None else self.table_problem[0],
        }
