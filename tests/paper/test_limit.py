"""How far our noise is from the best noise (docs/explanation/theory.md, section 3.4), at a coarse resolution."""

from fractions import Fraction

import numpy as np
import pytest
from research import optimal_noise_bound

HALF = Fraction(1, 2)
CELLS = 10


@pytest.fixture(scope="module")
def best():
    return optimal_noise_bound.best_noise(CELLS, HALF)


def loss_by_brute_force(noise, parts=20, beyond=40):
    """The largest |log ratio| of U(0, v) * noise and U(0, v/2) * noise over a fine lattice of outputs and v <= u."""
    inner = np.diff([float(f) for f in noise.below])
    away = np.arange(beyond)
    left = float(noise.below[0] * (1 - noise.left)) * float(noise.left) ** away[::-1]
    right = float((1 - noise.below[-1]) * (1 - noise.right)) * float(noise.right) ** away
    density = np.repeat(np.concatenate([left, inner, right]), parts)
    worst = 0.0
    for v in range(2, CELLS * parts + 1, 6):
        home, absent = (np.convolve(density, np.full(width, 1 / width))[v:-v] for width in (v, v // 2))
        size = min(len(home), len(absent), len(density) - 2 * v)
        worst = max(worst, np.abs(np.log(home[:size] / absent[:size])).max())
    return worst


@pytest.mark.slow
def test_golden_limit(best):
    """docs/explanation/theory.md, section 3.4: rms 0.666 u, whatever the noise; approached from both sides."""
    floor = optimal_noise_bound.no_less_than(CELLS, HALF)
    assert floor <= best.rms()
    assert [floor, best.rms()] == pytest.approx([0.666, 0.666], rel=0.01)


def test_exact_laplace_is_within_30_percent_of_the_limit(best):
    assert optimal_noise_bound.laplace_rms("exact", HALF) == pytest.approx(0.850, abs=1e-3)
    assert optimal_noise_bound.laplace_rms("exact", HALF) <= 1.30 * best.rms()


def test_exact_laplace_is_within_3_percent_of_all_symmetric_noise():
    symmetric = optimal_noise_bound.best_noise(CELLS, HALF, symmetric=True)
    assert symmetric.keeps(HALF)
    assert (
        0.97 * optimal_noise_bound.laplace_rms("exact", HALF)
        <= symmetric.rms()
        <= optimal_noise_bound.laplace_rms("exact", HALF)
    )


def test_the_best_noise_keeps_the_promise_in_fractions_and_no_stronger_one(best):
    assert best.keeps(HALF)
    assert not best.keeps(HALF * Fraction(99, 100))


@pytest.mark.parametrize("symmetric", [True, False])
def test_laplace_tails_can_be_no_steeper(symmetric):
    assert optimal_noise_bound.skew_laplace(CELLS, HALF, symmetric=symmetric).keeps(HALF)
    assert not optimal_noise_bound.skew_laplace(CELLS, HALF * Fraction(1001, 1000), symmetric=symmetric).keeps(HALF)


def test_skew_laplace_is_within_4_percent_of_the_limit(best):
    assert best.rms() <= optimal_noise_bound.skew_laplace(CELLS, HALF).rms() <= 1.04 * best.rms()


def test_the_verified_promise_holds_between_the_cells(best):
    """Whole cells prove all outputs and all v: convolved directly, on a lattice twenty times as fine."""
    for noise in (
        best,
        optimal_noise_bound.skew_laplace(CELLS, HALF),
        optimal_noise_bound.skew_laplace(CELLS, HALF, symmetric=True),
    ):
        assert 0.49 <= loss_by_brute_force(noise) <= 0.5 + 1e-9
