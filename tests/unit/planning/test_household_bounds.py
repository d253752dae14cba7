"""Bounds of households: the sum over their meters, the largest of each kind, the same in any order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmurate.errors import MeterError
from murmurate.planning.household_bounds import (
    MAX_COUNT_ERROR,
    Households,
    decode_bounds,
    encode_bounds,
    household_bounds,
    is_count_off,
    round_household_count,
)
from murmurate.types import UNPROTECTED_KIND

KINDS = ("", "flat", "mill")
ZONES = 3
HOUSES = st.lists(
    st.tuples(
        st.integers(0, ZONES - 1),
        st.integers(0, len(KINDS) - 1),
        st.booleans(),
        st.lists(st.integers(1, 2**40), min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=6,
)
BOUNDS = st.dictionaries(st.text(), st.integers(0, 2**62))


def table(meters, **changes):
    """Columns from (household, zone, kind, protected, range) of each meter."""
    household, zone, kind, protected, range_wh = map(np.array, zip(*meters, strict=True))
    columns = {"household": household, "zone": zone, "kind": kind, "protected": protected, "range_wh": range_wh}
    return Households(kinds=KINDS, **columns | changes)


def by_hand(houses):
    found = [{} for _ in range(ZONES)]
    for zone, kind, protected, bounds_wh in houses:
        keys = {KINDS[kind]} if protected else {KINDS[kind], UNPROTECTED_KIND} - {""}
        for key in keys:
            found[zone][key] = max(found[zone].get(key, 0), sum(bounds_wh))
    return tuple(found)


@given(HOUSES, st.randoms())
def test_the_bound_of_a_household_is_the_sum_of_its_meters_in_whatever_order_they_stand(houses, chance):
    meters = [(n, *house[:3], bound_wh) for n, house in enumerate(houses) for bound_wh in house[3]]
    chance.shuffle(meters)
    assert household_bounds(table(meters), ZONES) == by_hand(houses)


@given(HOUSES)
def test_without_households_each_meter_is_one(houses):
    meters = [(0, *house[:3], bound_wh) for house in houses for bound_wh in house[3]]
    alone = [(*house[:3], [bound_wh]) for house in houses for bound_wh in house[3]]
    assert household_bounds(table(meters, household=None), ZONES) == by_hand(alone)


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ((1, 1, 1, True, 5), "household is 'B': must have one zone: its meters differ in zone"),
        ((1, 0, 2, True, 5), "household is 'B': must have one kind: its meters differ in kind"),
        ((1, 0, 0, True, 5), "household is 'B': must have one kind: its meters differ in kind"),
        ((1, 0, 1, False, 5), "household is 'B': must have one protection: its meters differ in protected"),
    ],
)
def test_a_household_is_in_one_zone_and_of_one_kind(other, says):
    meters = [(0, 0, 1, True, 5), (1, 0, 1, True, 5), (0, 0, 1, True, 5), other]
    with pytest.raises(MeterError) as refusal:
        household_bounds(table(meters), ZONES, household_name="AB".__getitem__)
    assert str(refusal.value) == says


def test_no_kind_is_called_as_what_is_public_always():
    with pytest.raises(MeterError, match="set protected = false instead"):
        Households(kinds=("", UNPROTECTED_KIND), zone=[0], range_wh=[5], protected=[True], kind=[1])


@given(st.none() | BOUNDS)
def test_bounds_come_back_from_text_as_they_were(bounds):
    assert decode_bounds(encode_bounds(bounds)) == bounds


@given(st.none() | st.text() | st.sampled_from(["[" * 100_000, '{"": 1e3}', '{"": null}', "9" * 5000]))
def test_any_other_text_is_no_bounds(text):
    found = decode_bounds(text)
    assert found is None or all(type(wh) is int and wh >= 0 for wh in found.values())


# --- the number of households of a meter table is published coarsely, and compared with that of a plan


@given(st.integers(1, 10**8))
def test_a_number_is_published_with_two_digits_or_in_fives(count):
    rounded = round_household_count(count)
    assert rounded >= 5
    if count < 100:
        assert rounded % 5 == 0
        assert abs(rounded - count) <= 2 or (count < 3 and rounded == 5)
    else:
        assert not str(rounded)[2:].strip("0")
        assert abs(rounded - count) <= 0.05 * count


@given(st.integers(100, 10**6))
def test_most_moves_do_not_show_in_the_published_number(count):
    numbers = {round_household_count(count + moves) for moves in range(-2, 3)}
    assert len(numbers) <= 2


@given(st.integers(1, 10**6))
def test_a_plan_from_a_table_is_never_off_from_that_table(count):
    assert not is_count_off(round_household_count(count), count)


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_a_plan_is_off_where_more_than_a_quarter_is_missing_or_too_much(plan, table):
    is_far = abs(plan - table) > MAX_COUNT_ERROR * plan
    assert is_count_off(plan, table) == (is_far and plan != round_household_count(table))
