from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from murmurate.adversaries.adversary import (
    auc,
    differencing_score,
    emission_log_likelihood,
    filtered_log_odds,
    joint_log_odds,
    max_log_odds_shift,
    public_log_ratio,
    smoothed_log_odds,
)
from murmurate.errors import ModelError

chance = st.sampled_from([0.0, 1e-9, 0.3, 0.5, 0.9, 1.0])
log_likelihood = st.floats(-300, 5)


def laplace(scale):
    """log Pr[K = k] of discrete Laplace noise, written out: audit does not look into privacy."""
    return lambda noise_wh: -np.abs(noise_wh) / scale + np.log(np.tanh(1 / (2 * scale)))


@st.composite
def streams(draw):
    """(initial, transition, log_emission) of at most 6 intervals, with exact zeros and vast likelihood ratios."""
    horizon = draw(st.integers(1, 6))
    p = draw(chance)
    rows = [[draw(chance), draw(chance)] for _ in range(horizon)]
    emission = [[draw(log_likelihood), draw(log_likelihood)] for _ in range(horizon)]
    transition = np.array([[[1 - come, come], [go, 1 - go]] for come, go in rows])
    return np.array([1 - p, p]), transition, np.array(emission)


def by_enumeration(initial, transition, emission, last=None):
    """Log odds of each interval by summing over all 2^T trajectories, with releases up to `last` of them alone."""
    horizon = len(emission)
    with np.errstate(divide="ignore"):
        start, steps = np.log(initial), np.log(transition)
    weight = {}
    for path in product((0, 1), repeat=horizon):
        observed = sum(emission[t, s] for t, s in enumerate(path) if last is None or t <= last)
        weight[path] = start[path[0]] + observed + sum(steps[t, path[t - 1], path[t]] for t in range(1, horizon))
    sums = [
        [np.logaddexp.reduce([w for path, w in weight.items() if path[t] == s]) for s in (0, 1)] for t in range(horizon)
    ]
    return np.array([home - away for away, home in sums])


def same(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


@given(stream=streams())
def test_the_strong_adversary_equals_the_sum_over_all_trajectories(stream):
    same(smoothed_log_odds(*stream), by_enumeration(*stream))


@given(stream=streams())
def test_the_filtered_one_has_heard_the_past_alone(stream):
    horizon = len(stream[2])
    same(filtered_log_odds(*stream), [by_enumeration(*stream, last=t)[t] for t in range(horizon)])
    same(filtered_log_odds(*stream)[-1], smoothed_log_odds(*stream)[-1])


def test_days_side_by_side_are_days_one_by_one():
    rng = np.random.default_rng(1)
    transition = np.array([[[0.9, 0.1], [0.3, 0.7]]] * 5)
    emission = rng.normal(size=(3, 4, 5, 2))
    for adversary in (smoothed_log_odds, filtered_log_odds):
        together = adversary([0.5, 0.5], transition, emission)
        for day in np.ndindex(3, 4):
            same(together[day], adversary([0.5, 0.5], transition, emission[day]))


def test_a_thousand_intervals_do_not_underflow():
    """A linear-space filter loses the state after 745 of these: here its log odds are -1000."""
    emission = np.tile([0.0, -1.0], (1000, 1))
    assert smoothed_log_odds([0.5, 0.5], np.tile(np.eye(2), (1000, 1, 1)), emission)[-1] == pytest.approx(-1000)


def test_an_impossible_release_is_refused():
    with pytest.raises(ModelError, match="log_emission is impossible"):
        smoothed_log_odds([1.0, 0.0], np.eye(2)[None], [[-np.inf, 0.0]])
    with pytest.raises(ModelError, match="chain is shaped"):
        smoothed_log_odds([1.0, 0.0], np.eye(2), [[0.0, 0.0]])


# --- the promise against the strong one


@st.composite
def households(draw):
    """A household's two laws on 0..u Wh, what the others used, and what was published."""
    bound_wh = draw(st.integers(1, 6))
    weights = st.lists(st.sampled_from([0, 1, 3, 1e-6]), min_size=bound_wh + 1, max_size=bound_wh + 1).filter(any)
    pmfs = [np.array(w) / sum(w) for w in (draw(weights), draw(weights))]
    days = draw(st.lists(st.tuples(st.integers(0, 50), st.integers(-100, 200)), min_size=1, max_size=6))
    rest_wh, published_wh = (np.array(column) for column in zip(*days, strict=True))
    return bound_wh, pmfs, rest_wh, published_wh


@given(house=households(), epsilon=st.sampled_from([0.1, 0.5, 2.0]), p=st.floats(0.01, 0.99))
def test_range_calibrated_noise_never_shifts_an_independent_household_by_more_than_epsilon(house, epsilon, p):
    bound_wh, (away, home), rest_wh, published_wh = house
    emission = emission_log_likelihood(published_wh, rest_wh, away, home, laplace(bound_wh / epsilon))
    each_day_anew = np.tile([1 - p, p], (len(rest_wh), 2, 1))
    posterior = smoothed_log_odds([1 - p, p], each_day_anew, emission)
    assert max_log_odds_shift(posterior, np.log(p) - np.log1p(-p)) <= epsilon + 1e-9


@given(house=households(), stream=streams())
def test_no_chain_shifts_by_more_than_epsilon_for_each_release(house, stream):
    bound_wh, (away, home), rest_wh, published_wh = house
    horizon = min(len(rest_wh), len(stream[2]))
    emission = emission_log_likelihood(published_wh, rest_wh, away, home, laplace(bound_wh / 0.5))[:horizon]
    initial, transition = stream[0], stream[1][:horizon]
    prior = smoothed_log_odds(initial, transition, np.zeros((horizon, 2)))
    assert max_log_odds_shift(smoothed_log_odds(initial, transition, emission), prior) <= 0.5 * horizon + 1e-9


def test_the_bound_on_the_shift_is_attained_and_broken_by_noise_that_is_short():
    point = np.eye(4)
    for scale, shift in ((3 / 0.5, 0.5), (2 / 0.5, 0.75)):
        emission = emission_log_likelihood(np.array([-4, 9]), 0, point[0], point[3], laplace(scale))
        posterior = smoothed_log_odds([0.5, 0.5], np.full((2, 2, 2), 0.5), emission)
        assert max_log_odds_shift(posterior, 0.0) == pytest.approx(shift)


@given(house=households())
def test_an_emission_is_the_law_of_the_sum(house):
    bound_wh, pmfs, rest_wh, published_wh = house
    found = np.exp(emission_log_likelihood(published_wh, rest_wh, *pmfs, laplace(2.0)))
    for t, s in np.ndindex(found.shape):
        terms = [pmfs[s][x] * np.exp(laplace(2.0)(published_wh[t] - rest_wh[t] - x)) for x in range(bound_wh + 1)]
        assert found[t, s] == pytest.approx(sum(terms), rel=1e-9)


# --- the others


@pytest.mark.slow
@given(
    surplus=st.floats(-200, 200),
    sigma=st.sampled_from([0.5, 3.0, 40.0]),
    scale=st.sampled_from([0.0, 0.01, 2.0, 30.0]),
)
def test_the_public_adversary_convolves_three_laws(surplus, sigma, scale):
    """Against the trapezium rule along whichever of the two laws is the narrower."""
    away, home = np.array([0.5, 0.5, 0.0, 0.0]), np.array([0.1, 0.2, 0.3, 0.4])
    step = np.linspace(-40, 40, 40_001)

    def density(d):
        if scale == 0:
            return stats.norm.pdf(d, 0, sigma)
        if scale > sigma:
            return np.trapezoid(stats.norm.pdf(step) * stats.laplace.pdf(d - sigma * step, 0, scale), step)
        return np.trapezoid(stats.laplace.pdf(step) * stats.norm.pdf(d - scale * step, 0, sigma), step)

    likelihood = [sum(p * density(surplus - x) for x, p in enumerate(law)) for law in (away, home)]
    (score,) = public_log_ratio([100 + surplus], 100, sigma**2, away, home, scale)
    if min(likelihood) > 1e-9:
        assert score == pytest.approx(np.log(likelihood[1] / likelihood[0]), abs=1e-4)
    assert np.isfinite(score)


def test_without_a_rest_there_is_nothing_to_approximate():
    with pytest.raises(ModelError, match="rest_variance is 0"):
        public_log_ratio([1], 0, 0.0, np.ones(1), np.ones(1), 1.0)


@given(weights=st.integers(1, 4).flatmap(lambda n: st.lists(st.floats(0.01, 1), min_size=2**n, max_size=2**n)))
def test_the_joint_adversary_sums_over_the_others(weights):
    posterior = np.array(weights) / sum(weights)
    for house, odds in enumerate(joint_log_odds(np.log(posterior))):
        home = sum(p for state, p in enumerate(posterior) if state >> house & 1)
        assert odds == pytest.approx(np.log(home / (1 - home)), abs=1e-9)


def test_the_joint_adversary_needs_all_states():
    with pytest.raises(ModelError, match="of 3 states"):
        joint_log_odds(np.zeros(3))


def test_two_exact_releases_that_differ_by_one_house_tell_its_reading_and_noise_on_both_hides_it():
    """Exact: U(0, u) against U(0, u/2) has AUC 3/4. With b = 2u on both the difference hardly tells anything."""
    rng = np.random.default_rng(2)
    rest_wh = rng.integers(0, 100_000, 40_000)
    scores = {}
    for scale in (0.0, 2000.0):
        worlds = []
        for ceiling in (500, 1000):
            reading = rng.integers(0, ceiling, 40_000, endpoint=True)
            noise = scale * (rng.exponential(size=(2, 40_000)) - rng.exponential(size=(2, 40_000)))
            worlds.append(differencing_score(rest_wh + reading + noise[0], rest_wh + noise[1]))
        scores[scale] = auc(*worlds)
    assert scores[0.0] == pytest.approx(0.75, abs=0.01)
    assert 0.51 < scores[2000.0] < 0.54


def test_a_shift_between_two_certainties_is_none_and_away_from_one_is_infinite():
    assert max_log_odds_shift([np.inf, -np.inf], [np.inf, -np.inf]) == 0
    assert max_log_odds_shift([np.inf], [0.0]) == np.inf
