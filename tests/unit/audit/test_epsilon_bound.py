from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from murmurate.audit.epsilon_bound import auc, auc_bound, clopper_pearson, epsilon_lower_bound, refutes_auc_bound
from murmurate.errors import MurmurateError, PrivacyError

scores = st.lists(st.integers(-4, 4) | st.floats(allow_nan=False), min_size=1, max_size=12)


@given(away=scores, home=scores)
def test_the_auc_is_the_chance_that_home_scores_higher_and_half_the_ties(away, home):
    pairs = [(h > a) + (h == a) / 2 for a, h in product(map(float, away), map(float, home))]
    assert auc(away, home) == pytest.approx(np.mean(pairs))
    assert auc(home, away) == pytest.approx(1 - auc(away, home))


@given(sample=scores)
def test_the_auc_of_identical_laws_is_one_half(sample):
    assert auc(sample, sample) == 0.5


def randomised_response(epsilon, draws, rng):
    """(away, home) answers of a household that tells the truth with chance e^eps/(1 + e^eps)."""
    truth = rng.random((2, draws)) < auc_bound(epsilon)
    return ~truth[0], truth[1]


@given(epsilon=st.floats(0, 8))
def test_randomised_response_attains_the_largest_auc(epsilon):
    """Its ROC curve has one corner, (1-q, q); the area below it by trapezia."""
    q = np.exp(epsilon) / (1 + np.exp(epsilon))
    assert np.trapezoid([0, q, 1], [0, 1 - q, 1]) == pytest.approx(auc_bound(epsilon))


@given(epsilon=st.floats(0.01, 5), weights=st.lists(st.floats(0, 1), min_size=2, max_size=6))
def test_no_pair_of_laws_within_epsilon_exceeds_the_largest_auc(epsilon, weights):
    """Any two laws p, q with q/p in [e^-eps, e^eps]: tilt a uniform p and normalise, then sort by likelihood ratio."""
    tilt = np.exp(epsilon * (np.array(weights) - 0.5))  # a normalised ratio stays within e^(+-epsilon)
    away, home = np.full(len(tilt), 1 / len(tilt)), tilt / tilt.sum()
    order = np.argsort(tilt)
    below = np.cumsum(away[order]) - away[order] / 2
    assert float(home[order] @ below) <= auc_bound(epsilon) + 1e-12


@given(pairs=st.integers(1, 60), most=st.floats(0.5, 0.99), failure=st.sampled_from([0.3, 0.01, 1e-6]))
def test_a_true_auc_is_refuted_no_more_often_than_the_verdict_says(pairs, most, failure):
    """Exactly, by summing the binomial law: scores 0 or 1 of `pairs` days at home against days away that all tie."""
    outcomes = range(pairs + 1)
    refuted = [refutes_auc_bound(won / pairs, most, pairs, failure) for won in outcomes]
    assert stats.binom.pmf(outcomes, pairs, most)[refuted].sum() <= failure


def test_an_auc_from_few_days_is_not_refuted_by_luck():
    """Twenty days of scores without meaning: the best of a thousand runs is far above 1/2, and is acquitted."""
    rng = np.random.default_rng(2)
    found = [auc(*rng.random((2, 10))) for _ in range(1000)]
    assert max(found) > 0.8
    assert not any(refutes_auc_bound(each, 0.5, 10, 1e-5) for each in found)


@given(trials=st.integers(1, 60), probability=st.floats(0.01, 0.99), confidence=st.sampled_from([0.5, 0.9, 0.999]))
def test_the_interval_of_clopper_and_pearson_covers_as_often_as_it_says(trials, probability, confidence):
    """Exactly, by summing the binomial law: no sampling."""
    outcomes = range(trials + 1)
    intervals = [clopper_pearson(k, trials, confidence) for k in outcomes]
    missed = [not low <= probability <= high for low, high in intervals]
    assert stats.binom.pmf(outcomes, trials, probability)[missed].sum() <= 1 - confidence + 1e-9


def test_the_interval_is_the_one_of_scipy():
    for k, n in ((0, 7), (3, 7), (7, 7), (120, 4000)):
        theirs = stats.binomtest(k, n).proportion_ci(0.99, method="exact")
        assert clopper_pearson(k, n, 0.99) == pytest.approx((theirs.low, theirs.high))


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2.0])
def test_the_lower_bound_is_below_epsilon_in_ninety_nine_runs_of_a_hundred(epsilon):
    """At confidence 0.99 and 400 runs, up to 4 misses are expected; 12 would come by chance once in a thousand."""
    rng = np.random.default_rng(3)
    bounds = [epsilon_lower_bound(*randomised_response(epsilon, 400, rng), confidence=0.99) for _ in range(400)]
    assert sum(bound > epsilon for bound in bounds) < 12


def test_choosing_and_measuring_on_the_same_samples_would_not_be_a_lower_bound():
    """Why they are split: the value with the best luck among a thousand, measured by that luck."""
    rng = np.random.default_rng(5)
    naive, split = [], []
    for _ in range(20):
        away, home = rng.integers(0, 1000, (2, 40_000))  # one law: epsilon is 0
        seen = [np.bincount(world, minlength=1000) for world in (away, home)]
        best = int(np.argmax((seen[1] + 0.5) / (seen[0] + 0.5)))
        low, high = (clopper_pearson(int(world[best]), 40_000, 0.9) for world in (seen[1], seen[0]))
        naive.append(np.log(low.low / high.high))
        split.append(epsilon_lower_bound(away, home, confidence=0.9))
    assert np.mean(np.array(naive) > 0) > 0.8
    assert np.mean(np.array(split) > 0) <= 0.2


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2.0])
def test_the_lower_bound_is_close_to_epsilon_with_many_samples(epsilon):
    answers = randomised_response(epsilon, 400_000, np.random.default_rng(4))
    assert 0 <= epsilon - epsilon_lower_bound(*answers) < 0.04


@pytest.mark.parametrize("swap", [False, True])
def test_a_value_that_one_world_never_shows_is_found_among_many_floats(swap):
    """One output in a hundred is a constant that the other world cannot produce: p >= 1/110, q <= 11/100,000."""
    rng = np.random.default_rng(6)
    plain, marked = rng.laplace(0, 2, (2, 200_000))
    marked[rng.random(200_000) < 0.01] = 0.123456
    worlds = (marked, plain) if swap else (plain, marked)
    assert epsilon_lower_bound(*worlds) > 4.3
    assert epsilon_lower_bound(plain[::2], plain[1::2]) < 0.05


def test_an_event_that_is_no_half_line_is_found():
    """Home is the middle and both ends; every half line has a ratio near 1."""
    rng = np.random.default_rng(7)
    away, home = rng.normal(0, 1, 100_000), rng.normal(0, 1, 100_000)
    home[(np.abs(home) > 0.5) & (np.abs(home) < 1) & (rng.random(100_000) < 0.9)] = 0.0
    assert epsilon_lower_bound(away, home) > 1.9


def test_a_delta_is_taken_off():
    rng = np.random.default_rng(8)
    away = np.zeros(50_000)
    home = (rng.random(50_000) < 0.01).astype(float)  # (0, 0.01) and nothing worse
    assert epsilon_lower_bound(away, home) > 3
    assert epsilon_lower_bound(away, home, delta=0.01) < 0.02


def test_certain_scores_may_be_infinite():
    assert epsilon_lower_bound(np.full(1000, -np.inf), np.full(1000, np.inf)) > 4


@pytest.mark.parametrize(
    ("away", "says"),
    [([[1, 2]], "must be a list"), ([1.0, np.nan] * 4, "must be a number"), ([2**60] * 8, "a double tells apart")],
)
def test_scores_that_cannot_be_ordered_are_refused(away, says):
    with pytest.raises(MurmurateError, match=says):
        epsilon_lower_bound(away, [1.0] * 8)


def test_counts_and_confidences_that_mean_nothing_are_refused():
    with pytest.raises(PrivacyError, match="confidence is 1"):
        clopper_pearson(1, 2, 1.0)
    with pytest.raises(PrivacyError, match="successes is 3 of 2"):
        clopper_pearson(3, 2, 0.9)
    with pytest.raises(MurmurateError, match="at least 4"):
        epsilon_lower_bound([1, 2, 3], [1, 2, 3, 4])
