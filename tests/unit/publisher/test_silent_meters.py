"""Silent meters in a release: they count what public numbers expect of them, so they show nothing new."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from tests.support import sample_shards
from tests.support.predicted_zones import PredictedShard, make_demand, plan_text
from tests.support.sample_shards import BOUNDS, make_terms, make_writer, next_offer, open_shard, open_zone

from murmurate.planning.release_terms import PlannedHouseholds, ReleaseTerms
from murmurate.publisher.desired_state import DesiredState
from murmurate.types import Demand
from murmurate.units import MICRO


class NoNoise:
    """The exact sum, which a test may see."""

    test_only = False

    def draw(self, distribution, scale_wh, core_wh=None):  # noqa: ARG002 - as every sampler
        return np.zeros(scale_wh.shape, np.int64)


def shard_of(elasticity=0.0, **more):
    return PredictedShard({"harbour": plan_text(elasticity=elasticity)}, noise=NoNoise(), **more)


def demand_with(energy_wh, silent_wh=0, silent_export_wh=0):
    plain = make_demand({"harbour": energy_wh})
    return Demand(
        zones=plain.zones,
        energy_wh=plain.energy_wh,
        reported=plain.reported,
        imputed=plain.imputed,
        silent_bound_wh=np.array([silent_wh]),
        silent_export_bound_wh=np.array([silent_export_wh]),
        bounds=plain.bounds,
    )


def release(shard, demand):
    interval = shard.next_interval()
    return shard.write(DesiredState(until=interval, priced_from=interval, zones=shard.zones), demand)


@pytest.mark.parametrize("elasticity", [0.0, 0.3])
def test_a_zone_whose_meters_are_all_silent_learns_nothing(elasticity):
    """Its sum is what the rows before expect of it, so its states are those of a zone that measured nothing."""
    total_wh = sum(kind.count * kind.bound_wh for kind in ReleaseTerms.from_json(plan_text()).households)
    silent, unmeasured = shard_of(elasticity), shard_of(elasticity)
    for shard in (silent, unmeasured):
        for wh in (900_000, 1_400_000, 2_100_000, 1_700_000):
            shard.release({"harbour": wh})
    assert silent.tiles[-1].rows["states"].any()
    measured, fallback = release(silent, demand_with(0, total_wh)), unmeasured.release({})
    apart = measured.rows["states"].astype(np.int64) - fallback.rows["states"]
    assert np.abs(apart).max() * 1e-9 < 1e-5  # the share has six decimal places
    assert int(measured.rows["noisy_wh"][0]) > 100_000
    moved = release(
        shard_of(elasticity), demand_with(0)
    )  # the same zone with imputed zeros learns that it uses nothing
    assert moved.rows["states"].astype(np.int64).min() * 1e-9 < -0.01


def test_a_part_of_the_meters_that_is_silent_adds_its_part_of_what_is_expected():
    total_wh = sum(kind.count * kind.bound_wh for kind in ReleaseTerms.from_json(plan_text()).households)
    whole, tenth = shard_of(), shard_of()
    expected_wh = int(release(whole, demand_with(0, total_wh)).rows["noisy_wh"][0])
    found_wh = int(release(tenth, demand_with(5, total_wh // 10)).rows["noisy_wh"][0])
    assert abs(found_wh - 5 - expected_wh / 10) <= 1


def test_a_zone_without_silent_meters_is_released_as_before():
    tiles = [
        [shard.release({"harbour": 900_000 + n}).to_bytes() for n in range(3)] for shard in (shard_of(), shard_of())
    ]
    with_columns = shard_of()
    assert tiles[0] == [release(with_columns, demand_with(900_000 + n, 0, 77)).to_bytes() for n in range(3)]


def test_every_attempt_at_an_interval_takes_the_same_share():
    """It follows from the row before, which the chain has fixed, whatever was written and lost since."""
    demand = demand_with(800_000, 300_000)
    once, again = shard_of(), shard_of()
    for shard in (once, again):
        for wh in (900_000, 1_200_000):
            shard.release({"harbour": wh})
    head = again.head
    release(again, demand_with(1, 2_000_000))  # an attempt that is not in the log
    again.head = head
    assert release(once, demand).to_bytes() == release(again, demand).to_bytes()


@pytest.mark.parametrize(("forecast_wh", "more_wh"), [(25_000, 250 * 7), (-15_000, -150 * 7), (10**9, 1000 * 7)])
def test_a_plan_without_a_prediction_takes_its_forecast_of_the_interval(forecast_wh, more_wh):
    """Seven of a hundred households are silent. The forecast is a part of what all may use, or may feed in."""
    flats = PlannedHouseholds("flat", 100, 1000, Fraction(0), is_from_table=False, export_bound_wh=300)
    terms = replace(make_terms(), forecast_wh=(forecast_wh,) * 4, households=(flats,))
    writer = make_writer(NoNoise(), {terms.plan_digest: terms})
    head = open_shard({"harbour": open_zone()})
    desired = DesiredState(until=sample_shards.FIRST)
    silent, plain = (
        next_offer(head, desired, demand, writer=writer).tile.rows["price_ticks"][0]
        for demand in (
            replace(demand_with(40_000, 7000, 2100), bounds=(BOUNDS,)),
            replace(demand_with(40_000 + more_wh), bounds=(BOUNDS,)),
        )
    )
    assert silent == plain


def test_the_share_is_what_is_expected_over_the_bounds_of_the_plan():
    document = json.loads(plan_text())
    bare = ReleaseTerms.from_json(plan_text())
    assert bare.forecast_wh == tuple(document["forecast_wh"])
    total_wh = sum(kind["count"] * kind["bound_wh"] for kind in document["households"])
    assert bare.silent_share_micro(total_wh // 4) == MICRO // 4
    assert bare.silent_share_micro(3 * total_wh) == MICRO
    assert bare.silent_share_micro(-5) == 0  # no kind of the plan may feed in
    assert make_terms().silent_share_micro(10**9) == 0  # terms that know no households
