"""The Boolean schedule is Algorithm 1, and no rate ever changes it (docs/explanation/theory.md, section 2.2)."""

from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from research.paper.algorithm1 import run_algorithm_1

from murmurate.errors import ModelError
from murmurate.household.consumption import EMPTY_PRICE_HISTORY, TableConsumption
from murmurate.household.occupancy import ModelClass, OccupancyChains, OccupancyModel, sample_occupancy
from murmurate.privacy.calibration import laplace_scales
from murmurate.privacy.noise import NoiseDistribution, SeededNoise
from murmurate.privacy.policy import Policy, ProtectionRule, kappa, sensitivity_schedule
from tests.support.tiny_models import CURVE, EPSILON, consumption_laws, model_classes

PUBLISHED = st.lists(st.integers(-1000, 1000), min_size=1, max_size=6).map(lambda wh: np.array(wh, np.int64))


def boolean_kappa(model_class, horizon):
    return [frozenset(np.flatnonzero(protected).tolist()) for protected in islice(kappa(model_class), horizon)]


@pytest.mark.slow
@given(data=st.data(), model_class=model_classes(), published_wh=PUBLISHED)
def test_the_fast_schedule_equals_algorithm_1(data, model_class, published_wh):
    law = data.draw(consumption_laws(model_class.households))
    literal = run_algorithm_1(model_class, law, CURVE, EPSILON, published_wh, floor_wh=1)
    assert [step.kappa for step in literal] == boolean_kappa(model_class, len(published_wh))


@pytest.mark.slow
@given(data=st.data(), model_class=model_classes(max_models=2), one=PUBLISHED)
def test_no_published_rate_ever_changes_algorithm_1(data, model_class, one):
    law = data.draw(consumption_laws(model_class.households))
    other = data.draw(st.permutations(one.tolist()).map(lambda wh: np.array(wh, np.int64) * 7 - 3))
    steps = [run_algorithm_1(model_class, law, CURVE, EPSILON, wh, floor_wh=1) for wh in (one, other)]
    facts = [[(step.kappa, step.lambda_, [(m.mu, m.nu) for m in step.models]) for step in run] for run in steps]
    assert facts[0] == facts[1]


@pytest.mark.slow
@given(data=st.data(), model_class=model_classes(), published_wh=PUBLISHED)
def test_the_printed_algorithm_sets_the_sensitivity_of_the_schedule(data, model_class, published_wh):
    """lambda = alpha max u_h over kappa; where every kappa has a member the printed algorithm needs no floor."""
    law = data.draw(consumption_laws(model_class.households))
    horizon = len(published_wh)
    literal = run_algorithm_1(model_class, law, CURVE, EPSILON, published_wh, floor_wh=1)
    scheduled = sensitivity_schedule(Policy(rule=ProtectionRule.PAPER, floor_wh=1), law.bound_wh, horizon, model_class)
    assert [step.lambda_ * 1000 for step in literal] == scheduled.tolist()
    if all(step.kappa for step in literal):
        printed = run_algorithm_1(model_class, law, CURVE, EPSILON, published_wh)
        assert [(s.kappa, s.lambda_) for s in printed] == [(s.kappa, s.lambda_) for s in literal]
        assert (
            sensitivity_schedule(Policy(rule=ProtectionRule.PAPER), law.bound_wh, horizon, model_class) == scheduled
        ).all()


@pytest.mark.slow
@settings(max_examples=30)
@given(data=st.data(), model_class=model_classes(max_households=2, max_models=2))
def test_the_schedule_goes_on_for_ever_as_algorithm_1_does(data, model_class):
    """Over four days, each of which enters its first interval by that interval's own transition."""
    law = data.draw(consumption_laws(model_class.households))
    published_wh = np.zeros(4 * model_class.models[0].intervals_per_day, np.int64)
    literal = run_algorithm_1(model_class, law, CURVE, EPSILON, published_wh, floor_wh=1)
    assert [step.kappa for step in literal] == boolean_kappa(model_class, len(published_wh))


def together(initial, transition):
    """Two households as one cluster on the states 00, 10, 01, 11."""
    chain = OccupancyChains(members=[[0], [1]], initial=initial, transition=[transition], period=[0], kind=[0])
    return ModelClass(models=(OccupancyModel(groups=(chain,)),))


MOVE_TOGETHER = together(
    initial=[[0.5], [0.0], [0.0], [0.5]],
    transition=np.array([[0.5, 0, 0, 0.5], [0.5, 0, 0, 0.5], [0.5, 0, 0, 0.5], [0.5, 0, 0, 0.5]])[..., None],
)
IDLE_OR_BUSY = TableConsumption.from_probabilities([[[0.5, 0.5, 0.0]], [[0.0, 0.5, 0.5]]], kind=[0, 0])


def test_as_printed_households_that_move_together_get_no_noise_and_an_exact_rate_removes_states():
    """The corner in which the paper's own algorithm lets a rate change kappa: mu = {00, 11} has no neighbours."""
    (step,) = run_algorithm_1(MOVE_TOGETHER, IDLE_OR_BUSY, CURVE, EPSILON, np.array([4]))
    assert step.models[0].mu == {0b00, 0b11}
    assert step.kappa == frozenset()
    assert step.scale_wh == 0
    assert np.exp(step.models[0].posterior).tolist() == [0, 0, 0, 1]  # 4 Wh: both are home, for certain
    with pytest.raises(ModelError, match="published_wh is impossible"):
        run_algorithm_1(MOVE_TOGETHER, IDLE_OR_BUSY, CURVE, EPSILON, np.array([5]))


def test_by_default_households_that_move_together_are_protected():
    assert sensitivity_schedule(Policy(), IDLE_OR_BUSY.bound_wh, 3, MOVE_TOGETHER).tolist() == [2, 2, 2]


def test_as_printed_two_models_that_are_each_certain_protect_nobody():
    """Theta = {surely home, surely away}: kappa is empty under each, though the rate tells which of them is true."""
    certain = [OccupancyChains.independent(initial=[p], arrive=[[0.0]], leave=[[0.0]]) for p in (0.0, 1.0)]
    theta = ModelClass(models=tuple(OccupancyModel(groups=(chain,)) for chain in certain))
    assert boolean_kappa(theta, 2) == [frozenset(), frozenset()]
    assert sensitivity_schedule(Policy(), np.array([3000]), 2, theta).tolist() == [3000, 3000]


def test_transition_t_moves_into_t_and_the_first_is_used_from_the_second_day_on():
    """The paper defines A^t as leaving t and uses it as entering t; its line 4 would apply A^1 before interval 1."""
    mixing, still = [[0.5, 0.5], [0.5, 0.5]], [[1.0, 0.0], [0.0, 1.0]]

    def schedule(*steps):
        chain = OccupancyChains(
            members=[[0]],
            initial=[[1.0], [0.0]],
            transition=np.array(steps)[..., None],
            period=[0, 1, 2],
            kind=[0],
        )
        found = boolean_kappa(ModelClass(models=(OccupancyModel(groups=(chain,)),)), 4)
        return [bool(kappa) for kappa in found]

    assert schedule(still, mixing, still) == [False, True, True, True]
    assert schedule(mixing, still, still) == [False, False, False, True]


def linear_filter_loses(intervals, likelihood_ratio):
    """Algorithm 1 with beliefs as plain doubles: how long until a possible state has probability exactly zero."""
    belief = np.array([0.5, 0.5])
    for interval in range(intervals):
        belief = belief * np.array([1.0, likelihood_ratio])
        belief = belief / belief.sum()
        if (belief == 0).any():
            return interval + 1
    return None


@pytest.mark.slow
def test_a_linear_float_filter_loses_a_possible_state_and_ours_does_not():
    """A house that is occupied or vacant for good, and 1,000 rates that each speak for vacant with e^1."""
    assert linear_filter_loses(1000, np.exp(-1)) in range(740, 750)  # docs/explanation/theory.md, section 2.2: 745
    holiday_home = OccupancyChains.independent(initial=[0.5], arrive=[[0.0]], leave=[[0.0]])
    theta = ModelClass(models=(OccupancyModel(groups=(holiday_home,)),))
    away_or_home = TableConsumption.from_probabilities([[[1.0, 0.0]], [[0.0, 1.0]]], kind=[0])
    published_wh = np.full(1000, -500)
    steps = run_algorithm_1(theta, away_or_home, CURVE, EPSILON * 2, published_wh)
    assert steps[-1].models[0].posterior[1] < -990  # as good as impossible, and still possible
    assert np.exp(steps[-1].models[0].posterior[1]) == 0.0
    assert {step.kappa for step in steps} == {frozenset({0})}
    assert boolean_kappa(theta, 1000) == [frozenset({0})] * 1000


@pytest.mark.parametrize("tiny", [1e-300, 5e-324])
def test_the_smallest_probability_counts_as_possible(tiny):
    rarely = OccupancyChains.independent(initial=[0.0], arrive=[[tiny]], leave=[[tiny]])
    theta = ModelClass(models=(OccupancyModel(groups=(rarely,)),))
    assert boolean_kappa(theta, 3) == [frozenset(), frozenset({0}), frozenset({0})]


@pytest.mark.slow
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_the_printed_algorithm_agrees_on_independent_households_even_where_it_publishes_exactly(data, seed):
    """No floor: where kappa is empty every household is certain, and the exact demand tells nothing new."""
    households = data.draw(st.integers(1, 3))
    start = data.draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=households, max_size=households))
    steps = st.lists(st.sampled_from([0.0, 0.0, 0.3, 1.0]), min_size=households, max_size=households)
    chain = OccupancyChains.independent(initial=start, arrive=[data.draw(steps)], leave=[data.draw(steps)])
    theta = ModelClass(models=(OccupancyModel(groups=(chain,)),))
    law = data.draw(consumption_laws(households))
    rng = np.random.default_rng(seed)
    energy_wh = [
        law.sample(home, t, EMPTY_PRICE_HISTORY, rng)
        for t, home in enumerate(sample_occupancy(theta.models[0], 5, rng))
    ]
    sensitivity_wh = sensitivity_schedule(Policy(rule=ProtectionRule.PAPER), law.bound_wh, 5, theta)
    noise_wh = SeededNoise(seed).draw(NoiseDistribution.LAPLACE, laplace_scales(sensitivity_wh, EPSILON))
    published_wh = np.sum(energy_wh, axis=1) + noise_wh
    printed = run_algorithm_1(theta, law, CURVE, EPSILON, published_wh)
    assert [step.kappa for step in printed] == boolean_kappa(theta, 5)
    assert [step.lambda_ * 1000 for step in printed] == sensitivity_wh.tolist()
