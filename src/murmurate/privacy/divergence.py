"""How well an output tells two worlds apart: privacy curves delta(epsilon), and the pairs of laws they come from.

For outputs with laws P and Q the curve is delta(epsilon) = sum over y of max(P(y) - e^epsilon Q(y), 0). A mechanism is
(epsilon, delta)-private for the pair iff the curves of (P, Q) and (Q, P) lie below delta at epsilon. Proofs:
`calibration.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.polynomial import chebyshev
from scipy.signal import lfilter
from scipy.special import ndtr

from murmurate.errors import ModelError
from murmurate.quantities import FloatArray

_REACH = 9.5  # standard deviations beyond which a Gaussian has less than 1e-20
_CELLS_PER_SIGMA = 1000
_DEGREE = 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Secret:
    """What a household may use when away and when home: two laws on 0, 1, .., bound [Wh].

    >>> Secret.of([0.5, 0.5, 0.0], [0.0, 0.5, 0.5]).bound_wh
    2
    """

    away: FloatArray  # [wh]
    home: FloatArray  # [wh]

    @classmethod
    def of(cls, away: object, home: object) -> Secret:
        return cls(away=np.asarray(away, np.float64), home=np.asarray(home, np.float64))

    @classmethod
    def anything_up_to(cls, bound_wh: int) -> Secret:
        """The worst pair on 0, .., bound: nothing against all of it. What `range` calibration assumes."""
        away, home = np.zeros(bound_wh + 1), np.zeros(bound_wh + 1)
        away[0] = home[-1] = 1.0
        return cls(away=away, home=home)

    def __post_init__(self) -> None:
        if self.away.shape != self.home.shape or self.away.ndim != 1 or len(self.away) < 2:
            shapes = (self.away.shape, self.home.shape)
            raise ModelError(
                "secret", shapes, "away and home must be laws on the same 0, 1, .., bound [Wh], bound >= 1"
            )
        for name, law in (("away", self.away), ("home", self.home)):
            if not ((law >= 0).all() and abs(law.sum() - 1) <= 1e-9):
                raise ModelError(name, f"{law.sum():.12g}", "must be probabilities that sum to 1")

    @property
    def bound_wh(self) -> int:
        return len(self.away) - 1

    def shift_wh(self) -> int:
        """How far apart the two are at equal rank: sup over q of |Q_home(q) - Q_away(q)| [Wh] (infinity-Wasserstein).

        Where rounding makes two ranks differ that should be equal, the result errs upwards.
        """
        sums = [np.cumsum(law) for law in (self.away, self.home)]
        below = [law / law[-1] for law in sums]
        ranks = np.unique(np.concatenate(below))
        ranks = ranks[ranks > 0]
        quantiles = [np.searchsorted(law, ranks, side="left") for law in below]
        return int(np.abs(quantiles[0] - quantiles[1]).max())


class Curve(Protocol):
    """delta as a function of epsilon, for one pair of worlds and both directions of telling them apart."""

    @property
    def reach(self) -> float:
        """The epsilon beyond which delta is negligible (below 1e-15)."""
        ...

    def delta(self, epsilon: FloatArray) -> FloatArray: ...


@dataclass(frozen=True, slots=True, eq=False)
class PairCurve:
    """The larger of the two curves of a pair of laws on finitely many outputs.

    >>> fair = PairCurve(np.array([0.75, 0.25]), np.array([0.25, 0.75]))
    >>> fair.delta(np.array([0.0, np.log(3)])).round(12).tolist()
    [0.5, 0.0]
    """

    one: FloatArray  # [output]
    other: FloatArray  # [output]

    @property
    def reach(self) -> float:
        both = (self.one > 0) & (self.other > 0)
        return float(np.abs(np.log(self.one[both] / self.other[both])).max(initial=0.0))

    def delta(self, epsilon: FloatArray) -> FloatArray:
        return np.maximum(_hockey_stick(self.one, self.other, epsilon), _hockey_stick(self.other, self.one, epsilon))


def _hockey_stick(p: FloatArray, q: FloatArray, epsilon: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.where(p > 0, np.log(p) - np.log(q), -np.inf)
    order = np.argsort(loss)
    above = [np.append(np.cumsum(law[order][::-1])[::-1], 0.0) for law in (p, q)]
    first = np.searchsorted(loss[order], epsilon, side="right")
    delta: FloatArray = np.clip(above[0][first] - np.exp(epsilon) * above[1][first], 0.0, 1.0)
    return delta


@dataclass(frozen=True, slots=True, eq=False)
class PureCurve:
    """The worst curve of anything that is epsilon-private: randomised response (Kairouz, Oh, Viswanath 2015)."""

    epsilon: float

    @property
    def reach(self) -> float:
        return self.epsilon

    def delta(self, epsilon: FloatArray) -> FloatArray:
        truth = 1 / (1 + np.exp(-self.epsilon))
        law = np.array([truth, 1 - truth])
        return _hockey_stick(law, law[::-1], epsilon)


@dataclass(frozen=True, slots=True, eq=False)
class GaussianCurve:
    """Discrete Gaussian noise of deviation sigma on demands that differ by a whole `shift` [Wh].

    delta = Pr[Y >= m] - e^epsilon Pr[Y >= m + shift], m the first whole number above epsilon sigma^2/shift - shift/2;
    the tails of the lattice are bounded by those of the line, each on its safe side (`calibration.md`).

    >>> float(GaussianCurve(1000, 3730.0).delta(np.array([1.0]))[0]) < 1.1e-5
    True
    """

    shift_wh: int
    sigma_wh: float

    @property
    def reach(self) -> float:
        mu = self.shift_wh / self.sigma_wh
        return mu**2 / 2 + mu * (8.3 + 1 / self.sigma_wh)

    def delta(self, epsilon: FloatArray) -> FloatArray:
        first = np.floor(epsilon * self.sigma_wh**2 / self.shift_wh - self.shift_wh / 2) + 1
        delta: FloatArray = self._tail_at_most(first) - np.exp(epsilon) * self._tail_at_least(first + self.shift_wh)
        return np.clip(delta, 0.0, 1.0)

    def _tail_at_most(self, first: FloatArray) -> FloatArray:
        """An upper bound on Pr[Y >= first]."""
        near = 1 - self._far_at_least(1 - first)
        bound: FloatArray = np.where(first >= 1, ndtr(-(first - 1) / self.sigma_wh), near)
        return bound

    def _tail_at_least(self, first: FloatArray) -> FloatArray:
        """A lower bound on Pr[Y >= first]."""
        bound: FloatArray = np.where(first >= 1, self._far_at_least(first), 1 - ndtr(first / self.sigma_wh))
        return bound

    def _far_at_least(self, first: FloatArray) -> FloatArray:
        far: FloatArray = ndtr(-first / self.sigma_wh) / (1 + 3 * np.exp(-2 * (np.pi * self.sigma_wh) ** 2))
        return far


def laplace_smooth(law: FloatArray, scale_wh: float) -> FloatArray:
    """(f * k)(y) for y = 0, .., bound with k(y) = e^(-|y|/b): two exponential filters, O(bound)."""
    ratio = np.exp(-1 / scale_wh)
    rising = lfilter([1.0], [1.0, -ratio], law)
    falling = lfilter([1.0], [1.0, -ratio], law[::-1])[::-1]
    smooth: FloatArray = rising + falling - law
    return smooth


def laplace_curve(secret: Secret, scale_wh: float) -> PairCurve:
    """Laws of the published demand, away and home, under discrete Laplace noise; each tail is one output.

    Beyond 0 and bound the likelihood ratio is constant, so pooling a tail loses nothing.
    """
    ratio = np.exp(-1 / scale_wh)
    laws = []
    for law in (secret.away, secret.home):
        inner = laplace_smooth(law, scale_wh) * (1 - ratio) / (1 + ratio)
        tails = inner[[0, -1]] * ratio / (1 - ratio)
        laws.append(np.concatenate([tails[:1], inner, tails[1:]]))
    return PairCurve(laws[0], laws[1])


def gaussian_curve(secret: Secret, sigma_wh: float) -> PairCurve:
    """Laws of the published demand, away and home, under discrete Gaussian noise, on cells of a few Wh.

    With phi the noise, (f * phi)(y) = phi(y) E_f[e^((2xy - x^2)/(2 sigma^2))]. The factor beside phi is smooth, so it
    is evaluated at Chebyshev nodes and interpolated; cells are at most sigma/1000 wide.
    """
    cell = max(1, int(sigma_wh / _CELLS_PER_SIGMA))
    half = int(_REACH * sigma_wh / cell) * cell + secret.bound_wh
    y = np.arange(-half, half + secret.bound_wh + 1, cell, dtype=np.float64)
    noise = np.exp(-((y / sigma_wh) ** 2) / 2)
    laws = [noise * _tilt(law, y, sigma_wh) for law in (secret.away, secret.home)]
    return PairCurve(laws[0] / laws[0].sum(), laws[1] / laws[1].sum())


def _tilt(law: FloatArray, y: FloatArray, sigma_wh: float) -> FloatArray:
    """E_f[e^((2xy - x^2)/(2 sigma^2))] at every y: its logarithm is analytic, so a Chebyshev series suffices."""
    middle, radius = (y[0] + y[-1]) / 2, (y[-1] - y[0]) / 2
    x, weight = np.flatnonzero(law).astype(np.float64), law[law > 0]

    def log_mean(at: FloatArray) -> FloatArray:
        exponent = (2 * x * (middle + radius * at)[:, None] - x * x) / (2 * sigma_wh**2)
        peak = exponent.max(axis=1, keepdims=True)
        found: FloatArray = np.log(np.exp(exponent - peak) @ weight) + peak[:, 0]
        return found

    degree = _DEGREE + int(100 * len(law) / sigma_wh)
    series: FloatArray = np.asarray(chebyshev.chebinterpolate(log_mean, min(degree, 2000)))  # type: ignore[type-var]
    tilt: FloatArray = np.exp(chebyshev.chebval((y - middle) / radius, series))
    return tilt
