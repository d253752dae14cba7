"""One suite of laws that every accountant passes; then closed forms, brute force and golden numbers."""

from collections import Counter
from fractions import Fraction
from itertools import product
from math import comb

import numpy as np
import pytest
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as reference
from hypothesis import given, settings
from hypothesis import strategies as st
from research.consumption_laws import PairCurve
from scipy.special import ndtr
from tests.support.privacy_curves import randomised_response

from murmurate.errors import PrivacyError
from murmurate.privacy.accountant import (
    LossDistribution,
    PldAccountant,
    PrivacyEvent,
    PureDpAccountant,
    _fast_length,
    count_events,
    window_events,
)
from murmurate.privacy.calibration import min_scale
from murmurate.privacy.divergence import (
    GaussianCurve,
    HuberCurve,
    normal_cdf,
)

U = 1000
ACCOUNTANTS = [PureDpAccountant(), PldAccountant()]


def laplace(epsilon):
    return PrivacyEvent((HuberCurve(U, U / epsilon, 0),))


def pure(epsilon):
    return PrivacyEvent((randomised_response(epsilon),))


# --- the suite

counts = st.integers(1, 30)
budgets = st.sampled_from([0.01, 0.1, 0.7])
both = pytest.mark.parametrize("accountant", ACCOUNTANTS, ids=lambda a: type(a).__name__)


@both
def test_nothing_costs_nothing(accountant):
    assert accountant.epsilon([], 1e-6) == 0.0
    assert accountant.epsilon([(PrivacyEvent(()), 96)], 1e-6) == 0.0


@pytest.mark.slow
@both
@settings(max_examples=10)
@given(one=budgets, other=budgets, n=counts, m=counts)
def test_order_and_grouping_do_not_matter(accountant, one, other, n, m):
    a, b = pure(one), pure(other)
    whole = accountant.epsilon([(a, n), (b, m)], 1e-6)
    assert accountant.epsilon([(b, m), (a, n)], 1e-6) == pytest.approx(whole, rel=1e-6)
    assert accountant.epsilon([(a, 1)] * n + [(b, m)], 1e-6) == pytest.approx(whole, rel=1e-6)


@both
@settings(max_examples=25)
@given(epsilon=budgets, n=counts)
def test_more_releases_cost_more_and_never_more_than_their_sum(accountant, epsilon, n):
    cost = accountant.epsilon([(pure(epsilon), n)], 1e-6)
    assert cost <= accountant.epsilon([(pure(epsilon), n + 1)], 1e-6) + 1e-9
    assert cost <= n * epsilon + 1e-9


@both
@settings(max_examples=25)
@given(epsilon=budgets, n=counts, delta=st.sampled_from([1e-9, 1e-6, 1e-3]))
def test_a_larger_delta_never_costs_more(accountant, epsilon, n, delta):
    events = [(pure(epsilon), n)]
    assert accountant.epsilon(events, delta * 10) <= accountant.epsilon(events, delta) + 1e-9


@both
def test_one_release_costs_at_most_what_it_promises(accountant):
    assert accountant.epsilon([(laplace(0.5), 1)], 1e-6) <= 0.5 + 1e-9


@pytest.mark.slow
@both
@settings(max_examples=25)
@given(data=st.data(), n=st.integers(1, 4))
def test_no_product_attack_beats_the_accountant(accountant, data, n):
    """Brute force: every direction in every interval, every event of the product of outputs."""
    weights = st.lists(st.integers(1, 9), min_size=3, max_size=3)
    p, q = (np.array(w) / sum(w) for w in (data.draw(weights), data.draw(weights)))
    delta = 0.01
    cost = accountant.epsilon([(PrivacyEvent((PairCurve(p, q),)), n)], delta)
    for directions in product((0, 1), repeat=n):
        worlds = [(p, q) if d else (q, p) for d in directions]
        one, other = (np.array([np.prod(x) for x in product(*(w[side] for w in worlds))]) for side in (0, 1))
        assert np.maximum(one - np.exp(cost) * other, 0).sum() <= delta + 1e-9


# --- closed forms and peers


def kairouz_oh_viswanath(epsilon, count, delta):
    """Optimal composition of `count` epsilon-private mechanisms (their Theorem 3.3), by search over its steps."""
    best = count * epsilon
    for i in range(count // 2 + 1):
        total = sum(
            comb(count, j) * (np.exp((count - j) * epsilon) - np.exp((count - 2 * i + j) * epsilon)) for j in range(i)
        )
        if total / (1 + np.exp(epsilon)) ** count <= delta:
            best = min(best, (count - 2 * i) * epsilon)
    return best


@pytest.mark.parametrize("epsilon", [0.05, 0.3])
@pytest.mark.parametrize("count", [4, 30])
def test_pure_events_compose_as_kairouz_oh_and_viswanath_say(epsilon, count):
    """Their formula is exact at steps of 2 epsilon; ours interpolates, so it lies at most one step below."""
    closed = kairouz_oh_viswanath(epsilon, count, 1e-6)
    ours = PldAccountant().epsilon([(pure(epsilon), count)], 1e-6)
    assert closed - 2 * epsilon - 1e-6 <= ours <= closed + 1e-6


@pytest.mark.parametrize(("epsilon", "expected"), [(0.5, 32.39), (0.05, 2.167)])
def test_golden_kairouz_oh_viswanath(epsilon, expected):
    """FACTS, composition: delta 1e-6, T 96."""
    assert PldAccountant().epsilon([(pure(epsilon), 96)], 1e-6) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("epsilon", "delta", "expected"), [(0.5, 1e-6, 29.6), (0.1, 1e-6, 4.58), (0.05, 1e-6, 2.14), (0.5, 1e-5, 27.7)]
)
def test_golden_trajectories(epsilon, delta, expected):
    """docs/explanation/theory.md, section 4.8: textbook Laplace over 96 intervals."""
    assert PldAccountant().epsilon([(laplace(epsilon), 96)], delta) == pytest.approx(expected, rel=3e-3)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.05, 0.5])
def test_the_curve_accountant_agrees_with_dp_accounting_on_laplace(epsilon):
    theirs = reference.from_laplace_mechanism(1 / epsilon, value_discretization_interval=1e-4).self_compose(96)
    ours = PldAccountant().epsilon([(laplace(epsilon), 96)], 1e-6)
    assert ours == pytest.approx(theirs.get_epsilon_for_delta(1e-6), rel=2e-3)


def test_the_curve_accountant_agrees_with_dp_accounting_on_gaussians():
    theirs = reference.from_gaussian_mechanism(41.4, value_discretization_interval=1e-4).self_compose(96)
    ours = PldAccountant().epsilon([(PrivacyEvent((GaussianCurve(U, 41.4 * U),)), 96)], 1e-6)
    assert ours == pytest.approx(theirs.get_epsilon_for_delta(1e-6), rel=3e-3)


def least_rms(curve, delta, per_scale=1.0):
    accountant = PldAccountant()

    def keeps(scale):
        return accountant.epsilon([(PrivacyEvent((curve(scale),)), 96)], delta) <= 1.0

    return per_scale * min_scale(keeps, 200.0 * U, tolerance=1e-3) / U


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "curve", "per_scale", "expected"),
    [
        ("Laplace range", lambda b: HuberCurve(U, b, 0), 2**0.5, (50.8, 57.4)),
        ("Gaussian range", lambda s: GaussianCurve(U, s), 1, (36.6, 41.4)),
    ],
)
def test_golden_day_trajectories(name, curve, per_scale, expected):
    """docs/explanation/theory.md, section 4.8: rms noise for a day at (1, 1e-5) and (1, 1e-6) in units of u."""
    del name
    assert [least_rms(curve, delta, per_scale) for delta in (1e-5, 1e-6)] == pytest.approx(expected, rel=0.01)


def test_golden_pure_day():
    """docs/explanation/theory.md, section 4.8: pure Laplace range for a day costs an rms of 135.8 u."""
    assert 96 * 2**0.5 == pytest.approx(135.8, abs=0.05)
    assert PureDpAccountant().epsilon([(laplace(1 / 96), 96)], 0.0) == pytest.approx(1.0)


# --- windows


def window_cost(day, window, accountant):
    return max(accountant.epsilon(events, 1e-6) for events in window_events(day, window))


def test_a_window_of_whole_days_is_the_day_repeated():
    day = [laplace(0.05)] * 90 + [PrivacyEvent(())] * 6
    accountant = PldAccountant()
    assert window_cost(day, 192, accountant) == pytest.approx(accountant.epsilon([(day[0], 180)], 1e-6))


def test_a_window_costs_what_its_worst_position_costs():
    noisy, loud = pure(0.1), pure(0.4)
    day = [noisy] * 4 + [loud] * 2
    assert window_cost(day, 2, PureDpAccountant()) == pytest.approx(0.8)
    assert window_cost(day, 7, PureDpAccountant()) == pytest.approx(0.4 + 0.8 + 0.4)
    every = [sum(day[(s + n) % 6].max_loss for n in range(9)) for s in range(6)]
    assert window_cost(day, 9, PureDpAccountant()) == pytest.approx(max(every))


def test_equal_events_are_counted_together():
    a, b = pure(0.1), pure(0.2)
    assert count_events([a, b, a]) == [(a, 2), (b, 1)]


def test_gaussian_noise_keeps_no_pure_promise():
    """Its loss grows without end; beside bounded noise too, and unless nothing is released."""
    curve = GaussianCurve(U, 9.0 * U)
    assert not curve.bounded
    event = PrivacyEvent((randomised_response(0.1), curve))
    assert PureDpAccountant().epsilon([(pure(0.1), 5), (event, 1)], 0.0) == np.inf
    assert PureDpAccountant().epsilon([(pure(0.1), 5), (event, 0)], 0.0) == pytest.approx(0.5)
    assert 0 < PldAccountant().epsilon([(PrivacyEvent((curve,)), 96)], 1e-6) < np.inf


@pytest.mark.parametrize("curve", [randomised_response(0.1), HuberCurve(U, 2000.0, 0)])
def test_laplace_noise_keeps_a_pure_promise(curve):
    assert curve.bounded
    assert PureDpAccountant().epsilon([(PrivacyEvent((curve,)), 2)], 0.0) == pytest.approx(2 * curve.max_loss)


def test_outputs_that_only_one_world_has_keep_no_pure_promise():
    certain = PairCurve(np.array([0.9, 0.1, 0.0]), np.array([0.9, 0.0, 0.1]))
    assert not certain.bounded
    for accountant in ACCOUNTANTS:
        assert accountant.epsilon([(PrivacyEvent((certain,)), 1)], 1e-6) == np.inf
        assert accountant.epsilon([(PrivacyEvent((certain,)), 1), (pure(0.1), 3)], 1e-6) == np.inf


@pytest.mark.parametrize("delta", [0.0, 1e-13, 1.0])
def test_a_delta_that_cannot_be_computed_is_refused(delta):
    with pytest.raises(PrivacyError, match="must lie between 1e-12 and 1"):
        PldAccountant().epsilon([(pure(0.1), 2)], delta)


def test_an_envelope_of_one_direction_only_would_be_too_cheap():
    """Seeded bug: taking the direction home against away alone understates what a trajectory costs."""

    class OneWay(PairCurve):
        def delta(self, epsilon):
            with np.errstate(divide="ignore"):
                return np.array([np.maximum(self.p - np.exp(e) * self.q, 0).sum() for e in epsilon])

    skewed = np.array([0.999, 0.001]), np.array([0.98, 0.02])
    right, wrong = (
        PldAccountant().epsilon([(PrivacyEvent((kind(*skewed),)), 20)], 1e-3) for kind in (PairCurve, OneWay)
    )
    assert wrong < right * 0.95


# --- compositions on NumPy alone, beside dp-accounting and SciPy, and beside sums that are exact


CURVES = [
    randomised_response(0.3),
    HuberCurve(1000, 20_000.0, 0),
    HuberCurve(1000, 25_702.064, 53_293),
    HuberCurve(3000, 4000.0, 20),
    GaussianCurve(1000, 3730.0),
    GaussianCurve(500, 9000.0),
    PairCurve(np.array([0.6, 0.3999, 0.0001]), np.array([0.5, 0.5, 0.0])),  # an output that tells all
]


def ours_and_theirs(curve, step):
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
    (a, their_a), (b, their_b) = ours_and_theirs(one, step), ours_and_theirs(other, step)
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
    composed = ours_and_theirs(curve, curve.max_loss / 50)[0].self_compose(count)
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
    ours, _ = ours_and_theirs(curve, step)
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
