"""Totals become energy without loss: the laws of telescoping, and what a break in the line does."""

import json
from fractions import Fraction
from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmurate.errors import ReadingError
from murmurate.service.doors.register import Point, Register, between, parse_point
from murmurate.service.doors.values import moment_ns

INTERVAL_S = 900
GAP_S = 7200
CANARY = 8675309


def energies(points, register=None, gap_s=GAP_S):
    told = []
    for point in points:
        register, new = Register.follow(register, point, interval_s=INTERVAL_S, longest_gap_s=gap_s)
        told += new
    return register, told


steps = st.lists(st.tuples(st.integers(1, GAP_S), st.integers(0, 2**48)), min_size=1, max_size=30)


@st.composite
def lines(draw):
    """Points of a register that goes on without a break."""
    points = [Point(draw(st.integers(0, 10**10)), draw(st.integers(0, 10**12)))]
    for run_s, rise_wh in draw(steps):
        points.append(Point(points[-1].at_s + run_s, points[-1].wh + rise_wh))
    return points


anything = st.lists(st.builds(Point, st.integers(0, 5 * GAP_S), st.integers(0, 3000)), max_size=30)


def reading_at(points, at_s):
    """The register by the definition, in fractions."""
    for (t0, w0), (t1, w1) in zip([(p.at_s, p.wh) for p in points], [(p.at_s, p.wh) for p in points[1:]], strict=False):
        if t0 <= at_s <= t1:
            return floor(w0 + Fraction(w1 - w0) * (at_s - t0) / (t1 - t0))
    raise AssertionError


@given(lines())
def test_energy_is_the_difference_of_the_interpolated_register_at_its_two_boundaries(points):
    first = -(-points[0].at_s // INTERVAL_S) * INTERVAL_S
    starts = range(first, points[-1].at_s - INTERVAL_S + 1, INTERVAL_S)
    expected = [(b, reading_at(points, b + INTERVAL_S) - reading_at(points, b)) for b in starts]
    assert energies(points)[1] == expected


@given(lines())
def test_energies_telescope_so_that_nothing_is_lost_or_counted_twice(points):
    told = energies(points)[1]
    starts = [start_s for start_s, _ in told]
    assert starts == sorted(set(starts))
    if told:
        whole = reading_at(points, starts[-1] + INTERVAL_S) - reading_at(points, starts[0])
        assert sum(energy for _, energy in told) == whole


@given(st.integers(0, 10**9), st.integers(0, 50), st.lists(st.integers(1, 600), min_size=1, max_size=30), st.data())
def test_points_on_one_straight_line_may_be_left_out(begin_s, slope, runs, data):
    points = [Point(begin_s, 0)]
    for run_s in runs:
        points.append(Point(points[-1].at_s + run_s, points[-1].wh + slope * run_s))
    kept = [p for p in points[1:-1] if data.draw(st.booleans())]
    coarse = [points[0], *kept, points[-1]]
    assert energies(points, gap_s=10**6)[1] == energies(coarse, gap_s=10**6)[1]


@given(lines(), st.data())
def test_a_point_that_comes_again_changes_nothing_whenever_it_comes(points, data):
    again = []
    for index, point in enumerate(points):
        near = [p for p in points[: index + 1] if point.at_s - p.at_s <= GAP_S]
        again += [point, *data.draw(st.lists(st.sampled_from(near), max_size=3))]
    assert energies(again) == energies(points)


@given(anything)
def test_energies_are_never_negative_and_never_more_than_the_register_rose(points):
    register = None
    for point in points:
        before = register
        register, told = Register.follow(register, point, interval_s=INTERVAL_S, longest_gap_s=GAP_S)
        assert all(energy >= 0 and start_s % INTERVAL_S == 0 for start_s, energy in told)
        if told:
            known_wh = before.last.wh if before.boundary_wh is None else before.boundary_wh
            assert sum(energy for _, energy in told) <= point.wh - known_wh


def broken(last, new):
    return not (0 < new.at_s - last.at_s <= GAP_S and new.wh >= last.wh)


@given(lines(), lines())
def test_an_interval_that_a_break_touches_has_no_energy(before, after):
    """Whatever breaks the line, what follows is as if the meter had begun there."""
    register, _ = energies(before)
    late = 0 <= before[-1].at_s - after[0].at_s <= GAP_S and after[0].wh <= before[-1].wh
    if broken(before[-1], after[0]) and not late:
        assert energies(after, register) == energies(after)


@given(lines(), st.integers(1, GAP_S), st.integers(1, 10**6), lines())
def test_after_a_reset_nothing_is_told_of_the_interval_it_fell_in(before, run_s, lost_wh, tail):
    last = before[-1]
    reset = Point(last.at_s + run_s, max(0, last.wh - lost_wh))
    after = [Point(p.at_s - tail[0].at_s + reset.at_s, p.wh - tail[0].wh + reset.wh) for p in tail]
    register, _ = energies(before)
    told = energies(after, register)[1]
    assert last.wh == 0 or all(start_s >= reset.at_s for start_s, _ in told)


@given(lines(), st.integers(1, 10**6), lines())
def test_after_a_gap_nothing_is_told_of_the_intervals_it_covers(before, more_s, tail):
    last = before[-1]
    back = Point(last.at_s + GAP_S + more_s, last.wh + 10**9)
    after = [Point(p.at_s - tail[0].at_s + back.at_s, p.wh - tail[0].wh + back.wh) for p in tail]
    register, _ = energies(before)
    assert all(start_s >= back.at_s for start_s, _ in energies(after, register)[1])


@given(lines())
def test_where_meters_begin_does_not_matter_to_intervals_known_from_later_points(points):
    later = energies(points[1:])[1]
    assert not later or energies(points)[1][-len(later) :] == later


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_two_values_for_one_second_leave_the_same_point_in_any_order(one, other):
    points = [Point(1000, one), Point(1000, other)]
    assert energies(points)[0].last == energies(points[::-1])[0].last


def test_a_clock_that_was_set_back_begins_anew_and_tells_nothing_across():
    register, _ = energies([Point(0, 0), Point(3600, 400)])
    moved, told = register.advance(Point(1000, 500), interval_s=INTERVAL_S, longest_gap_s=GAP_S)
    assert (moved, told) == (Register(Point(1000, 500)), [])
    far, told = register.advance(Point(0, 0), interval_s=INTERVAL_S, longest_gap_s=3599)
    assert (far, told) == (Register(Point(0, 0), 0), [])


def test_a_small_day_by_hand():
    points = [
        Point(0, 1000),
        Point(600, 1010),
        Point(1500, 1100),
        Point(1800, 1101),
        Point(5000, 1000),
        Point(7200, 1300),
    ]
    assert energies(points)[1] == [(0, 40), (900, 61), (5400, 123), (6300, 123)]


def test_boundaries_between_two_points_include_the_later_one_alone():
    assert between(Point(0, 5), Point(1800, 15), interval_s=900, longest_gap_s=1800) == [(900, 10), (1800, 15)]
    assert between(None, Point(900, 7), interval_s=900, longest_gap_s=1) == [(900, 7)]
    assert between(None, Point(901, 7), interval_s=900, longest_gap_s=1) == []


@given(st.integers(0, 2**53 - 1))
def test_a_bare_number_is_wh_at_the_time_of_its_arrival(wh):
    assert parse_point(str(wh).encode(), 77) == Point(77, wh)


@given(st.integers(0, 2**43), st.sampled_from([("Wh", 0), ("kWh", 3), ("MWh", 6)]), st.integers(0, 4 * 10**9))
def test_a_register_in_any_unit_is_exact_to_the_wh(wh, unit, at_s):
    name, digits = unit
    text = f"{wh // 10**digits}.{wh % 10**digits:0{digits}d}" if digits else str(wh)
    payload = f'{{"timestamp": {at_s}, "value": {text}, "unit": "{name}"}}'.encode()
    assert parse_point(payload, 0) == Point(at_s, wh)


@pytest.mark.parametrize(
    "payload",
    [b'{"timestamp":"1970-01-01T01:00:30.999+01:00","value":5}', b'{"value": 0.005, "unit": "kWh", "timestamp": 30}'],
)
def test_a_time_is_rfc_3339_or_whole_seconds(payload):
    assert parse_point(payload, 0) == Point(30, 5)


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
    b"9" * 400,
    b"1e400",
    b"1e999999999",
    b"1e-999999999",
    b"1e99999999999999999999",
    b"0e999999999",
    b'{"value": "\\ud800"}',
    b'{"value": 1, "unit": ["kWh"]}',
    b'{"value": 1, "time": 5}',
    *(
        f.replace("#", str(CANARY)).encode()
        for f in (
            "-#",
            "#.5",
            '{"value": #.0001, "unit": "kWh"}',
            '{"value": #, "unit": "J"}',
            '{"value": #, "value": #}',
            '{"value": #, "timestamp": "2026-01-01T00:00:00"}',
            '{"value": #, "timestamp": #000000}',
            '{"value": "#"}',
            '{"value": #',
            '{"value": #, "wh": #}',
            '{"value": {"v": #}}',
            "#e12",
            "# #",
        )
    ),
]


@pytest.mark.parametrize("payload", BAD, ids=range(len(BAD)))
def test_what_is_no_register_is_refused_without_a_word_of_its_value(payload):
    with pytest.raises(ReadingError) as caught:
        parse_point(payload, 0)
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
        point = parse_point(payload, 0)
    except ReadingError:
        return
    assert 0 <= point.wh < 2**53


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
        moment_ns("interval_start", text)
