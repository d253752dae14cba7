import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.tiny_models import model_classes

from murmurate.errors import ModelError
from murmurate.household.occupancy import (
    ModelClass,
    OccupancyChains,
    OccupancyModel,
    log_joint_chain,
    occupancy_probability,
    sample_occupancy,
)


def brute_force(model, horizon):
    """Pr[S_i^t = 1] by walking the full joint chain in plain probabilities."""
    joint = log_joint_chain(model)
    belief, found = np.exp(joint.initial), []
    for t in range(horizon):
        if t:
            belief = belief @ np.exp(joint.transition[t % len(joint.transition)])
        home = np.arange(len(belief))[:, None] >> np.arange(model.households) & 1
        found.append(belief @ home)
    return np.array(found)


@pytest.mark.slow
@given(theta=model_classes(max_models=1), horizon=st.integers(1, 6))
def test_groups_walk_as_the_full_joint_chain_does(theta, horizon):
    (model,) = theta.models
    assert occupancy_probability(model, horizon) == pytest.approx(brute_force(model, horizon), abs=1e-9)


@pytest.mark.slow
@given(theta=model_classes(max_households=3, max_models=1), seed=st.integers(0, 2**32))
def test_an_impossible_state_is_never_drawn(theta, seed):
    (model,) = theta.models
    joint = log_joint_chain(model)
    occupied = sample_occupancy(model, 6, np.random.default_rng(seed))
    states = occupied @ (1 << np.arange(model.households))
    assert joint.initial[states[0]] > -np.inf
    for t in range(1, 6):
        assert joint.transition[t % len(joint.transition), states[t - 1], states[t]] > -np.inf


def test_even_the_smallest_random_number_draws_no_impossible_state():
    class Nothing:
        def random(self, size):
            return np.zeros(size)

    home = OccupancyChains.independent(initial=[1.0, 1.0], arrive=[[1.0, 1.0]], leave=[[0.0, 0.0]])
    assert sample_occupancy(OccupancyModel(groups=(home,)), 3, Nothing()).all()


@pytest.mark.slow
def test_samples_have_the_probabilities_of_the_model():
    pair = OccupancyChains(
        members=[[0, 2], [3, 1]],
        initial=np.array([[0.1, 0.4], [0.2, 0.3], [0.3, 0.2], [0.4, 0.1]]),
        transition=np.full((1, 4, 4, 2), 0.25),
        period=[0],
        kind=[0, 1],
    )
    alone = OccupancyChains.independent(initial=[0.9], arrive=[[0.05]], leave=[[0.3]], kind=[0, 0], first_household=4)
    model = OccupancyModel(groups=(pair, alone))
    rng = np.random.default_rng(1)
    seen = np.mean([sample_occupancy(model, 4, rng) for _ in range(4000)], axis=0)
    assert seen == pytest.approx(occupancy_probability(model, 4), abs=0.04)


def test_kinds_are_shared_without_changing_anything():
    initial, arrive, leave = np.array([0.2, 0.7]), np.array([[0.1, 0.4]]), np.array([[0.3, 0.0]])
    kind = np.array([1, 0, 1])
    shared = OccupancyChains.independent(initial=initial, arrive=arrive, leave=leave, kind=kind)
    spelled_out = OccupancyChains.independent(initial=initial[kind], arrive=arrive[:, kind], leave=leave[:, kind])
    one, other = (OccupancyModel(groups=(chains,)) for chains in (shared, spelled_out))
    assert (occupancy_probability(one, 5) == occupancy_probability(other, 5)).all()
    assert (
        sample_occupancy(one, 5, np.random.default_rng(2)) == sample_occupancy(other, 5, np.random.default_rng(2))
    ).all()


ROWS = [[[[0.6], [0.4]], [[0.0], [1.0]]]]


def one_house(**changes):
    fields = {"members": [[0]], "initial": [[1.0], [0.0]], "transition": ROWS, "period": [0], "kind": [0]}
    return OccupancyChains(**fields | changes)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: one_house(transition=[[[[0.6], [0.3]], [[0.0], [1.0]]]]),
            "sum of transition[0, 0, :, 0] is 0.9: rows must sum to 1",
        ),
        (lambda: one_house(initial=[[0.5], [0.4]]), "sum of initial[:, 0] is 0.9: rows must sum to 1"),
        (
            lambda: one_house(initial=[[1.5], [-0.5]]),
            "initial[:, 0] is [1.5, -0.5]: probabilities must be 0 or more",
        ),
        (lambda: one_house(initial=[[np.nan], [1.0]]), "initial[:, 0] is [nan, 1.0]: probabilities must be 0 or more"),
        (lambda: one_house(period=[0, 3]), "period[1] is 3: must be below 1"),
        (lambda: one_house(kind=[1]), "kind[0] is 1: must be below 1"),
        (
            lambda: one_house(period=[]),
            "period is empty: must name a row of transition for each interval of the day",
        ),
        (
            lambda: one_house(members=[[0], [1]]),
            "initial is shaped (2, 1): must be [state, kind], here (4, 1)",
        ),
        (
            lambda: OccupancyModel(groups=(one_house(), one_house())),
            "household[0] is 2: groups must contain each household exactly once",
        ),
        (
            lambda: ModelClass(
                models=(
                    OccupancyModel(groups=(one_house(),)),
                    OccupancyModel(groups=(one_house(), one_house(members=[[1]]))),
                )
            ),
            "households is [1, 2]: must be the same in every model of a class of at least one model",
        ),
    ],
)
def test_a_model_that_is_no_model_says_what_is_allowed(make, says):
    with pytest.raises(ModelError) as caught:
        make()
    assert str(caught.value) == says


def test_the_joint_chain_is_for_small_zones():
    many = OccupancyChains.independent(initial=[0.5] * 13, arrive=[[0.5] * 13], leave=[[0.5] * 13])
    with pytest.raises(ModelError, match="households is 13: must be at most 12"):
        log_joint_chain(OccupancyModel(groups=(many,)))
