"""Less noise for stronger assumptions: hide two declared distributions of consumption, not every use up to a bound.

Research only. The product measures noise by the bound u of a household, the paper's own rule, and assumes nothing about
what the household uses below it. Three rules that assume more need less noise (docs/explanation/theory.md, section 3):

- `shift`: the distance of the two distributions at equal rank. A household's rank among its own readings must not
  depend on who is home.
- `exact`: the likelihood ratio of the two distributions. Readings must follow them, at every hour, without memory.
- `robust`: the same for all distributions that are wrong by a share eta.

No test of a sample can show that a household keeps to them, so no promise is made with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.polynomial import chebyshev

from murmurate.privacy.calibration import laplace_scale, min_scale
from murmurate.privacy.divergence import SecretPair
from murmurate.privacy.noise import MIN_SCALE_WH
from murmurate.units import FloatArray, round_down_to_double

RULES = ("range", "shift", "exact")  # from the least assumption to the strongest
_SAFETY_MARGIN = 1e-9  # relative; the loss is computed to about 1e-12
_GAUSSIAN_TAIL_SIGMAS = 9.5  # standard deviations beyond which a Gaussian has less than 1e-20
_CELLS_PER_SIGMA = 10_000
_CHEBYSHEV_NODES, _MAX_CHEBYSHEV_NODES = 64, 2000


def calibrate_scale(pair: SecretPair, epsilon: Fraction, rule: str, eta: float = 0.0) -> float:
    """Return the least scale b [Wh] of discrete Laplace noise that hides the pair within e^epsilon, at least 1 Wh.

    `robust` is `exact` with a share `eta` of contamination. The result is rounded up.

    >>> pair = SecretPair.from_pmfs([1 / 501] * 501 + [0] * 500, [1 / 1001] * 1001)  # U(0, u/2) and U(0, u), u = 1000
    >>> [round(calibrate_scale(pair, Fraction(1, 2), rule)) for rule in RULES]
    [2000, 1000, 601]
    """
    if rule in {"range", "shift"}:
        return max(laplace_scale(pair.bound_wh if rule == "range" else shift_wh(pair), epsilon), MIN_SCALE_WH)
    target = round_down_to_double(epsilon) * (1 - _SAFETY_MARGIN)
    return min_scale(lambda scale: max_loss(pair, scale, eta) <= target, laplace_scale(pair.bound_wh, epsilon))


def max_loss(pair: SecretPair, scale_wh: float, eta: float = 0.0) -> float:
    """Return the largest log likelihood ratio under discrete Laplace noise and eta-contaminated distributions.

    sup over y in 0..u of log [((1-eta)(f_s*k)(y) + eta) / ((1-eta)(f_r*k)(y) + eta e^(-max(y, u-y)/b))], both ways
    round; outside 0..u the ratio is that of the nearer end. eta = 0 is `exact`; eta = 1 gives u/b, which is `range`.

    >>> round(max_loss(SecretPair.worst_case(1000), 2000.0), 9)
    0.5
    """
    wh = np.arange(pair.bound_wh + 1)
    min_kernel = np.exp(-np.maximum(wh, pair.bound_wh - wh) / scale_wh)
    away, home = ((1 - eta) * _convolve_laplace_kernel(pmf, scale_wh) for pmf in (pair.away, pair.home))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        losses = [np.log((p + eta) / (q + eta * min_kernel)) for p, q in ((home, away), (away, home))]
    worst = np.where(np.isnan(losses), np.inf, losses).max()  # 0/0: too little noise to compute
    return max(float(worst), 0.0)


@lru_cache(maxsize=1024)
def shift_wh(pair: SecretPair) -> int:
    """Return the infinity-Wasserstein distance sup over q of |Q_home(q) - Q_away(q)| [Wh].

    The sums are exact, so every probability counts, however small. If the caller rounded two equal ranks apart, the
    result errs upwards.
    """
    (away_wh, away), (home_wh, home) = _exact_sums(pair.away), _exact_sums(pair.home)
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


def _convolve_laplace_kernel(pmf: FloatArray, scale_wh: float) -> FloatArray:
    """Return (f * k)(y) for y = 0, .., bound and k(y) = e^(-|y|/b), by two exponential filters in O(bound)."""
    ratio = float(np.exp(-1 / scale_wh))
    smooth: FloatArray = _decaying_sum(pmf, ratio) + _decaying_sum(pmf[::-1], ratio)[::-1] - pmf
    return smooth


def _decaying_sum(values: FloatArray, ratio: float) -> FloatArray:
    """Return y with y[n] = values[n] + ratio y[n-1]."""
    return np.fromiter(accumulate(values.tolist(), lambda before, value: value + ratio * before), np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class PairCurve:
    """The larger of the two curves of a pair of laws on finitely many outputs.

    >>> fair = PairCurve(np.array([0.75, 0.25]), np.array([0.25, 0.75]))
    >>> fair.delta(np.array([0.0, np.log(3)])).round(12).tolist()
    [0.5, 0.0]
    """

    p: FloatArray  # [output]
    q: FloatArray  # [output]
    bounded: bool = True  # False if omitted outputs may have a larger loss

    def __post_init__(self) -> None:
        if ((self.p > 0) != (self.q > 0)).any():
            object.__setattr__(self, "bounded", False)

    @property
    def max_loss(self) -> float:
        both = (self.p > 0) & (self.q > 0)
        worst = float(np.abs(np.log(self.p[both] / self.q[both])).max(initial=0.0))
        return (
            worst if worst or self.bounded else 1.0
        )  # an output with probability 0 under one distribution is never free

    def delta(self, epsilon: FloatArray) -> FloatArray:
        directions = (self.p, self.q), (self.q, self.p)
        worse: FloatArray = np.maximum(*(_hockey_stick(p, q, epsilon) for p, q in directions))
        return worse


def _hockey_stick(p: FloatArray, q: FloatArray, epsilon: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.where(p > 0, np.log(p) - np.log(q), -np.inf)
    order = np.argsort(loss, kind="stable")  # fast on sorted input, the usual case
    above = [np.append(np.cumsum(pmf[order][::-1])[::-1], 0.0) for pmf in (p, q)]
    first = np.searchsorted(loss[order], epsilon, side="right")
    delta: FloatArray = np.clip(above[0][first] - np.exp(epsilon) * above[1][first], 0.0, 1.0)
    return delta


def laplace_pair_curve(pair: SecretPair, scale_wh: float) -> PairCurve:
    """Return the curve of the published demand, away and home, under discrete Laplace noise; each tail is one output.

    Beyond 0 and bound the likelihood ratio is constant, so pooling a tail loses nothing.
    """
    ratio = np.exp(-1 / scale_wh)
    output_pmfs = []
    for pmf in (pair.away, pair.home):
        inner = _convolve_laplace_kernel(pmf, scale_wh) * (1 - ratio) / (1 + ratio)
        tails = inner[[0, -1]] * ratio / (1 - ratio)
        output_pmfs.append(np.concatenate([tails[:1], inner, tails[1:]]))
    return PairCurve(output_pmfs[0], output_pmfs[1])


@dataclass(frozen=True, slots=True, eq=False)
class PooledCurve:
    """An upper bound on a curve whose outputs stand for several, weighted right up to a factor e^(error/2).

    delta(epsilon) is at most e^(error/2) times the curve of the pooled weights at epsilon - error: each sum over a pool
    is off by that factor at most, in numerator and denominator.
    """

    pooled: PairCurve
    log_ratio_error: float
    bounded: bool = False

    @property
    def max_loss(self) -> float:
        """The epsilon beyond which delta is negligible."""
        return self.pooled.max_loss + self.log_ratio_error

    def delta(self, epsilon: FloatArray) -> FloatArray:
        """Return delta at each epsilon, rounded upwards."""
        worse = self.pooled.delta(epsilon - self.log_ratio_error)
        bound: FloatArray = np.minimum(np.exp(self.log_ratio_error / 2) * worse, 1.0)
        return bound


def gaussian_pair_curve(pair: SecretPair, sigma_wh: float) -> PooledCurve:
    """Return an upper bound on the curve of the published demand, away and home, under discrete Gaussian noise.

    With phi the noise, (f * phi)(y) = phi(y) E_f[e^((2xy - x^2)/(2 sigma^2))]. The factor beside phi is smooth, so it
    is evaluated at Chebyshev nodes and interpolated. Outputs are pooled in cells of at most sigma/10000.
    """
    cell = max(1, int(sigma_wh / _CELLS_PER_SIGMA))
    half = int(_GAUSSIAN_TAIL_SIGMAS * sigma_wh / cell) * cell + pair.bound_wh
    y = np.arange(-half, half + pair.bound_wh + 1, cell, dtype=np.float64) + np.float64(cell - 1) / 2
    total = sigma_wh * np.sqrt(2 * np.pi) * (1 + 2 * np.exp(-2 * (np.pi * sigma_wh) ** 2))
    noise = np.log(cell / total * np.cosh(y * (cell - 1) / (2 * sigma_wh**2))) - (y / sigma_wh) ** 2 / 2
    (away, away_error), (home, home_error) = (_log_tilt(pmf, y, sigma_wh) for pmf in (pair.away, pair.home))
    error = (cell - 1) * pair.bound_wh / sigma_wh**2 + 2 * max(away_error, home_error)
    return PooledCurve(PairCurve(np.exp(noise + away), np.exp(noise + home), bounded=False), error)


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
