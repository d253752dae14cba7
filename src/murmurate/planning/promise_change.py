"""What a change of plan does to each promise: whether it gets stronger or weaker, and from when on that counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple

from murmurate.privacy.promise import MomentPromise, Promise, WindowPromise


class Direction(StrEnum):
    """What becomes of a promise."""

    STRONGER = "stronger"
    WEAKER = "weaker"
    SAME = "same"
    NEW = "new"
    DROPPED = "dropped"


class PromiseChange(NamedTuple):
    """One promise before and after a change of plan."""

    before: Promise | None
    after: Promise | None
    direction: Direction

    @property
    def intervals_to_wait(self) -> int:
        """After the change, until each stretch that ends keeps the stronger promise: it may begin before the change."""
        if self.direction is not Direction.STRONGER or not isinstance(self.after, WindowPromise):
            return 0
        return self.after.intervals - 1


def find_promise_changes(before: Iterable[Promise], after: Iterable[Promise]) -> Iterator[PromiseChange]:
    """Yield what becomes of each promise. Windows are compared with those of the same length and delta.

    >>> from murmurate.privacy.promise import parse_promise
    >>> old, new = (parse_promise(f"any 24 h: epsilon {epsilon}, delta 1e-6", 96) for epsilon in (1, 2))
    >>> [change.direction.value for change in find_promise_changes([old], [new])]
    ['weaker']
    """
    old, new = ({_subject(promise): promise for promise in promises} for promises in (before, after))
    for subject in dict.fromkeys([*old, *new]):
        was, now = old.get(subject), new.get(subject)
        if was is None or now is None:
            direction = Direction.NEW if was is None else Direction.DROPPED
        else:
            less, more = _epsilon(now) < _epsilon(was), _epsilon(now) > _epsilon(was)
            direction = Direction.STRONGER if less else Direction.WEAKER if more else Direction.SAME
        yield PromiseChange(was, now, direction)


def _subject(promise: Promise) -> tuple[object, ...]:
    return (type(promise), *((promise.intervals, promise.delta) if isinstance(promise, WindowPromise) else ()))


def _epsilon(promise: Promise) -> Fraction:
    return promise.leakage if isinstance(promise, MomentPromise) else promise.epsilon
