"""The event that tells two worlds apart is found, and choosing it costs nothing that was promised."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tests.support.epsilon_bound import epsilon_lower_bound

from murmurate.adversaries.adversary import auc_bound
from murmurate.adversaries.event_search import (
    bound_epsilon_below,
    clopper_pearson_lower,
    clopper_pearson_upper,
    count_residues,
    count_values,
    log_ratio_bound,
)
from murmurate.errors import MurmurateError

values = st.lists(st.integers(-30, 30), min_size=8, max_size=40).map(np.array)


@given(away=values, home=values, modulus=st.integers(2, 9))
def test_residues_are_counted_part_by_part(away, home, modulus):
    counts = count_residues(away, [home, home + 1], modulus)
    parts = (slice(0, None, 4), slice(2, None, 4), slice(1, None, 2))
    for found, part in zip(counts, parts, strict=True):
        assert found.shape == (2, 2, modulus)
        for candidate, world in enumerate((home, home + 1)):
            for residue in range(modulus):
                assert found[candidate, 0, residue] == sum(away[part] % modulus == residue)
                assert found[candidate, 1, residue] == sum(world[part] % modulus == residue)


@given(away=values, home=values)
def test_every_sample_is_counted_once(away, home):
    counts = count_values(away, home)
    assert sum(int(part[0, 0].sum()) for part in counts) == len(away)
    assert sum(int(part[0, 1].sum()) for part in counts) == len(home)


@given(hits=st.tuples(st.integers(0, 50), st.integers(0, 50)), failure=st.sampled_from([0.1, 1e-3, 1e-8]))
def test_the_ratio_is_that_of_two_exact_bounds(hits, failure):
    found = log_ratio_bound(np.array(hits), np.array([50, 50]), failure)
    low = stats.beta.ppf(failure / 2, hits[0], 51 - hits[0]) if hits[0] else 0.0
    high = stats.beta.isf(failure / 2, hits[1] + 1, 50 - hits[1]) if hits[1] < 50 else 1.0
    assert found == (pytest.approx(np.log(low / high), abs=1e-6) if low else -np.inf)


@pytest.mark.slow
def test_the_best_of_a_hundred_candidates_is_no_luckier_than_one():
    """Two worlds of one law: epsilon is 0, and at failure 0.1 at most a tenth of the runs may say otherwise."""
    rng = np.random.default_rng(1)
    wrong = 0
    for _ in range(40):
        away, *homes = rng.integers(0, 12, (101, 400))
        wrong += bound_epsilon_below([count_residues(away, homes, 12)], failure=0.1).epsilon > 0
    assert wrong <= 10


def test_the_candidate_that_tells_most_is_named():
    rng = np.random.default_rng(2)
    away = 2 * rng.integers(-500, 500, 4000)
    same, odd = 2 * rng.integers(-500, 500, (2, 4000))
    proof = bound_epsilon_below([count_values(away, same), count_residues(away, [same, odd + 1], 2)], failure=1e-6)
    assert (proof.counts_index, proof.candidate_index) == (1, 1)
    assert proof.epsilon > 4


def test_the_edge_of_a_support_is_found_though_hardly_anything_lies_beyond():
    """One output in a thousand lies beyond the other world's edge, less than lies between two quantiles."""
    away, home = np.random.default_rng(3).random((2, 400_000)) + np.array([[0], [0.001]])
    assert bound_epsilon_below([count_values(away, home)], failure=1e-7).epsilon > 1.2


def randomised_response(epsilon, draws, rng):
    """(away, home) answers of a household that tells the truth with chance e^eps/(1 + e^eps)."""
    truth = rng.random((2, draws)) < auc_bound(epsilon)
    return ~truth[0], truth[1]


def clopper_pearson(successes, trials, confidence):
    """(low, high); each side fails with a chance of (1 - confidence)/2."""
    sides = (clopper_pearson_lower, clopper_pearson_upper)
    return tuple(float(side(np.array([successes]), trials, (1 - confidence) / 2)[0]) for side in sides)


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
        (low, _), (_, high) = (clopper_pearson(int(world[best]), 40_000, 0.9) for world in (seen[1], seen[0]))
        naive.append(np.log(low / high))
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


def test_too_few_scores_are_refused():
    with pytest.raises(MurmurateError, match="at least 4"):
        epsilon_lower_bound([1, 2, 3], [1, 2, 3, 4])
