"""The event that tells two worlds apart is found, and choosing it costs nothing that was promised."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from murmurate.audit.event_search import bound_epsilon_below, count_residues, count_values, log_ratio_bound

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
