"""Privacy curves delta(epsilon), and the pairs of distributions that they are computed from.

For outputs with distributions P and Q the curve is delta(epsilon) = sum over y of max(P(y) - e^epsilon Q(y), 0).
A mechanism is (epsilon, delta)-private for the pair iff the curves of (P, Q) and (Q, P) lie below delta at epsilon.
Proofs: `calibration.md`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Protocol

import numpy as np

from murmurate.errors import ModelError, PrivacyError
from murmurate.units import FloatArray, as_int64_array

_MAX_LATTICE_DEVIATION_WH = 64.0  # below: sums over the lattice; from here on: Euler-Maclaurin formula
_TAIL_ROUNDING_ERROR = 2e-15  # more than the rounding of a curve's two tails
_GAUSSIAN_CORE_SIGMAS = 38.0  # standard deviations beyond which the weight is below any double
_SQRT2 = math.sqrt(2.0)
_MAX_EXP_ARGUMENT = 700.0  # e^700 is still a double


@dataclass(frozen=True, slots=True)
class HuberDistribution:
    """The distribution of Huber noise of scale b = `scale_wh` and core c = `core_wh` [Wh]."""

    scale_wh: float
    core_wh: int

    def __post_init__(self) -> None:
        if not 0 < self.scale_wh < np.inf:
            raise PrivacyError("scale_wh", self.scale_wh, "must be a positive number of Wh")
        if int(as_int64_array(self.core_wh, "core_wh", PrivacyError)) < 0:
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

    def normalising_sum(self) -> float:
        """Return the sum of e^(-rho(k)) over all k."""
        return 1 + 2 * float(self._upper_tail_sum(np.ones(1))[0])

    def tail_probability(self, first: FloatArray) -> FloatArray:
        """Return Pr[K >= first] for integers `first`."""
        share = self._upper_tail_sum(np.where(first >= 1, first, 1 - first)) / self.normalising_sum()
        tail: FloatArray = np.where(first >= 1, share, 1 - share)
        return tail

    def _upper_tail_sum(self, first: FloatArray) -> FloatArray:
        """The sum of e^(-rho(k)) over k >= first, for first >= 1."""
        outer = np.exp(-self.rho(np.maximum(first, self.core_wh + 1))) / -np.expm1(-1 / self.scale_wh)
        inner = np.minimum(first, self.core_wh + 1)
        if self._deviation >= _MAX_LATTICE_DEVIATION_WH:
            return np.asarray(outer + self._euler_maclaurin_sum(inner))
        terms = np.exp(-self.rho(np.arange(self.core_wh + 1, 0, -1, dtype=np.float64)))
        terms[0] = 0.0  # c + 1: outside the core
        return np.asarray(outer + np.cumsum(terms)[(self.core_wh + 1 - inner).astype(np.int64)])

    def _euler_maclaurin_sum(self, first: FloatArray) -> FloatArray:
        """Return the sum over first <= k <= c for a wide core by the Euler-Maclaurin formula; error below 1e-3 s^-6."""
        s = self._deviation
        whole = s * np.sqrt(2 * np.pi) * (normal_cdf(-first / s) - normal_cdf(-self.core_wh / s))
        at_first, at_core = (
            _euler_maclaurin_terms(first / s, s),
            _euler_maclaurin_terms(np.full(1, self.core_wh / s), s),
        )
        partial_sum: FloatArray = whole + (at_first[0] + at_core[0]) / 2 + at_core[1] - at_first[1]
        return np.where(first <= self.core_wh, partial_sum, 0.0)

    def variance(self) -> float:
        """Return E[K^2] [Wh^2] with a relative error below 1e-6."""
        b, c, s = self.scale_wh, float(self.core_wh), self._deviation
        if s < _MAX_LATTICE_DEVIATION_WH:
            k = np.arange(1, self.core_wh + 1, dtype=np.float64)
            inner = float((k**2 * np.exp(-self.rho(k))).sum())
        else:
            edge = np.exp(-c / (2 * b))
            whole = s * np.sqrt(2 * np.pi) * (normal_cdf(c / s) - 0.5) - c * edge
            inner = float(s * s * whole + (c * c / 2 + (2 * c - c**3 / (s * s)) / 12) * edge)
        rest = -np.expm1(-1 / b)  # 1 - q, the tails being c + 1, c + 2, .. with weights q, q^2, ..
        q = 1 - rest
        outer = np.exp(-c / (2 * b)) * (c * c * q / rest + 2 * c * q / rest**2 + q * (1 + q) / rest**3)
        return 2 * (inner + float(outer)) / self.normalising_sum()


def normal_cdf(z: Any) -> FloatArray:
    """Return the probability that a standard normal variable is at most z, with full relative precision for z < 0.

    >>> [f"{value:.10g}" for value in normal_cdf([-8.0, 0.0, 1.0])]
    ['6.220960574e-16', '0.5', '0.8413447461']
    """
    values = np.asarray(z, np.float64)
    halves = (math.erfc(-value / _SQRT2) / 2 for value in values.ravel().tolist())
    return np.fromiter(halves, np.float64, values.size).reshape(values.shape)


def _euler_maclaurin_terms(z: FloatArray, s: float) -> tuple[FloatArray, FloatArray]:
    """f and f'/12 - f'''/720 + f'''''/30240 at z s, for f(x) = e^(-x^2/(2 s^2))."""
    f = np.exp(-(z**2) / 2)
    odd = (-z / 12, (z**3 - 3 * z) / 720, (10 * z**3 - z**5 - 15 * z) / 30_240)
    return f, f * (odd[0] / s + odd[1] / s**3 + odd[2] / s**5)


def huber_log_pmf(noise_wh: Any, scale_wh: float, core_wh: int) -> FloatArray:
    """log Pr[K = k], normalised on the lattice to 1e-12.

    >>> bool(np.isclose(np.exp(huber_log_pmf(np.arange(-300, 301), 4.9, 10)).sum(), 1, rtol=1e-12))
    True
    """
    huber = HuberDistribution(scale_wh, core_wh)
    log_pmf: FloatArray = -huber.rho(np.asarray(noise_wh, np.float64)) - np.log(huber.normalising_sum())
    return log_pmf


def huber_variance(scale_wh: Any, core_wh: Any) -> FloatArray:
    """E[K^2] [Wh^2] for each scale and core [Wh]; relative error below 1e-6.

    >>> [round(float(huber_variance(scale, core)) ** 0.5) for scale, core in ((25_702.064, 53_293), (1000.0, 0))]
    [43300, 1414]
    """
    scale, core = np.broadcast_arrays(
        np.asarray(scale_wh, np.float64), as_int64_array(core_wh, "core_wh", PrivacyError)
    )
    pairs = list(zip(scale.ravel().tolist(), core.ravel().tolist(), strict=True))
    variances = {pair: HuberDistribution(*pair).variance() for pair in set(pairs)}
    return np.array([variances[pair] for pair in pairs]).reshape(scale.shape)


def check_shift(shift_wh: int) -> None:
    """Raise PrivacyError unless the difference of two demands is a whole number, 0 or more [Wh]."""
    if not isinstance(shift_wh, Integral) or isinstance(shift_wh, bool) or shift_wh < 0:
        raise PrivacyError("shift_wh", shift_wh, "must be a whole number of Wh, 0 or more")


@dataclass(frozen=True, slots=True, eq=False)
class HuberCurve:
    """The privacy curve delta(epsilon) of Huber noise, for two demands that differ by `shift_wh`.

    rho is convex, so the loss rho(y) - rho(y - u) never falls in y, and delta = Pr[K >= m - u] - e^epsilon Pr[K >= m],
    m the first y whose loss exceeds epsilon. No loss exceeds u/b. The result is rounded upwards (`calibration.md`).
    With a core of 0 it is the curve of Laplace noise.

    Attributes:
        shift_wh: Difference u of the two demands, a whole number, 0 or more [Wh].
        scale_wh: Scale b of the exponential tails, positive [Wh].
        core_wh: Half-width c of the Gaussian core, a whole number, 0 or more [Wh].

    Raises:
        PrivacyError: A number is out of range or not whole.

    Example:
        >>> import murmurate as mm
        >>> import numpy as np
        >>> curve = mm.HuberCurve(1000, 25_702.064, 53_293)
        >>> round(curve.max_loss, 6), round(float(curve.delta(np.array([0.02]))[0]), 6)
        (0.038907, 0.003029)
    """

    shift_wh: int
    scale_wh: float
    core_wh: int

    def __post_init__(self) -> None:
        HuberDistribution(self.scale_wh, self.core_wh)
        check_shift(self.shift_wh)

    @property
    def max_loss(self) -> float:
        """The largest privacy loss u/b of any output."""
        return self.shift_wh / self.scale_wh

    @property
    def bounded(self) -> bool:
        """True: no output has a larger loss than `max_loss`."""
        return True

    def delta(self, epsilon: FloatArray) -> FloatArray:
        """Return delta at each epsilon, rounded upwards.

        Args:
            epsilon: Privacy losses, any shape, no unit.

        Returns:
            The probability delta, in the shape of `epsilon`.

        Example:
            >>> import murmurate as mm
            >>> import numpy as np
            >>> mm.HuberCurve(1000, 2000.0, 0).delta(np.array([0.0, 0.5])).round(4).tolist()
            [0.2212, 0.0]
        """
        distribution = HuberDistribution(self.scale_wh, self.core_wh)
        low = np.full(epsilon.shape, -self.core_wh, np.int64)
        high = np.full(epsilon.shape, self.core_wh + self.shift_wh, np.int64)
        for _ in range(int(high.max(initial=0) - low.min(initial=0)).bit_length()):
            middle = (low + high) // 2
            y = middle.astype(np.float64)
            exceeds = distribution.rho(y) - distribution.rho(y - self.shift_wh) > epsilon
            low, high = np.where(exceeds, low, middle), np.where(exceeds, middle, high)
        first = high.astype(np.float64)  # y whose loss exceeds epsilon: -c + 1 if all losses do, c + u if none does
        exp_epsilon = np.exp(np.minimum(epsilon, _MAX_EXP_ARGUMENT))
        delta = (
            distribution.tail_probability(first - self.shift_wh)
            - exp_epsilon * distribution.tail_probability(first)
            + _TAIL_ROUNDING_ERROR
        )
        all_outputs = 1 - np.exp(np.minimum(epsilon, 0.0))  # where every output has a larger loss
        bound: FloatArray = np.where(epsilon >= self.max_loss, 0.0, np.maximum(delta, all_outputs))
        return np.clip(bound, 0.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SecretPair:
    """The distributions of a household's reading when away and when home, on -export bound, .., 0, .., bound [Wh].

    >>> pair = SecretPair.from_pmfs([0.5, 0.5, 0.0], [0.0, 0.5, 0.5], export_bound_wh=1)
    >>> pair.bound_wh, pair.range_wh
    (1, 2)
    """

    away: FloatArray  # [wh]
    home: FloatArray  # [wh]
    export_bound_wh: int = 0  # the first entry of both is the probability of minus this

    @classmethod
    def from_pmfs(cls, away: object, home: object, export_bound_wh: int = 0) -> SecretPair:
        pmfs = (np.asarray(pmf, np.float64) for pmf in (away, home))
        return cls(**dict(zip(("away", "home"), pmfs, strict=True)), export_bound_wh=export_bound_wh)

    @classmethod
    def worst_case(cls, bound_wh: int, export_bound_wh: int = 0) -> SecretPair:
        """Return the worst pair on -export bound, .., bound: always the lowest when away, the bound when home."""
        away, home = np.zeros((2, bound_wh + export_bound_wh + 1))
        away[0] = home[-1] = 1.0
        return cls(away=away, home=home, export_bound_wh=export_bound_wh)

    def __post_init__(self) -> None:
        shapes = (self.away.shape, self.home.shape)
        if shapes[0] != shapes[1] or self.away.ndim != 1 or not 0 <= self.export_bound_wh < len(self.away) - 1:
            allowed = "away and home must be distributions on -export_bound, .., bound [Wh], bound >= 1"
            raise ModelError("secret", shapes, allowed)
        for name, pmf in (("away", self.away), ("home", self.home)):
            if not ((pmf >= 0).all() and abs(pmf.sum() - 1) <= 1e-9):
                raise ModelError(name, f"{pmf.sum():.12g}", "must be probabilities that sum to 1")

    @property
    def bound_wh(self) -> int:
        return self.range_wh - self.export_bound_wh

    @property
    def range_wh(self) -> int:
        """The width of the range of readings: the most that the household can change a demand by."""
        return len(self.away) - 1

    @property
    def energy_wh(self) -> FloatArray:
        """The reading of each entry [wh]."""
        return np.arange(-self.export_bound_wh, self.bound_wh + 1, dtype=np.float64)


class PrivacyCurve(Protocol):
    """The privacy curve delta(epsilon) of one noise, for one pair of demands. `PrivacyEvent` takes any object like it.

    delta(epsilon) is the largest sum over y of max(P(y) - e^epsilon Q(y), 0), where P and Q are the distributions of
    the output for the one demand and the other, in both orders. A curve may lie above, never below.

    Attributes:
        max_loss: The epsilon beyond which delta is below 1e-15.
        bounded: Whether no output has a larger loss than `max_loss`. A promise without a delta needs it.

    Example:
        >>> import murmurate as mm
        >>> import numpy as np
        >>> class RandomisedResponse:
        ...     bounded = True
        ...
        ...     def __init__(self, epsilon):
        ...         self.max_loss = epsilon
        ...
        ...     def delta(self, epsilon):
        ...         right = 1 / (1 + np.exp(-self.max_loss))  # probability of the true answer
        ...         return np.maximum(right - np.exp(epsilon) * (1 - right), np.maximum(1 - np.exp(epsilon), 0))
        >>> week = [(mm.PrivacyEvent((RandomisedResponse(0.1),)), 7)]
        >>> round(mm.PldAccountant().epsilon(week, 1e-6), 2)
        0.7
    """

    @property
    def max_loss(self) -> float:
        """The epsilon beyond which delta is below 1e-15."""
        ...

    @property
    def bounded(self) -> bool:
        """Whether no output has a larger loss than `max_loss`. A promise without a delta needs it."""
        ...

    def delta(self, epsilon: FloatArray) -> FloatArray:
        """Return delta at each epsilon, rounded upwards.

        Args:
            epsilon: Privacy losses, any shape, negative ones too, no unit.

        Returns:
            The probability delta, in the shape of `epsilon`. It never increases.

        Example:
            >>> import murmurate as mm
            >>> import numpy as np
            >>> mm.HuberCurve(1000, 2000.0, 0).delta(np.array([0.0, 0.5])).round(4).tolist()
            [0.2212, 0.0]
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class GaussianCurve:
    """The privacy curve delta(epsilon) of discrete Gaussian noise, for two demands that differ by `shift_wh`.

    It is the curve of Huber noise whose core ends 38 deviations out, where e^(-x^2/(2 sigma^2)) is below 1e-313. Its
    losses grow without end, so it is not bounded (`calibration.md`).

    Attributes:
        shift_wh: Difference of the two demands, a whole number, 0 or more [Wh].
        sigma_wh: Standard deviation of the noise, positive [Wh].

    Raises:
        PrivacyError: A number is out of range or not whole.

    Example:
        >>> import murmurate as mm
        >>> import numpy as np
        >>> float(mm.GaussianCurve(1000, 3730.0).delta(np.array([1.0]))[0]) < 1.1e-5
        True
    """

    shift_wh: int
    sigma_wh: float

    def __post_init__(self) -> None:
        check_shift(self.shift_wh)
        if not 0 < self.sigma_wh < np.inf:
            raise PrivacyError("sigma_wh", self.sigma_wh, "must be a positive number of Wh")

    @property
    def max_loss(self) -> float:
        """The epsilon beyond which delta is below 1e-15."""
        mu = self.shift_wh / self.sigma_wh
        return mu**2 / 2 + mu * (8.3 + 1 / self.sigma_wh)

    @property
    def bounded(self) -> bool:
        """False: single outputs may have any loss."""
        return False

    def delta(self, epsilon: FloatArray) -> FloatArray:
        """Return delta at each epsilon, rounded upwards.

        Args:
            epsilon: Privacy losses, any shape, no unit.

        Returns:
            The probability delta, in the shape of `epsilon`.

        Example:
            >>> import murmurate as mm
            >>> import numpy as np
            >>> mm.GaussianCurve(1000, 3730.0).delta(np.array([0.5, 1.0])).round(4).tolist()
            [0.0041, 0.0]
        """
        core_wh = int(np.ceil(_GAUSSIAN_CORE_SIGMAS * self.sigma_wh))
        return HuberCurve(self.shift_wh, self.sigma_wh**2 / core_wh, core_wh).delta(epsilon)
