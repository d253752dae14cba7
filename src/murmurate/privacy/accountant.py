"""The privacy cost of several releases: of one interval, a finite horizon, or any window of an infinite stream.

A `PrivacyEvent` is the release of one interval: the worst privacy curve over all protected households and both
directions. An accountant composes events to one epsilon. All accountants pass one test suite. Proofs: `accountant.md`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from murmurate.errors import PrivacyError, require_members
from murmurate.privacy.divergence import PrivacyCurve
from murmurate.units import FloatArray

_GRID_POINTS = 400  # grid points up to the largest loss of the narrowest event
_MAX_GRID_POINTS = 2_000
_MAX_SEQUENTIAL = 4
_PLD_SLACK = 1e-9  # rounding of Fourier transforms: results may lie 3e-11 below the exact value
_CUT_OFF = 1e-15  # probability of the tails that a power of a distribution may cut off; it counts as an infinite loss
_CHERNOFF_ORDERS = 20  # of each sign


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LossDistribution:
    """How likely each privacy loss is: probabilities of the losses (lowest + n) step, n = 0, 1, .., and of infinity.

    Of two distributions P and Q of outputs the loss is log(P(y)/Q(y)), y drawn from P. It adds up over independent
    releases, so the distribution of their sum is a convolution, and delta(epsilon) = E[max(1 - e^(epsilon - loss), 0)].
    What is rounded to the step or cut off errs upwards. For the rounding of Fourier transforms the accountant adds a
    margin.

    >>> day = LossDistribution.connect_dots(0.5, -1, np.array([1 - np.exp(-0.5), 0.1, 0.0])).self_compose(96)
    >>> round(day.epsilon(1e-6), 2), round(day.delta(10.0), 4)
    (18.76, 0.0259)
    """

    step: float
    lowest: int  # the smallest loss, in steps
    probability: FloatArray  # [loss]
    infinite: float

    @classmethod
    def connect_dots(cls, step: float, lowest: int, delta: FloatArray) -> LossDistribution:
        """Return the distribution whose curve has these values of delta at losses (lowest + n) step.

        Between them the curve is linear in e^epsilon, so it is never below a convex curve through the same points
        (Doroshenko et al. 2022, Algorithm 1). `delta` must not increase.
        """
        falls = -np.diff(delta)
        reached = np.append(1 - delta[0], falls / -np.expm1(-step))
        left = np.append(falls / np.expm1(step), 0.0)
        return cls(step=step, lowest=lowest, probability=np.maximum(reached - left, 0.0), infinite=float(delta[-1]))

    def compose(self, other: LossDistribution) -> LossDistribution:
        """Return the distribution of the sum of two independent losses. Both must have the same step."""
        size = len(self.probability) + len(other.probability) - 1
        length = _fast_length(size)
        spectrum = np.fft.rfft(self.probability, length) * np.fft.rfft(other.probability, length)
        return LossDistribution(
            step=self.step,
            lowest=self.lowest + other.lowest,
            probability=np.fft.irfft(spectrum, length)[:size],
            infinite=self.infinite + other.infinite - self.infinite * other.infinite,
        )

    def self_compose(self, count: int) -> LossDistribution:
        """Return the distribution of the sum of `count` independent losses, without tails below 1e-15 in all."""
        first, last = self._kept_range(count)
        length = _fast_length(max(last - first + 1, len(self.probability)))
        power = np.fft.irfft(np.fft.rfft(self.probability, length) ** count, length)  # sums are taken modulo `length`
        return LossDistribution(
            step=self.step,
            lowest=self.lowest * count + first,
            probability=np.roll(power, -first)[: last - first + 1],
            infinite=_CUT_OFF + (-math.expm1(count * math.log1p(-self.infinite)) if self.infinite < 1 else 1.0),
        )

    def _kept_range(self, count: int) -> tuple[int, int]:
        """Return a range that a sum of `count` indices leaves with a probability below 1e-15 (Chernoff's bound)."""
        size = len(self.probability)
        orders = np.arange(1, _CHERNOFF_ORDERS + 1) / size  # so no exponent exceeds 20
        exponents = orders[:, None] * np.arange(size)
        with np.errstate(divide="ignore"):  # a distribution without finite losses
            rising, falling = (np.log(np.exp(sign * exponents) @ self.probability) for sign in (1, -1))
        margin = math.log(2 / _CUT_OFF)
        last = np.min((count * rising + margin) / orders)
        first = np.max((count * falling + margin) / -orders)
        highest = (size - 1) * count
        return (
            max(0, math.floor(first)) if math.isfinite(first) else 0,
            min(highest, math.ceil(last)) if math.isfinite(last) else highest,
        )

    def delta(self, epsilon: float) -> float:
        """Return E[max(1 - e^(epsilon - loss), 0)]."""
        losses = self._losses()
        above = losses > epsilon
        return float(self.infinite - np.expm1(epsilon - losses[above]) @ self.probability[above])

    def tail(self, epsilon: float) -> float:
        """Return the probability of a loss above epsilon - step: at least that of a loss above epsilon."""
        return float(self.infinite + self.probability[self._losses() > epsilon - self.step].sum())

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon, from 0 on, at which `delta` is enough; infinity if there is none.

        Where epsilon lies between two losses, delta = U - e^epsilon L: U sums the probabilities above it, L the same
        probabilities times e^-loss. The search goes from the largest loss down to 0.
        """
        if self.infinite > delta:
            return math.inf
        losses = self._losses()[::-1]
        losses = losses[losses > 0]
        probability = self.probability[::-1][: len(losses)]
        excess = self.infinite + np.cumsum(probability) - delta
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):  # e^-loss is about 0 for large losses
            solution = np.where(excess > 0, np.log(excess / np.cumsum(probability * np.exp(-losses))), -np.inf)
        found = np.flatnonzero(solution >= np.append(losses[1:], 0.0))
        if not len(found):
            return 0.0
        return float(solution[found[0]] if np.isfinite(solution[found[0]]) else losses[found[0]])

    def _losses(self) -> FloatArray:
        return np.asarray((self.lowest + np.arange(len(self.probability))) * self.step, np.float64)


def _fast_length(size: int) -> int:
    """Return the least length of at least `size` that is 1, 3, 5, 9 or 15 times a power of 2."""
    return min(odd << (-(-size // odd) - 1).bit_length() for odd in (1, 3, 5, 9, 15))


EventCounts = Sequence[tuple["PrivacyEvent", int]]  # an event and its number of occurrences


@dataclass(frozen=True, slots=True, eq=False)
class PrivacyEvent:
    """The release of one interval, as the worst of its privacy curves.

    Attributes:
        curves: Privacy curves, such as `HuberCurve`, `GaussianCurve` or your own `PrivacyCurve`: one for each household
            or kind that the release protects. An event without curves costs nothing (a forecast).

    Raises:
        PrivacyError: `curves` is one curve and no tuple.
        MurmurateError: A curve lacks a method of `PrivacyCurve`.

    Example:
        >>> import murmurate as mm
        >>> event = mm.PrivacyEvent((mm.HuberCurve(1000, 2000.0, 0), mm.HuberCurve(3000, 2000.0, 0)))
        >>> event.max_loss, event.bounded
        (1.5, True)
    """

    curves: tuple[PrivacyCurve, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.curves, tuple):
            raise PrivacyError("curves", f"of type {type(self.curves).__name__}", "must be a tuple: (curve,) for one")
        for number, curve in enumerate(self.curves):
            require_members(f"curves[{number}]", curve, "PrivacyCurve", "max_loss", "bounded", "delta")

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
            PrivacyError: `delta` is out of range, or `events` are not pairs.

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

        Raises:
            PrivacyError: `events` are not pairs.

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

        Raises:
            PrivacyError: `events` are not pairs.

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

        Raises:
            PrivacyError: `events` are not pairs.

        Example:
            >>> import murmurate as mm
            >>> day = [(mm.PrivacyEvent((mm.HuberCurve(1000, 20_000.0, 0),)), 96)]
            >>> mm.PldAccountant().within_budget(day, 2.5, 1e-6), mm.PldAccountant().within_budget(day, 1.0, 1e-6)
            (True, False)
        """
        costly = _nonzero_events(events)
        return PureDpAccountant().within_budget(costly, epsilon, delta) or self.delta(costly, epsilon) <= delta

    def _compose_events(self, events: EventCounts) -> LossDistribution:
        reaches = [event.max_loss for event, _ in events]
        step = max(min(reaches) / self._grid_points, max(reaches) / _MAX_GRID_POINTS)
        composed = []
        for event, count in events:
            edge = int(np.ceil(event.max_loss / step)) + 1
            deltas = np.minimum.accumulate(event.delta(np.asarray(np.arange(-edge, edge + 1) * step, np.float64)))
            single = LossDistribution.connect_dots(step, -edge, deltas)
            few = count <= _MAX_SEQUENTIAL  # pairwise is then faster, and it cuts off nothing
            composed.append(reduce(LossDistribution.compose, [single] * count) if few else single.self_compose(count))
        return reduce(LossDistribution.compose, composed)


def _nonzero_events(events: EventCounts) -> EventCounts:
    """Return the events that cost something. Raises PrivacyError for anything but pairs of an event and a number."""
    allowed = "must be pairs of a PrivacyEvent and how often it happens, such as [(event, 96)]"
    if isinstance(events, PrivacyEvent):
        raise PrivacyError("events", "one PrivacyEvent", allowed)
    for number, pair in enumerate(events):
        if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], PrivacyEvent):
            raise PrivacyError(f"events[{number}]", f"of type {type(pair).__name__}", allowed)
    return [(event, count) for event, count in events if event.max_loss > 0 and count > 0]


def count_events(events: Iterable[PrivacyEvent]) -> EventCounts:
    """Count equal events. Composing a group at once is much faster than one by one."""
    return list(Counter(events).items())


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
