"""Privacy curves delta(epsilon), and the pairs of distributions that they are computed from.

For outputs with distributions P and Q the curve is delta(epsilon) = sum over y of max(P(y) - e^epsilon Q(y), 0).
A mechanism is (epsilon, delta)-private for the pair iff the curves of (P, Q) and (Q, P) lie below delta at epsilon.
Proofs: `calibration.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Protocol

import numpy as np
from numpy.polynomial import chebyshev

from murmurate.errors import ModelError
from murmurate.privacy.huber import HuberCurve
from murmurate.units import FloatArray

_GAUSSIAN_CORE_SIGMAS = 38.0  # standard deviations beyond which the weight is below any double
_GAUSSIAN_TAIL_SIGMAS = 9.5  # standard deviations beyond which a Gaussian has less than 1e-20
_CELLS_PER_SIGMA = 10_000
_CHEBYSHEV_NODES, _MAX_CHEBYSHEV_NODES = 64, 2000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SecretPair:
    """The distributions of a household's consumption when away and when home, on 0, 1, .., bound [Wh].

    >>> SecretPair.from_pmfs([0.5, 0.5, 0.0], [0.0, 0.5, 0.5]).bound_wh
    2
    """

    away: FloatArray  # [wh]
    home: FloatArray  # [wh]

    @classmethod
    def from_pmfs(cls, away: object, home: object) -> SecretPair:
        return cls(away=np.asarray(away, np.float64), home=np.asarray(home, np.float64))

    @classmethod
    def worst_case(cls, bound_wh: int) -> SecretPair:
        """Return the worst pair on 0, .., bound: always 0 when away, always the bound when home (`range`)."""
        away, home = np.zeros(bound_wh + 1), np.zeros(bound_wh + 1)
        away[0] = home[-1] = 1.0
        return cls(away=away, home=home)

    def __post_init__(self) -> None:
        if self.away.shape != self.home.shape or self.away.ndim != 1 or len(self.away) < 2:
            shapes = (self.away.shape, self.home.shape)
            raise ModelError(
                "secret", shapes, "away and home must be distributions on the same 0, 1, .., bound [Wh], bound >= 1"
            )
        for name, pmf in (("away", self.away), ("home", self.home)):
            if not ((pmf >= 0).all() and abs(pmf.sum() - 1) <= 1e-9):
                raise ModelError(name, f"{pmf.sum():.12g}", "must be probabilities that sum to 1")

    @property
    def bound_wh(self) -> int:
        return len(self.away) - 1

    def shift_wh(self) -> int:
        """Return the infinity-Wasserstein distance sup over q of |Q_home(q) - Q_away(q)| [Wh].

        The sums are exact, so every probability counts, however small. If the caller rounded two equal ranks apart,
        the result errs upwards.
        """
        return _shift_wh(self)


@lru_cache(maxsize=1024)
def _shift_wh(secret_pair: SecretPair) -> int:
    (away_wh, away), (home_wh, home) = _exact_sums(secret_pair.away), _exact_sums(secret_pair.home)
    i = j = worst = 0
    while i < len(away) and j < len(home):
        worst = max(worst, abs(away_wh[i] - home_wh[j]))
        away_rank, home_rank = away[i] * home[-1], home[j] * away[-1]
        i, j = i + (away_rank <= home_rank), j + (home_rank <= away_rank)
    return worst


def _exact_sums(pmf: FloatArray) -> tuple[list[int], list[int]]:
    """Return the support of a distribution [Wh] and its cumulative sums as exact integers over a common power of 2."""
    support = np.flatnonzero(pmf)
    ratios = [share.as_integer_ratio() for share in pmf[support].tolist()]
    finest = max(below for _, below in ratios)
    return support.tolist(), list(accumulate(above * (finest // below) for above, below in ratios))


class PrivacyCurve(Protocol):
    """delta as a function of epsilon, for one pair of worlds and both directions of telling them apart."""

    @property
    def max_loss(self) -> float:
        """The epsilon beyond which delta is negligible (below 1e-15)."""
        ...

    @property
    def bounded(self) -> bool:
        """Whether no output at all has a loss beyond `reach`; pure promises need it."""
        ...

    def delta(self, epsilon: FloatArray) -> FloatArray: ...


@dataclass(frozen=True, slots=True, eq=False)
class PairCurve:
    """The larger of the two curves of a pair of laws on finitely many outputs.

    Where an output stands for several, whose weights for one and for other are off by a factor of at most e^(blur/2),
    the result is an upper bound: e^(blur/2) times the curve at epsilon - blur (`calibration.md`).

    >>> fair = PairCurve(np.array([0.75, 0.25]), np.array([0.25, 0.75]))
    >>> fair.delta(np.array([0.0, np.log(3)])).round(12).tolist()
    [0.5, 0.0]
    """

    p: FloatArray  # [output]
    q: FloatArray  # [output]
    bounded: bool = True  # False if omitted outputs may have a larger loss
    log_ratio_error: float = 0.0

    def __post_init__(self) -> None:
        if ((self.p > 0) != (self.q > 0)).any():
            object.__setattr__(self, "bounded", False)

    @property
    def max_loss(self) -> float:
        both = (self.p > 0) & (self.q > 0)
        worst = float(np.abs(np.log(self.p[both] / self.q[both])).max(initial=0.0)) + self.log_ratio_error
        return (
            worst if worst or self.bounded else 1.0
        )  # an output with probability 0 under one distribution is never free

    def delta(self, epsilon: FloatArray) -> FloatArray:
        directions = (self.p, self.q), (self.q, self.p)
        worse = np.maximum(*(_hockey_stick(p, q, epsilon - self.log_ratio_error) for p, q in directions))
        bound: FloatArray = np.minimum(np.exp(self.log_ratio_error / 2) * worse, 1.0)
        return bound


def _hockey_stick(p: FloatArray, q: FloatArray, epsilon: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.where(p > 0, np.log(p) - np.log(q), -np.inf)
    order = np.argsort(loss, kind="stable")  # fast on sorted input, the usual case
    above = [np.append(np.cumsum(pmf[order][::-1])[::-1], 0.0) for pmf in (p, q)]
    first = np.searchsorted(loss[order], epsilon, side="right")
    delta: FloatArray = np.clip(above[0][first] - np.exp(epsilon) * above[1][first], 0.0, 1.0)
    return delta


@dataclass(frozen=True, slots=True, eq=False)
class PureDpCurve:
    """The worst curve of anything that is epsilon-private: randomised response (Kairouz, Oh, Viswanath 2015)."""

    epsilon: float

    @property
    def max_loss(self) -> float:
        return self.epsilon

    @property
    def bounded(self) -> bool:
        return True

    def delta(self, epsilon: FloatArray) -> FloatArray:
        truth = 1 / (1 + np.exp(-self.epsilon))
        response = np.array([truth, 1 - truth])
        return _hockey_stick(response, response[::-1], epsilon)


@dataclass(frozen=True, slots=True, eq=False)
class GaussianCurve:
    """The privacy curve delta(epsilon) of discrete Gaussian noise, for two demands that differ by `shift_wh`.

    It is the curve of Huber noise whose core ends 38 deviations out, where e^(-x^2/(2 sigma^2)) is below 1e-313. Its
    losses grow without end, so it is not bounded (`calibration.md`).

    Attributes:
        shift_wh: Difference of the two demands, a whole number, 0 or more [Wh].
        sigma_wh: Standard deviation of the noise, positive [Wh].

    Example:
        >>> import murmurate as mm
        >>> import numpy as np
        >>> float(mm.GaussianCurve(1000, 3730.0).delta(np.array([1.0]))[0]) < 1.1e-5
        True
    """

    shift_wh: int
    sigma_wh: float

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


def convolve_laplace_kernel(pmf: FloatArray, scale_wh: float) -> FloatArray:
    """Return (f * k)(y) for y = 0, .., bound and k(y) = e^(-|y|/b), by two exponential filters in O(bound)."""
    ratio = float(np.exp(-1 / scale_wh))
    falling = _decaying_sum(pmf[::-1], ratio)[::-1]
    smooth: FloatArray = _decaying_sum(pmf, ratio) + falling - pmf
    return smooth


def _decaying_sum(values: FloatArray, ratio: float) -> FloatArray:
    """Return y with y[n] = values[n] + ratio y[n-1]. (SciPy's filter does the same; to import it takes two seconds.)"""
    return np.fromiter(
        accumulate(values.tolist(), lambda before, value: value + ratio * before), np.float64, len(values)
    )


def laplace_curve(secret_pair: SecretPair, scale_wh: float) -> PairCurve:
    """Laws of the published demand, away and home, under discrete Laplace noise; each tail is one output.

    Beyond 0 and bound the likelihood ratio is constant, so pooling a tail loses nothing.
    """
    ratio = np.exp(-1 / scale_wh)
    output_pmfs = []
    for pmf in (secret_pair.away, secret_pair.home):
        inner = convolve_laplace_kernel(pmf, scale_wh) * (1 - ratio) / (1 + ratio)
        tails = inner[[0, -1]] * ratio / (1 - ratio)
        output_pmfs.append(np.concatenate([tails[:1], inner, tails[1:]]))
    return PairCurve(output_pmfs[0], output_pmfs[1])


def gaussian_curve(secret_pair: SecretPair, sigma_wh: float) -> PairCurve:
    """An upper bound on the curve of the published demand, away and home, under discrete Gaussian noise.

    With phi the noise, (f * phi)(y) = phi(y) E_f[e^((2xy - x^2)/(2 sigma^2))]. The factor beside phi is smooth, so it
    is evaluated at Chebyshev nodes and interpolated. Outputs are pooled in cells of at most sigma/10000.
    """
    cell = max(1, int(sigma_wh / _CELLS_PER_SIGMA))
    half = int(_GAUSSIAN_TAIL_SIGMAS * sigma_wh / cell) * cell + secret_pair.bound_wh
    y = np.arange(-half, half + secret_pair.bound_wh + 1, cell, dtype=np.float64) + np.float64(cell - 1) / 2
    total = sigma_wh * np.sqrt(2 * np.pi) * (1 + 2 * np.exp(-2 * (np.pi * sigma_wh) ** 2))
    noise = np.log(cell / total * np.cosh(y * (cell - 1) / (2 * sigma_wh**2))) - (y / sigma_wh) ** 2 / 2
    (away, away_error), (home, home_error) = (
        _log_tilt(pmf, y, sigma_wh) for pmf in (secret_pair.away, secret_pair.home)
    )
    log_ratio_error = (cell - 1) * secret_pair.bound_wh / sigma_wh**2 + 2 * max(away_error, home_error)
    return PairCurve(np.exp(noise + away), np.exp(noise + home), bounded=False, log_ratio_error=log_ratio_error)


def _log_tilt(pmf: FloatArray, y: FloatArray, sigma_wh: float) -> tuple[FloatArray, float]:
    """Return log E_f[e^((2xy - x^2)/(2 sigma^2))] at every y, and its largest error, by a Chebyshev series.

    The function is analytic. The error is measured halfway between the nodes, where it is largest, and doubled.
    """
    middle, radius = (y[0] + y[-1]) / 2, (y[-1] - y[0]) / 2
    x, weight = np.flatnonzero(pmf).astype(np.float64), pmf[pmf > 0]

    def log_mean(at: FloatArray) -> FloatArray:
        exponent = (2 * x * (middle + radius * at)[:, None] - x * x) / (2 * sigma_wh**2)
        peak = exponent.max(axis=1, keepdims=True)
        log_expectation: FloatArray = np.log(np.exp(exponent - peak) @ weight) + peak[:, 0]
        return log_expectation

    nodes = min(_CHEBYSHEV_NODES + int(100 * len(pmf) / sigma_wh), _MAX_CHEBYSHEV_NODES)
    if len(y) <= 2 * nodes:
        return log_mean((y - middle) / radius), 0.0
    coefficients = np.asarray(chebyshev.chebinterpolate(log_mean, nodes - 1), np.float64)  # type: ignore[type-var]
    series = chebyshev.chebtrim(coefficients, 1e-16 * np.abs(coefficients).max())
    between = np.cos(np.pi * np.arange(nodes + 1) / nodes)
    error = np.abs(chebyshev.chebval(between, series) - log_mean(between)).max()
    tilt: FloatArray = chebyshev.chebval((y - middle) / radius, series)
    return tilt, 2 * float(error)
