"""What several releases cost together: an interval, a horizon, any window for ever.

An :class:`Event` is the noise of one interval, seen as the worst privacy curve over all protected households and both
directions. Accountants fold events into one epsilon; all of them pass one suite of laws. Proofs: `accountant.md`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import Any, Protocol

import numpy as np
from dp_accounting.pld import pld_pmf, privacy_loss_distribution

from murmurate.errors import PrivacyError
from murmurate.privacy.divergence import Curve, GaussianCurve
from murmurate.quantities import FloatArray

_STEPS = 400  # grid points per reach of the narrowest event
_MOST_STEPS = 40_000
_SLACK = 1e-9  # dp-accounting may lie 3e-11 below the exact value

Events = Sequence[tuple["Event", int]]  # an event, and how often it happens


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """The release of one interval: the worst of its curves. Without curves it is free (a forecast)."""

    curves: tuple[Curve, ...]

    @property
    def reach(self) -> float:
        return max((curve.reach for curve in self.curves), default=0.0)

    def delta(self, epsilon: FloatArray) -> FloatArray:
        """The upper envelope: whatever household and direction, no attacker does better."""
        envelope: FloatArray = np.maximum(1 - np.exp(epsilon), 0.0)
        for curve in self.curves:
            envelope = np.maximum(envelope, curve.delta(epsilon))
        return envelope


class Accountant(Protocol):
    """Folds events into the epsilon they cost together at `delta`."""

    def epsilon(self, events: Events, delta: float) -> float: ...


class PureAccountant:
    """Worst losses add up: delta is not used, and Gaussian noise costs infinity (paper, Theorem 2)."""

    def epsilon(self, events: Events, delta: float) -> float:
        del delta
        if any(isinstance(curve, GaussianCurve) for event, _ in events for curve in event.curves):
            return np.inf
        return float(sum(event.reach * count for event, count in events))


class CurveAccountant:
    """Composition of privacy loss distributions: sub-linear in the number of intervals.

    Each event becomes the distribution that its envelope dominates (connect-the-dots: never below the true curve);
    dp-accounting convolves them.

    >>> from murmurate.privacy.divergence import PureCurve
    >>> day = [(Event((PureCurve(0.05),)), 96)]
    >>> round(CurveAccountant().epsilon(day, 1e-6), 2), round(PureAccountant().epsilon(day, 0.0), 2)
    (2.17, 4.8)
    """

    def epsilon(self, events: Events, delta: float) -> float:
        if not 1e-12 <= delta < 1:
            raise PrivacyError("delta", delta, "must lie between 1e-12 and 1, for example 1e-6")
        costly = [(event, count) for event, count in events if event.reach > 0 and count > 0]
        if not costly:
            return 0.0
        reaches = [event.reach for event, _ in costly]
        step = max(min(reaches) / _STEPS, max(reaches) / _MOST_STEPS)
        composed = reduce(_compose, (_distribution(event, step).self_compose(count) for event, count in costly))
        found = privacy_loss_distribution.PrivacyLossDistribution(composed).get_epsilon_for_delta(delta)
        return min(float(found) + _SLACK, PureAccountant().epsilon(costly, delta))


def _compose(one: Any, other: Any) -> Any:
    return one.compose(other)


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
    if window < 1:
        raise PrivacyError("window", window, "must be at least 1 interval")
    whole, rest = divmod(window, len(day))
    starts = range(len(day)) if rest else range(1)
    windows = {
        frozenset(Counter(chain(list(day) * whole, (day[(start + n) % len(day)] for n in range(rest)))).items())
        for start in starts
    }
    return max(accountant.epsilon(list(events), delta) for events in windows)
