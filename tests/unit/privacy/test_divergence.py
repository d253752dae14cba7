"""Privacy curves of Laplace and Gaussian noise: each equals, or lies just above, a sum over the whole lattice."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.privacy_curves import randomised_response

from murmurate.errors import ModelError, PrivacyError
from murmurate.privacy.accountant import PldAccountant, PrivacyEvent, PureDpAccountant
from murmurate.privacy.divergence import (
    GaussianCurve,
    HuberCurve,
    HuberDistribution,
    SecretPair,
    huber_log_pmf,
    huber_variance,
)
from murmurate.privacy.noise import laplace_log_pmf

SHIFTS = st.integers(1, 12)


def larger_delta(p, q, epsilon):
    return max(np.maximum(p - np.exp(epsilon) * q, 0).sum(), np.maximum(q - np.exp(epsilon) * p, 0).sum())


@given(shift=SHIFTS, sigma=st.sampled_from([1.5, 4.0, 17.3]), epsilon=st.floats(-2, 2))
def test_the_gaussian_bound_lies_above_the_lattice_and_near_it(shift, sigma, epsilon):
    lattice = np.arange(-int(12 * sigma) - 20, int(12 * sigma) + 40)
    p, q = (np.exp(-((lattice - wh) ** 2) / (2 * sigma**2)) for wh in (0, shift))
    expected = larger_delta(p / p.sum(), q / p.sum(), epsilon)
    bound = GaussianCurve(shift, sigma).delta(np.array([epsilon]))[0]
    assert expected - 1e-13 <= bound <= expected + 1.5 / sigma


@given(epsilon=st.floats(0.01, 3), at=st.floats(-3, 3))
def test_randomised_response_is_the_worst_pure_curve(epsilon, at):
    worst, laplace = (
        curve.delta(np.array([at]))[0] for curve in (randomised_response(epsilon), HuberCurve(7, 7 / epsilon, 0))
    )
    assert laplace <= worst + 1e-12


@pytest.mark.parametrize(
    ("pmfs", "says"),
    [
        (([0.5, 0.4], [0.5, 0.5]), "away is 0.9: must be probabilities that sum to 1"),
        (
            ([1.0], [1.0]),
            "secret is ((1,), (1,)): away and home must be distributions on -export_bound, .., bound [Wh], bound >= 1",
        ),
    ],
)
def test_a_pair_that_is_none_says_what_is_allowed(pmfs, says):
    with pytest.raises(ModelError) as caught:
        SecretPair.from_pmfs(*pmfs)
    assert str(caught.value) == says


# --- huber noise: its law equals the lattice, its curve lies on or above it, and golden numbers


U = 1000
SCALES = st.sampled_from([1.0, 1.7, 2.5, 7.0, 20.3])
CASES = st.tuples(st.integers(1, 14), SCALES, st.integers(0, 60))  # shift, scale, core


def rho(k, b, c):
    size = np.abs(k)
    return np.where(size <= c, size**2 / (2 * b * max(c, 1)), size / b - c / b / 2)


def lattice(b, c, beyond=0):
    """All whole numbers that matter, and their weights, in extended precision where there is any."""
    reach = int(c + 45 * b) + 10 + beyond
    k = np.arange(-reach, reach + 1).astype(np.longdouble)
    return k, np.exp(-rho(k, np.longdouble(b), c))


def brute_delta(shift, b, c, grid):
    """The larger of both directions at each epsilon, by plain sums over the lattice."""
    k, weight = lattice(b, c, shift)
    moved = np.exp(-rho(k - shift, np.longdouble(b), c))
    p, q = moved / weight.sum(), weight / weight.sum()
    both = [[np.maximum(x - np.exp(np.longdouble(e)) * y, 0).sum() for e in grid] for x, y in ((p, q), (q, p))]
    return np.max(both, axis=0).astype(np.float64)


# --- the law

PAIRS = pytest.mark.parametrize(
    ("scale", "core"),
    [(1.0, 0), (3.7, 0), (2.0, 5), (1.0, 4095), (1.0, 4097), (64.0, 64), (5000.0, 3), (100.0, 3000), (700.0, 20_000)],
)


@PAIRS
def test_the_law_is_that_of_the_lattice(scale, core):
    k, weight = lattice(scale, core)
    expected = np.asarray(-rho(k, scale, core) - np.log(weight.sum()), np.float64)
    assert np.abs(huber_log_pmf(k, scale, core) - expected).max() <= 1e-12


@PAIRS
def test_the_variance_is_that_of_the_lattice(scale, core):
    k, weight = lattice(scale, core)
    assert huber_variance(scale, core) == pytest.approx(float((weight * k**2).sum() / weight.sum()), rel=1e-8)


@pytest.mark.slow
@PAIRS
def test_the_tails_are_those_of_the_lattice(scale, core):
    k, weight = lattice(scale, core)
    tail = np.cumsum(weight[::-1])[::-1] / weight.sum()
    assert np.abs(HuberDistribution(scale, core).tail_probability(np.asarray(k, np.float64)) - tail).max() <= 1e-15


@given(scale=st.floats(1.0, 1e6))
def test_without_a_core_it_is_laplace_noise(scale):
    k = np.array([0, 1, -5, 1000, 10**7])
    assert huber_log_pmf(k, scale, 0) == pytest.approx(laplace_log_pmf(k, scale), rel=1e-12, abs=1e-12)
    ratio = math.exp(-1 / scale)
    assert huber_variance(scale, 0) == pytest.approx(2 * ratio / math.expm1(-1 / scale) ** 2, rel=1e-9)


@pytest.mark.parametrize("sigma", [50.0, 3000.0, 2.0**30])
def test_with_a_wide_core_it_is_gaussian_noise(sigma):
    core = int(10 * sigma)
    assert huber_variance(sigma**2 / core, core) == pytest.approx(sigma**2, rel=1e-9)


def test_no_core_is_too_wide_to_compute():
    wide = 2**40
    assert HuberDistribution(1.0, wide).normalising_sum() == pytest.approx(2**20 * math.sqrt(2 * math.pi), rel=1e-12)
    tail, middle = math.exp(-0.5), math.sqrt(2 * math.pi) * math.erf(0.5**0.5)  # b = c = 1, on the line
    expected = (middle + 8 * tail) / (middle + 2 * tail)
    assert huber_variance(float(wide), wide) == pytest.approx(expected * wide**2, rel=1e-6)
    assert 0 < HuberCurve(1000, float(wide), wide).delta(np.zeros(1))[0] < 1e-9


def test_variances_come_in_arrays():
    found = huber_variance(np.array([2.0, 5.0, 2.0]), np.array([3, 0, 3]))
    assert found.tolist() == [float(huber_variance(2.0, 3)), float(huber_variance(5.0, 0)), found[0]]
    assert huber_variance(np.array([[2.0], [5.0]]), 3).shape == (2, 1)


# --- the curve


@given(case=CASES, share=st.floats(-1.3, 1.3))
def test_the_curve_is_that_of_the_lattice_and_never_below_it(case, share):
    shift, scale, core = case
    grid = np.array([share * shift / scale])
    excess = HuberCurve(*case).delta(grid) - brute_delta(shift, scale, core, grid)
    assert -1e-15 <= excess[0] <= 5e-15


@pytest.mark.slow
@pytest.mark.parametrize("case", [(1000, 25_702.064, 53_293), (300, 64.0, 70), (7, 1.0, 4100), (700, 3000.0, 2500)])
def test_the_curve_is_that_of_a_large_lattice_and_never_below_it(case):
    curve = HuberCurve(*case)
    grid = np.array([-1.1, -0.8, 0.0, 0.1, 0.5, 0.9, 0.999]) * curve.max_loss
    excess = curve.delta(grid) - brute_delta(*case, grid)
    assert excess[0] >= -1e-15
    assert excess[1:].min() >= 5e-16  # rounded upwards by more than what rounding takes
    assert excess.max() <= 5e-15


@pytest.mark.parametrize("sigma", [5000.0, 41_393.0])
def test_with_a_wide_core_the_curve_is_the_gaussians(sigma):
    core = int(9 * sigma)
    gauss = GaussianCurve(U, sigma)
    grid = np.linspace(-gauss.max_loss, gauss.max_loss, 101)
    assert HuberCurve(U, sigma**2 / core, core).delta(grid) == pytest.approx(gauss.delta(grid), abs=2e-4)


@given(case=CASES, wider=st.integers(1, 40))
def test_a_wider_core_under_the_same_tails_never_costs_more(case, wider):
    shift, scale, core = case
    grid = np.linspace(-1, 1, 41) * shift / scale
    more = HuberCurve(shift, scale, core + wider).delta(grid)
    assert (more <= HuberCurve(shift, scale, core).delta(grid) + 1e-14).all()


@given(case=CASES)
def test_no_loss_exceeds_the_shift_over_the_scale(case):
    shift, scale, _ = case
    curve = HuberCurve(*case)
    assert curve.max_loss == shift / scale
    assert curve.bounded
    assert curve.delta(np.array([curve.max_loss, 2 * curve.max_loss])).tolist() == [0.0, 0.0]
    assert PureDpAccountant().epsilon([(PrivacyEvent((curve,)), 3)], 0.0) == pytest.approx(3 * shift / scale)


def test_a_loss_beyond_what_a_double_can_grow_to_is_no_accident():
    curve = HuberCurve(5000, 1.0, 10)
    found = curve.delta(np.array([-6000.0, -100.0, 0.0, 900.0, 4000.0]))
    assert found == pytest.approx([1.0] * 5)


def window(curve):
    return PldAccountant().epsilon([(PrivacyEvent((curve,)), 96)], 1e-6)


@pytest.mark.parametrize(
    ("s", "core", "deviation", "loss", "day"),
    [
        (37_010, 53_293, 43_300, 0.038907, 0.99999),
        (40_000, 62_000, 45_158, 0.038750, 0.9435),
        (45_000, 40_000, 74_420, 0.019753, 0.6281),
    ],
)
def test_golden_huber_noise(s, core, deviation, loss, day):
    """u = 1000 Wh; deviation [Wh], loss of one release, and epsilon of 96 releases at delta 1e-6."""
    scale = s * s / core
    assert math.sqrt(huber_variance(scale, core)) == pytest.approx(deviation, rel=1e-3)
    curve = HuberCurve(U, scale, core)
    assert curve.max_loss == pytest.approx(loss, rel=1e-3)
    assert window(curve) == pytest.approx(day, rel=1e-3)


def test_golden_limits():
    """For the same window Laplace noise has a deviation of 57,452 Wh, Gaussian noise 41,393 Wh."""
    assert window(HuberCurve(U, 57_452 / 2**0.5, 0)) == pytest.approx(1.0, rel=2e-3)
    core = 8 * 41_393
    assert window(HuberCurve(U, 41_393**2 / core, core)) == pytest.approx(1.0, rel=2e-3)


@pytest.mark.slow
@settings(max_examples=10)
@given(case=st.tuples(st.integers(1, 3), st.sampled_from([5.0, 9.0]), st.integers(0, 30)))
def test_two_releases_cost_what_the_product_of_the_lattices_costs(case):
    shift, scale, core = case
    cost = PldAccountant().epsilon([(PrivacyEvent((HuberCurve(*case),)), 2)], 1e-3)
    k, weight = (np.asarray(part, np.float64) for part in lattice(scale, core, shift))
    p, q = np.exp(-rho(k - shift, scale, core)) / weight.sum(), weight / weight.sum()
    for one, other in ((p, q), (q, p)):
        for again, against in ((p, q), (q, p)):
            joint = np.outer(one, again) - math.exp(cost) * np.outer(other, against)
            assert np.maximum(joint, 0).sum() <= 1e-3 + 1e-12


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: HuberDistribution(0.0, 3), "scale_wh is 0.0: must be a positive number of Wh"),
        (lambda: HuberDistribution(math.nan, 3), "scale_wh is nan: must be a positive number of Wh"),
        (lambda: HuberDistribution(5.0, -1), "core_wh is -1: must be at least 0 Wh"),
        (lambda: HuberCurve(-1, 5.0, 1), "shift_wh is -1: must be a whole number of Wh, 0 or more"),
        (lambda: HuberCurve(1000.5, 5.0, 1), "shift_wh is 1000.5: must be a whole number of Wh"),
        (lambda: GaussianCurve(1000.5, 3.0), "shift_wh is 1000.5: must be a whole number of Wh"),
        (lambda: GaussianCurve(1000, 0.0), "sigma_wh is 0.0: must be a positive number of Wh"),
        (lambda: huber_variance(5.0, 1.5), "core_wh is float64: must be whole numbers"),
    ],
)
def test_noise_that_has_no_law_is_refused(make, says):
    with pytest.raises(PrivacyError) as caught:
        make()
    assert str(caught.value).startswith(says)
