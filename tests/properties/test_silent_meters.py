"""What a household may change before noise is added: its readings, and whether its meters report."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmurate.aggregation import aggregate
from murmurate.errors import PrivacyError
from murmurate.release import fill_silent_meters
from murmurate.types import Meters, Readings
from murmurate.units import MICRO

SHARES = st.integers(-MICRO, MICRO)
RANGE_WH = (2 + 1) + (1 + 0)  # of the household in the tiny world


def sums_wh(meters, shown, share_micro):
    """What noise is added to, where meter m shows `shown[m]`, or nothing where that is None."""
    reports = [(meter, wh) for meter, wh in enumerate(shown) if wh is not None]
    number, energy_wh = zip(*reports, strict=True) if reports else ((), ())
    readings = Readings(meter=np.array(number, np.int64), energy_wh=np.array(energy_wh, np.int64))
    return fill_silent_meters(aggregate([readings], meters), share_micro)


def largest_move_wh(rule):
    """What a household of two meters moves the sum by at most, in every tiny world with a neighbour."""
    meters = Meters.for_single_zone("hill", bound_wh=[2, 1, 3], export_bound_wh=[1, 0, 2])
    largest = 0
    for share_micro in (-MICRO, -700_000, -1, 0, 1, 333_333, 500_000, 999_999, MICRO):
        for neighbour in (None, -5, 1, 9):
            options = product((None, -4, -1, 0, 1, 4), repeat=2)
            found = [int(rule(meters, (*own, neighbour), share_micro)) for own in options]
            largest = max(largest, max(found) - min(found))
    return largest


def test_in_every_tiny_world_a_household_moves_the_sum_by_at_most_its_range():
    """Every reading, every silence, every sign of the share; and some world needs all of the range."""
    assert largest_move_wh(lambda *world: sums_wh(*world)[0]) == RANGE_WH


def plain_rule(meters, shown, share_micro, *, most=1.0, least=-1):
    """The rule in plain Python, with room for a mistake: the largest share, and how far below zero readings count."""
    share = share_micro * most / MICRO
    total, silent = 0, []
    for wh, bound, export in zip(shown, meters.bound_wh.tolist(), meters.export_bound_wh.tolist(), strict=True):
        if wh is None:
            silent.append(bound if share >= 0 else export)
        else:
            total += min(max(wh, least * export), bound)
    return total + math.copysign(math.floor(abs(share) * sum(silent) + 1e-9), share)


def test_the_rule_in_plain_python_is_the_same():
    meters = Meters.for_single_zone("hill", bound_wh=[2, 1, 3], export_bound_wh=[1, 0, 2])
    for shown in product((None, -4, -1, 0, 1, 4), repeat=3):
        for share_micro in (-MICRO, -700_000, 0, 333_333, MICRO):
            assert plain_rule(meters, shown, share_micro) == sums_wh(meters, shown, share_micro)[0]


@pytest.mark.parametrize(
    "mistake", [{"most": 1.5}, {"most": 3.0}, {"least": -10}], ids=["phi 1.5", "phi 3", "clipped on one side"]
)
def test_a_wrong_rule_moves_the_sum_beyond_the_range(mistake):
    assert largest_move_wh(lambda *world: plain_rule(*world, **mistake)) > RANGE_WH


@pytest.mark.slow
@given(data=st.data(), share_micro=SHARES)
def test_a_household_moves_the_sum_by_at_most_its_range_whether_its_meters_report_or_not(data, share_micro):
    count = data.draw(st.integers(1, 6))
    sizes = st.one_of(st.integers(1, 5), st.integers(1, 2**55))
    column = lambda values: data.draw(st.lists(values, min_size=count, max_size=count))  # noqa: E731
    bound_wh, export_wh = column(sizes), column(st.one_of(st.just(0), sizes))
    meters = Meters.for_single_zone("hill", bound_wh=bound_wh, export_bound_wh=export_wh)
    shown = st.one_of(st.none(), st.integers(-7, 7), st.integers(-(2**63), 2**63 - 1))
    one = column(shown)
    household = data.draw(st.sets(st.integers(0, count - 1), min_size=1))
    other = [data.draw(shown) if meter in household else wh for meter, wh in enumerate(one)]
    moved = int(sums_wh(meters, one, share_micro)[0]) - int(sums_wh(meters, other, share_micro)[0])
    assert abs(moved) <= sum(bound_wh[meter] + export_wh[meter] for meter in household)


@pytest.mark.slow
@given(
    bound_wh=st.lists(st.integers(1, 2**55), min_size=1, max_size=6),
    export_wh=st.integers(0, 2**55),
    share_micro=SHARES,
)
def test_silent_meters_count_the_share_of_their_bounds_rounded_down_in_whole_numbers(bound_wh, export_wh, share_micro):
    meters = Meters.for_single_zone("hill", bound_wh=bound_wh, export_bound_wh=export_wh)
    by_hand = share_micro * sum(bound_wh) // MICRO
    if share_micro < 0:
        by_hand = -(-share_micro * export_wh * len(bound_wh) // MICRO)
    assert int(sums_wh(meters, [None] * len(bound_wh), share_micro)[0]) == by_hand


@pytest.mark.parametrize("share_micro", [MICRO + 1, -MICRO - 1, 2**62])
def test_a_share_beyond_the_bound_is_refused(share_micro):
    with pytest.raises(PrivacyError, match="share_micro"):
        fill_silent_meters(aggregate([], Meters.for_single_zone("hill", bound_wh=[5])), share_micro)
