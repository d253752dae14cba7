"""Any cut of the meter table into shards, merged in any order, gives the demand that a person would write down."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmurate.aggregation import Shard, aggregate, demand_from_tally, merge_tallies, tally_readings
from murmurate.errors import MeterError
from murmurate.types import Meters, Readings

ZONES = ("hill", "harbour", "mill")
START_US = 900 * 2_000_000 * 10**6
EXTREME = [-(2**63), -(2**63) + 1, -1, 0, 2**63 - 1]


@st.composite
def sample_tables(draw):
    """A table with gaps in its numbers, and readings: twice, clipped, negative, of unknown meters, at wrong times."""
    number = sorted(draw(st.sets(st.integers(0, 40), min_size=1, max_size=12)))
    column = lambda values: np.array(draw(st.lists(values, min_size=len(number), max_size=len(number))))  # noqa: E731
    bound_wh = column(st.integers(1, 3000))
    export_bound_wh = column(draw(st.sampled_from([st.just(0), st.one_of(st.just(0), st.integers(1, 3000))])))
    imputed_wh = np.clip(column(st.integers(-500, 500)), -export_bound_wh, bound_wh)
    meters = Meters(
        zones=ZONES,
        zone=column(st.integers(0, 2)),
        bound_wh=bound_wh,
        imputed_wh=imputed_wh if draw(st.booleans()) else None,
        export_bound_wh=export_bound_wh,
        number=np.array(number),
    )
    who = st.one_of(st.sampled_from(number), st.integers(0, 50), st.sampled_from(EXTREME))
    much = st.one_of(st.integers(-4000, 4000), st.sampled_from(EXTREME))
    when = st.sampled_from([START_US, START_US, START_US, START_US + 86_400 * 10**6])
    return meters, draw(st.lists(st.tuples(who, much, when), max_size=40))


def readings(rows):
    meter, energy_wh, start_us = np.array(rows, np.int64).reshape(-1, 3).T
    return Readings(meter=meter.copy(), energy_wh=energy_wh.copy(), start_us=start_us.copy())


def part(meters, rows):
    names = ("zone", "bound_wh", "imputed_wh", "export_bound_wh", "number")
    columns = {name: getattr(meters, name) for name in names}
    return Meters(zones=ZONES, **{name: None if wh is None else wh[rows] for name, wh in columns.items()})


def by_hand(meters, rows):
    """Energy, meters that reported, silent meters, and bounds of those that count a share, of each zone."""
    largest = {}
    for meter, energy_wh, start_us in rows:
        if start_us == START_US:
            largest[meter] = max(energy_wh, largest.get(meter, energy_wh))
    lines = []
    for zone in range(len(ZONES)):
        here = [m for m in range(len(meters)) if meters.zone[m] == zone]
        reporting = [m for m in here if int(meters.number[m]) in largest]
        values = [(largest[int(meters.number[m])], -int(meters.export_bound_wh[m]), m) for m in reporting]
        clipped = [min(max(value, least), int(meters.bound_wh[m])) for value, least, m in values]
        silent = [m for m in here if m not in reporting]
        if meters.imputed_wh is None:
            bounds = (sum(int(column[m]) for m in silent) for column in (meters.bound_wh, meters.export_bound_wh))
            lines.append((sum(clipped), len(reporting), len(silent), *bounds))
        else:
            imputed_wh = sum(int(meters.imputed_wh[m]) for m in silent)
            lines.append((sum(clipped) + imputed_wh, len(reporting), len(silent), 0, 0))
    return lines


def lines(result):
    columns = (result.energy_wh, result.reported, result.imputed)
    columns += (result.silent_bound_wh, result.silent_export_bound_wh)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.slow
@given(data=st.data(), sample=sample_tables())
def test_shards_in_any_order_and_grouping_give_what_a_person_writes_down(data, sample):
    meters, rows = sample
    cuts = sorted(data.draw(st.sets(st.integers(1, len(meters) - 1), max_size=4))) if len(meters) > 1 else []
    edges = list(pairwise([0, *cuts, len(meters)]))
    order = data.draw(st.permutations(rows))
    at = data.draw(st.integers(0, len(rows)))
    parts = [
        tally_readings(
            [readings(order[:at]), readings(order[at:])],
            Shard.from_meters(part(meters, slice(*edge)), number),
            START_US,
        )
        for number, edge in enumerate(edges)
    ]
    shuffled = data.draw(st.permutations(parts))
    fork = data.draw(st.integers(0, len(parts)))
    grouped = merge_tallies([merge_tallies(shuffled[:fork]), merge_tallies(shuffled[fork:])])
    assert lines(demand_from_tally(merge_tallies(parts), ZONES, len(parts))) == by_hand(meters, rows)
    assert lines(demand_from_tally(grouped, ZONES, len(parts))) == by_hand(meters, rows)


@pytest.mark.slow
@given(sample=sample_tables())
def test_what_was_left_out_is_counted(sample):
    meters, rows = sample
    seen = tally_readings([readings(rows)], Shard.from_meters(meters), START_US)
    assert seen.readings == len(rows)
    assert seen.wrong_interval == sum(start_us != START_US for *_, start_us in rows)
    known = set(meters.number.tolist())
    assert seen.unknown_meter == sum(start_us == START_US and meter not in known for meter, _, start_us in rows)


def test_a_shard_that_would_count_twice_or_not_at_all_is_refused():
    one = tally_readings([], Shard.from_meters(Meters.for_single_zone("hill", bound_wh=[5])))
    with pytest.raises(MeterError, match="one would have counted twice"):
        merge_tallies([one, one])
    with pytest.raises(MeterError, match="shards is 1 of 2: must all be tallied"):
        demand_from_tally(one, ("hill",), shard_count=2)


def test_a_tally_prints_no_number():
    shard = Shard.from_meters(Meters.for_single_zone("hill", bound_wh=[5000]))
    assert "4321" not in repr(tally_readings([Readings.from_columns(meter=[0], energy_wh=[4321])], shard))


def test_a_meter_that_nobody_knows_does_not_stop_the_interval():
    meters = Meters.for_single_zone("hill", bound_wh=[5, 5], imputed_wh=1)
    assert aggregate([Readings.from_columns(meter=[2, 0], energy_wh=[5, 3])], meters).for_zone("hill") == 4
