"""The least possible noise compared with ours: a linear program over all additive noise.

    python -m research.optimal_noise_bound

A household uses U(0, v) at home and U(0, v/2) away, v any number up to the bound u (docs/explanation/theory.md,
section 3.4). With F the distribution function of the noise, an output y keeps the promise epsilon iff

    F(y) - F(y-v) <= 2 e^epsilon (F(y) - F(y-v/2))   and   2 (F(y) - F(y-v/2)) <= e^epsilon (F(y) - F(y-v)),

linear in F. For noise with a constant density on cells of width u/n, n even, both sides are linear between whole y and
v (in cells; F is interpolated at y-v/2), so whole y and v prove all others. Beyond the grid each cell holds a fixed
share of the one before, where each inequality is a multiple of that at the edge. The least variance is thus a finite
program:

- its solution is noise that keeps the promise: rounded and verified in fractions, it bounds the limit from above;
- with even v alone and free tails, the program holds for what any noise puts in each cell: it bounds the limit from
  below, as far as the solver is right. The variance is 1/12 (rounding to cells, at the best position of the grid) +
  1/4 (mean off 0) of a squared cell below the program's, at most.

Ends with status 1 if `exact` Laplace noise is more than 1.30 times the limit.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import exp, factorial, log, sqrt
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from murmurate.privacy.divergence import SecretPair
from murmurate.units import FloatArray
from research.consumption_laws import RULES, calibrate_scale

EPSILON = Fraction(1, 2)
CELLS = (10, 20, 40)
ALLOWED = 1.30
U_WH = 1000
PAPER = SecretPair.from_pmfs([1 / 501] * 501 + [0] * 500, [1 / 1001] * 1001)  # U(0, u/2) and U(0, u)
_GRID_EXTENT = (4, 7)  # of the grid left and right, in u
_MARGIN = 1e-4  # of epsilon, kept by the program for its own rounding


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Noise:
    """Noise of constant density on cells; the bound u is `cells` of them wide."""

    cells: int
    first: int  # the first edge [cells]
    below: tuple[Fraction, ...]  # [edge] Pr[noise <= edge]
    left: Fraction  # mass of a cell / that of the next inward, beyond the first edge
    right: Fraction  # the same, beyond the last edge

    def rms(self) -> float:
        """The standard deviation, in u: a known mean is subtracted after the noise."""
        zeroth, last = self.below[0], 1 - self.below[-1]
        moments = [
            sum(((b - a) * _cell(self.first + i, power) for i, (a, b) in enumerate(pairwise(self.below))), Fraction())
            + zeroth * _tail(-self.first, self.left, power) * (-1) ** power
            + last * _tail(self.first + len(self.below) - 1, self.right, power)
            for power in (1, 2)
        ]
        return sqrt(moments[1] - moments[0] ** 2) / self.cells

    def keeps(self, epsilon: Fraction) -> bool:
        """Whether the promise holds for every real v up to u and every real output: in fractions, without rounding.

        Never said of an odd number of cells, which whole outputs do not prove."""
        most = sum((epsilon**k / factorial(k) for k in range(25)), Fraction())  # just below e^epsilon
        n, zeroth, last = self.cells, self.below[0], 1 - self.below[-1]
        f = [zeroth * self.left**j for j in range(n, 0, -1)] + list(self.below)
        f += [1 - last * self.right**j for j in range(1, n + 1)]
        if n % 2 or not all(a < b for a, b in pairwise(f)):
            return False
        for v in range(1, n + 1):
            for y in range(v, len(f)):
                home, away = f[y] - f[y - v], 2 * f[y] - f[y - v // 2] - f[y - (v + 1) // 2]
                if home > most * away or away > most * home:
                    return False
        return True


def _cell(edge: int, power: int) -> Fraction:
    """E[x] or E[x^2], x uniform between an edge and the next."""
    return Fraction(2 * edge + 1, 2) if power == 1 else Fraction(3 * edge * (edge + 1) + 1, 3)


def _tail(edge: int, ratio: Any, power: int) -> Any:
    """E[x] or E[x^2] beyond an edge where each cell holds `ratio` of the one before."""
    mean = ratio / (1 - ratio)
    if power == 1:
        return edge + mean + Fraction(1, 2)
    square = mean * (1 + 2 * mean)
    return square + (2 * edge + 1) * mean + _cell(edge, 2)


def skew_scales(epsilon: float) -> tuple[float, float]:
    """Scales (left, right) of the steepest exponential tails that keep the promise, in u; epsilon < ln 2.

    A right tail distinguishes U(0, u) from U(0, u/2) by (e^(u/2b) + 1)/2, a left tail by (e^(-u/2b) + 1)/2. Laplace
    noise has the wider of the two tails, the right one, on both sides.

    >>> [round(scale, 4) for scale in skew_scales(0.5)]
    [0.3234, 0.6011]
    """
    return -1 / (2 * log(2 * exp(-epsilon) - 1)), 1 / (2 * log(2 * exp(epsilon) - 1))


def _ratios(cells: int, epsilon: float, symmetric: bool) -> tuple[float, float]:
    left, right = (exp(-1 / (cells * scale)) for scale in skew_scales(epsilon))
    return (right if symmetric else left), right


def skew_laplace(cells: int, epsilon: Fraction, *, symmetric: bool = False) -> Noise:
    """Two exponential tails back to back, each as steep as it may be, on cells; symmetric: `exact` Laplace."""
    left, right = (Fraction(ratio) for ratio in _ratios(cells, float(epsilon) * (1 - 1e-9), symmetric))
    share = (1 - right) / (2 - left - right)  # of the left: the cells beside 0 hold the same
    return Noise(cells=cells, first=0, below=(share,), left=left, right=right)


def _inequalities(cells: int, edges: int, epsilon: float, step: int) -> Any:
    """Rows A with A F <= 0 for F on so many edges: v = step, 2 step, .., both directions; F never falls."""
    f = sparse.identity(edges, format="csr")
    rows = [f[:-1] - f[1:]]
    for v in range(step, cells + 1, step):
        y = np.arange(v, edges)
        home, away = f[y] - f[y - v], 2 * f[y] - f[y - v // 2] - f[y - (v + 1) // 2]
        rows += [home - exp(epsilon) * away, away - exp(epsilon) * home]
    return sparse.vstack(rows, format="csr")


def _with_tails(cells: int, edges: int, ratios: tuple[float, float]) -> tuple[Any, FloatArray]:
    """(M, c): M F + c continues F by u on either side."""
    away = np.arange(1, cells + 1)
    left, right = ratios[0] ** away[::-1], ratios[1] ** away
    first, last = (sparse.csr_matrix((np.ones(1), ([0], [edge])), (1, edges)) for edge in (0, edges - 1))
    blocks = [
        sparse.csr_matrix(left[:, None]) @ first,
        sparse.identity(edges),
        sparse.csr_matrix(right[:, None]) @ last,
    ]
    return sparse.vstack(blocks, format="csr"), np.concatenate([np.zeros(cells + edges), 1 - right])


def _moment(first: int, edges: int, beyond: tuple[float, float], within: float) -> FloatArray:
    """Weights w with E[x^2] = w F + beyond[1]: `beyond` left and right of the grid, centre^2 + `within` in a cell."""
    weight = (first + np.arange(edges - 1) + 0.5) ** 2 + within
    return -np.diff(np.concatenate([beyond[:1], weight, beyond[1:]]))


def _solve(weight: FloatArray, rows: Any, most: FloatArray) -> tuple[float, FloatArray]:
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-9}
    solution = linprog(weight, A_ub=rows, b_ub=most, bounds=(0, 1), method="highs-ipm", options=options)
    if solution.status != 0:
        raise ArithmeticError(solution.message)
    return float(solution.fun), np.asarray(solution.x, np.float64)


def best_noise(cells: int, epsilon: Fraction, *, symmetric: bool = False) -> Noise:
    """The least variance of all noise on such cells, or of all that is symmetric."""
    promise = float(epsilon) * (1 - _MARGIN)
    ratios = _ratios(cells, promise, symmetric)
    left, right = (extent * cells for extent in ((_GRID_EXTENT[1],) * 2 if symmetric else _GRID_EXTENT))
    edges = left + right + 1
    tails = (float(_tail(left, ratios[0], 2)), float(_tail(right, ratios[1], 2)))
    weight = _moment(-left, edges, tails, 1 / 12)
    onward, constant = _with_tails(cells, edges, ratios)
    rows = _inequalities(cells, edges + 2 * cells, promise, 1)
    most = -rows @ constant
    rows = rows @ onward
    if symmetric:  # F(-x) = 1 - F(x): the left half decides
        half = sparse.identity(left, format="csr")
        fold = sparse.vstack([half, sparse.csr_matrix((1, left)), -half[::-1]], format="csr")
        rest = np.concatenate([np.zeros(left), [0.5], np.ones(left)])
        below = fold @ _solve(fold.T @ weight, rows @ fold, most - rows @ rest)[1] + rest
    else:
        below = _solve(weight, rows, most)[1]
    exact = tuple(Fraction(float(f)) for f in below)
    return Noise(cells=cells, first=-left, below=exact, left=Fraction(ratios[0]), right=Fraction(ratios[1]))


def no_less_than(cells: int, epsilon: Fraction) -> float:
    """An rms [u] that no additive noise of any shape goes below."""
    left, right = (extent * cells for extent in _GRID_EXTENT)
    edges = left + right + 1
    rows = _inequalities(cells, edges, float(epsilon), 2)
    beyond = float(left) ** 2, float(right) ** 2
    least = _solve(_moment(-left, edges, beyond, 0), rows, np.zeros(rows.shape[0]))[0] + beyond[1]
    return sqrt(least - 1 / 3) / cells


def laplace_rms(rule: str, epsilon: Fraction) -> float:
    """Of ours, in u."""
    return sqrt(2) * calibrate_scale(PAPER, epsilon, rule) / U_WH


def main() -> int:
    print("rms noise [u] that hides U(0, v) against U(0, v/2), every v <= u, in one interval; epsilon = 1/2")
    print("cells per u   any noise: at least    at most   symmetric: at most")
    kept = []
    for cells in CELLS:
        floor, free, mirrored = (
            no_less_than(cells, EPSILON),
            best_noise(cells, EPSILON),
            best_noise(cells, EPSILON, symmetric=True),
        )
        kept += [free.keeps(EPSILON), mirrored.keeps(EPSILON)]
        print(f"{cells:11d}   {floor:19.4f}   {free.rms():8.4f}   {mirrored.rms():18.4f}", flush=True)
    limit, skew = free.rms(), skew_laplace(CELLS[-1], EPSILON)
    kept.append(skew.keeps(EPSILON))
    print(f"every `at most` is a noise distribution verified in fractions: {'yes' if all(kept) else 'NO'}\n")
    rms_by_name = {f"`{rule}` Laplace": laplace_rms(rule, EPSILON) for rule in RULES}
    rms_by_name |= {
        "skew Laplace (verified likewise)": skew.rms(),
        "limit, symmetric noise": mirrored.rms(),
        "limit": limit,
    }
    for name, rms in sorted(rms_by_name.items(), key=lambda row: -row[1]):
        print(f"{name:<34} {rms:6.3f}   {rms / limit:5.2f} times the limit")
    distance = laplace_rms("exact", EPSILON) / limit
    held = distance <= ALLOWED and all(kept)
    print(f"\n`exact` / limit: {distance:.3f}  (allowed {ALLOWED:.2f}) {'ok' if held else 'MISSED'}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
