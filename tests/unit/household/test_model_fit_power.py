"""The model test at the minimum size: correct samples pass, and each departure is detected."""

import numpy as np
import pytest
from tests.support.declared_models import DAY, LAWS, lasting_rank, occupancy, readings

from murmurate.household.model_fit import bonferroni_levels, consumption_model_test, min_sample_size

HOMES = 8
LEAST = min_sample_size(bonferroni_levels(1, HOMES, 7 * DAY, DAY))
T = max(LEAST.pairs_per_household, -(-LEAST.total_pairs // HOMES)) + 1


def inverse(law, rank):
    return np.minimum(np.searchsorted(np.cumsum(law), rank, side="right"), len(law) - 1)


def skewed_laws():
    """Away: nothing in a third of the time, else little; home: exponential. Ranks have ties and long tails."""
    away, home = (np.exp(-np.arange(1001) / scale) for scale in (40, 120))
    away[0] += 20
    return {"flat": (away / away.sum(), home / home.sum())}


def count_passed(runs, ranks, eta=0.0, laws=None):
    passed = 0
    for seed in range(runs):
        rng = np.random.default_rng([seed, runs])
        occupied, rank = occupancy(T, HOMES, rng), ranks(rng)
        away, home = (laws or LAWS)["flat"]
        energy_wh = np.where(occupied, inverse(home, rank), inverse(away, rank))
        passed += consumption_model_test(
            energy_wh, occupied, ["flat"] * HOMES, laws or LAWS, day=DAY, eta=eta, seed=seed
        ).passed
    return passed


def test_the_least_size_is_just_enough():
    rng = np.random.default_rng(1)
    occupied = occupancy(T, HOMES, rng)
    energy_wh = readings(rng.random((T, HOMES)), occupied)
    assert consumption_model_test(energy_wh, occupied, ["flat"] * HOMES, LAWS, day=DAY).sample_large_enough
    assert not consumption_model_test(energy_wh[1:], occupied[1:], ["flat"] * HOMES, LAWS, day=DAY).sample_large_enough


def test_right_samples_pass_300_of_300():
    """At most 1 in 1,000 may fail, so 300 of 300 is expected; the bounds leave room for many more."""
    assert count_passed(300, lambda rng: rng.random((T, HOMES))) == 300


@pytest.mark.parametrize("eta", [0.0, 0.05, 0.3])
def test_right_samples_of_skewed_laws_with_ties_pass(eta):
    assert count_passed(100, lambda rng: rng.random((T, HOMES)), eta, skewed_laws()) == 100


@pytest.mark.parametrize("eta", [0.05, 0.3])
def test_samples_that_are_wrong_by_their_share_pass(eta):
    def ranks(rng):
        return np.where(rng.random((T, HOMES)) < eta, 0.9999, rng.random((T, HOMES)))

    assert count_passed(100, ranks, eta) == 100


@pytest.mark.parametrize("eta", [0.0, 0.05])
def test_a_rank_correlation_of_a_tenth_in_all_houses_is_seen_in_97_percent(eta):
    assert count_passed(200, lambda rng: lasting_rank(0.1, T, HOMES, rng), eta) <= 6


@pytest.mark.parametrize("eta", [0.0, 0.05])
def test_a_rank_correlation_of_three_tenths_in_one_house_is_seen_in_97_percent(eta):
    def ranks(rng):
        return np.hstack([lasting_rank(0.3, T, 1, rng), rng.random((T, HOMES - 1))])

    assert count_passed(200, ranks, eta) <= 6


@pytest.mark.parametrize("up", [True, False])
@pytest.mark.parametrize("eta", [0.0, 0.05])
def test_a_tenth_of_the_readings_in_the_wrong_place_is_seen(eta, up):
    """A tenth of the readings, beyond eta, moves from one half of the ranks to the other."""

    def ranks(rng):
        rank = rng.random((T, HOMES))
        moved = np.where((rank > 0.5) & (rng.random((T, HOMES)) < 2 * (0.1 + eta)), rank - 0.5, rank)
        return 1 - moved if up else moved

    assert count_passed(100, ranks, eta) <= 3
