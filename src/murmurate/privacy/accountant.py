"""What several releases cost together: an interval, a horizon, any window for ever.

An :class:`Event` is the noise of one interval, seen as the worst privacy curve over all protected households and both
directions. Accountants fold events into one epsilon; all of them pass one suite of laws. Proofs: `accountant.md`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol

import numpy as np
from dp_accounting.pld import pld_pmf, privacy_loss_distribution

from murmurate.errors import PrivacyError
from murmurate.privacy.divergence import Curve
from murmurate.quantities import FloatArray

_STEPS = 400  # grid points per reach of the narrowest event
_MOST_STEPS = 2_000
_FEW = 4
_SLACK = 1e-9  # dp-accounting may lie 3e-11 below the exact value

Events = Sequence[tuple["Event", int]]  # an event, and how often it happens


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """The release of one interval: the worst of its curves. Without curves it is free (a forecast)."""

    curves: tuple[Curve, ...]

    @property
    def reach(self) -> float:
        return max((curve.reach for curve in self.curves), default=0.0)

    @property
    def bounded(self) -> bool:
        return all(curve.bounded for curve in self.curves)

    def delta(self, epsilon: FloatArray) -> FloatArray:
        """The upper envelope: whatever household and direction, no attacker does better."""
        envelope: FloatArray = np.maximum(1 - np.exp(epsilon), 0.0)
        for curve in self.curves:
            envelope = np.maximum(envelope, curve.delta(epsilon))
        return envelope


class Accountant(Protocol):
    """Folds events into the epsilon they cost together at `delta`."""

    def epsilon(self, events: Events, delta: float) -> float: ...

    def keeps(self, events: Events, epsilon: float, delta: float) -> bool:
        """Whether these events cost at most epsilon at delta; quicker than to find out what they cost."""
        ...


class PureAccountant:
    """Worst losses add up: delta is not used, and noise without a worst loss costs infinity (paper, Theorem 2)."""

    def epsilon(self, events: Events, delta: float) -> float:
        del delta
        if not all(event.bounded for event, count in events if count > 0):
            return np.inf
        return float(sum(event.reach * count for event, count in events))

    def keeps(self, events: Events, epsilon: float, delta: float) -> bool:
        """Whether these events cost at most epsilon."""
        return self.epsilon(events, delta) <= epsilon


class CurveAccountant:
    """Composition of privacy loss distributions: sub-linear in the number of intervals.

    Each event becomes the distribution that its envelope dominates (connect-the-dots: never below the true curve);
    dp-accounting convolves them.

    >>> from murmurate.privacy.divergence import PureCurve
    >>> day = [(Event((PureCurve(0.05),)), 96)]
    >>> round(CurveAccountant().epsilon(day, 1e-6), 2), round(PureAccountant().epsilon(day, 0.0), 2)
    (2.17, 4.8)
    """

    def __init__(self, steps: int = _STEPS) -> None:
        self._steps = steps  # grid points per reach; fewer are quicker, and cost a little more

    def epsilon(self, events: Events, delta: float) -> float:
        if not 1e-12 <= delta < 1:
            raise PrivacyError("delta", delta, "must lie between 1e-12 and 1, for example 1e-6")
        costly = _costly(events)
        if not costly:
            return 0.0
        found = self._composed(costly).get_epsilon_for_delta(delta)
        return min(float(found) + _SLACK, PureAccountant().epsilon(costly, delta))

    def delta(self, events: Events, epsilon: float) -> float:
        """The delta that these events cost together at `epsilon`; at 0 it is the total variation distance."""
        costly = _costly(events)
        if not costly:
            return 0.0
        found = float(self._composed(costly).get_delta_for_epsilon(epsilon))
        return min(1.0, found + _SLACK) if found > -_SLACK else 1.0  # less than nothing: rounding has the upper hand

    def keeps(self, events: Events, epsilon: float, delta: float) -> bool:
        return PureAccountant().keeps(events, epsilon, delta) or self.delta(events, epsilon) <= delta

    def _composed(self, costly: Events) -> Any:
        reaches = [event.reach for event, _ in costly]
        step = max(min(reaches) / self._steps, max(reaches) / _MOST_STEPS)
        composed = reduce(_compose, (_repeated(_distribution(event, step), count) for event, count in costly))
        return privacy_loss_distribution.PrivacyLossDistribution(composed)


def _costly(events: Events) -> Events:
    return [(event, count) for event, count in events if event.reach > 0 and count > 0]


def _compose(one: Any, other: Any) -> Any:
    return one.compose(other)


def _repeated(distribution: Any, count: int) -> Any:
    """A few times one by one: what makes many at once quick takes longer than that."""
    return distribution.self_compose(count) if count > _FEW else reduce(_compose, [distribution] * count)


def _distribution(event: Event, step: float) -> Any:
    edge = int(np.ceil(event.reach / step)) + 1
    grid = np.arange(-edge, edge + 1)
    deltas = np.minimum.accumulate(event.delta(np.asarray(grid * step, np.float64)))
    return pld_pmf.create_pmf_pessimistic_connect_dots(step, grid, deltas).to_dense_pmf()


def counted(events: Iterable[Event]) -> Events:
    """Equal events together: composing a group at once is much faster than one by one."""
    return list(Counter(events).items())


def window_cost(day: Sequence[Event], window: int, delta: float, accountant: Accountant) -> float:
    """The worst cost of any `window` successive intervals of a day that repeats for ever."""
    return max(accountant.epsilon(events, delta) for events in windows_of(day, window))


def windows_of(day: Sequence[Event], window: int) -> list[Events]:
    """The events of any `window` successive intervals of a day that repeats for ever, each multiset once."""
    if window < 1:
        raise PrivacyError("window", window, "must be at least 1 interval")
    whole, rest = divmod(window, len(day))
    starts = range(len(day)) if rest else range(1)
    days = Counter({event: whole * count for event, count in Counter(day).items()})
    found = {frozenset((days + Counter(day[(start + n) % len(day)] for n in range(rest))).items()) for start in starts}
    return [list(events) for events in found]
