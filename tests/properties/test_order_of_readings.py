"""Any order and any partition of the readings gives the same demand, and the same release under the same seed."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmurate.aggregation import aggregate
from murmurate.pricing.rate import RateCurve
from murmurate.privacy.noise import SeededNoise
from murmurate.release import protect
from murmurate.types import Meters, Readings

CURVE = RateCurve.affine(alpha="0.001", beta="0.08", tick="0.00001", floor=0)
BIG_WH = 2**55  # where a double no longer holds every whole number
ANY_READING = st.one_of(st.integers(-3000, 3000), st.integers(-2 * BIG_WH, 2 * BIG_WH), st.sampled_from([-(2**63), -1]))


@st.composite
def intervals(draw):
    """A meter table of a few zones, and readings with conflicting duplicates and silent meters."""
    meters = draw(st.integers(1, 12))
    column = lambda values: draw(st.lists(values, min_size=meters, max_size=meters))  # noqa: E731
    sizes = st.one_of(st.integers(1, 3000), st.integers(BIG_WH - 9, BIG_WH))
    bound_wh, export_bound_wh = np.array(column(sizes)), np.array(column(st.one_of(st.just(0), sizes)))
    table = Meters(
        zones=("hill", "harbour", "mill"),
        zone=np.array(column(st.integers(0, 2))),
        bound_wh=bound_wh,
        imputed_wh=np.clip(np.array(column(st.integers(-500, 500))), -export_bound_wh, bound_wh),
        export_bound_wh=export_bound_wh,
    )
    pairs = draw(st.lists(st.tuples(st.integers(0, meters - 1), st.one_of(sizes, ANY_READING)), max_size=30))
    return table, pairs


def batches(pairs):
    return Readings.from_columns(
        meter=np.array([m for m, _ in pairs], np.int64), energy_wh=np.array([e for _, e in pairs], np.int64)
    )


@pytest.mark.slow
@given(data=st.data(), interval=intervals(), seed=st.integers(0, 2**32))
def test_order_and_partition_do_not_matter(data, interval, seed):
    meters, pairs = interval
    whole = aggregate([batches(pairs)], meters)
    shuffled = data.draw(st.permutations(pairs))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(pairs)), max_size=5)))
    edges = [0, *cuts, len(pairs)]
    parts = aggregate((batches(shuffled[a:b]) for a, b in pairwise(edges)), meters)
    for name in ("energy_wh", "reported", "imputed"):
        assert getattr(whole, name).tolist() == getattr(parts, name).tolist()
    releases = [
        protect(demand.energy_wh, scale_wh=np.full(3, 2000.0), curve=CURVE, noise=SeededNoise(seed))
        for demand in (whole, parts)
    ]
    assert releases[0].price_ticks.tolist() == releases[1].price_ticks.tolist()


@pytest.mark.slow
@given(interval=intervals())
def test_the_demand_is_the_sum_that_a_person_would_write_down(interval):
    meters, pairs = interval
    largest = {}
    for meter, energy_wh in pairs:
        largest[meter] = max(energy_wh, largest.get(meter, energy_wh))
    demand = aggregate([batches(pairs)], meters)
    for number, zone in enumerate(meters.zones):
        rows = [m for m in range(len(meters)) if meters.zone[m] == number]
        expected = [
            min(max(largest[m], -int(meters.export_bound_wh[m])), int(meters.bound_wh[m]))
            if m in largest
            else int(meters.imputed_wh[m])
            for m in rows
        ]
        assert demand.for_zone(zone) == sum(expected)
        assert demand.reported[number] == sum(m in largest for m in rows)
        assert demand.imputed[number] == sum(m not in largest for m in rows)


@pytest.mark.slow
@given(data=st.data(), interval=intervals())
def test_one_meter_moves_the_demand_of_its_own_zone_by_at_most_its_range(data, interval):
    meters, pairs = interval
    meter = data.draw(st.integers(0, len(meters) - 1))
    others = [pair for pair in pairs if pair[0] != meter]
    replaced = data.draw(st.lists(st.tuples(st.just(meter), ANY_READING), max_size=3))
    moved = aggregate([batches(pairs)], meters).energy_wh - aggregate([batches(others + replaced)], meters).energy_wh
    assert abs(moved[meters.zone[meter]]) <= meters.bound_wh[meter] + meters.export_bound_wh[meter]
    assert np.count_nonzero(moved) <= 1
