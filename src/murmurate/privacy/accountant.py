"""The privacy cost of several releases: of one interval, a finite horizon, or any window of an infinite stream.

A `PrivacyEvent` is the release of one interval: the worst privacy curve over all protected households and both
directions. An accountant composes events to one epsilon. All accountants pass one test suite. Proofs: `accountant.md`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import numpy as np

from murmurate.errors import PrivacyError
from murmurate.privacy.divergence import PrivacyCurve
from murmurate.privacy.loss_distribution import LossDistribution
from murmurate.units import FloatArray

_GRID_POINTS = 400  # grid points up to the largest loss of the narrowest event
_MAX_GRID_POINTS = 2_000
_MAX_SEQUENTIAL = 4
_PLD_SLACK = 1e-9  # rounding of Fourier transforms: results may lie 3e-11 below the exact value

EventCounts = Sequence[tuple["PrivacyEvent", int]]  # an event and its number of occurrences


@dataclass(frozen=True, slots=True, eq=False)
class PrivacyEvent:
    """The release of one interval, as the worst of its privacy curves.

    Attributes:
        curves: Privacy curves, such as `HuberCurve` or `GaussianCurve`: one for each household or kind that the release
            protects. An event without curves costs nothing (a forecast).

    Example:
        >>> import murmurate as mm
        >>> event = mm.PrivacyEvent((mm.HuberCurve(1000, 2000.0, 0), mm.HuberCurve(3000, 2000.0, 0)))
        >>> event.max_loss, event.bounded
        (1.5, True)
    """

    curves: tuple[PrivacyCurve, ...]

    @property
    def max_loss(self) -> float:
        """The largest privacy loss of its curves; 0 without curves."""
        return max((curve.max_loss for curve in self.curves), default=0.0)

    @property
    def bounded(self) -> bool:
        """Whether no output has a larger loss than `max_loss`."""
        return all(curve.bounded for curve in self.curves)

    def delta(self, epsilon: FloatArray) -> FloatArray:
        """Return the largest delta of the curves at each epsilon.

        Args:
            epsilon: Privacy losses, any shape, no unit.

        Returns:
            The probability delta, in the shape of `epsilon`.

        Example:
            >>> import murmurate as mm
            >>> import numpy as np
            >>> mm.PrivacyEvent((mm.HuberCurve(1000, 2000.0, 0),)).delta(np.array([0.0, 0.5])).round(4).tolist()
            [0.2212, 0.0]
        """
        envelope: FloatArray = np.maximum(1 - np.exp(epsilon), 0.0)
        for curve in self.curves:
            envelope = np.maximum(envelope, curve.delta(epsilon))
        return envelope


class Accountant(Protocol):
    """Composes events to the epsilon of all of them at `delta`."""

    def epsilon(self, events: EventCounts, delta: float) -> float: ...

    def within_budget(self, events: EventCounts, epsilon: float, delta: float) -> bool:
        """Whether these events cost at most epsilon at delta. This is faster than computing their cost."""
        ...


class PureDpAccountant:
    """Adds the largest losses (paper, Theorem 2). `delta` is not used. Noise with unbounded loss costs infinity."""

    def epsilon(self, events: EventCounts, delta: float) -> float:
        del delta
        if not all(event.bounded for event, count in events if count > 0):
            return np.inf
        return float(sum(event.max_loss * count for event, count in events))

    def within_budget(self, events: EventCounts, epsilon: float, delta: float) -> bool:
        """Whether these events cost at most epsilon."""
        return self.epsilon(events, delta) <= epsilon


class PldAccountant:
    """Composes the releases of several intervals by their privacy loss distributions.

    Each event becomes the distribution that its envelope dominates (connect-the-dots: never below the true curve),
    and these are convolved. The cost grows more slowly than the number of intervals.

    Args:
        grid_points: Points of the grid up to the largest loss of an event. Fewer points are faster and give a slightly
            larger epsilon.

    Example:
        >>> import murmurate as mm
        >>> day = [(mm.PrivacyEvent((mm.HuberCurve(1000, 20_000.0, 0),)), 96)]  # 96 releases, each epsilon 0.05
        >>> round(mm.PldAccountant().epsilon(day, 1e-6), 1)
        2.1
    """

    def __init__(self, grid_points: int = _GRID_POINTS) -> None:
        self._grid_points = grid_points  # fewer grid points are faster and give a slightly larger cost

    def epsilon(self, events: EventCounts, delta: float) -> float:
        """Return the epsilon that the events cost together.

        Args:
            events: Pairs of an event and how often it happens.
            delta: Probability delta, from 1e-12 to below 1.

        Returns:
            The epsilon at `delta`, rounded upwards, no unit.

        Raises:
            PrivacyError: `delta` is out of range.

        Example:
            >>> import murmurate as mm
            >>> mm.PldAccountant().epsilon([(mm.PrivacyEvent(()), 96)], 1e-6)
            0.0
        """
        if not 1e-12 <= delta < 1:
            raise PrivacyError("delta", delta, "must lie between 1e-12 and 1, for example 1e-6")
        costly = _nonzero_events(events)
        if not costly:
            return 0.0
        epsilon = self._compose_events(costly).epsilon(delta)
        return min(epsilon + _PLD_SLACK, PureDpAccountant().epsilon(costly, delta))

    def delta(self, events: EventCounts, epsilon: float) -> float:
        """Return the delta that the events cost together. At epsilon 0 it is the total variation distance.

        Args:
            events: Pairs of an event and how often it happens.
            epsilon: Privacy loss, no unit.

        Returns:
            The delta at `epsilon`, rounded upwards.

        Example:
            >>> import murmurate as mm
            >>> round(mm.PldAccountant().delta([(mm.PrivacyEvent((mm.HuberCurve(1000, 2000.0, 0),)), 1)], 0.0), 3)
            0.221
        """
        costly = _nonzero_events(events)
        if not costly:
            return 0.0
        delta = self._compose_events(costly).delta(epsilon)
        # a clearly negative delta means that rounding errors dominate
        return min(1.0, delta + _PLD_SLACK) if delta > -_PLD_SLACK else 1.0

    def tail(self, events: EventCounts, epsilon: float) -> float:
        """Return the probability of a privacy loss above epsilon, for a household that differs in all events.

        It is larger than delta, which weighs each loss by how far it is above epsilon.

        Args:
            events: Pairs of an event and how often it happens.
            epsilon: Privacy loss, no unit.

        Returns:
            The probability, rounded upwards.

        Example:
            >>> import murmurate as mm
            >>> day = [(mm.PrivacyEvent((mm.HuberCurve(1000, 20_000.0, 0),)), 96)]
            >>> mm.PldAccountant().delta(day, 2.0) < mm.PldAccountant().tail(day, 2.0) < 2e-4
            True
        """
        costly = _nonzero_events(events)
        return min(1.0, self._compose_events(costly).tail(epsilon) + _PLD_SLACK) if costly else 0.0

    def within_budget(self, events: EventCounts, epsilon: float, delta: float) -> bool:
        """Return whether the events cost at most (epsilon, delta) together. Faster than `epsilon`.

        Args:
            events: Pairs of an event and how often it happens.
            epsilon: Budget, no unit.
            delta: Probability delta.

        Returns:
            True if the budget is kept.

        Example:
            >>> import murmurate as mm
            >>> day = [(mm.PrivacyEvent((mm.HuberCurve(1000, 20_000.0, 0),)), 96)]
            >>> mm.PldAccountant().within_budget(day, 2.5, 1e-6), mm.PldAccountant().within_budget(day, 1.0, 1e-6)
            (True, False)
        """
        return PureDpAccountant().within_budget(events, epsilon, delta) or self.delta(events, epsilon) <= delta

    def _compose_events(self, events: EventCounts) -> LossDistribution:
        reaches = [event.max_loss for event, _ in events]
        step = max(min(reaches) / self._grid_points, max(reaches) / _MAX_GRID_POINTS)
        composed = (_self_compose(_loss_distribution(event, step), count) for event, count in events)
        return reduce(LossDistribution.compose, composed)


def _nonzero_events(events: EventCounts) -> EventCounts:
    return [(event, count) for event, count in events if event.max_loss > 0 and count > 0]


def _self_compose(distribution: LossDistribution, count: int) -> LossDistribution:
    """Compose `distribution` with itself: pairwise if that is faster, and it cuts off nothing."""
    if count > _MAX_SEQUENTIAL:
        return distribution.self_compose(count)
    return reduce(LossDistribution.compose, [distribution] * count)


def _loss_distribution(event: PrivacyEvent, step: float) -> LossDistribution:
    edge = int(np.ceil(event.max_loss / step)) + 1
    deltas = np.minimum.accumulate(event.delta(np.asarray(np.arange(-edge, edge + 1) * step, np.float64)))
    return LossDistribution.connect_dots(step, -edge, deltas)


def count_events(events: Iterable[PrivacyEvent]) -> EventCounts:
    """Count equal events. Composing a group at once is much faster than one by one."""
    return list(Counter(events).items())


def window_cost(day: Sequence[PrivacyEvent], window: int, delta: float, accountant: Accountant) -> float:
    """Return the largest cost of any `window` successive intervals of a day that repeats forever."""
    return max(accountant.epsilon(events, delta) for events in window_events(day, window))


def window_events(day: Sequence[PrivacyEvent], window: int) -> list[EventCounts]:
    """Return the events of every `window` successive intervals of a repeating day, each multiset once."""
    if window < 1:
        raise PrivacyError("window", window, "must be at least 1 interval")
    whole, rest = divmod(window, len(day))
    starts = range(len(day)) if rest else range(1)
    days = Counter({event: whole * count for event, count in Counter(day).items()})
    multisets = {
        frozenset((days + Counter(day[(start + n) % len(day)] for n in range(rest))).items()) for start in starts
    }
    return [list(events) for events in multisets]
