"""The ranges hold the true chances with the stated probability, for the noise and for the sample together."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmurate.errors import PrivacyError
from murmurate.habits.hazard_ranges import bernoulli_range, count_margins, estimate_hazards
from murmurate.habits.private_counts import HabitCells, count_steps, release_counts
from murmurate.household.occupancy import OccupancyChains, OccupancyModel, sample_occupancy
from murmurate.privacy.noise import SeededNoise

PERIOD = np.repeat([0, 1, 2, 1], 3)
ARRIVE, LEAVE = np.array([0.3, 0.02, 0.1]), np.array([0.02, 0.25, 0.1])
HOUSEHOLDS, DAYS, MAX_CHANGES = 60, 6, 3


def truth():
    chains = OccupancyChains.independent(
        initial=[0.5], arrive=ARRIVE[:, None], leave=LEAVE[:, None], period=PERIOD, kind=[0] * HOUSEHOLDS
    )
    return OccupancyModel(groups=(chains,))


def released(seed, epsilon):
    """Counts of a new sample with new noise."""
    cells = HabitCells(period=PERIOD, day_type=np.zeros(DAYS, np.int64))
    occupied = sample_occupancy(truth(), DAYS * len(PERIOD), np.random.default_rng(seed))
    counts = count_steps(occupied, cells, MAX_CHANGES)
    return release_counts(
        counts, cells, max_changes=MAX_CHANGES, epsilon=Fraction(epsilon), noise=SeededNoise(seed + 10_000)
    )


def covers(hazards):
    chances = np.stack([ARRIVE, LEAVE])[:, None]
    return bool(((hazards.low <= chances) & (chances <= hazards.high)).all())


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", ["1", "1000"])
def test_the_true_chain_lies_within_the_ranges_at_least_as_often_as_stated(epsilon, figure):
    held = np.mean([covers(estimate_hazards(released(seed, epsilon), 0.9)) for seed in range(300)])
    figure(f"epsilon {epsilon}: all ranges hold in {held:.1%} of 300 samples, stated 90 %")
    assert held >= 0.9


@pytest.mark.slow
def test_ranges_that_disregard_the_noise_or_the_sample_are_noticed():
    noisy = [released(seed, "1") for seed in range(100)]
    without_margin = [replace(each, scale=np.full_like(each.scale, 1e-3)) for each in noisy]
    assert np.mean([covers(estimate_hazards(each, 0.9)) for each in without_margin]) < 0.5
    exact = [estimate_hazards(released(seed, "1000"), 0.9) for seed in range(100)]
    points = [replace(each, low=each.estimate - 0.005, high=each.estimate + 0.005) for each in exact]
    assert np.mean([covers(each) for each in points]) < 0.5


def test_more_households_and_a_larger_epsilon_give_narrower_ranges():
    wide, narrow = (estimate_hazards(released(3, epsilon), 0.99) for epsilon in ("1", "50"))
    assert (narrow.high - narrow.low).sum() < 0.5 * (wide.high - wide.low).sum()
    assert (narrow.low <= narrow.estimate).all()
    assert (narrow.estimate <= narrow.high).all()


@pytest.mark.slow
def test_a_range_holds_even_if_the_trials_stop_at_the_worst_time():
    """Stopping when the data look most extreme defeats an ordinary interval, not this one."""
    rng, chance, error = np.random.default_rng(4), 0.2, 0.1
    trials = np.arange(1, 1001)
    successes = np.cumsum(rng.random((400, 1000)) < chance, axis=1)
    low, high = bernoulli_range(successes.astype(np.float64), np.broadcast_to(trials, successes.shape), error)
    missed = ((low > chance) | (high < chance)).any(axis=1).mean()
    assert missed <= error
    deviation = np.sqrt(chance * (1 - chance) / trials)
    ordinary = (np.abs(successes / trials - chance) > 1.645 * deviation)[:, 30:].any(axis=1).mean()
    assert ordinary > 2 * error


@given(st.integers(0, 40), st.integers(0, 40), st.floats(1e-6, 0.3))
def test_more_successes_raise_a_range_and_more_failures_lower_it(successes, failures, error):
    def ends(n, f):
        low, high = bernoulli_range(np.array([float(n)]), np.array([float(n + f)]), error)
        return float(low[0]), float(high[0])

    low, high = ends(successes, failures)
    assert 0 <= low <= successes / max(successes + failures, 1) <= high <= 1
    for more in (ends(successes + 1, failures),):
        assert more[0] >= low - 1e-12
        assert more[1] >= high - 1e-12
    fewer = ends(successes, failures + 1)
    assert fewer[0] <= low + 1e-12
    assert fewer[1] <= high + 1e-12


def test_the_margins_of_all_counts_share_half_of_the_error():
    margins = count_margins(np.full((4, 1, 2), 100.0), 0.9)
    tail = 2 * np.exp(-(margins + 1) / 100) / (1 + np.exp(-0.01))
    assert tail.sum() == pytest.approx(0.05, rel=0.02)
    assert tail.sum() <= 0.05


@pytest.mark.parametrize("confidence", [0.0, 1.0, 2.0])
def test_a_confidence_that_is_no_probability_is_refused(confidence):
    with pytest.raises(PrivacyError, match="between 0 and 1"):
        estimate_hazards(released(1, "1"), confidence)
