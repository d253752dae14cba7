"""The model test rejects wrong distributions, memory at any lag, responses to occupancy, and small samples."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.declared_models import DAY, LAWS, lasting_rank, occupancy, readings, uniform_law

from murmurate.errors import ModelError
from murmurate.household.model_fit import bonferroni_levels, consumption_model_test, min_sample_size
from murmurate.household.serial_dependence import lagged_sums

DAYS, HOMES = 40, 40
T = DAYS * DAY
TIME = np.arange(T)


def free_rank(rng):
    return rng.random((T, HOMES))


def constant_for_ever(rng):
    return np.broadcast_to(rng.random(HOMES), (T, HOMES))


def constant_for_five_days(rng):
    return rng.random((DAYS, HOMES))[TIME // (5 * DAY)]


def the_same_each_day(rng):
    return rng.random((DAY, HOMES))[TIME % DAY]


def repeats_at_lag_five(rng):
    levels = rng.random((T // (20 * DAY) + 1, 5, HOMES))
    return levels[TIME // (20 * DAY), TIME % 5]


def distance_lasts_a_day(rng):
    return 0.5 + rng.choice([-0.5, 0.5], (T, HOMES)) * rng.random((DAYS, HOMES))[TIME // DAY]


def distance_is_correlated(rng):
    return 0.5 + rng.choice([-0.5, 0.5], (T, HOMES)) * lasting_rank(0.2, T, HOMES, rng)


def one_house_constant_for_a_day_each(rng):
    rank = free_rank(rng)
    rank[:, 0] = rng.random(DAYS)[TIME // DAY]
    return rank


def correlated(rng):
    return lasting_rank(0.1, T, HOMES, rng)


def one_house_correlated(rng):
    return np.hstack([lasting_rank(0.3, T, 1, rng), rng.random((T, HOMES - 1))])


def a_tenth_repeated_after_a_week(rng):
    rank, back = free_rank(rng), 7 * DAY
    again = rng.random((T - back, HOMES)) < 0.1
    rank[back:] = np.where(again, rank[:-back], rank[back:])
    return rank


def two_houses_alike(rng):
    rank = free_rank(rng)
    rank[:, 1] = rank[:, 0]
    return rank


def weather(rng):
    """A tenth of the readings of a time, in all households, is at the same rank."""
    return np.where(rng.random((T, HOMES)) < 0.1, rng.random((T, 1)), free_rank(rng))


def result_of(rank, seed=7, eta=0.0, **laws):
    occupied = occupancy(T, HOMES, np.random.default_rng(seed))
    return consumption_model_test(readings(rank, occupied, **laws), occupied, ["flat"] * HOMES, LAWS, day=DAY, eta=eta)


@pytest.mark.slow
@pytest.mark.parametrize("eta", [0.0, 0.05])
@pytest.mark.parametrize(
    "ranks",
    [
        constant_for_ever,
        constant_for_five_days,
        the_same_each_day,
        repeats_at_lag_five,
        distance_lasts_a_day,
        distance_is_correlated,
        one_house_constant_for_a_day_each,
        correlated,
        one_house_correlated,
        a_tenth_repeated_after_a_week,
        two_houses_alike,
        weather,
    ],
)
def test_memory_is_refused_at_any_lag_and_in_a_single_house(ranks, eta):
    result = result_of(ranks(np.random.default_rng(3)), eta=eta)
    assert (result.passed, result.sample_large_enough) == (False, True)


@pytest.mark.parametrize("eta", [0.0, 0.05, 0.3])
def test_readings_that_follow_their_laws_pass(eta):
    assert result_of(free_rank(np.random.default_rng(3)), eta=eta).passed


@pytest.mark.parametrize("away", [True, False])
def test_a_reading_that_is_repeated_now_and_then_is_seen_though_its_rank_hardly_remembers(away):
    """1 in 50 readings is that of five intervals before: a correlation of 0.02, but six times the repeats."""
    rng = np.random.default_rng(4)
    occupied = occupancy(T, HOMES, rng)
    energy_wh = readings(free_rank(rng), occupied)
    again = (rng.random((T, HOMES)) < 0.02) & (occupied != away)
    energy_wh[5:] = np.where(again[5:] & (occupied[5:] == occupied[:-5]), energy_wh[:-5], energy_wh[5:])
    result = consumption_model_test(energy_wh, occupied, ["flat"] * HOMES, LAWS, day=DAY)
    assert result.reason == "memory was found: readings repeat those 5 intervals before"


@pytest.mark.slow
@pytest.mark.parametrize("eta", [0.0, 0.05])
@pytest.mark.parametrize("houses", [1, HOMES])
@pytest.mark.parametrize(("away", "home"), [(300, 750), (300, 480), (200, 600), (100, 700)])
def test_a_wrong_law_is_refused_even_in_one_house(away, home, houses, eta):
    """A house with 1.5 times the gap of its kind costs 1.5 times as much as promised."""
    rng = np.random.default_rng(5)
    occupied = occupancy(T, HOMES, rng)
    energy_wh = readings(free_rank(rng), occupied)
    energy_wh[:, :houses] = readings(rng.random((T, houses)), occupied[:, :houses], away, home)
    result = consumption_model_test(energy_wh, occupied, ["flat"] * HOMES, LAWS, day=DAY, eta=eta)
    assert not result.passed
    assert "do not follow its distribution" in result.reason
    assert "memory" not in result.reason


def test_each_household_is_held_against_the_law_of_its_own_kind():
    rng = np.random.default_rng(6)
    laws, kind = LAWS | {"house": (uniform_law(500), uniform_law(900))}, ["flat", "house"] * (HOMES // 2)
    occupied = occupancy(T, HOMES, rng)
    large = np.array(kind) == "house"
    energy_wh = readings(free_rank(rng), occupied, np.where(large, 500, 300), np.where(large, 900, 600))
    assert consumption_model_test(energy_wh, occupied, kind, laws, day=DAY).passed
    assert not consumption_model_test(energy_wh, occupied, kind[::-1], laws, day=DAY).passed
    with pytest.raises(ModelError, match=r"kind is \['hut'\]: must be one of flat"):
        consumption_model_test(energy_wh, occupied, ["hut"] * HOMES, LAWS)


def test_a_reading_above_the_bound_counts_as_the_bound():
    rng = np.random.default_rng(8)
    law = {"flat": (uniform_law(300), np.where(np.arange(1001) == 1000, 0.4, 0.6 / 1000))}
    occupied = occupancy(T, HOMES, rng)
    rank = free_rank(rng)
    at_home = np.where(rank < 0.6, np.floor(rank / 0.6 * 1000), 1000 + 5000 * rank)
    energy_wh = np.where(occupied, at_home, readings(rank, occupied)).astype(np.int64)
    assert consumption_model_test(energy_wh, occupied, ["flat"] * HOMES, law, day=DAY).passed


@pytest.mark.parametrize("eta", [0.0, 0.05])
@pytest.mark.parametrize(("lag", "word"), [(-1, "later"), (1, "before"), (2, "before"), (8, "before")])
def test_readings_that_answer_to_earlier_or_later_occupancy_are_refused(lag, word, eta):
    """A boiler after a return, an oven switched off before leaving; the law of each state is right on average."""
    rng = np.random.default_rng(9)
    occupied = occupancy(T, HOMES, rng)
    other = np.roll(occupied, lag, axis=0) != occupied
    share = np.array([other[occupied == state].mean() for state in (False, True)])[occupied.astype(int)]
    high = free_rank(rng) * share + 1 - share  # after a change: the upper ranks, else the lower ones
    rank = np.where(rng.random((T, HOMES)) < 0.5, np.where(other, high, free_rank(rng) * (1 - share)), free_rank(rng))
    result = consumption_model_test(readings(rank, occupied), occupied, ["flat"] * HOMES, LAWS, day=DAY, eta=eta)
    assert "depend on the occupancy" in result.reason
    assert result.reason.endswith(word)


@pytest.mark.slow
@pytest.mark.parametrize("where", [0.0, 0.5, 0.9999])
@pytest.mark.parametrize("eta", [0.02, 0.05, 0.2])
def test_robust_excuses_its_share_wherever_it_lies_and_not_three_times_as_much(where, eta):
    rng = np.random.default_rng(10)
    for share, passes in ((eta, True), (3 * eta, False)):
        rank = np.where(rng.random((T, HOMES)) < share, where, free_rank(rng))
        assert result_of(rank, eta=eta).passed == passes
        assert not result_of(rank).passed


def test_robust_excuses_no_memory_however_little_of_the_time():
    """A share eta of all readings is nothing at all, but in stretches of half a day."""
    rng = np.random.default_rng(11)
    holiday = np.repeat(rng.random((2 * DAYS, HOMES)) < 0.05, DAY // 2, axis=0)
    result = result_of(np.where(holiday, 0.0, free_rank(rng)), eta=0.1)
    assert result.reason.startswith("memory was found")


def test_one_house_for_one_day_is_too_small_whatever_it_holds():
    rng = np.random.default_rng(12)
    occupied = occupancy(96, 1, rng)
    for rank in (rng.random((96, 1)), np.full((96, 1), 0.5)):
        result = consumption_model_test(readings(rank, occupied), occupied, ["flat"], LAWS)
        assert (result.passed, result.sample_large_enough) == (False, False)
        assert result.reason.startswith("96 intervals of 1 households are too few: each needs ")


@pytest.mark.parametrize("chance", [0.0, 0.00002])
def test_a_law_that_was_hardly_seen_is_not_tested(chance):
    """Everybody is home all the time, or nearly."""
    rng = np.random.default_rng(13)
    occupied = rng.random((T, HOMES)) >= chance
    result = consumption_model_test(readings(free_rank(rng), occupied), occupied, ["flat"] * HOMES, LAWS, day=DAY)
    assert (result.passed, result.sample_large_enough) == (False, False)
    assert "away of kind 'flat' are too few" in result.reason


def test_the_least_size_grows_with_the_number_of_statistics_alone():
    few, many = (min_sample_size(bonferroni_levels(1, homes, 672, 96)) for homes in (1, 1000))
    assert few.total_pairs == many.total_pairs == 7504
    assert few.readings_per_state == many.readings_per_state == 1932
    assert few.pairs_per_household < many.pairs_per_household < 1100


def test_a_sample_without_a_kind_for_each_household_is_refused():
    nothing = np.zeros((5, 3), np.int64)
    for occupied, kind in ((nothing > 0, ["flat"]), (nothing[:, 1:] > 0, ["flat"] * 3)):
        with pytest.raises(ModelError, match="a kind for each household"):
            consumption_model_test(nothing, occupied, kind, LAWS)


@settings(max_examples=30)
@given(st.integers(2, 40), st.integers(1, 5), st.integers(0, 2**32))
def test_sums_by_fourier_transform_are_the_sums(intervals, homes, seed):
    rng = np.random.default_rng(seed)
    one, other = rng.standard_normal((2, homes, intervals))
    lags = intervals - 1
    slow = [[one[h, k:] @ other[h, : intervals - k] for k in range(1, lags + 1)] for h in range(homes)]
    assert lagged_sums(one, other, lags) == pytest.approx(np.array(slow), abs=1e-9)
