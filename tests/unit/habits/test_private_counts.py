"""One household changes the counts by at most two votes, and the noise hides two votes within e^epsilon."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmurate.errors import ModelError, PrivacyError
from murmurate.habits.private_counts import (
    REPLACEMENT_DISTANCE,
    HabitCells,
    StepCount,
    count_steps,
    noise_margin,
    noise_scales,
    release_counts,
    vote_units,
)
from murmurate.privacy.noise import SeededNoise, SystemNoise, laplace_log_pmf


def number_from_zero(values):
    """The same pattern with the numbers 0, 1, .. in the order of their first use."""
    seen = list(dict.fromkeys(values))
    return [seen.index(value) for value in values]


@st.composite
def samples(draw):
    """Cells, a limit of changes, and the occupancy of two households who may live as they like."""
    period = number_from_zero(draw(st.lists(st.integers(0, 2), min_size=1, max_size=5)))
    day_type = number_from_zero(draw(st.lists(st.integers(0, 2), min_size=1, max_size=4)))
    intervals = len(period) * len(day_type)
    paths = draw(st.lists(st.lists(st.booleans(), min_size=intervals, max_size=intervals), min_size=2, max_size=2))
    return HabitCells(period=period, day_type=day_type), draw(st.integers(1, 6)), np.array(paths).T


def vote_distance(one, other, units):
    return sum(
        abs(int(a) - int(b)) / unit for a, b, unit in zip(one.ravel(), other.ravel(), units.ravel(), strict=True)
    )


@given(samples())
def test_replacing_a_household_changes_the_counts_by_at_most_two_votes(sample):
    cells, max_changes, occupied = sample
    one, other = count_steps(occupied, cells, max_changes)
    units = vote_units(cells, max_changes)
    nothing = np.zeros_like(one)
    assert vote_distance(one, nothing, units) <= 1
    assert vote_distance(one, other, units) <= REPLACEMENT_DISTANCE


@given(samples(), st.sampled_from(["1/3", "1", "2.5"]))
def test_the_noise_of_all_counts_together_keeps_epsilon(sample, epsilon):
    cells, max_changes, occupied = sample
    one, other = count_steps(occupied, cells, max_changes)
    scales = np.vectorize(Fraction, otypes=[object])(noise_scales(cells, max_changes, Fraction(epsilon)))
    assert vote_distance(one, other, scales) <= Fraction(epsilon)


def test_a_household_that_changes_all_the_time_would_have_many_votes_if_it_were_not_cut_off():
    cells, restless = HabitCells(period=[0] * 24, day_type=[0] * 3), np.arange(72)[:, None] % 2 == 0
    units = vote_units(cells, max_changes=4)
    (cut,), (uncut,) = (count_steps(restless, cells, limit) for limit in (4, 10**6))
    assert vote_distance(cut, np.zeros_like(cut), units) <= 1
    assert vote_distance(uncut, np.zeros_like(uncut), units) > 3


def test_no_output_is_more_than_e_to_the_epsilon_times_as_likely_after_a_household_is_replaced():
    """All samples of one household in a tiny world, all outputs in reach, the exact probabilities of the noise."""
    cells, max_changes, epsilon = HabitCells(period=[0, 0, 0], day_type=[0]), 1, Fraction(2)
    scale = noise_scales(cells, max_changes, epsilon).ravel()
    rest = np.array([2, 1, 1, 0])  # the counts of the other households
    homes = np.array(list(product((False, True), repeat=3))).T
    counts = count_steps(homes, cells, max_changes).reshape(8, 4) + rest
    outputs = np.arange(-8, 14)
    log_p = np.array([[laplace_log_pmf(outputs - x, b) for x, b in zip(row, scale, strict=True)] for row in counts])
    worst = 0.0
    for one, other in product(range(8), repeat=2):
        ratio = log_p[one] - log_p[other]  # [count, output]; the noise of each count is independent
        grid = ratio[0][:, None, None, None] + ratio[1][:, None, None] + ratio[2][:, None] + ratio[3]
        worst = max(worst, float(grid.max()))
    assert 0.6 * float(epsilon) < worst <= float(epsilon)


class HalvedNoise(SeededNoise):
    def draw(self, distribution, scale_wh, core_wh=None):
        return super().draw(distribution, scale_wh / 2, core_wh)


class MissingNoise(SeededNoise):
    def draw(self, distribution, scale_wh, core_wh=None):
        return super().draw(distribution, 0 * scale_wh, core_wh)


def mean_noise(noise, runs=40):
    """The mean size of the noise in units of its scale: 1 for Laplace noise, with a deviation of 0.016 here."""
    cells = HabitCells(period=np.arange(24), day_type=[0])
    counts = count_steps(np.zeros((24, 5), np.bool_), cells, 4)
    drawn = [release_counts(counts, cells, max_changes=4, epsilon=Fraction(1, 10), noise=noise) for _ in range(runs)]
    return np.mean([np.abs((each.counts - counts.sum(axis=0)) / each.scale).mean() for each in drawn])


@pytest.mark.slow
def test_the_noise_is_drawn_at_its_full_scale_and_a_bug_would_be_noticed():
    assert abs(mean_noise(SystemNoise()) - 1) < 0.1
    assert abs(mean_noise(SeededNoise(1)) - 1) < 0.1
    assert abs(mean_noise(HalvedNoise(1)) - 1) > 0.1
    assert abs(mean_noise(MissingNoise(1)) - 1) > 0.1


@given(st.floats(1, 1e5), st.floats(1e-9, 0.5))
def test_the_margin_is_the_least_that_the_noise_exceeds_with_that_probability(scale, error):
    def exceeds(margin):
        return 2 * np.exp(-(margin + 1) / scale) / (1 + np.exp(-1 / scale))

    margin = noise_margin(scale, error)
    assert exceeds(margin) <= error * (1 + 1e-9)
    assert margin == 0 or exceeds(margin - 1) >= error * (1 - 1e-9)


def test_counts_of_a_day_by_hand():
    home = np.array([[0, 1, 1, 0, 0, 1], [1, 1, 1, 1, 1, 1]], np.bool_).T
    cells = HabitCells(period=[0, 0, 0, 1, 1, 1], day_type=[0])
    first, second = count_steps(home, cells, max_changes=2)
    assert first[StepCount.ARRIVED, 0].tolist() == [1, 0]
    assert first[StepCount.LEFT, 0].tolist() == [0, 1]
    assert first[StepCount.AWAY, 0].tolist() == [1, 0]  # nothing is counted after the second change
    assert first[StepCount.HOME, 0].tolist() == [1, 1]
    assert second[:, 0].tolist() == [[0, 0], [2, 3], [0, 0], [0, 0]]


def test_wrong_samples_and_budgets_are_refused():
    cells = HabitCells(period=[0, 0], day_type=[0])
    with pytest.raises(ModelError, match="must be 1 days of 2"):
        count_steps(np.zeros((3, 1), np.bool_), cells, 4)
    with pytest.raises(ModelError, match="each number from 0"):
        HabitCells(period=[0, 2], day_type=[0])
    for epsilon in (Fraction(0), Fraction(-1)):
        with pytest.raises(PrivacyError, match="must be positive"):
            noise_scales(cells, 4, epsilon)
    with pytest.raises(PrivacyError, match="2\\*\\*40"):
        noise_scales(cells, 4, Fraction(1, 10**15))
