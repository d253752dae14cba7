"""Find how long the intervals of a file are, from the times of its first rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

from murmurate.errors import ReadingError

_HOUR_S = 3600


def check_lengths(place: str, length_s: int, interval_s: int) -> None:
    """Raise ReadingError if intervals of a file cannot become those of the zone."""
    if length_s % interval_s and interval_s % length_s:
        allowed = f"must divide the zone's {interval_s // 60} minutes or be a multiple: change --interval-minutes"
        raise ReadingError(place, f"in intervals of {length_s / 60:g} minutes", allowed)


def find_length(place: str, times: Iterable[tuple[int, int]]) -> int:
    """Return the most frequent distance between two readings of a meter [s], from (meter, start).

    Raises ReadingError if there is none, or it does not divide an hour.

    >>> find_length("a.csv", [(1, 0), (1, 1800), (2, 0), (2, 1800), (2, 5400), (2, 3600)])
    1800
    """
    ordered = sorted(set(times))
    steps = Counter(later - start for (meter, start), (other, later) in pairwise(ordered) if meter == other)
    if not steps:  # one reading of each meter: a file in the order of time
        moments = sorted({start for _, start in ordered})
        steps = Counter(later - start for start, later in pairwise(moments))
    if not steps:
        raise ReadingError(place, "without two times to compare", "must be told its interval: --source-minutes 30")
    length_s, _ = max(steps.items(), key=lambda item: (item[1], -item[0]))
    if _HOUR_S % length_s:
        allowed = "must be an hour or a part of it; if most rows are missing, say --source-minutes 30"
        raise ReadingError(place, f"with readings {length_s / 60:g} minutes apart", allowed)
    return length_s
