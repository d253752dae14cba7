"""Totals become energy: each interval from the points within it alone, and silent by their times alone."""

from __future__ import annotations

import itertools
from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from murmurate.service.ingest.cumulative_register import MIN_SPAN_SHARE, RegisterReading, RegisterState, interval_energy

INTERVAL_S = 900
INTERVALS = 6
END_S = INTERVALS * INTERVAL_S
EDGES = range(0, END_S + 1, INTERVAL_S)

moments = st.integers(0, END_S) | st.sampled_from(EDGES)
times = st.lists(moments, unique=True, max_size=40).map(sorted)
loads = st.lists(st.integers(-500, 5000), min_size=INTERVALS, max_size=INTERVALS)
standings = st.integers(-(2**53), 2**53)
anything = st.lists(st.builds(RegisterReading, moments, standings), max_size=40)


def energies(points, register=None):
    energy_by_start = []
    for point in points:
        register, new = (register or RegisterState(point, point)).advance(point, interval_s=INTERVAL_S)
        energy_by_start += new
    return register, dict(energy_by_start)


def shown(load, at_s):
    """A register that rises by `load[i]` [Wh] in interval i, steadily, in whole Wh."""
    number, since_s = divmod(at_s, INTERVAL_S)
    now = load[number] * since_s // INTERVAL_S if since_s else 0
    return sum(load[:number]) + now


def walk(load, at):
    return energies([RegisterReading(at_s, shown(load, at_s)) for at_s in at])[1]


@given(times, loads, st.integers(0, INTERVALS - 1), st.integers(-10_000, 10_000))
@example([*range(59, END_S, INTERVAL_S)], [0] * INTERVALS, 3, 4000)
@example([*range(59, END_S, 300)], [0] * INTERVALS, 3, 4000)
def test_what_was_drawn_in_another_interval_changes_no_energy(at, load, other, more_wh):
    changed = [wh + more_wh * (number == other) for number, wh in enumerate(load)]
    before, after = walk(load, at), walk(changed, at)
    assert before.keys() == after.keys()
    assert all(after[start_s] == wh for start_s, wh in before.items() if start_s != other * INTERVAL_S)


@given(anything, st.data())
def test_which_intervals_have_an_energy_depends_on_the_times_of_points_alone(points, data):
    others = [RegisterReading(point.at_s, data.draw(standings)) for point in points]
    (register, energy_by_start), (other_register, other_energy_by_start) = energies(points), energies(others)
    assert energy_by_start.keys() == other_energy_by_start.keys()
    assert all(wh >= 0 for wh in energy_by_start.values())
    if points:
        assert (register.first.at_s, register.last.at_s) == (other_register.first.at_s, other_register.last.at_s)


def by_definition(points):
    """Each interval from its first and last point, edges included, once a point at or after its end is there."""
    energy_by_start = {}
    for start_s in EDGES[:-1]:
        inside = [point for point in points if start_s <= point.at_s <= start_s + INTERVAL_S]
        over = any(point.at_s >= start_s + INTERVAL_S for point in points)
        if over and inside and inside[-1].at_s - inside[0].at_s >= MIN_SPAN_SHARE * INTERVAL_S:
            rose = max(0, inside[-1].total_wh - inside[0].total_wh)
            energy_by_start[start_s] = floor(Fraction(rose * INTERVAL_S, inside[-1].at_s - inside[0].at_s))
    return energy_by_start


@given(times, st.data())
def test_energies_are_as_defined(at, data):
    points = [RegisterReading(at_s, data.draw(standings)) for at_s in at]
    assert energies(points)[1] == by_definition(points)


@given(times, loads)
def test_points_on_the_edges_give_exact_energies_that_telescope(between, load):
    at = sorted({*EDGES, *between})
    rising = [abs(wh) for wh in load]
    assert walk(rising, at) == dict(zip(EDGES, rising, strict=False))
    assert sum(walk(rising, at).values()) == shown(rising, END_S) - shown(rising, 0)


@given(st.integers(0, INTERVAL_S // 2), st.integers(0, INTERVAL_S), st.integers(0, 10**6))
def test_what_a_register_rose_is_stretched_to_the_whole_interval_and_rounded_down(from_s, for_s, rose_wh):
    energy = interval_energy(
        RegisterReading(from_s, 5), RegisterReading(from_s + for_s, 5 + rose_wh), interval_s=INTERVAL_S
    )
    if for_s < 450:
        assert energy is None
    else:
        assert energy == floor(Fraction(rose_wh, for_s) * INTERVAL_S)


@pytest.mark.parametrize(("for_s", "energy_by_start"), [(449, {}), (450, {0: 200})])
def test_points_half_an_interval_apart_are_enough_and_closer_ones_are_not(for_s, energy_by_start):
    assert (
        energies([RegisterReading(100, 0), RegisterReading(100 + for_s, 100), RegisterReading(901, 0)])[1]
        == energy_by_start
    )


@given(anything, st.data())
def test_a_point_that_is_not_after_the_last_changes_nothing_whatever_it_shows(points, data):
    again, last_s = [], -1
    for point in points:
        last_s = max(last_s, point.at_s)
        late = st.builds(RegisterReading, st.integers(0, last_s), standings)
        again += [point, *data.draw(st.lists(late, max_size=3))]
    assert energies(again) == energies(points)


@given(anything, st.lists(st.integers(0, 40), max_size=4).map(sorted), st.lists(st.booleans(), min_size=5, max_size=5))
def test_after_a_restart_or_a_retry_the_same_energies_come_out(points, cuts, repeated):
    """Batches of points; after some of them the energy was kept but the register was not, and they come again."""
    register, energy_by_start = None, {}
    for (begin, end), again in zip(itertools.pairwise([0, *cuts, len(points)]), repeated, strict=False):
        if again:
            energy_by_start |= energies(points[begin:end], register)[1]
        register, new = energies(points[begin:end], register)
        assert all(energy_by_start.get(start_s, wh) == wh for start_s, wh in new.items())
        energy_by_start |= new
    assert (register, energy_by_start) == energies(points)


@given(times, st.integers(0, 2**53))
def test_a_register_that_falls_reports_and_counts_as_standing_still(at, fall_wh):
    falling = energies([RegisterReading(at_s, -fall_wh * number) for number, at_s in enumerate(at)])[1]
    assert falling == dict.fromkeys(energies([RegisterReading(at_s, 0) for at_s in at])[1], 0)


def test_an_interval_is_complete_with_the_first_point_at_or_after_its_end():
    register, energy_by_start = energies([RegisterReading(0, 0), RegisterReading(600, 60), RegisterReading(899, 89)])
    assert energy_by_start == {}
    assert register.advance(RegisterReading(900, 90), interval_s=900)[1] == [(0, 90)]
    assert register.advance(RegisterReading(901, 90), interval_s=900)[1] == [(0, 89 * 900 // 899)]
    assert register.advance(RegisterReading(90_000, 90), interval_s=900)[1] == [(0, 89 * 900 // 899)]


def test_a_small_day_by_hand():
    points = [
        RegisterReading(0, 1000),
        RegisterReading(600, 1010),  # the last in the first interval: 10 Wh in 600 s
        RegisterReading(1000, 1050),
        RegisterReading(1800, 1130),  # on an edge: 80 Wh in 800 s, and the first of the third interval
        RegisterReading(2700, 1100),  # it fell
        RegisterReading(7200, 9000),  # after a gap
        RegisterReading(8100, 9123),
    ]
    assert energies(points)[1] == {0: 15, 900: 90, 1800: 0, 7200: 123}


def test_where_intervals_become_shorter_a_point_before_the_running_one_does_not_count():
    register = RegisterState(RegisterReading(0, 0), RegisterReading(2000, 500))
    assert register.advance(RegisterReading(2700, 570), interval_s=900) == (
        RegisterState(RegisterReading(2700, 570), RegisterReading(2700, 570)),
        [(1800, 90)],
    )


def worst_leakage(load_wh, at, epsilon, *, bound_wh=1000, imputed_wh=150, moments=5):
    """The most that far outputs tell of who is home in the middle one of five moments, each a fair coin.

    Laplace noise of scale bound / epsilon on each reading; far to the left or right an output counts e^(+-x / scale).
    """
    homes = np.array(list(itertools.product((0, 1), repeat=moments)))
    counted = []
    for home in homes:
        load = [load_wh * int(one) for one in home]
        known = walk([*load, 0], at)
        counted.append([min(bound_wh, known.get(i * INTERVAL_S, imputed_wh)) for i in range(moments)])
    signs = np.array(list(itertools.product((-1, 1), repeat=moments)))
    weight = np.exp(epsilon / bound_wh * np.array(counted) @ signs.T)  # [day, corner]
    middle = homes[:, moments // 2] == 1
    return float(np.abs(np.log(weight[middle].mean(0) / weight[~middle].mean(0))).max())


SENT = {
    "on the edges": range(0, END_S, INTERVAL_S),
    "59 s after the edges": range(59, END_S, INTERVAL_S),
    "225 s after the edges": range(225, END_S, INTERVAL_S),
    "every five minutes, 59 s late": range(59, END_S, 300),
    "every minute": range(17, END_S, 60),
    "on the edges and at any time": sorted({*EDGES, 100, 1333, 1801, 2699, 3000}),
    "every ten minutes": range(0, END_S, 600),
}


@pytest.mark.parametrize("sent", SENT)
@pytest.mark.parametrize("load_wh", [1000, 2750, 16_000])
@pytest.mark.parametrize("epsilon", [0.04, 0.5, 1.0])
def test_a_moment_leaks_at_most_epsilon_whenever_a_register_is_read(sent, load_wh, epsilon):
    assert worst_leakage(load_wh, SENT[sent], epsilon) <= epsilon * (1 + 1e-12)


@pytest.mark.parametrize("sent", ["on the edges", "every five minutes, 59 s late", "every minute"])
def test_a_register_that_is_read_often_enough_uses_the_whole_of_epsilon(sent):
    """So the test above sees something."""
    assert worst_leakage(2750, SENT[sent], 1.0) == pytest.approx(1.0)
