from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from murmurate.adversaries.adversary import auc, auc_bound, refutes_auc_bound

scores = st.lists(st.integers(-4, 4) | st.floats(allow_nan=False), min_size=1, max_size=12)


@given(away=scores, home=scores)
def test_the_auc_is_the_chance_that_home_scores_higher_and_half_the_ties(away, home):
    pairs = [(h > a) + (h == a) / 2 for a, h in product(map(float, away), map(float, home))]
    assert auc(away, home) == pytest.approx(np.mean(pairs))
    assert auc(home, away) == pytest.approx(1 - auc(away, home))


@given(sample=scores)
def test_the_auc_of_identical_laws_is_one_half(sample):
    assert auc(sample, sample) == 0.5


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
