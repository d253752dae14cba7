"""From one plan to the next: no window and no moment costs more than its own plan promised."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.brute_force import exact_leakage
from tests.support.finite_leakage import moment_leakage
from tests.support.predicted_zones import predicted_plan

from murmurate.errors import PrivacyError
from murmurate.planning.plan import make_plan, prove_plan
from murmurate.planning.plan_change import (
    PlanHistory,
    check_plan_change,
    find_promise_changes,
    kind_paths,
    lookback_intervals,
)
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.privacy.noise import NoiseDistribution
from murmurate.privacy.promise import MomentPromise, parse_promise

BOTH = 'promise = ["any 24 h: epsilon 1, delta 1e-6", "any moment: 1"]'
ZONE = """
name = "hill"
currency = "EUR"
interval_minutes = 360
promise = [{promise}]
[tariff]
alpha = "0.0002"
beta = "0.08"
tick = "0.00001"
[occupancy.resident]
periods = {{ night = "00:00", day = "12:00" }}
arrive = {{ night = 0.4, day = 0.3 }}
leave = {{ night = 0.2, day = 0.5 }}
[[households]]
name = "flat"
count = 10
bound_wh = {bound}
away = {{ uniform_to = 30 }}
home = {{ uniform_to = 60 }}
occupancy = "resident"
"""


def zone(promise="any 24 h: epsilon 1", bound=100):
    return parse_zone(ZONE.format(promise=f'"{promise}"', bound=bound))


def example(promise, name="flat", more=""):
    return make_plan(
        parse_zone(EXAMPLE_ZONE_FILE.replace(BOTH, f"promise = {promise}{more}").replace('"flat"', f'"{name}"'))
    )


def lived(*runs, first=13, complete=True):
    """A history: (plan, so many intervals, whether they were measured)."""
    return PlanHistory(
        [(plan, measured) for plan, n, measured in runs for _ in range(n)], first=first, complete=complete
    )


@pytest.fixture(scope="module")
def plan():
    return make_plan(zone())


@pytest.fixture(scope="module")
def careful():
    return example('["any moment: 1"]')


@pytest.mark.slow
@pytest.mark.parametrize("complete", [True, False])
def test_a_plan_may_follow_itself(plan, careful, complete):
    for same in (plan, careful, make_plan(parse_zone(EXAMPLE_ZONE_FILE))):
        check_plan_change(lived((same, lookback_intervals([same]), True), complete=complete), same)


@pytest.mark.slow
def test_nothing_was_lived_so_anything_may_follow(plan, careful):
    check_plan_change(lived(), careful)
    check_plan_change(lived((plan, 3, False)), make_plan(zone("any 24 h: epsilon 9")))


@pytest.mark.slow
@pytest.mark.parametrize("promise", ["any moment: 3", "any moment: 10"])
def test_prices_after_a_change_may_not_tell_more_about_moments_lived_before_it(careful, promise):
    """Moments under a promise of 1 leaked up to 2.07 and 7.30."""
    with pytest.raises(PrivacyError, match="must be at most 1 for moments before it"):
        check_plan_change(lived((careful, 400, True)), example(f'["{promise}"]'))


@pytest.mark.slow
def test_renaming_a_kind_of_household_hides_nothing(careful):
    with pytest.raises(PrivacyError, match="must be at most 1 for moments before it"):
        check_plan_change(lived((careful, 400, True)), example('["any moment: 20"]', name="flats"))
    check_plan_change(lived((careful, 400, True)), example('["any moment: 1"]', name="flats"))


@pytest.mark.slow
def test_loud_prices_before_a_change_tell_of_moments_after_it(careful):
    loud = example('["any moment: 3"]')
    with pytest.raises(PrivacyError, match="must be at most 1 for moments after it"):
        check_plan_change(lived((loud, 400, True)), careful)
    check_plan_change(lived((loud, 400, True), (loud, 400, False)), careful)


@pytest.mark.slow
def test_whoever_promises_less_first_and_changes_the_noise_days_later_breaks_nothing(careful):
    loud = example('["any moment: 3"]')
    between = prove_plan(loud.zone, careful.distribution, careful.scale_wh)
    check_plan_change(lived((careful, 400, True)), between)
    with pytest.raises(PrivacyError):
        check_plan_change(lived((careful, 400, True), (between, 2, True)), loud)
    check_plan_change(lived((careful, 400, True), (between, 5 * 96, True)), loud)


def shaped(home, low, high, epsilon, rest=1e-4):
    """Laplace noise that costs `epsilon` in some intervals of the day and next to nothing in the others."""
    losses = np.full(96, rest)
    losses[low:high] = epsilon
    return prove_plan(home, NoiseDistribution.LAPLACE, 1000 / losses)


@pytest.mark.slow
def test_three_plans_in_a_row_are_held_against_their_common_past():
    """Each plan is loud for an hour of its own; any two of them keep 1, all three do not."""
    home = parse_zone(EXAMPLE_ZONE_FILE.replace(BOTH, 'promise = ["any moment: 1"]').replace("Europe/Lisbon", "UTC"))
    plans = [shaped(home, at, at + 4, 0.13487) for at in (48, 52, 56)]
    start = 96 * 20
    check_plan_change(lived((plans[0], 96 * 4 + 52, True), first=start), plans[1])
    check_plan_change(lived((plans[1], 96 * 4 + 56, True), first=start), plans[2])
    with pytest.raises(PrivacyError, match=r"leakage across the change is 1\.3"):
        check_plan_change(lived((plans[0], 96 * 4 + 52, True), (plans[1], 4, True), first=start), plans[2])


@pytest.mark.slow
@settings(max_examples=40)
@given(
    days=st.lists(st.lists(st.floats(0.02, 0.6), min_size=4, max_size=4), min_size=3, max_size=3),
    limits=st.lists(st.sampled_from(["0.8", "1.2", "2"]), min_size=3, max_size=3),
    lengths=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    quiet=st.integers(0, 2),
    first=st.integers(0, 7),
)
def test_no_moment_of_an_allowed_sequence_is_told_more_about_than_its_plan_promises(
    days, limits, lengths, quiet, first
):
    """Brute force over all trajectories and all corners of seven releases."""
    try:
        plans = [
            prove_plan(zone(f"any moment: {limit}"), NoiseDistribution.LAPLACE, 100 / np.array(losses))
            for losses, limit in zip(days, limits, strict=True)
        ]
    except PrivacyError:
        return
    released = [(plans[0], True)] * lengths[0]
    in_force = plans[0]
    for after, count in ((plans[1], lengths[1]), (plans[2], 7 - sum(lengths))):
        try:
            check_plan_change(PlanHistory(released, first=first, complete=True), after)
            in_force = after
        except PrivacyError:
            pass
        released += [(in_force, n >= quiet) for n in range(count)]
    slots = [(first + n) % 4 for n in range(len(released))]
    losses = [100 / p.scale_wh[s] if measured else 0.0 for (p, measured), s in zip(released, slots, strict=True)]
    model = plans[0].zone.kinds[0].models[0]
    found = exact_leakage(model, slots, np.array(losses))
    for moment, (lived_under, _) in zip(found, released, strict=True):
        (limit,) = [p.leakage for p in lived_under.zone.promises if isinstance(p, MomentPromise)]
        assert moment <= float(limit) + 1e-9


@pytest.mark.slow
def test_the_recursion_across_a_change_equals_that_of_a_finite_stream(careful):
    """A long stream under one plan, then another, by `moment_leakage` alone, is what a change is judged by."""
    loud = example('["any moment: 3"]')
    model = careful.zone.kinds[0].models[0]
    losses = np.concatenate([1000 / careful.scale_wh[np.arange(480) % 96], 1000 / loud.scale_wh[np.arange(960) % 96]])
    finite = moment_leakage(model, losses, len(losses))[:480].max()
    with pytest.raises(PrivacyError, match=f"is {finite:.3f}"):
        check_plan_change(lived((careful, 480, True), first=0), loud)


def scales(*losses):
    """Noise under which each interval of the day costs so much epsilon, for a bound of 100 Wh."""
    return 100 / np.array(losses)


def test_two_right_plans_may_make_a_wrong_window_together(plan):
    mornings = prove_plan(plan.zone, plan.distribution, scales(0.4, 0.4, 0.1, 0.1))
    evenings = prove_plan(plan.zone, plan.distribution, scales(0.1, 0.1, 0.4, 0.4))
    with pytest.raises(PrivacyError, match="must keep 'any 24 h: epsilon 1' across the change"):
        check_plan_change(lived((mornings, 10, True), first=0), evenings)
    check_plan_change(lived((mornings, 8, True), first=0), evenings)
    check_plan_change(lived((mornings, 10, True), (mornings, 3, False), first=0), evenings)


def without_meters(promise="any 24 h: epsilon 1", bound=100):
    """A plan that reads no meter. Its noise is that of a plan that does, and nothing is released under it."""
    proven = prove_plan(zone(promise, bound), NoiseDistribution.LAPLACE, np.full(4, 100 * bound))
    return replace(proven, prediction=predicted_plan(60, read_meters=False).prediction)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    losses=st.lists(st.lists(st.floats(0.01, 0.35), min_size=4, max_size=4), min_size=2, max_size=2),
    flags=st.lists(st.booleans(), min_size=1, max_size=7),
    pause=st.integers(1, 5),
    stated=st.sampled_from(["any 24 h: epsilon 0.5", "any 24 h: epsilon 4", "any 48 h: epsilon 0.1"]),
    first=st.integers(0, 3),
)
def test_windows_across_intervals_that_read_no_meter_cost_what_their_measured_intervals_cost(
    losses, flags, pause, stated, first
):
    """Brute force over every window: whatever the plan without meters states, stopping is free, and going on is not."""
    try:
        before, after = (prove_plan(zone(), NoiseDistribution.LAPLACE, scales(*some)) for some in losses)
    except PrivacyError:
        return
    public, released = without_meters(stated), [(before, measured) for measured in flags]
    check_plan_change(PlanHistory(released, first=first, complete=True), public)
    check_plan_change(PlanHistory(released, first=first, complete=False), public)
    released += [(public, False)] * pause
    check_plan_change(PlanHistory(released, first=first, complete=True), public)
    spent = [100 / plan.scale_wh[(first + n) % 4] * measured for n, (plan, measured) in enumerate(released)]
    later = [100 / after.scale_wh[(first + len(released) + n) % 4] for n in range(4)]
    across = [sum((spent + later)[max(0, len(spent) + n - 4) : len(spent) + n]) for n in range(1, 5)]
    if max(across) <= 1 - 1e-9:
        check_plan_change(PlanHistory(released, first=first, complete=True), after)
    elif max(across) > 1 + 1e-9:
        with pytest.raises(PrivacyError, match="must keep 'any 24 h: epsilon 1' across the change"):
            check_plan_change(PlanHistory(released, first=first, complete=True), after)


def test_a_long_promise_of_a_plan_without_meters_asks_for_no_log_of_that_length(plan):
    """Nothing was released under it, so no window needs to be shown for it."""
    public = without_meters("any 365 d: epsilon 99")
    check_plan_change(lived((plan, 2, True), complete=False), public)
    check_plan_change(lived((plan, 3, True), (public, 3, False), complete=False), plan)


@pytest.mark.slow
@settings(max_examples=30)
@given(
    day=st.lists(st.floats(0.02, 0.6), min_size=4, max_size=4),
    length=st.integers(1, 4),
    pause=st.integers(1, 3),
    first=st.integers(0, 7),
)
def test_no_moment_is_told_more_about_where_meters_are_no_longer_read_than_if_they_were(day, length, pause, first):
    """Brute force over all trajectories: with the same promise, a pause is always allowed, and tells less."""
    try:
        before = prove_plan(zone("any moment: 1"), NoiseDistribution.LAPLACE, 100 / np.array(day))
    except PrivacyError:
        return
    public = without_meters("any moment: 1")
    paused = [(before, True)] * length + [(public, False)] * pause
    check_plan_change(PlanHistory(paused[:length], first=first, complete=True), public)
    check_plan_change(PlanHistory(paused, first=first, complete=True), before)
    paused += [(before, True)] * (7 - len(paused))
    slots = [(first + n) % 4 for n in range(7)]
    losses = np.array([100 / before.scale_wh[slot] for slot in slots])
    model, measured = before.zone.kinds[0].models[0], np.array([measured for _, measured in paused])
    told, going_on = (exact_leakage(model, slots, some) for some in (losses * measured, losses))
    assert all(moment <= other + 1e-9 for moment, other in zip(told, going_on, strict=True))
    assert max(told) <= 1 + 1e-9


@pytest.mark.slow
def test_prices_before_a_change_to_no_meters_still_tell_of_moments_after_it(careful):
    """A promise of a moment is about that moment, whenever the price was made that tells of it."""
    public = replace(careful, prediction=predicted_plan(60, read_meters=False).prediction)
    loud = example('["any moment: 20"]')
    check_plan_change(lived((careful, 400, True)), public)
    with pytest.raises(PrivacyError, match="must be at most 1 for moments after it"):
        check_plan_change(lived((loud, 400, True)), public)
    with pytest.raises(PrivacyError, match="must be at most 1 for moments before it"):
        check_plan_change(lived((public, 400, False)), loud)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    st.lists(st.floats(0.01, 0.35), min_size=12, max_size=12), st.integers(0, 3), st.integers(1, 5), st.integers(1, 3)
)
def test_no_window_of_an_allowed_sequence_breaks_the_promise(losses, first, before, between):
    """Brute force: every window of four intervals of a chain under three plans."""
    home = zone()
    try:
        plans = [prove_plan(home, NoiseDistribution.LAPLACE, 100 / np.array(losses[n : n + 4])) for n in (0, 4, 8)]
    except PrivacyError:
        return
    released, in_force = [(plans[0], True)] * before, plans[0]
    for after, count in ((plans[1], between), (plans[2], 5)):
        try:
            check_plan_change(PlanHistory(released, first=first, complete=True), after)
            in_force = after
        except PrivacyError:
            pass
        released += [(in_force, True)] * count
    spent = [100 / p.scale_wh[(first + n) % 4] for n, (p, _) in enumerate(released)]
    assert all(sum(spent[n : n + 4]) <= 1 + 1e-9 for n in range(len(spent) - 3))


def test_a_weaker_window_may_follow_and_the_windows_across_keep_the_weaker_one(plan):
    check_plan_change(lived((plan, 10, True)), make_plan(zone("any 24 h: epsilon 2")))
    check_plan_change(lived((make_plan(zone("any 24 h: epsilon 2")), 10, True)), plan)


def test_a_window_that_the_next_plan_does_not_promise_is_kept_by_what_lies_across(plan):
    other = make_plan(zone("any 12 h: epsilon 1"))
    with pytest.raises(PrivacyError, match="any 24 h: epsilon 1"):
        check_plan_change(lived((plan, 10, True)), other)
    check_plan_change(lived((plan, 10, True), (plan, 3, False)), other)


@pytest.mark.slow
def test_a_year_follows_a_day_once_the_present_noise_has_stated_what_it_keeps_of_a_year():
    day, year = '"any 24 h: epsilon 1, delta 1e-6"', '"any 365 d: epsilon {}, delta 1e-6"'
    a_day, a_year = example(f"[{day}]"), example(f"[{year.format(4)}]")
    with pytest.raises(PrivacyError, match=r"across the change: first change to a plan with the present noise"):
        check_plan_change(lived((a_day, 960, True)), a_year)
    stated = parse_zone(EXAMPLE_ZONE_FILE.replace(BOTH, f"promise = [{day}, {year.format(32)}]"))
    same_noise = prove_plan(stated, a_day.distribution, a_day.scale_wh)
    check_plan_change(lived((a_day, 960, True)), same_noise)
    check_plan_change(lived((a_day, 960, True), (same_noise, 1, True)), a_year)


def test_wider_households_may_follow_where_the_noise_follows_them(plan):
    check_plan_change(lived((plan, 10, True)), make_plan(zone(bound=200)))


def test_a_log_that_does_not_reach_back_far_enough_proves_nothing(plan):
    with pytest.raises(PrivacyError, match="must show 3 intervals before the change"):
        check_plan_change(lived((plan, 2, True), complete=False), plan)


def test_a_household_is_followed_by_what_is_said_of_it_and_not_by_a_name(plan):
    flat = plan.zone.kinds[0]
    villa = replace(make_plan(zone(bound=200)).zone.kinds[0], name="flat")
    renamed = replace(flat, name="villa")

    def kinds(*some):
        return replace(plan, zone=replace(plan.zone, kinds=some))

    assert list(kind_paths([kinds(flat, villa), kinds(villa, renamed)])) == [(flat, renamed), (villa, villa)]
    assert list(kind_paths([kinds(flat), kinds(villa)])) == [(flat, villa)]
    assert set(kind_paths([kinds(flat, villa), kinds(flat)])) == {(flat, flat), (villa, flat)}


@pytest.mark.slow
def test_who_is_public_stays_so_where_a_moment_is_promised(careful):
    market = careful.zone.kinds[1]
    two = replace(careful.zone, kinds=(careful.zone.kinds[0], replace(market, count=2)))
    with pytest.raises(PrivacyError, match="public households"):
        check_plan_change(lived((careful, 10, True)), prove_plan(two, careful.distribution, careful.scale_wh))


def test_intervals_keep_their_length_and_no_way_around_it_is_advised(plan):
    hourly = make_plan(parse_zone(ZONE.format(promise='"any 24 h: epsilon 1"', bound=100).replace("360", "60")))
    with pytest.raises(PrivacyError, match="must stay") as refusal:
        check_plan_change(lived((plan, 10, False)), hourly)
    assert "new chain" not in str(refusal.value)  # it would be compared with nothing


def test_gaussian_noise_never_lies_in_a_window_that_was_promised_without_a_delta(plan):
    gaussian = prove_plan(zone("any 24 h: epsilon 1, delta 1e-6"), NoiseDistribution.GAUSSIAN, np.full(4, 4000.0))
    with pytest.raises(PrivacyError, match="'any 24 h: epsilon 1'"):
        check_plan_change(lived((plan, 10, True)), gaussian)


@pytest.mark.slow
def test_gaussian_noise_may_tell_everything_about_a_moment_beside_it(careful):
    """It was once held against a moment as if its loss were u/sigma; the law of the whole path found it."""
    gaussian = example('["any 24 h: epsilon 1, delta 1e-6"]')
    assert gaussian.distribution is NoiseDistribution.GAUSSIAN
    with pytest.raises(PrivacyError, match="for moments before it"):
        check_plan_change(lived((careful, 200, True), (careful, 100, False)), gaussian)
    with pytest.raises(PrivacyError):
        check_plan_change(lived((gaussian, 200, True)), careful)
    check_plan_change(lived((gaussian, 200, True), (gaussian, 400, False)), careful)


def test_a_change_looks_back_as_far_as_memory_and_windows_reach(plan, careful):
    assert lookback_intervals([plan]) == 4
    assert 96 * 8 <= lookback_intervals([careful]) <= 96 * 30
    year = replace(plan.zone, promises=(parse_promise("any 365 d: epsilon 9", 4),))
    assert lookback_intervals([replace(plan, zone=year)]) == 365 * 4


# --- a change of plan says of each promise whether it gets stronger or weaker


DAY, WEEK = "any 24 h: epsilon {}, delta 1e-6", "any 7 d: epsilon {}"


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ([DAY.format(1)], [DAY.format(0.5)], [("stronger", 95)]),
        ([DAY.format(1)], ["any 1 d: epsilon 2, delta 1e-6"], [("weaker", 0)]),
        ([DAY.format(1)], [DAY.format(1)], [("same", 0)]),
        ([DAY.format(1)], ["any 24 h: epsilon 1, delta 1e-7"], [("dropped", 0), ("new", 0)]),
        ([DAY.format(1), WEEK.format(3)], [WEEK.format(2)], [("dropped", 0), ("stronger", 671)]),
        (["any moment: 1"], ["any moment: 0.5", "interval: 1"], [("stronger", 0), ("new", 0)]),
        (["interval: 1"], ["interval: 2"], [("weaker", 0)]),
    ],
)
def test_each_promise_is_compared_with_the_one_about_the_same_stretch(before, after, found):
    changes = find_promise_changes(*([parse_promise(text, 96) for text in texts] for texts in (before, after)))
    assert [(change.direction.value, change.intervals_to_wait) for change in changes] == found
