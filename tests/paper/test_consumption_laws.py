"""Research: `shift`, `robust` and `exact` beside `range`: each equals a search over the whole lattice."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from research.consumption_laws import (
    PairCurve,
    calibrate_scale,
    gaussian_pair_curve,
    laplace_pair_curve,
    max_loss,
    shift_wh,
)
from scipy.stats import norm

from murmurate.privacy.accountant import PldAccountant, PrivacyEvent
from murmurate.privacy.calibration import min_scale
from murmurate.privacy.divergence import GaussianCurve, SecretPair
from murmurate.privacy.noise import laplace_log_pmf, opendp_laplace
from murmurate.units import round_down_to_double

HALF = Fraction(1, 2)
U = 1000
PAPER = SecretPair.from_pmfs([1 / 501] * 501 + [0] * 500, [1 / 1001] * 1001)  # U(0, u/2) away, U(0, u) home
ALL = ("range", "shift", "robust", "exact")


@st.composite
def secrets(draw, largest=12):
    """Any two laws on 0..u, with zeros: most have no monotone likelihood ratio."""
    outcomes = draw(st.integers(2, largest + 1))
    weights = st.lists(st.sampled_from([0, 0, 1, 3, 10]), min_size=outcomes, max_size=outcomes).filter(any)
    away, home = (np.array(draw(weights), float) for _ in range(2))
    return SecretPair.from_pmfs(away / away.sum(), home / home.sum())


def on_the_whole_lattice(away, home, scale):
    """max over y far beyond both ends of |log Pr[y|home]/Pr[y|away]|, by plain sums."""
    wh = np.arange(len(away))
    lattice = np.arange(-3 * len(away), 4 * len(away))
    noise = np.exp(laplace_log_pmf(lattice[:, None] - wh, scale))
    return float(np.abs(np.log(noise @ home) - np.log(noise @ away)).max())


scales = st.sampled_from([0.7, 2.0, 5.5, 40.0])


@given(secret=secrets(), scale=scales)
def test_the_loss_is_that_of_the_whole_lattice(secret, scale):
    found = max_loss(secret, scale)
    assert found == pytest.approx(on_the_whole_lattice(secret.away, secret.home, scale), abs=1e-9)


@given(secret=secrets(largest=5), scale=scales, eta=st.sampled_from([0.05, 0.3, 0.9]))
def test_the_robust_loss_is_the_worst_over_all_contaminations(secret, scale, eta):
    """Point masses are the extreme contaminations; the ratio is monotone in each law, so no mixture is worse."""
    points = np.eye(secret.bound_wh + 1)
    worst = max(
        on_the_whole_lattice((1 - eta) * secret.away + eta * one, (1 - eta) * secret.home + eta * other, scale)
        for one in points
        for other in points
    )
    assert max_loss(secret, scale, eta) == pytest.approx(worst, abs=1e-9)


@given(secret=secrets(), scale=scales, more=st.floats(1.0, 4.0))
def test_more_noise_never_loses_more(secret, scale, more):
    assert max_loss(secret, scale * more) <= max_loss(secret, scale) + 1e-12


@given(secret=secrets(), epsilon=st.sampled_from([Fraction(1, 20), HALF, Fraction(2)]))
def test_every_calibration_keeps_the_promise_on_the_whole_lattice_and_stronger_assumptions_need_no_more_noise(
    secret, epsilon
):
    scale = {kind: calibrate_scale(secret, epsilon, kind, eta=0.1 * (kind == "robust")) for kind in ALL}
    for kind in ALL:
        assert on_the_whole_lattice(secret.away, secret.home, scale[kind]) <= float(epsilon) + 1e-12
    slack = 1 + 1e-8
    assert scale["exact"] <= scale["robust"] * slack
    assert scale["robust"] <= max(scale["range"], 1.0) * slack
    assert scale["shift"] <= max(scale["range"], 1.0)
    assert scale["exact"] <= scale["shift"] * slack


@st.composite
def dyadic_secrets(draw, outcomes=8):
    """Laws whose sums are exact in doubles, so that ranks which should be equal are."""
    cuts = st.lists(st.integers(0, 64), min_size=outcomes - 1, max_size=outcomes - 1).map(sorted)
    away, home = (np.diff([0, *draw(cuts), 64]) / 64 for _ in range(2))
    return SecretPair.from_pmfs(away, home)


@pytest.mark.slow
@given(secret=dyadic_secrets())
def test_the_shift_is_the_least_distance_at_which_one_law_can_be_moved_into_the_other(secret):
    """infinity-Wasserstein, by its other definition: the least w with F(x) <= G(x + w) and G(x) <= F(x + w)."""
    below = [np.concatenate([np.cumsum(law), np.ones(20)]) for law in (secret.away, secret.home)]

    def fits(w):
        ahead = [np.concatenate([law[w:], np.ones(w)]) for law in below]  # F(x + w)
        return (below[0] <= ahead[1]).all() and (below[1] <= ahead[0]).all()

    found = shift_wh(secret)
    assert fits(found)
    assert found == 0 or not fits(found - 1)


@given(secret=secrets())
def test_where_sums_are_rounded_the_shift_errs_upwards(secret):
    exact = [[Fraction(float(p)).limit_denominator(1000) for p in law] for law in (secret.away, secret.home)]
    below = [np.cumsum(law) for law in exact]
    ranks = sorted({rank for law in below for rank in law if rank > 0})
    quantile = [[next(x for x, f in enumerate(law) if f >= rank) for rank in ranks] for law in below]
    assert shift_wh(secret) >= max(abs(a - b) for a, b in zip(*quantile, strict=True))


@pytest.mark.parametrize("rare", [1e-15, 1.2e-16, 1e-16, 5e-17, 1e-20, 1e-300])
@pytest.mark.parametrize("turned", [False, True])
def test_no_tail_is_too_light_to_count(rare, turned):
    """A house that is seen at 900 Wh once in 1e20 intervals is seen: a pure promise knows no rare events."""
    away, home = np.zeros(1000), np.zeros(1000)
    away[0] = home[0] = 1.0
    home[900] = rare
    step = -1 if turned else 1
    assert shift_wh(SecretPair.from_pmfs(away[::step], home[::step])) == 900


def test_no_share_in_the_middle_is_too_light_to_count():
    away, home = np.zeros(1001), np.zeros(1001)
    away[[0, 1000]] = home[[0, 1000]] = 0.5
    home[900] = 1e-17
    assert shift_wh(SecretPair.from_pmfs(away, home)) == 900


@given(n=st.integers(1, 400), m=st.integers(1, 400))
def test_uniform_laws_are_as_far_apart_as_their_ends(n, m):
    laws = [np.concatenate([np.full(size, 1 / size), np.zeros(401 - size)]) for size in (n, m)]
    assert shift_wh(SecretPair.from_pmfs(*laws)) == abs(n - m)


@given(secret=secrets())
def test_equal_laws_are_not_apart(secret):
    assert shift_wh(SecretPair.from_pmfs(secret.home, secret.home)) == 0


@given(secret=secrets(), epsilon=st.sampled_from([Fraction(1, 10), HALF]))
def test_opendp_agrees_with_range_and_shift(secret, epsilon):
    for kind, moved in (("range", secret.bound_wh), ("shift", shift_wh(secret))):
        if moved:
            assert opendp_laplace(calibrate_scale(secret, epsilon, kind)).check(moved, round_down_to_double(epsilon))


@pytest.mark.parametrize(
    ("epsilon", "expected"),
    [("0.5", (2, 1, 0.6011, 0.673)), ("0.05", (20, 10, 5.122, None))],
)
def test_golden_scales_of_the_papers_laws(epsilon, expected):
    """docs/explanation/theory.md, section 3.4: range, shift, exact, robust 5 %, in units of u."""
    found = [calibrate_scale(PAPER, Fraction(epsilon), kind) / U for kind in (ALL[0], ALL[1], ALL[3])]
    assert found == pytest.approx(expected[:3], rel=2e-3)
    if expected[3]:
        assert calibrate_scale(PAPER, Fraction(epsilon), "robust", eta=0.05) / U == pytest.approx(expected[3], rel=2e-3)


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 2.0])
def test_exact_has_a_closed_form_for_uniform_laws(epsilon):
    """docs/explanation/theory.md, section 3.4: u/(2 ln(2 e^eps - 1))."""
    found = calibrate_scale(PAPER, Fraction(str(epsilon)), "exact")
    assert found / U == pytest.approx(1 / (2 * np.log(2 * np.exp(epsilon) - 1)), rel=2e-3)


def test_releasing_one_reading_again_costs_more_than_exact_claims():
    """docs/explanation/theory.md, section 1.5: `exact` released 16 times on one reading leaks 12.6, not 8."""
    scale = calibrate_scale(PAPER, HALF, "exact")
    wh = np.arange(U + 1)
    all_high = -16 * np.abs(U - wh) / scale  # sixteen outputs at the top
    home, away = (np.log(np.exp(all_high) @ law) for law in (PAPER.home, PAPER.away))
    assert home - away == pytest.approx(12.6, abs=0.05)


def log_growth(law, scale, correlation, intervals, points=300):
    """log E[e^(sum of X/b)] where X is a quantile of `law` and ranks follow a Gaussian AR(1) process, by quadrature.

    Outputs all at the top or beyond have this probability, up to a factor that both worlds share.
    """
    z = np.linspace(-6.5, 6.5, points)
    start = np.exp(-z * z / 2)
    step = np.exp(-((z[None, :] - correlation * z[:, None]) ** 2) / (2 * (1 - correlation**2)))
    start, step = start / start.sum(), step / step.sum(axis=1, keepdims=True)
    below = np.cumsum(law) / np.sum(law)
    weight = np.exp(np.searchsorted(below, norm.cdf(z)).clip(0, len(law) - 1) / scale)
    value, total = np.ones(points), 0.0
    for _ in range(intervals - 1):
        value = step @ (weight * value)
        total += np.log(value.max())
        value = value / value.max()
    return total + np.log(start @ (weight * value))


@pytest.mark.parametrize(("correlation", "expected"), [(0.0, 1.0), (0.9, 1.6)])
def test_exact_leaks_more_than_it_claims_where_ranks_remember(correlation, expected):
    """docs/explanation/theory.md, section 3.2: rank autocorrelation 0.9, uniform: at least 1.6 times (here 1.57)."""
    scale = calibrate_scale(PAPER, HALF, "exact")
    away, home = (log_growth(law, scale, correlation, 500) for law in (PAPER.away, PAPER.home))
    assert (home - away) / (500 * 0.5) == pytest.approx(expected, rel=0.02)


def test_for_small_epsilon_exact_needs_a_quarter_of_the_papers_noise():
    """docs/explanation/theory.md, section 3.4: for epsilon to 0 the gain of exact over the paper tends to 4."""
    tiny = Fraction(1, 1000)
    kinds = ("range", "exact")
    paper, exact = (calibrate_scale(PAPER, tiny, kind) for kind in kinds)
    assert paper / exact == pytest.approx(4, rel=0.01)


def least_rms(curve, delta, per_scale=1.0):
    """The least rms noise for a day at (1, delta), in u."""

    def keeps(scale):
        return PldAccountant().epsilon([(PrivacyEvent((curve(scale),)), 96)], delta) <= 1.0

    return per_scale * min_scale(keeps, 200.0 * U, tolerance=1e-3) / U


@pytest.mark.slow
@pytest.mark.parametrize(
    ("curve", "per_scale", "expected"),
    [
        (lambda b: laplace_pair_curve(PAPER, b), 2**0.5, (12.8, 14.4)),
        (lambda s: GaussianCurve(shift_wh(PAPER), s), 1, (18.3, 20.7)),
        (lambda s: gaussian_pair_curve(PAPER, s), 1, (9.27, 10.5)),
    ],
    ids=["Laplace exact", "Gaussian shift", "Gaussian exact"],
)
def test_golden_day_trajectories(curve, per_scale, expected):
    """docs/explanation/theory.md, section 4.8: rms noise for a day at (1, 1e-5) and (1, 1e-6) in units of u."""
    assert [least_rms(curve, delta, per_scale) for delta in (1e-5, 1e-6)] == pytest.approx(expected, rel=0.01)


# --- curves


def brute_delta(p, q, epsilon):
    return max(np.maximum(p - np.exp(epsilon) * q, 0).sum(), np.maximum(q - np.exp(epsilon) * p, 0).sum())


@given(secret=secrets(), scale=scales, epsilon=st.floats(-3, 3))
def test_the_laplace_curve_is_that_of_the_whole_lattice(secret, scale, epsilon):
    wh, lattice = np.arange(secret.bound_wh + 1), np.arange(-2500, 2520)
    noise = np.exp(laplace_log_pmf(lattice[:, None] - wh, scale))
    expected = brute_delta(noise @ secret.away, noise @ secret.home, epsilon)
    assert laplace_pair_curve(secret, scale).delta(np.array([epsilon]))[0] == pytest.approx(expected, abs=1e-9)


def lattice_gaussian(secret, sigma):
    wh, lattice = np.arange(secret.bound_wh + 1), np.arange(-int(12 * sigma) - 20, int(12 * sigma) + 40)
    noise = np.exp(-((lattice[:, None] - wh) ** 2) / (2 * sigma**2))
    noise /= np.exp(-(np.arange(-int(14 * sigma) - 30, int(14 * sigma) + 31) ** 2) / (2 * sigma**2)).sum()
    return noise @ secret.away, noise @ secret.home


@given(secret=secrets(), sigma=st.sampled_from([1.5, 4.0, 17.3]), epsilon=st.floats(-2, 2))
def test_the_gaussian_curve_is_that_of_the_whole_lattice(secret, sigma, epsilon):
    expected = brute_delta(*lattice_gaussian(secret, sigma), epsilon)
    assert gaussian_pair_curve(secret, sigma).delta(np.array([epsilon]))[0] == pytest.approx(expected, abs=1e-9)


def sparse(*masses):
    law = np.zeros(U + 1)
    for wh, mass in masses:
        law[wh] = mass
    return law


SPARSE = SecretPair.from_pmfs(sparse((0, 0.5), (200, 0.25), (500, 0.25)), sparse((0, 0.125), (300, 0.375), (1000, 0.5)))


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [2_500.0, 19_999.0, 20_000.0, 47_321.5])
@pytest.mark.parametrize("secret", [SPARSE, SecretPair.worst_case(U)], ids=["sparse", "range"])
def test_the_gaussian_curve_of_pooled_outputs_is_never_below_that_of_the_whole_lattice(secret, sigma):
    """In extended precision where there is any: pooling and interpolation err upwards, and by little."""
    reach = int(9.5 * sigma) + 2 * U
    y = np.arange(-reach, reach + 1).astype(np.longdouble)
    noise = {
        x: np.exp(-((y - x) ** 2) / (2 * np.longdouble(sigma) ** 2)) for x in np.flatnonzero(secret.away + secret.home)
    }
    p, q = (sum(law[x] * weight for x, weight in noise.items()) for law in (secret.away, secret.home))
    p, q = p / p.sum(), q / q.sum()
    curve = gaussian_pair_curve(secret, sigma)
    grid = np.array([-0.3, 0.0, 0.1, 0.3, 0.6]) * curve.max_loss
    for epsilon, found in zip(grid, curve.delta(grid), strict=True):
        exact = float(brute_delta(p, q, np.longdouble(epsilon)))
        assert exact * (1 - 1e-11) - 1e-15 <= found <= exact * (1 + 1e-3) + 1e-12


def test_a_pair_that_shares_no_output_is_told_apart_for_certain():
    assert PairCurve(np.array([1.0, 0.0]), np.array([0.0, 1.0])).delta(np.array([5.0])).tolist() == [1.0]
