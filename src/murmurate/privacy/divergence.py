"""How well an output tells two worlds apart: privacy curves delta(epsilon), and the pairs of laws they come from.

For outputs with laws P and Q the curve is delta(epsilon) = sum over y of max(P(y) - e^epsilon Q(y), 0). A mechanism is
(epsilon, delta)-private for the pair iff the curves of (P, Q) and (Q, P) lie below delta at epsilon. Proofs:
`calibration.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Protocol

import numpy as np
from numpy.polynomial import chebyshev
from scipy.fft import dct
from scipy.signal import lfilter

from murmurate.errors import ModelError
from murmurate.privacy.huber import HuberCurve
from murmurate.quantities import FloatArray

_WHOLE = 38.0  # deviations beyond which a Gaussian has less than any double
_REACH = 9.5  # standard deviations beyond which a Gaussian has less than 1e-20
_CELLS_PER_SIGMA = 10_000
_NODES, _LARGEST_NODES = 64, 2000


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

        The sums are exact, so no share of a law is too small to count. Where two ranks that should be equal were
        rounded apart before they came here, the result errs upwards.
        """
        return _shift_wh(self)


@lru_cache(maxsize=1024)
def _shift_wh(secret: Secret) -> int:
    (away_wh, away), (home_wh, home) = _exact_sums(secret.away), _exact_sums(secret.home)
    i = j = worst = 0
    while i < len(away) and j < len(home):
        worst = max(worst, abs(away_wh[i] - home_wh[j]))
        one, other = away[i] * home[-1], home[j] * away[-1]
        i, j = i + (one <= other), j + (other <= one)
    return worst


def _exact_sums(law: FloatArray) -> tuple[list[int], list[int]]:
    """Where a law has mass [Wh], and the mass up to there: its doubles are multiples of a power of two, and add up."""
    where = np.flatnonzero(law)
    ratios = [share.as_integer_ratio() for share in law[where].tolist()]
    finest = max(below for _, below in ratios)
    return where.tolist(), list(accumulate(above * (finest // below) for above, below in ratios))


class Curve(Protocol):
    """delta as a function of epsilon, for one pair of worlds and both directions of telling them apart."""

    @property
    def reach(self) -> float:
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

    one: FloatArray  # [output]
    other: FloatArray  # [output]
    bounded: bool = True  # False where outputs that are left out may lose more
    blur: float = 0.0

    def __post_init__(self) -> None:
        if ((self.one > 0) != (self.other > 0)).any():
            object.__setattr__(self, "bounded", False)

    @property
    def reach(self) -> float:
        both = (self.one > 0) & (self.other > 0)
        worst = float(np.abs(np.log(self.one[both] / self.other[both])).max(initial=0.0)) + self.blur
        return worst if worst or self.bounded else 1.0  # outputs that one world alone has never count as free

    def delta(self, epsilon: FloatArray) -> FloatArray:
        directions = (self.one, self.other), (self.other, self.one)
        worse = np.maximum(*(_hockey_stick(p, q, epsilon - self.blur) for p, q in directions))
        bound: FloatArray = np.minimum(np.exp(self.blur / 2) * worse, 1.0)
        return bound


def _hockey_stick(p: FloatArray, q: FloatArray, epsilon: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.where(p > 0, np.log(p) - np.log(q), -np.inf)
    order = np.argsort(loss, kind="stable")  # quick where it is in order, as it mostly is
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

    @property
    def bounded(self) -> bool:
        return True

    def delta(self, epsilon: FloatArray) -> FloatArray:
        truth = 1 / (1 + np.exp(-self.epsilon))
        law = np.array([truth, 1 - truth])
        return _hockey_stick(law, law[::-1], epsilon)


@dataclass(frozen=True, slots=True, eq=False)
class GaussianCurve:
    """Discrete Gaussian noise of deviation sigma on demands that differ by a whole `shift` [Wh].

    It is the curve of Huber noise whose core ends 38 deviations out, where e^(-x^2/(2 sigma^2)) is below 1e-313; but
    its losses grow without end, so it is not bounded (`calibration.md`).

    >>> float(GaussianCurve(1000, 3730.0).delta(np.array([1.0]))[0]) < 1.1e-5
    True
    """

    shift_wh: int
    sigma_wh: float

    @property
    def reach(self) -> float:
        mu = self.shift_wh / self.sigma_wh
        return mu**2 / 2 + mu * (8.3 + 1 / self.sigma_wh)

    @property
    def bounded(self) -> bool:
        return False

    def delta(self, epsilon: FloatArray) -> FloatArray:
        core_wh = int(np.ceil(_WHOLE * self.sigma_wh))
        return HuberCurve(self.shift_wh, self.sigma_wh**2 / core_wh, core_wh).delta(epsilon)


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
    """An upper bound on the curve of the published demand, away and home, under discrete Gaussian noise.

    With phi the noise, (f * phi)(y) = phi(y) E_f[e^((2xy - x^2)/(2 sigma^2))]. The factor beside phi is smooth, so it
    is evaluated at Chebyshev nodes and interpolated. Outputs are pooled in cells of at most sigma/10000.
    """
    cell = max(1, int(sigma_wh / _CELLS_PER_SIGMA))
    half = int(_REACH * sigma_wh / cell) * cell + secret.bound_wh
    y = np.arange(-half, half + secret.bound_wh + 1, cell, dtype=np.float64) + np.float64(cell - 1) / 2
    total = sigma_wh * np.sqrt(2 * np.pi) * (1 + 2 * np.exp(-2 * (np.pi * sigma_wh) ** 2))
    noise = np.log(cell / total * np.cosh(y * (cell - 1) / (2 * sigma_wh**2))) - (y / sigma_wh) ** 2 / 2
    (away, one_off), (home, other_off) = (_log_tilt(law, y, sigma_wh) for law in (secret.away, secret.home))
    blur = (cell - 1) * secret.bound_wh / sigma_wh**2 + 2 * max(one_off, other_off)
    return PairCurve(np.exp(noise + away), np.exp(noise + home), bounded=False, blur=blur)


def _log_tilt(law: FloatArray, y: FloatArray, sigma_wh: float) -> tuple[FloatArray, float]:
    """log E_f[e^((2xy - x^2)/(2 sigma^2))] at every y, and its largest error: analytic, so a Chebyshev series suffices.

    The error is measured halfway between the nodes, where it is largest, and doubled.
    """
    middle, radius = (y[0] + y[-1]) / 2, (y[-1] - y[0]) / 2
    x, weight = np.flatnonzero(law).astype(np.float64), law[law > 0]

    def log_mean(at: FloatArray) -> FloatArray:
        exponent = (2 * x * (middle + radius * at)[:, None] - x * x) / (2 * sigma_wh**2)
        peak = exponent.max(axis=1, keepdims=True)
        found: FloatArray = np.log(np.exp(exponent - peak) @ weight) + peak[:, 0]
        return found

    nodes = min(_NODES + int(100 * len(law) / sigma_wh), _LARGEST_NODES)
    if len(y) <= 2 * nodes:
        return log_mean((y - middle) / radius), 0.0
    series = dct(log_mean(np.cos(np.pi * (np.arange(nodes) + 0.5) / nodes))) / nodes
    series[0] /= 2
    series = chebyshev.chebtrim(series, 1e-16 * np.abs(series).max())
    between = np.cos(np.pi * np.arange(nodes + 1) / nodes)
    off = np.abs(chebyshev.chebval(between, series) - log_mean(between)).max()
    tilt: FloatArray = chebyshev.chebval((y - middle) / radius, series)
    return tilt, 2 * float(off)
