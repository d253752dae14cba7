"""Huber noise: a Gaussian core with exponential tails. Its law, its variance, and its privacy curve.

Pr[K = k] is proportional to e^(-rho(k)) on all whole numbers, rho(k) = k^2/(2 b c) for |k| <= c and |k|/b - c/(2b)
beyond; b is the scale of the tails, c the core (Huber 1964: the least informative density). A core of 0 is discrete
Laplace noise of scale b; a large one is Gaussian noise of deviation s = sqrt(b c). Proofs: `calibration.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from murmurate.errors import PrivacyError
from murmurate.quantities import FloatArray, IntArray, integers

_SUMMED_TO = 64.0  # Wh of deviation: below it sums go over the lattice, from it on by Euler and Maclaurin's formula
_ROUNDING = 2e-15  # more than the rounding of a curve's two tails
_LARGEST_EXPONENT = 700.0  # e^700 is still a double


@dataclass(frozen=True, slots=True)
class HuberLaw:
    """The law of Huber noise of scale b = `scale_wh` and core c = `core_wh` [Wh]."""

    scale_wh: float
    core_wh: int

    def __post_init__(self) -> None:
        if not 0 < self.scale_wh < np.inf:
            raise PrivacyError("scale_wh", self.scale_wh, "must be a positive number of Wh")
        if int(integers(self.core_wh, "core_wh", PrivacyError)) < 0:
            raise PrivacyError("core_wh", self.core_wh, "must be at least 0 Wh")

    @property
    def _deviation(self) -> float:
        """s = sqrt(b c), the deviation of the core [Wh]."""
        return float(np.sqrt(self.scale_wh * self.core_wh))

    def rho(self, noise_wh: FloatArray) -> FloatArray:
        """-log Pr[K = k] up to a constant; 0 at k = 0."""
        size = np.abs(noise_wh)
        inner = size**2 / (2 * self.scale_wh * max(self.core_wh, 1))
        rho: FloatArray = np.where(size <= self.core_wh, inner, size / self.scale_wh - self.core_wh / self.scale_wh / 2)
        return rho

    def total(self) -> float:
        """The sum of e^(-rho(k)) over all k."""
        return 1 + 2 * float(self._weight(np.ones(1))[0])

    def tail(self, first: FloatArray) -> FloatArray:
        """Pr[K >= first] for whole numbers."""
        share = self._weight(np.where(first >= 1, first, 1 - first)) / self.total()
        tail: FloatArray = np.where(first >= 1, share, 1 - share)
        return tail

    def _weight(self, first: FloatArray) -> FloatArray:
        """The sum of e^(-rho(k)) over k >= first, for first >= 1."""
        outer = np.exp(-self.rho(np.maximum(first, self.core_wh + 1))) / -np.expm1(-1 / self.scale_wh)
        inner = np.minimum(first, self.core_wh + 1)
        lattice = self._deviation < _SUMMED_TO
        weight: FloatArray = outer + (self._summed(inner) if lattice else self._integrated(inner))
        return weight

    def _summed(self, first: FloatArray) -> FloatArray:
        """The sum of e^(-rho(k)) over first <= k <= c, on the lattice."""
        terms = np.exp(-self.rho(np.arange(self.core_wh + 1, 0, -1, dtype=np.float64)))
        terms[0] = 0.0  # c + 1: nothing is left
        return np.cumsum(terms)[(self.core_wh + 1 - first).astype(np.int64)]

    def _integrated(self, first: FloatArray) -> FloatArray:
        """The same for a wide core: the integral and its ends, to 1e-3 s^-6 (Euler and Maclaurin)."""
        s = self._deviation
        whole = s * np.sqrt(2 * np.pi) * (ndtr(-first / s) - ndtr(-self.core_wh / s))
        at_first, at_core = _ends(first / s, s), _ends(np.full(1, self.core_wh / s), s)
        found: FloatArray = whole + (at_first[0] + at_core[0]) / 2 + at_core[1] - at_first[1]
        return np.where(first <= self.core_wh, found, 0.0)

    def variance(self) -> float:
        """E[K^2] [Wh^2]; relative error below 1e-6."""
        b, c, s = self.scale_wh, float(self.core_wh), self._deviation
        if s < _SUMMED_TO:
            k = np.arange(1, self.core_wh + 1, dtype=np.float64)
            inner = float((k**2 * np.exp(-self.rho(k))).sum())
        else:
            edge = np.exp(-c / (2 * b))
            whole = s * np.sqrt(2 * np.pi) * (ndtr(c / s) - 0.5) - c * edge
            inner = float(s * s * whole + (c * c / 2 + (2 * c - c**3 / (s * s)) / 12) * edge)
        rest = -np.expm1(-1 / b)  # 1 - q, the tails being c + 1, c + 2, .. with weights q, q^2, ..
        q = 1 - rest
        outer = np.exp(-c / (2 * b)) * (c * c * q / rest + 2 * c * q / rest**2 + q * (1 + q) / rest**3)
        return 2 * (inner + float(outer)) / self.total()


def _ends(z: FloatArray, s: float) -> tuple[FloatArray, FloatArray]:
    """f and f'/12 - f'''/720 + f'''''/30240 at z s, for f(x) = e^(-x^2/(2 s^2))."""
    f = np.exp(-(z**2) / 2)
    odd = (-z / 12, (z**3 - 3 * z) / 720, (10 * z**3 - z**5 - 15 * z) / 30_240)
    return f, f * (odd[0] / s + odd[1] / s**3 + odd[2] / s**5)


def huber_log_pmf(noise_wh: Any, scale_wh: float, core_wh: int) -> FloatArray:
    """log Pr[K = k], normalised on the lattice to 1e-12.

    >>> bool(np.isclose(np.exp(huber_log_pmf(np.arange(-300, 301), 4.9, 10)).sum(), 1, rtol=1e-12))
    True
    """
    law = HuberLaw(scale_wh, core_wh)
    log_pmf: FloatArray = -law.rho(np.asarray(noise_wh, np.float64)) - np.log(law.total())
    return log_pmf


def huber_variance(scale_wh: Any, core_wh: Any) -> FloatArray:
    """E[K^2] [Wh^2] for each scale and core [Wh]; relative error below 1e-6.

    >>> [round(float(huber_variance(scale, core)) ** 0.5) for scale, core in ((25_702.064, 53_293), (1000.0, 0))]
    [43300, 1414]
    """
    scale, core = np.broadcast_arrays(np.asarray(scale_wh, np.float64), integers(core_wh, "core_wh", PrivacyError))
    pairs = list(zip(scale.ravel().tolist(), core.ravel().tolist(), strict=True))
    found = {pair: HuberLaw(*pair).variance() for pair in set(pairs)}
    return np.array([found[pair] for pair in pairs]).reshape(scale.shape)


@dataclass(frozen=True, slots=True, eq=False)
class HuberCurve:
    """Huber noise of scale b and core c on demands that differ by a whole `shift` u [Wh].

    rho is convex, so the loss rho(y) - rho(y - u) never falls in y, and delta = Pr[K >= m - u] - e^epsilon Pr[K >= m],
    m the first y whose loss exceeds epsilon. No loss exceeds u/b. The result is rounded upwards (`calibration.md`).

    >>> curve = HuberCurve(1000, 25_702.064, 53_293)
    >>> round(curve.reach, 6), round(float(curve.delta(np.array([0.02]))[0]), 6)
    (0.038907, 0.003029)
    """

    shift_wh: int
    scale_wh: float
    core_wh: int

    def __post_init__(self) -> None:
        HuberLaw(self.scale_wh, self.core_wh)
        if int(integers(self.shift_wh, "shift_wh", PrivacyError)) < 0:
            raise PrivacyError("shift_wh", self.shift_wh, "must be at least 0 Wh")

    @property
    def reach(self) -> float:
        return self.shift_wh / self.scale_wh

    @property
    def bounded(self) -> bool:
        return True

    def delta(self, epsilon: FloatArray) -> FloatArray:
        law = HuberLaw(self.scale_wh, self.core_wh)
        first = self._first(law, epsilon).astype(np.float64)
        least = np.exp(np.minimum(epsilon, _LARGEST_EXPONENT))
        delta = law.tail(first - self.shift_wh) - least * law.tail(first) + _ROUNDING
        everything = 1 - np.exp(np.minimum(epsilon, 0.0))  # where every output has a larger loss
        bound: FloatArray = np.where(epsilon >= self.reach, 0.0, np.maximum(delta, everything))
        return np.clip(bound, 0.0, 1.0)

    def _first(self, law: HuberLaw, epsilon: FloatArray) -> IntArray:
        """The first y whose loss exceeds epsilon, by bisection; -c + 1 where all do, c + u where none does."""
        low = np.full(epsilon.shape, -self.core_wh, np.int64)
        high = np.full(epsilon.shape, self.core_wh + self.shift_wh, np.int64)
        for _ in range(int(high.max(initial=0) - low.min(initial=0)).bit_length()):
            middle = (low + high) // 2
            y = middle.astype(np.float64)
            exceeds = law.rho(y) - law.rho(y - self.shift_wh) > epsilon
            low, high = np.where(exceeds, low, middle), np.where(exceeds, middle, high)
        return high
