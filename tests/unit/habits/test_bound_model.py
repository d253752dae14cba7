"""No chain within the ranges leaks more about a moment than the bound model, whatever the days and the noise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.brute_force import exact_leakage
from tests.support.finite_leakage import periodic_prior

from murmurate.errors import PrivacyError
from murmurate.habits import zone_text
from murmurate.habits.zone_text import (
    StepChances,
    find_bound_model,
    find_slowest_model,
    is_bounded,
    least_reversed_chances,
    periodic_home_probability,
    reverse_chances,
)
from murmurate.household.occupancy import OccupancyChains
from murmurate.privacy.leakage import periodic_leakage, with_periodic_prior
from murmurate.privacy.leakage_over_time import local_time_leakage

PERIOD = np.repeat([3, 0, 1, 2, 3], [28, 4, 32, 28, 4])  # the day of the example zone
PER_DAY = np.array([[0.98, 0.05, 0.99, 0.01], [0.05, 0.95, 0.05, 0.995]])  # arrive and leave, during each period
PER_STEP = 1 - (1 - PER_DAY) ** (1 / np.array([4, 32, 28, 32]))


def chains_of(model):
    chains = OccupancyChains.independent(
        initial=[0.5],
        arrive=model.arrive[:, None],
        leave=model.leave[:, None],
        period=np.arange(len(model.arrive)),
    )
    return with_periodic_prior(chains)


def leakage_of(model, losses):
    return float(periodic_leakage(chains_of(model), losses).max())


def repeated(model, days):
    return StepChances(arrive=np.tile(model.arrive, days), leave=np.tile(model.leave, days))


def random_ranges(rng, intervals, spread=2.0):
    low = np.exp(rng.uniform(np.log(0.002), np.log(0.45), (2, intervals)))
    high = np.minimum(low * np.exp(rng.uniform(0, spread, low.shape)), 1)
    return (StepChances(arrive=ends[0], leave=ends[1]) for ends in (low, high))


def random_model(rng, low, high, days=1):
    """A chain within the ranges, other on each day: corners as often as not, and arrive + leave <= 1."""
    place = rng.random((2, days, len(low.arrive)))
    if rng.random() < 0.5:
        place = place.round()
    arrive = low.arrive + place[0] * (high.arrive - low.arrive)
    leave = np.minimum(low.leave + place[1] * (high.leave - low.leave), 1 - arrive)
    arrive = np.where(leave < low.leave, 1 - low.leave, arrive)
    return StepChances(arrive=arrive.ravel(), leave=np.maximum(leave, low.leave).ravel())


def example_ranges(factor):
    steps = PER_STEP[:, PERIOD]
    return tuple(StepChances(arrive=s[0], leave=s[1]) for s in (steps * factor, np.minimum(steps / factor, 1)))


@pytest.mark.slow
@given(st.integers(0, 10**6), st.integers(2, 8), st.integers(1, 3))
def test_no_chain_within_the_ranges_leaks_more_than_the_bound_even_if_it_changes_from_day_to_day(seed, day, days):
    rng = np.random.default_rng(seed)
    low, high = random_ranges(rng, day)
    bound = find_bound_model(low, high)
    assert is_bounded(bound, low, least_reversed_chances(low, high))
    losses = rng.uniform(0, 0.5, day * days)
    most = leakage_of(repeated(bound, days), losses)
    for _ in range(5):
        assert leakage_of(random_model(rng, low, high, days), losses) <= most + 1e-9


@given(st.integers(0, 10**6))
def test_the_bound_holds_by_brute_force_over_all_trajectories_and_corners(seed):
    rng = np.random.default_rng(seed)
    low, high = random_ranges(rng, 3)
    bound, losses = find_bound_model(low, high), rng.uniform(0, 1.0, 6)
    slots = np.arange(6) % 3
    inside, outside = (exact_leakage(chains_of(m), slots, losses) for m in (random_model(rng, low, high), bound))
    assert (inside <= outside + 1e-9).all()


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.95, 0.7])
def test_the_bound_of_a_real_day_holds_for_every_loss_and_clock(factor):
    rng = np.random.default_rng(8)
    low, high = example_ranges(factor)
    bound = find_bound_model(low, high)
    reversed_low = least_reversed_chances(low, high)
    assert is_bounded(bound, low, reversed_low)
    for _ in range(6):
        model = random_model(rng, low, high)
        loss = rng.uniform(0.005, 0.05, 96 if rng.random() < 0.5 else 1)
        clock = (0, 4), ((4, 0, 4), (4, 4, 0))  # an hour of summer time, both changes at 01:00
        inside, most = (local_time_leakage(chains_of(m), loss, *clock) for m in (model, bound))
        assert inside <= most + 1e-9


def test_the_smallest_chances_do_not_leak_most():
    """More departures in one interval can make a model leak more, because they change the prior of other intervals."""
    arrive, leave = np.array([0.4183, 0.0056, 0.0009]), np.array([0.0004, 0.0002, 0.0003])
    slowest = StepChances(arrive=arrive, leave=leave)
    other = StepChances(arrive=arrive, leave=leave * np.array([1, 15, 1]))
    assert leakage_of(other, 0.079) > 1.04 * leakage_of(slowest, 0.079)
    high = StepChances(arrive=arrive, leave=leave * 15)
    assert leakage_of(other, 0.079) <= leakage_of(find_bound_model(slowest, high), 0.079)
    assert not is_bounded(slowest, slowest, least_reversed_chances(slowest, high))


@pytest.mark.slow
def test_no_random_model_leaks_more_than_the_slowest_corner_slowed_by_a_fifth(figure):
    """What the bound without a proof rests on: random models, the same on each day, under even noise."""
    rng, largest = np.random.default_rng(11), 0.0
    for number in range(60):
        low, high = random_ranges(rng, int(rng.integers(2, 9)), 3.0) if number % 3 else example_ranges(0.6)
        epsilon = rng.uniform(0.01, 0.2)
        most = leakage_of(find_slowest_model(low), epsilon)
        for _ in range(4):
            largest = max(largest, leakage_of(random_model(rng, low, high), epsilon) / most)
    figure(f"largest leakage of 240 random models: {largest:.3f} of the slowest corner slowed by a fifth")
    assert largest <= 1


def test_exact_ranges_cost_nothing_and_wide_ones_cost_much(figure):
    found = {}
    for factor in (1.0, 0.9, 0.7):
        low, high = example_ranges(factor)
        found[factor] = leakage_of(find_bound_model(low, high), 0.0389) / leakage_of(example_ranges(1.0)[0], 0.0389)
    figure(f"leakage of the bound, ranges of 0, 10 and 30 %: {', '.join(f'{v:.2f}' for v in found.values())} times")
    assert found[1.0] == pytest.approx(1, abs=1e-3)
    assert 1.2 < found[0.9] < 2 < found[0.7] < 4


@given(st.integers(0, 10**6), st.integers(2, 6))
def test_reversed_chances_and_priors_are_those_of_the_chain(seed, day):
    rng = np.random.default_rng(seed)
    low, high = random_ranges(rng, day)
    model = random_model(rng, low, high)
    home = periodic_home_probability(model)
    assert home == pytest.approx([periodic_prior(chains_of(model), t)[1, 0] for t in range(day)])
    turned, least = reverse_chances(model, home), least_reversed_chances(low, high)
    assert (least.arrive <= turned.arrive + 1e-12).all()
    assert (least.leave <= turned.leave + 1e-12).all()


def test_ranges_that_show_no_change_or_alternate_are_refused():
    day = np.full(4, 0.1)
    with pytest.raises(PrivacyError, match="more households"):
        find_bound_model(StepChances(arrive=0 * day, leave=day), StepChances(arrive=day, leave=day))
    with pytest.raises(PrivacyError, match="more households"):
        find_slowest_model(StepChances(arrive=day, leave=0 * day))
    with pytest.raises(PrivacyError, match="alternate"):
        find_bound_model(StepChances(arrive=5 * day, leave=6 * day), StepChances(arrive=5 * day, leave=6 * day))


def test_a_wrong_answer_of_the_solver_is_not_used(monkeypatch):
    low, high = example_ranges(0.9)
    monkeypatch.setattr(zone_text, "_largest_fluxes", lambda least, *_: least)
    with pytest.raises(PrivacyError, match="bound is not found"):
        find_bound_model(low, high)


def test_hours_in_which_nothing_was_seen_have_a_bound_too():
    low = StepChances(arrive=np.array([0.2, 0.0, 0.0, 0.0]), leave=np.array([0.0, 0.0, 0.2, 0.0]))
    high = StepChances(arrive=np.full(4, 0.3), leave=np.full(4, 0.3))
    bound = find_bound_model(low, high)
    rng = np.random.default_rng(2)
    for _ in range(10):
        assert leakage_of(random_model(rng, low, high), 0.2) <= leakage_of(bound, 0.2)
