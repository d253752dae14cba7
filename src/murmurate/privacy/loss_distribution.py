"""Privacy loss distributions: how likely each privacy loss is, and how losses of several releases add up.

Of two distributions P and Q of outputs the loss is log(P(y)/Q(y)), y drawn from P. It adds up over independent
releases, so the distribution of their sum is a convolution, and delta(epsilon) = E[max(1 - e^(epsilon - loss), 0)].
Losses are whole multiples of a step. What is rounded to the step or cut off errs upwards. For the rounding of Fourier
transforms the accountant adds a margin. Proof: `accountant.md`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from murmurate.units import FloatArray

_CUT_OFF = 1e-15  # probability of the tails that a power of a distribution may cut off; it counts as an infinite loss
_CHERNOFF_ORDERS = 20  # of each sign


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LossDistribution:
    """Probabilities of the losses (lowest + n) step, n = 0, 1, .., and of an infinite loss.

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
