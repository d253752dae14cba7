"""What a plan states beside its costs: how often the loss exceeds epsilon, and what 14 days away show."""

import json
from dataclasses import replace

import numpy as np
import pytest

from murmurate.errors import PrivacyError
from murmurate.planning.plan import load_plan, make_plan
from murmurate.planning.release_terms import ReleaseTerms, compute_plan_digest
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone

ZONE_FILE = EXAMPLE_ZONE_FILE.replace(
    'promise = ["any 24 h: epsilon 1, delta 1e-6", "any moment: 1"]',
    'promise = ["any 24 h: epsilon 1, delta 1e-6", "any 7 d: epsilon 40", "any moment: 1"]',
)


@pytest.fixture(scope="module")
def plan():
    return make_plan(parse_zone(ZONE_FILE))


def composed_losses(plan, releases, parts=1000):
    """The losses of equal Huber releases about a household that differs in each, by a Fourier transform of its own.

    Losses are rounded to the nearest of `parts` steps up to the largest one, which errs to either side alike.
    """
    scale, core, bound = float(plan.scale_wh[0]), int(plan.core_wh[0]), plan.zone.private_kinds[0].bound_wh
    assert set(plan.scale_wh) == {scale}
    k = np.arange(-int(core + 12 * scale), int(core + 12 * scale) + 1).astype(float)

    def energy(x):
        return np.where(np.abs(x) <= core, x * x / (2 * scale * core), np.abs(x) / scale - core / (2 * scale))

    weight = np.exp(-energy(k))
    step, size = bound / scale / parts, 1 << 20
    at = np.rint((energy(k - bound) - energy(k)) / step).astype(int)
    probability = np.bincount(at % size, weights=weight / weight.sum(), minlength=size)
    total = np.maximum(np.fft.irfft(np.fft.rfft(probability) ** releases, size), 0)
    loss = np.arange(size)
    return np.where(loss > size // 2, loss - size, loss) * step, total


@pytest.mark.slow
def test_a_loss_above_epsilon_is_as_likely_as_the_plan_says(plan):
    loss, probability = composed_losses(plan, 96)
    window, week, moment = plan.costs
    truth = float(probability[loss > float(window.promise.epsilon)].sum())
    assert truth > 15 * float(window.promise.delta)  # delta alone would be an understatement
    assert truth <= window.above_epsilon <= 1.02 * truth
    assert (week.above_epsilon, moment.above_epsilon) == (None, None)  # never above, and no loss of a window


@pytest.mark.slow
def test_a_guess_from_a_day_is_right_as_often_as_the_plan_says_and_less_than_epsilon_allows(plan):
    loss, probability = composed_losses(plan, 96)
    distance = float(probability[loss > 0] @ -np.expm1(-loss[loss > 0]))
    assert (1 + distance) / 2 <= plan.costs[0].right_guesses <= (1 + distance) / 2 + 0.0005
    assert plan.costs[0].right_guesses < 0.55 < 1 / (1 + np.exp(-1))
    assert plan.costs[-1].right_guesses is None  # of a moment


@pytest.mark.slow
def test_being_away_for_14_days_is_guessed_as_often_as_the_plan_says(plan):
    loss, probability = composed_losses(plan, 14 * 96)
    distance = float(probability[loss > 0] @ -np.expm1(-loss[loss > 0]))
    assert plan.absence.days == 14
    assert (1 + distance) / 2 <= plan.absence.right_guesses <= (1 + distance) / 2 + 0.0005


def test_both_are_in_the_plan_and_in_what_a_page_loads_of_it(plan):
    document = json.loads(plan.to_json())
    assert [entry["above_epsilon"] for entry in document["promises"]] == [plan.costs[0].above_epsilon, None, None]
    assert document["absence"] == plan.absence._asdict()
    terms = ReleaseTerms.from_json(plan.to_json())
    assert terms.above_epsilon == (plan.costs[0].above_epsilon, None, None)
    assert terms.absence == plan.absence


@pytest.mark.parametrize(
    ("place", "member"), [("promises", "above_epsilon"), ("promises", "right_guesses"), ("absence", "right_guesses")]
)
def test_a_plan_that_states_less_than_its_noise_gives_is_refused(plan, place, member):
    document = json.loads(plan.to_json())
    entry = document["promises"][0] if place == "promises" else document["absence"]
    entry[member] *= 0.9
    document["digest"] = compute_plan_digest({key: value for key, value in document.items() if key != "digest"})
    with pytest.raises(PrivacyError, match="not what its zone file gives"):
        load_plan(json.dumps(document))


def test_a_zone_without_a_secret_gives_nothing_to_guess(plan):
    kinds = tuple(replace(kind, public=(True,) * 96) for kind in plan.zone.kinds)
    zone = replace(parse_zone(EXAMPLE_ZONE_FILE), kinds=kinds, promises=plan.zone.promises[1:2])
    assert make_plan(zone).absence.right_guesses == 0.5


@pytest.mark.slow
def test_an_observer_who_thinks_of_a_holiday_learns_more_about_a_moment_than_is_promised(plan):
    """Before: either away for 14 days, or as the model says, 50:50. All releases point to away as far as they can."""
    (kind,), day = plan.zone.private_kinds, plan.zone.intervals_per_day
    (model,), intervals, moment = kind.models, 14 * day, 7 * day + 40
    towards_away = np.array([1.0, np.exp(-kind.bound_wh / plan.scale_wh[0])])  # likelihood of a release, by state

    usual = np.array([0.5, 0.5])
    for t in range(30 * day + 1):  # until the model has settled, at midnight
        usual = usual @ model.transition[model.period[t % day]][:, :, 0]

    def chances(likelihood):
        """Chance of home and of away at the moment, under the model, each times the likelihood of all releases."""
        before = usual * likelihood
        for t in range(1, moment + 1):
            before = before @ model.transition[model.period[t % day]][:, :, 0] * likelihood
        after = np.ones(2)
        for t in range(intervals - 1, moment, -1):
            after = model.transition[model.period[t % day]][:, :, 0] @ (after * likelihood)
        return before * after

    def home_odds(away, home):
        return home / (away + 1.0)  # a holiday has likelihood 1

    learned = -np.log(home_odds(*chances(towards_away)) / home_odds(*chances(np.ones(2))))
    assert plan.costs[-1].promised == 1.0
    assert 20.5 < learned < 20.7  # limits.md
