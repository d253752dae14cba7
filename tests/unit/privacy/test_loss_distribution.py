"""Compositions on NumPy alone, beside dp-accounting and SciPy, and beside sums that are exact."""

from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from dp_accounting.pld import pld_pmf
from hypothesis import given, settings
from hypothesis import strategies as st
from research.consumption_laws import PairCurve
from scipy.special import ndtr
from tests.support.privacy_curves import randomised_response

from murmurate.privacy.accountant import LossDistribution, PldAccountant, PrivacyEvent, _fast_length
from murmurate.privacy.divergence import (
    GaussianCurve,
    HuberCurve,
    normal_cdf,
)

CURVES = [
    randomised_response(0.3),
    HuberCurve(1000, 20_000.0, 0),
    HuberCurve(1000, 25_702.064, 53_293),
    HuberCurve(3000, 4000.0, 20),
    GaussianCurve(1000, 3730.0),
    GaussianCurve(500, 9000.0),
    PairCurve(np.array([0.6, 0.3999, 0.0001]), np.array([0.5, 0.5, 0.0])),  # an output that tells all
]


def both(curve, step):
    """The same distribution of losses, made by us and by dp-accounting."""
    edge = int(np.ceil(curve.max_loss / step)) + 1
    grid = np.arange(-edge, edge + 1)
    deltas = np.minimum.accumulate(PrivacyEvent((curve,)).delta(grid * step))
    ours = LossDistribution.connect_dots(step, -edge, deltas)
    return ours, pld_pmf.create_pmf_pessimistic_connect_dots(step, grid, deltas).to_dense_pmf()


def assert_equal_cost(ours, theirs):
    top = max((ours.lowest + len(ours.probability)) * ours.step, ours.step)
    for epsilon in (0.0, 0.01 * top, 0.3 * top, 0.9 * top, 2 * top):
        assert ours.delta(epsilon) == pytest.approx(theirs.get_delta_for_epsilon(epsilon), rel=1e-9, abs=1e-12)
    for delta in (1e-6, 1e-3, 0.1, 0.9):  # far below, the rounding of Fourier transforms shows in epsilon
        assert ours.epsilon(delta) == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=1e-7, abs=1e-9), delta


@pytest.mark.slow
@settings(deadline=None, max_examples=10)
@given(
    one=st.sampled_from(CURVES),
    other=st.sampled_from(CURVES),
    points=st.sampled_from([7, 100]),
    counts=st.tuples(st.integers(1, 4), st.sampled_from([5, 96, 400])),
)
def test_compositions_cost_what_dp_accounting_says(one, other, points, counts):
    step = max(min(one.max_loss, other.max_loss) / points, max(one.max_loss, other.max_loss) / 2000)
    (a, their_a), (b, their_b) = both(one, step), both(other, step)
    assert_equal_cost(a, their_a)
    repeated, their_repeated = b.self_compose(counts[1]), their_b.self_compose(counts[1])
    assert_equal_cost(repeated, their_repeated)
    for _ in range(counts[0]):
        repeated, their_repeated = repeated.compose(a), their_repeated.compose(their_a)
    assert_equal_cost(repeated, their_repeated)


def exact_delta(losses, count, epsilon):
    """Return delta of `count` releases whose losses are multiples of log 2, in exact arithmetic."""
    total = {0: Fraction(1)}
    for _ in range(count):
        sums = Counter()
        for (loss, weight), (steps, probability) in product(total.items(), losses.items()):
            sums[loss + steps] += weight * probability
        total = sums
    return sum(weight * max(Fraction(0), 1 - Fraction(2) ** (epsilon - loss)) for loss, weight in total.items())


@settings(deadline=None, max_examples=15)
@given(weights=st.lists(st.integers(0, 9), min_size=4, max_size=4), count=st.integers(1, 6), at=st.integers(-2, 9))
def test_no_composition_costs_less_than_the_exact_sum(weights, count, at):
    """Losses are multiples of log 2, so that every e^loss is a whole power of 2."""
    whole = sum(weights) + 1
    losses = dict(enumerate((Fraction(w, whole) for w in weights), start=-1))
    lost = Fraction(1, whole)  # an infinite loss
    one = LossDistribution(
        step=float(np.log(2)),
        lowest=-1,
        probability=np.array([float(p) for p in losses.values()]),
        infinite=float(lost),
    )
    expected = float(exact_delta(losses, count, at) + 1 - (1 - lost) ** count)
    pairwise = one
    for _ in range(count - 1):
        pairwise = pairwise.compose(one)
    for composed in (pairwise, one.self_compose(count)):
        found = composed.delta(at * float(np.log(2)))
        assert expected - 1e-14 <= found <= expected + 1e-13


@settings(deadline=None, max_examples=15)
@given(curve=st.sampled_from(CURVES), count=st.integers(1, 400), delta=st.sampled_from([1e-9, 1e-6, 1e-2]))
def test_epsilon_is_the_least_at_which_delta_is_enough(curve, count, delta):
    composed = both(curve, curve.max_loss / 50)[0].self_compose(count)
    epsilon = composed.epsilon(delta)
    if not np.isfinite(epsilon):
        assert composed.infinite > delta
        return
    assert composed.delta(epsilon) <= delta * (1 + 1e-6) + 1e-13
    assert epsilon == 0 or composed.delta(epsilon - 1e-3 * composed.step) > delta * (1 - 1e-6) - 1e-13


def test_dots_are_connected_from_above():
    """Between two points the curve of the distribution lies above the true one, and on it at the points."""
    curve = HuberCurve(1000, 25_702.064, 53_293)
    step = curve.max_loss / 20
    ours, _ = both(curve, step)
    fine = np.arange(-20 * 8, 20 * 8 + 1) * step / 8
    above = np.array([ours.delta(float(epsilon)) for epsilon in fine]) - PrivacyEvent((curve,)).delta(fine)
    assert (above >= -1e-14).all()
    assert np.abs(above[::8]).max() < 1e-14
    assert above.max() > 1e-6


def test_losses_that_no_double_can_weigh_are_infinite_or_their_own():
    far = LossDistribution(step=1000.0, lowest=1, probability=np.array([0.5, 0.5]), infinite=0.0)
    assert far.epsilon(0.1) == 2000.0
    assert far.delta(500.0) == 1.0
    told = LossDistribution.connect_dots(0.5, -1, np.array([0.5, 0.2, 0.05]))
    assert told.delta(9.0) == told.infinite == 0.05
    lost = LossDistribution(step=1.0, lowest=0, probability=np.full(3, 0.1), infinite=0.7)
    assert lost.epsilon(0.5) == lost.self_compose(5).epsilon(0.9) == np.inf


def test_the_least_fast_length_is_taken():
    for size in range(1, 700):
        fast = [odd * 2**power for odd in (1, 3, 5, 9, 15) for power in range(11)]
        assert _fast_length(size) == min(length for length in fast if length >= size)


def test_the_normal_distribution_is_that_of_scipy():
    z = np.concatenate([np.linspace(-37, 9, 20_001), [-np.inf, 0.0, np.inf]])
    np.testing.assert_allclose(normal_cdf(z), ndtr(z), rtol=4e-13)
    assert np.abs(normal_cdf(z) - ndtr(z)).max() < 2.3e-16
    assert normal_cdf(0.3).shape == ()


def test_an_accountant_without_a_margin_for_rounding_would_fail_somewhere():
    """What the margin is for: a cost that is exactly 0, above the largest loss, is not so after Fourier transforms."""
    one = PrivacyEvent((randomised_response(0.3),))
    raw = PldAccountant()._compose_events([(one, 96)]).delta(0.3 * 96 + 1)
    assert raw != 0
    assert abs(raw) < 1e-11
