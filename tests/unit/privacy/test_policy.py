from itertools import islice

import numpy as np
import pytest

from murmurate.errors import PrivacyError
from murmurate.household.occupancy import ModelClass, OccupancyChains, OccupancyModel
from murmurate.privacy.policy import (
    Policy,
    ProtectionRule,
    PublicSchedule,
    interval_sensitivity,
    protected_households,
    sensitivity_schedule,
)

BOUND_WH = np.array([3000, 50_000, 4000])  # two homes and a supermarket


def certain(households):
    chains = OccupancyChains.independent(
        initial=np.zeros(households), arrive=np.zeros((1, households)), leave=np.zeros((1, households))
    )
    return ModelClass(models=(OccupancyModel(groups=(chains,)),))


def test_by_default_everyone_is_protected_and_no_model_removes_a_home():
    assert sensitivity_schedule(Policy(), BOUND_WH, 2, certain(3)).tolist() == [50_000, 50_000]


def test_a_premise_with_a_public_schedule_needs_no_protection_while_it_is_public():
    open_hours = PublicSchedule(premise=np.array([1]), is_public=np.array([[True], [False]]))
    policy = Policy(rule=ProtectionRule.EXCEPT_PUBLIC, public_schedule=open_hours)
    assert sensitivity_schedule(policy, BOUND_WH, 4).tolist() == [4000, 50_000, 4000, 50_000]


def test_an_empty_kappa_still_gets_the_noise_of_the_smallest_household():
    policy = Policy(rule=ProtectionRule.EXCEPT_PUBLIC, public_schedule=PublicSchedule.always_public([0, 1, 2]))
    assert not next(protected_households(policy, 3)).any()
    assert sensitivity_schedule(policy, BOUND_WH, 2).tolist() == [3000, 3000]


def test_the_sensitivity_of_a_household_that_feeds_in_is_the_width_of_its_range():
    open_hours = PublicSchedule(premise=np.array([1]), is_public=np.array([[True], [False]]))
    policy = Policy(rule=ProtectionRule.EXCEPT_PUBLIC, public_schedule=open_hours)
    assert sensitivity_schedule(policy, BOUND_WH, 2, export_bound_wh=[2500, 0, 0]).tolist() == [5500, 50_000]
    assert sensitivity_schedule(policy, BOUND_WH, 2, export_bound_wh=100).tolist() == [4100, 50_100]
    nobody = Policy(rule=ProtectionRule.EXCEPT_PUBLIC, public_schedule=PublicSchedule.always_public([0, 1, 2]))
    assert sensitivity_schedule(nobody, BOUND_WH, 1, export_bound_wh=[2500, 0, 0]).tolist() == [4000]


def test_only_the_papers_rule_by_name_publishes_an_exact_demand():
    paper = Policy(rule=ProtectionRule.PAPER)
    assert sensitivity_schedule(paper, BOUND_WH, 2, certain(3)).tolist() == [0, 0]
    floored = Policy(rule=ProtectionRule.PAPER, floor_wh=500)
    assert sensitivity_schedule(floored, BOUND_WH, 2, certain(3)).tolist() == [500, 500]
    for rule, public in (
        (ProtectionRule.EVERYONE, None),
        (ProtectionRule.EXCEPT_PUBLIC, PublicSchedule.always_public([0])),
    ):
        with pytest.raises(PrivacyError, match="floor_wh is 0: must be at least 1 Wh"):
            Policy(rule=rule, public_schedule=public, floor_wh=0)


def test_the_sensitivity_is_the_largest_protected_bound_wherever_it_stands():
    rng = np.random.default_rng(1)
    bound_wh = rng.integers(1, 10**6, 100_001)
    for share in (0.0, 0.0001, 0.5, 1.0):
        protected = rng.random(len(bound_wh)) < share
        expected = max([int(b) for b in bound_wh[protected]], default=0)
        assert interval_sensitivity(protected, bound_wh, 0) == expected
    assert interval_sensitivity(np.zeros(0, bool), np.zeros(0, np.int64), 7) == 7


def test_models_that_number_their_households_differently_are_united_household_by_household():
    """One model in which only household 2 moves, written in two orders, beside one in which only household 0 does."""
    still, moving = [0.0, 0.0, 0.0], [0.0, 0.0, 0.4]

    def model(arrive, members):
        chains = OccupancyChains(
            members=[members],
            initial=np.array([[1.0] * 3, [0.0] * 3]),
            transition=np.array([[[1 - np.array(arrive), arrive], [still, np.ones(3)]]]),
            period=[0],
            kind=[0, 1, 2],
        )
        return OccupancyModel(groups=(chains,))

    theta = ModelClass(models=(model(moving, [0, 1, 2]), model(moving, [2, 1, 0])))
    policy = Policy(rule=ProtectionRule.PAPER)
    found = [protected.tolist() for protected in islice(protected_households(policy, 3, theta), 2)]
    assert found == [[False, False, False], [True, False, True]]


def test_models_that_share_a_numbering_of_kinds_may_have_different_numbers_of_them():
    """Nine kinds and seventeen, one and two bytes of bits; and one kind map that two models read differently."""
    kind = np.arange(9)

    def model(kinds, moving):
        arrive = np.zeros((1, kinds))
        arrive[0, moving] = 0.5
        chains = OccupancyChains.independent(
            initial=np.zeros(kinds), arrive=arrive, leave=np.zeros((1, kinds)), kind=kind
        )
        return OccupancyModel(groups=(chains,))

    theta = ModelClass(models=(model(9, 2), model(17, 8)))
    second = list(islice(protected_households(Policy(rule=ProtectionRule.PAPER), 9, theta), 2))[1]
    assert np.flatnonzero(second).tolist() == [2, 8]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: Policy(rule=ProtectionRule.EXCEPT_PUBLIC),
            "public is None: must be given with the rule except-public, and with no other rule",
        ),
        (
            lambda: PublicSchedule(premise=np.array([1, 1]), is_public=np.array([[False, True]])),
            "premise is [1, 1]: must be declared once each",
        ),
        (
            lambda: PublicSchedule(premise=np.array([1]), is_public=np.array([[1]])),
            "known is int64: must be True or False for each interval and premise",
        ),
        (
            lambda: sensitivity_schedule(
                Policy(rule=ProtectionRule.EXCEPT_PUBLIC, public_schedule=PublicSchedule.always_public([7])),
                BOUND_WH,
                1,
            ),
            "premise[0] is 7: must be below 3",
        ),
        (
            lambda: sensitivity_schedule(Policy(), np.array([2.9, 1.5]), 1),
            "bound_wh is float64: must be whole numbers that fit in 64 bits, not rounded ones",
        ),
        (lambda: sensitivity_schedule(Policy(), np.array([5, 0]), 1), "bound_wh[1] is 0: must be at least 1 Wh"),
        (
            lambda: sensitivity_schedule(Policy(), np.array([5, 5]), 1, export_bound_wh=[0, -1]),
            "export_bound_wh[1] is -1: must be at least 0 Wh",
        ),
        (
            lambda: sensitivity_schedule(Policy(), np.zeros(0, np.int64), 1),
            "bound_wh is empty: must have one entry per household, at least one",
        ),
        (
            lambda: sensitivity_schedule(Policy(rule=ProtectionRule.PAPER), BOUND_WH, 1),
            "model_class is None: the paper's rule needs a model class of 3 households",
        ),
        (
            lambda: sensitivity_schedule(Policy(rule=ProtectionRule.PAPER), BOUND_WH, 1, certain(2)),
            "model_class is 2: the paper's rule needs a model class of 3 households",
        ),
    ],
)
def test_a_policy_that_cannot_be_kept_says_what_is_allowed(make, says):
    with pytest.raises(PrivacyError) as caught:
        make()
    assert str(caught.value) == says
