"""Leakage where days are not alike: any start, clocks that change, habits that are not known."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.brute_force import exact_leakage
from tests.support.finite_leakage import moment_leakage, periodic_prior

from murmurate.household.occupancy import OccupancyChains
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.privacy.leakage import (
    epsilon_for_leakage,
    periodic_distributions,
    periodic_leakage,
    with_periodic_prior,
)
from murmurate.privacy.leakage_over_time import local_time_leakage, mixing_time_days, shift_calendar

CHANCES = st.sampled_from([0.01, 0.1, 0.3, 0.5, 0.9, 0.99])


def chain(arrive, leave):
    day = list(range(len(arrive)))
    given_ = OccupancyChains.independent(
        initial=[0.5], arrive=np.array(arrive)[:, None], leave=np.array(leave)[:, None], period=day
    )
    return with_periodic_prior(given_)


days = st.integers(2, 4).flatmap(
    lambda n: st.tuples(
        *(st.lists(CHANCES, min_size=n, max_size=n) for _ in range(2)),
        st.lists(st.floats(0, 1.5), min_size=n, max_size=n),
    )
)


@pytest.mark.slow
@settings(max_examples=100)
@given(days, st.integers(0, 3))
def test_a_stream_may_begin_at_any_interval_of_the_day(case, first):
    arrive, leave, losses = case
    model, day = chain(arrive, leave), len(losses)
    slots = [(first + t) % day for t in range(8)]
    found = exact_leakage(model, slots, np.array([losses[s] for s in slots]))
    assert (found <= periodic_leakage(model, losses)[slots, 0] + 1e-9).all()


@pytest.mark.slow
def test_one_prior_for_every_first_interval_would_break_the_promise():
    """What was done before: 0.5 in the first interval, whichever it is, and a plan proven for midnight alone."""
    zone = parse_zone(EXAMPLE_ZONE_FILE.replace("Europe/Lisbon", "UTC"))
    model = replace(zone.kinds[0].models[0], initial=np.array([[0.5], [0.5]]))
    epsilon = epsilon_for_leakage(model, 1.0)
    starts = [
        local_time_leakage(with_periodic_prior(model), epsilon),
        *(moment_of_start(shift_calendar(model, at), epsilon) for at in (0, 31)),
    ]
    assert starts[0] <= 1 < starts[2]
    assert starts[2] == pytest.approx(1.035, abs=0.002)


def moment_of_start(model, epsilon):
    return moment_leakage(model, epsilon, 96 * 4).max()


@pytest.mark.slow
@settings(max_examples=100)
@given(days, st.integers(0, 3), st.integers(1, 7), st.integers(1, 3))
def test_a_change_of_the_clocks_is_covered(case, first, at, by):
    """Every stream of eight releases around every change, either way, against brute force."""
    arrive, leave, losses = case
    model, day = chain(arrive, leave), len(losses)
    by %= day
    loss = np.array(losses)
    for before, after in ((0, by), (by, 0)):
        time = first + np.arange(8)
        slots = ((time + np.where(np.arange(8) < at, before, after)) % day).tolist()
        found = exact_leakage(model, slots, loss[time % day])
        change = ((first + at) % day, before, after)
        assert found.max() <= local_time_leakage(model, loss, (0, by), (change,)) + 1e-9


def test_a_change_of_the_clocks_leaks_more_than_the_days_around_it():
    """The hour in which people come home is skipped once: the days around it tell of each other."""
    model = chain([0.02, 0.9, 0.02, 0.02], [0.02, 0.02, 0.9, 0.02])
    loss = [0.3] * 4
    assert local_time_leakage(model, loss, (0, 1), ((1, 0, 1),)) > 1.2 * local_time_leakage(model, loss, (0, 1))


@given(days)
def test_memory_fades_within_the_days_that_it_is_said_to(case):
    arrive, leave, _ = case
    model = chain(arrive, leave)
    laws = periodic_distributions(model, len(arrive))[0]
    assert laws.belief.shape[0] == len(arrive)
    assert 1 <= mixing_time_days(model) <= 30


def mixture_leakage(models, moment, losses):
    """log p(r | S^t = 1)/p(r | S^t = 0) for an adversary who weighs two models alike; r has the losses `losses`."""
    posterior, expected = np.zeros((2, 2)), np.zeros((2, 2))
    scale = []
    for number, model in enumerate(models):
        day = len(model.period)
        steps = model.transition[model.period][..., 0]
        forward, size = periodic_prior(model, 0)[:, 0], 0.0
        for t in range(moment):
            forward = forward * np.array([1.0, np.exp(losses[t])])
            size, forward = size + np.log(forward.sum()), forward / forward.sum()
            forward = forward @ steps[(t + 1) % day]
        backward = np.ones(2)
        for t in range(len(losses) - 1, moment, -1):
            backward = steps[t % day] @ (backward * np.array([1.0, np.exp(losses[t])]))
            size, backward = size + np.log(backward.max()), backward / backward.max()
        posterior[number] = forward * backward * np.array([1.0, np.exp(losses[moment])])
        expected[number] = periodic_prior(model, moment % day)[:, 0]
        scale.append(size)
    posterior *= np.exp(np.array(scale) - max(scale))[:, None]
    odds = np.log(posterior.sum(axis=0)[1] / posterior.sum(axis=0)[0])
    return float(odds - np.log(expected.sum(axis=0)[1] / expected.sum(axis=0)[0]))


RETIRED = """
[occupancy.retired]
periods = { morning = "07:00", noon = "08:00", evening = "16:00", night = "23:00" }
arrive = { morning = 0.98, noon = 0.95, evening = 0.99, night = 0.01 }
leave = { morning = 0.05, noon = 0.30, evening = 0.05, night = 0.995 }

[[households]]
name = "flat"
"""


@pytest.mark.slow
def test_somebody_who_is_not_told_the_habits_learns_them_and_more_about_a_moment():
    """Why the promise says `habits known`: for each model alone 1 is kept, weighed together they tell more than 2.5."""
    text = EXAMPLE_ZONE_FILE.replace("Europe/Lisbon", "UTC").replace('[[households]]\nname = "flat"\n', RETIRED, 1)
    models = parse_zone(text.replace('occupancy = "resident"\n\n', 'occupancy = ["resident", "retired"]\n\n', 1))
    habits = models.kinds[0].models
    epsilon = min(epsilon_for_leakage(model, 1.0) for model in habits)
    assert all(local_time_leakage(model, epsilon) <= 1 for model in habits)
    at_home = [[periodic_prior(model, t)[1, 0] for t in range(96)] for model in habits]
    telling = np.tile(epsilon * np.sign(np.subtract(*at_home[::-1])), 14)
    moment = 96 * 7 + 48
    telling[moment - 24 : moment + 25] = epsilon
    assert mixture_leakage(habits, moment, telling) > 2.5
