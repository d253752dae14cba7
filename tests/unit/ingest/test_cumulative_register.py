"""Totals become energy: each interval from the points within it alone, and silent by their times alone.

A message with a total is exact for any value; what is no number is refused.
"""

from __future__ import annotations

import itertools
import json
from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from murmurate.errors import ReadingError
from murmurate.readings.field_values import MAX_WH, parse_time_ns
from murmurate.service.ingest.cumulative_register import (
    MIN_SPAN_SHARE,
    RegisterReading,
    RegisterState,
    interval_energy,
    parse_register_reading,
)

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


def admissible(points):
    """Each interval with the energies that any two of its points give which lie far enough apart."""
    found = {}
    for start_s in EDGES[:-1]:
        inside = sorted({point for point in points if start_s <= point.at_s <= start_s + INTERVAL_S})
        pairs = [interval_energy(*pair, interval_s=INTERVAL_S) for pair in itertools.combinations(inside, 2)]
        found[start_s] = {energy_wh for energy_wh in pairs if energy_wh is not None}
    return found


def energy_rows(points):
    register, rows = None, []
    for point in points:
        register, new = (register or RegisterState(point, point)).advance(point, interval_s=INTERVAL_S)
        rows += new
    return rows


@given(anything)
def test_in_any_order_an_interval_has_one_energy_at_most_and_only_from_what_its_register_showed_within_it(points):
    rows, allowed = energy_rows(points), admissible(points)
    assert len(rows) == len(dict(rows))
    assert all(energy_wh in allowed[start_s] for start_s, energy_wh in rows)


def delayed(points, data):
    """Points in an order in which none comes an interval or more after a later one."""
    delays = st.lists(st.integers(0, INTERVAL_S - 1), min_size=len(points), max_size=len(points))
    arrives = dict(zip(points, data.draw(delays), strict=True))
    return sorted(points, key=lambda point: point.at_s + arrives[point])


@given(times, st.data())
def test_points_that_come_less_than_an_interval_late_leave_no_interval_silent(at, data):
    points = [RegisterReading(at_s, data.draw(standings)) for at_s in at]
    came = delayed(points, data)
    assert dict(energy_rows(came)).keys() == by_definition(points).keys()
    register = energies(came[:1])[0]
    for point in came:
        assert not register.is_too_late(point, interval_s=INTERVAL_S)
        register, _ = register.advance(point, interval_s=INTERVAL_S)


@given(loads, st.data())
def test_points_on_the_edges_give_the_same_energies_in_any_such_order(load, data):
    points = [RegisterReading(at_s, shown(load, at_s)) for at_s in EDGES]
    assert dict(energy_rows(delayed(points, data))) == by_definition(points)


@given(times, standings)
def test_a_point_that_comes_again_changes_nothing_whatever_it_shows(at, other_wh):
    points = [RegisterReading(at_s, 10 * at_s) for at_s in at]
    twice = [each for point in points for each in (point, RegisterReading(point.at_s, other_wh))]
    assert energies(twice) == energies(points)


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
        RegisterState(*[RegisterReading(2700, 570)] * 2, (RegisterReading(2000, 500), RegisterReading(2700, 570))),
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


CANARY = 8675309


@given(st.integers(-MAX_WH, MAX_WH))
def test_a_bare_number_is_wh_at_the_time_of_its_arrival(wh):
    assert parse_register_reading(str(wh).encode(), 77) == (RegisterReading(77, wh), False)


@given(st.integers(0, 2**43), st.sampled_from([("Wh", 0), ("kWh", 3), ("MWh", 6)]), st.integers(0, 4 * 10**9))
def test_a_register_in_any_unit_is_exact_to_the_wh(wh, unit, at_s):
    name, digits = unit
    text = f"{wh // 10**digits}.{wh % 10**digits:0{digits}d}" if digits else str(wh)
    payload = f'{{"timestamp": {at_s}, "value": {text}, "unit": "{name}"}}'.encode()
    assert parse_register_reading(payload, 0) == (RegisterReading(at_s, wh), True)


@pytest.mark.parametrize(
    "payload",
    [b'{"timestamp":"1970-01-01T01:00:30.999+01:00","value":5}', b'{"value": 0.005, "unit": "kWh", "timestamp": 30}'],
)
def test_a_time_is_rfc_3339_or_whole_seconds(payload):
    assert parse_register_reading(payload, 0) == (RegisterReading(30, 5), True)


@given(st.fractions(max_denominator=10**6).map(lambda one: f"{float(one)!r}"), st.sampled_from(["Wh", "kWh", "MWh"]))
def test_a_fraction_is_rounded_down(text, unit):
    wh = {"Wh": 1, "kWh": 1000, "MWh": 10**6}[unit]
    point, _ = parse_register_reading(f'{{"value": {text}, "unit": "{unit}"}}'.encode(), 0)
    assert point.total_wh == min(max(floor(Fraction(text) * wh), -MAX_WH), MAX_WH)


CUT = {
    b"9" * 400: MAX_WH,
    b"1e400": MAX_WH,
    b"-1e400": -MAX_WH,
    b"1e999999999": MAX_WH,
    b"-1e99999999999999999999": -MAX_WH,
    b"1e-999999999": 0,
    b"-1e-99999999999999999999": -1,
    b"0e999999999": 0,
    b'{"value": 1e20, "unit": "MWh"}': MAX_WH,
    b'{"value": -5.5, "unit": "MWh"}': -5_500_000,
}


@pytest.mark.parametrize("payload", CUT, ids=range(len(CUT)))
def test_no_value_is_refused_however_large(payload):
    assert parse_register_reading(payload, 77)[0] == RegisterReading(77, CUT[payload])


BAD = [
    b"",
    b"\x00",
    b"\xff\xfe1",
    b"true",
    b"null",
    b'"5"',
    b"[5]",
    b"{}",
    b"NaN",
    b"-Infinity",
    b"[" * 4000,
    b'{"a":' * 800,
    b"1" * 4097,
    b'{"value": "\\ud800"}',
    b'{"value": 1, "unit": ["kWh"]}',
    b'{"value": 1, "time": 5}',
    *(
        f.replace("#", str(CANARY)).encode()
        for f in (
            '{"value": #, "unit": "J"}',
            '{"value": #, "value": #}',
            '{"value": #, "timestamp": "2026-01-01T00:00:00"}',
            '{"value": #, "timestamp": #000000}',
            '{"value": "#"}',
            '{"value": #',
            '{"value": #, "wh": #}',
            '{"value": {"v": #}}',
            "# #",
        )
    ),
]


@pytest.mark.parametrize("payload", BAD, ids=range(len(BAD)))
def test_what_is_no_register_is_refused_without_a_word_of_its_value(payload):
    with pytest.raises(ReadingError) as caught:
        parse_register_reading(payload, 0)
    assert str(CANARY) not in str(caught.value) + repr(caught.value)
    assert caught.value.__context__ is None  # a parser's own error would quote the message


@given(
    st.binary(max_size=60)
    | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists).map(
        lambda value: json.dumps(value).encode()
    )
)
def test_no_message_raises_anything_else(payload):
    try:
        point, _ = parse_register_reading(payload, 0)
    except ReadingError:
        return
    assert -MAX_WH <= point.total_wh <= MAX_WH


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-01",
        "2026-02-30T00:00:00Z",
        "2026-01-01T24:00:01Z",
        "2026-01-01T00:00:60Z",
        "2026-01-01T00:00:00+25:00",
        "20260101T000000Z",
        "2026-W01-1T00:00:00Z",
        "1969-12-31T23:59:59Z",
        "٢026-01-01T00:00:00Z",
        "2026-01-01T00:00:00Z" + "0" * 100,
        "1767225600",
        -1,
        10**400,
        True,
        1.0,
        None,
    ],
)
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ReadingError):
        parse_time_ns("interval_start", text)
