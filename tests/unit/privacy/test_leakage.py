from itertools import product
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from research.paper.related_mechanisms import cao_leakage, group_privacy_scale, markov_quilt_scale
from research.paper.simulated_zones import paper_calendar, paper_habits
from tests.support.finite_leakage import moment_leakage

from murmurate.errors import ModelError, PrivacyError
from murmurate.household.occupancy import OccupancyChains
from murmurate.privacy.leakage import (
    epsilon_for_leakage,
    evidence_ranges,
    periodic_distributions,
    periodic_leakage,
    propagate_evidence,
    worst_leakage,
)

CHANCES = st.sampled_from([0.0, 0.0, 1.0, 0.5, 0.1, 0.9, 1e-9, 0.03, 0.997])
MIXING = st.floats(0.1, 0.9)
LOSSES = st.floats(0, 3)


def chain(initial, arrive, leave):
    """One household whose day has its own chances in each interval."""
    days = range(len(arrive))
    return OccupancyChains.independent(
        initial=[initial], arrive=np.array(arrive)[:, None], leave=np.array(leave)[:, None], period=list(days)
    )


@st.composite
def cases(draw, chances=CHANCES, most=7):
    """A chain that changes in each of up to seven intervals, and a loss for each of them."""
    days = draw(st.integers(1, most))
    arrive, leave = (draw(st.lists(chances, min_size=days, max_size=days)) for _ in range(2))
    loss = np.array(draw(st.lists(LOSSES, min_size=days, max_size=days)))
    return chain(draw(chances), arrive, leave), loss


def paper_chain(initial=None):
    """The paper's four periods, habits not perturbed; the prior is the periodic one unless given."""
    calendar = paper_calendar()
    arrive, leave = (chances[:, None] for chances in paper_habits())
    found = OccupancyChains.independent(initial=[0.5], arrive=arrive, leave=leave, period=calendar)
    settled = float(np.exp(periodic_distributions(found, 96)[0].belief[0, 1, 0]))
    start = settled if initial is None else initial
    return OccupancyChains.independent(initial=[start], arrive=arrive, leave=leave, period=calendar)


def brute_force(chains, low, high):
    """Every hidden trajectory under every corner of the releases' log ratios: the most the odds of S^t change."""
    horizon = len(low)
    trajectories = np.array(list(product((0, 1), repeat=horizon)))
    probability = chains.initial[trajectories[:, 0], 0]
    for t in range(1, horizon):
        probability = probability * chains.transition_at(t)[trajectories[:, t - 1], trajectories[:, t], 0]
    corners = np.array(list(product(*zip(low, high, strict=True))))
    likelihood = np.exp(corners @ trajectories.T)  # p(r_t | 0) = 1: only ratios matter
    found = []
    for t in range(horizon):
        home = trajectories[:, t] == 1
        prior = [probability[~home].sum(), probability[home].sum()]
        if min(prior) == 0:
            found.append(0.0)
            continue
        away, at_home = (likelihood[:, h] @ probability[h] / p for h, p in zip((~home, home), prior, strict=True))
        found.append(np.abs(np.log(at_home / away)).max())
    return np.array(found)


@pytest.mark.slow
@given(case=cases())
@settings(max_examples=60)
def test_the_recursion_equals_brute_force_over_trajectories_and_corners(case):
    chains, loss = case
    horizon = len(chains.period)
    assert moment_leakage(chains, loss, horizon)[:, 0] == pytest.approx(brute_force(chains, -loss, loss), abs=1e-9)


@given(case=cases(most=5), inner=st.lists(st.floats(0, 1), min_size=5, max_size=5))
@settings(max_examples=40)
def test_no_release_between_the_corners_tells_more(case, inner):
    """The extremes are at corners: ranges shrunk to one value between them, [l, l], never leak more."""
    chains, loss = case
    at = (2 * np.array(inner[: len(loss)]) - 1) * loss
    assert (brute_force(chains, at, at) <= moment_leakage(chains, loss, len(at))[:, 0] + 1e-9).all()


def without_future(laws, ends):
    past = evidence_ranges(laws.backward, ends, np.zeros(()), len(ends))
    return past + ends


def without_sorting(laws, ends):
    past, future = np.zeros((2, *ends.shape))
    for t in range(1, len(ends)):
        past[t] = propagate_evidence(laws.backward[t], past[t - 1] + ends[t - 1])
        future[-1 - t] = propagate_evidence(laws.forward[-1 - t], future[-t] + ends[-t])
    return past + ends + future


def with_forward_laws_backward(laws, ends):
    past = evidence_ranges(np.roll(laws.forward, 1, axis=0), ends, np.zeros(()), len(ends))
    return past + ends + evidence_ranges(laws.forward[::-1], ends[::-1], np.zeros(()), len(ends))[::-1]


def as_it_is(laws, ends):
    past = evidence_ranges(laws.backward, ends, np.zeros(()), len(ends))
    return past + ends + evidence_ranges(laws.forward[::-1], ends[::-1], np.zeros(()), len(ends))[::-1]


@pytest.mark.parametrize(
    ("recursion", "right"),
    [(as_it_is, True), (without_future, False), (without_sorting, False), (with_forward_laws_backward, False)],
)
def test_brute_force_catches_a_recursion_that_is_wrong(recursion, right):
    chains = chain(0.2, [0.1, 0.95, 0.3, 0.2], [0.2, 0.9, 0.05, 0.6])
    laws, _ = periodic_distributions(chains, 4)
    chains = chain(float(np.exp(laws.belief[0, 1, 0])), [0.1, 0.95, 0.3, 0.2], [0.2, 0.9, 0.05, 0.6])
    low, high = np.array([-0.3, -1.0, -0.2, -0.7]), np.array([1.5, 0.1, 0.8, 0.4])
    log_odds = recursion(laws, np.stack([low, high], 1)[..., None])
    found = np.maximum(log_odds[:, 1], -log_odds[:, 0])[:, 0]
    assert (np.abs(found - brute_force(chains, low, high)).max() < 1e-9) == right


def test_a_certain_moment_leaks_nothing_and_parts_its_past_from_its_future():
    """The shop is shut for certain in interval 2: intervals before and after leak as if the others did not exist."""
    chains = chain(0.5, [0.1, 0.1, 0.0, 0.4, 0.1], [0.2, 0.2, 1.0, 0.5, 0.2])
    leaked = moment_leakage(chains, 1.0, 5)[:, 0]
    alone = moment_leakage(chain(0.5, [0.1, 0.1], [0.2, 0.2]), 1.0, 2)[:, 0]
    assert leaked[2] == 0
    assert leaked[:2] == pytest.approx(alone)
    after = moment_leakage(chain(0.4, [0.4, 0.1], [0.5, 0.2]), 1.0, 2)[:, 0]
    assert leaked[3:] == pytest.approx(after)


def test_a_state_that_is_merely_improbable_is_not_certain():
    """After 400 intervals the state has probability 1e-400, which no double holds."""
    chains = OccupancyChains.independent(initial=[0.5], arrive=[[0.0]], leave=[[0.9]])
    leaked = moment_leakage(chains, 0.5, 400)[:, 0]
    assert (leaked > 0.5).all()
    assert leaked[-1] == pytest.approx(200, abs=0.5)  # who is still there was there all along


def test_a_load_that_remembers_breaks_the_precondition_even_for_range_noise():
    """Occupancy is a fair coin in each interval, but release 1 answers to S^0: S^0 leaks twice epsilon, not once."""
    epsilon, coin = 0.5, OccupancyChains.independent(initial=[0.5], arrive=[[0.5]], leave=[[0.5]])
    ratio = {0: np.exp(-epsilon / 2), 1: np.exp(epsilon / 2)}
    likelihood = [sum(ratio[before] * ratio[before] / 2 for _ in (0, 1)) for before in (0, 1)]
    assert np.log(likelihood[1] / likelihood[0]) == pytest.approx(2 * epsilon)
    assert moment_leakage(coin, epsilon, 2)[0, 0] == pytest.approx(epsilon)


@pytest.mark.slow
@given(case=cases(), more=st.floats(1, 2))
@settings(max_examples=40)
def test_leakage_lies_between_its_own_epsilon_and_the_sum_of_all_and_grows_with_them(case, more):
    chains, loss = case
    horizon = len(chains.period)
    leaked, found = (moment_leakage(chains, k * loss, horizon)[:, 0] for k in (1, more))
    uncertain = leaked > 0
    assert (leaked[uncertain] >= loss[uncertain]).all()
    assert (leaked <= loss.sum() + 1e-9).all()
    assert (found >= leaked - 1e-9).all()


@given(home=st.floats(0.01, 0.99), epsilon=LOSSES)
@settings(max_examples=20)
def test_independent_moments_leak_exactly_epsilon(home, epsilon):
    chains = OccupancyChains.independent(initial=[home], arrive=[[home]], leave=[[1 - home]])
    assert moment_leakage(chains, epsilon, 5) == pytest.approx(np.full((5, 1), epsilon))
    assert periodic_leakage(chains, epsilon) == pytest.approx(np.full((1, 1), epsilon), abs=1e-10)


def phi(p1, p0, a):
    with np.errstate(divide="ignore"):
        return float(propagate_evidence(np.log([[1 - p0, p0], [1 - p1, p1]]), np.array(a)))


@given(p1=st.floats(0, 1), p0=st.floats(0, 1), a=st.floats(-30, 30))
def test_phi_is_its_formula_and_never_carries_more_than_it_is_given(p1, p0, a):
    formula = np.log((1 - p1 + p1 * np.exp(a)) / (1 - p0 + p0 * np.exp(a)))
    assert phi(p1, p0, a) == pytest.approx(formula, abs=1e-9)
    assert abs(phi(p1, p0, a)) <= abs(a) + 1e-12


@pytest.mark.slow
@given(case=cases(chances=MIXING, most=4))
@settings(max_examples=25)
def test_the_endless_leakage_is_the_middle_day_of_a_long_horizon_and_never_below_it(case):
    chains, loss = case
    days, day = 2 * (150 // len(chains.period)) + 1, len(chains.period)
    middle = moment_leakage(chains, loss, days * day)[days // 2 * day : (days // 2 + 1) * day]
    found = periodic_leakage(chains, loss)
    assert found == pytest.approx(middle, abs=1e-8)
    settled = float(np.exp(periodic_distributions(chains, day)[0].belief[0, 1, 0]))
    steady = OccupancyChains.independent(
        initial=[settled], arrive=chains.transition[:, 0, 1], leave=chains.transition[:, 1, 0], period=chains.period
    )
    assert (found >= moment_leakage(steady, loss, days * day)[days // 2 * day : (days // 2 + 1) * day] - 1e-13).all()


def test_kinds_together_leak_what_they_leak_one_by_one():
    rng = np.random.default_rng(5)
    initial, arrive, leave = rng.random(50), rng.random((3, 50)), rng.random((3, 50))
    arrive[0, :9], leave[1, 5:20], initial[:3] = 0, 1, 0
    loss = rng.random((3, 50))
    together = OccupancyChains.independent(initial=initial, arrive=arrive, leave=leave, period=[0, 1, 2])
    for solve in (lambda c, x: moment_leakage(c, x, 7), periodic_leakage):
        alone = [
            solve(
                OccupancyChains.independent(
                    initial=initial[[k]], arrive=arrive[:, [k]], leave=leave[:, [k]], period=[0, 1, 2]
                ),
                loss[:, [k]],
            )[:, 0]
            for k in range(50)
        ]
        assert solve(together, loss).T == pytest.approx(np.array(alone), abs=1e-10)


@pytest.mark.parametrize(
    ("initial", "arrive", "leave", "leaks"),
    [
        (0.5, [0.0], [0.0], inf),  # no household ever moves
        (0.5, [1.0], [1.0], inf),  # everybody changes, in every interval: as good as never
        (0.5, [0.0], [0.1], inf),  # who left never comes back: who is still here was here for ever
        (0.5, [1.0, 0.0], [1.0, 0.0], inf),
        (1.0, [0.0], [0.0], 0.0),  # certain
        (1.0, [1.0], [1.0], 0.0),
        (0.0, [0.0], [0.1], 0.0),
    ],
)
def test_chains_that_never_mix_leak_without_bound_unless_certain(initial, arrive, leave, leaks):
    chains = chain(initial, arrive, leave)
    assert (periodic_leakage(chains, 0.1) == leaks).all()
    assert periodic_leakage(chains, 0.0) == pytest.approx(0, abs=1e-10)
    with pytest.raises(
        PrivacyError, match=f"leakage is {leaks}: occupancy must be uncertain, and change in the course"
    ):
        epsilon_for_leakage(chains, 1.0)


@pytest.mark.parametrize("chance", [1e-3, 1e-6, 1e-12, 1e-100])
def test_chains_that_hardly_mix_leak_much_but_not_without_bound(chance):
    """Evidence settles where an interval's epsilon is lost to the chance of change: e^-B - e^-(B+eps) ~ chance."""
    chains = OccupancyChains.independent(initial=[0.5], arrive=[[chance]], leave=[[chance]])
    leaked = periodic_leakage(chains, 0.5)[0, 0]
    before = (leaked - 0.5) / 2
    assert before == pytest.approx(phi(1 - chance, chance, before + 0.5), rel=1e-6)
    assert leaked == pytest.approx(2 * np.log(1 / chance), rel=0.2)


def test_a_start_far_from_the_periodic_prior_counts():
    """The first days of a household thought to be away leak more than its later ones, and worst_leakage says so."""
    chains = OccupancyChains.independent(initial=[1e-6], arrive=[[0.05]], leave=[[0.05]])
    loss = 0.5
    first = moment_leakage(chains, loss, 300)[:, 0].max()
    assert first > periodic_leakage(chains, loss).max() + 0.1
    assert first <= worst_leakage(chains, loss)


@pytest.mark.slow
@given(case=cases(chances=st.one_of(MIXING, CHANCES), most=4))
@settings(max_examples=60)
def test_no_horizon_leaks_more_than_the_worst(case):
    chains, loss = case
    worst = worst_leakage(chains, loss)
    assert all(moment_leakage(chains, loss, horizon).max() <= worst + 1e-12 for horizon in (1, 3, 40))


@pytest.mark.slow
@pytest.mark.parametrize("target", [0.01, 1.0, 7.0])
def test_the_solver_keeps_the_promise_and_wastes_less_than_a_millionth(target):
    chains = paper_chain(initial=0.3)
    leaked = worst_leakage(chains, epsilon_for_leakage(chains, target))
    assert target * (1 - 1e-6) < leaked <= target


def test_the_worst_is_over_kinds():
    slow, pair = chain(0.5, [0.05], [0.05]), [0.4, 0.01]
    both = OccupancyChains.independent(initial=[0.5, 0.5], arrive=[pair], leave=[pair])
    loss = 0.3
    assert worst_leakage(both, loss) == worst_leakage(chain(0.5, [0.01], [0.01]), loss) > worst_leakage(slow, loss)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda c: moment_leakage(c, [0.1, -1.0], 2), r"loss\[1\] is -1.0: must be 0 or more"),
        (lambda c: periodic_leakage(c, inf), r"loss\[0\] is inf: must be 0 or more"),
        (lambda c: epsilon_for_leakage(c, 0.0), r"target is 0.0: must be positive"),
    ],
)
def test_a_loss_or_target_that_makes_no_promise_is_refused(make, says):
    with pytest.raises(PrivacyError, match=says):
        make(chain(0.5, [0.1], [0.1]))


def test_groups_of_several_households_are_refused_by_name():
    pair = OccupancyChains(
        members=[[0], [1]], initial=np.full((4, 1), 0.25), transition=np.full((1, 4, 4, 1), 0.25), period=[0], kind=[0]
    )
    for solve in (lambda: moment_leakage(pair, 1, 3), lambda: epsilon_for_leakage(pair, 1.0)):
        with pytest.raises(ModelError, match="members is groups of 2: must be single households"):
            solve()


@pytest.mark.parametrize(("epsilon", "ours", "cao"), [(0.5, 9.07, 12.23), (0.1, 2.51, 2.80), (0.05, 1.28, 1.35)])
def test_the_papers_chain_leaks_what_theory_section_4_says(epsilon, ours, cao):
    """Source: docs/explanation/theory.md, section 4.8; Cao et al. (ICDE 2017) for comparison; eps T is 96 eps."""
    chains = paper_chain()
    exact = periodic_leakage(chains, epsilon)
    bound = cao_leakage(chains, np.full(96, epsilon))
    assert exact.max() == pytest.approx(ours, abs=0.005)
    assert bound.max() == pytest.approx(cao, abs=0.005)
    assert (exact <= bound + 1e-9).all()
    assert bound.max() < 96 * epsilon


@pytest.mark.slow
@pytest.mark.parametrize(("target", "epsilon"), [(0.5, 0.0195), (1, 0.0389), (2, 0.0787), (4, 0.1647)])
def test_the_epsilon_for_a_leakage_is_what_theory_section_4_says(target, epsilon):
    assert epsilon_for_leakage(paper_chain(), target) == pytest.approx(epsilon, abs=0.00005)


@pytest.mark.slow
def test_the_noise_of_an_endless_stream_is_what_theory_section_4_says():
    """Leakage 1 for every moment, u = 1: a day's group privacy, Markov quilt, then moment with three calibrations."""
    chains = paper_chain()
    epsilon = epsilon_for_leakage(chains, 1.0)
    assert group_privacy_scale(1.0, 96) == 96
    assert markov_quilt_scale(chains, 1.0) == pytest.approx(87.3, abs=0.05)
    assert 1 / epsilon == pytest.approx(25.7, abs=0.05)
    assert 1 / (2 * epsilon) == pytest.approx(12.9, abs=0.06)  # `shift` on the paper's uniform laws: half the range
    assert 1 / (2 * np.log(2 * np.exp(epsilon) - 1)) == pytest.approx(6.55, abs=0.005)  # `exact` on them, section 3
