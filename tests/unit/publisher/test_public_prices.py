"""A zone whose plan reads no meter: nothing is drawn for it, and no reading changes a byte of its rows."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.predicted_zones import PredictedShard, RepeatableNoise, make_demand, plan_text, zone_text

from murmurate.errors import ZoneFileError
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.planning.zone_file import parse_zone
from murmurate.public_log.tile import RowKind
from murmurate.publisher.desired_state import DesiredState
from murmurate.service.aggregation.submit_demand import releasable_demand

PUBLIC, READING = plan_text(households=60, read_meters=False), plan_text(households=60)


class NoNoise(RepeatableNoise):
    """Noise that is only there for tests: nothing that needs some is published with it."""

    test_only = True

    def draw(self, *_):
        raise AssertionError("nothing is drawn for a plan that reads no meter")


def test_nothing_is_drawn_and_the_row_has_no_noise_and_no_cost():
    shard = PredictedShard({"hill": PUBLIC}, noise=NoNoise())
    row = shard.release({"hill": 12_345}).rows[0]
    assert row["kind"] == RowKind.PUBLIC
    assert row["price_ticks"] > 0
    nothing = ("noise", "scale_wh", "core_wh", "epsilon_micro", "rho_micro", "noisy_wh", "total_epsilon_micro")
    assert [row[name] for name in nothing] == [0] * len(nothing)
    assert shard.release({}, late=True).rows["kind"].tolist() == [RowKind.WITHHELD]


@pytest.mark.slow
@given(st.lists(st.none() | st.integers(-(10**7), 10**7), min_size=1, max_size=4))
def test_any_readings_give_the_rows_that_none_give(demands_wh):
    shards = PredictedShard({"hill": PUBLIC}), PredictedShard({"hill": PUBLIC})
    for demand_wh in demands_wh:
        one = shards[0].release({} if demand_wh is None else {"hill": demand_wh})
        assert one.to_bytes() == shards[1].release({}).to_bytes()


def test_readings_of_such_a_zone_leave_the_draws_of_the_others_alone():
    plans = {"hill": PUBLIC, "mill": READING}
    with_reading, without = (
        PredictedShard(plans).release({"mill": 30_000} | more).rows for more in ({"hill": 9_999_999}, {})
    )
    assert with_reading.tobytes() == without.tobytes()
    assert with_reading["kind"].tolist() == [RowKind.PUBLIC, RowKind.MEASURED]


def test_silent_meters_of_such_a_zone_change_nothing():
    shard = PredictedShard({"hill": PUBLIC}, noise=NoNoise())
    demand = replace(make_demand({"hill": 30_000}), silent_bound_wh=np.array([1000]))
    interval = shard.next_interval()
    tile = shard.write(DesiredState(until=interval, priced_from=interval, zones=shard.zones), demand)
    assert tile.to_bytes() == PredictedShard({"hill": PUBLIC}).release({}).to_bytes()


def test_the_demand_of_such_a_zone_is_not_stored_and_needs_no_quorum():
    terms = {"hill": ReleaseTerms.from_json(PUBLIC), "mill": ReleaseTerms.from_json(READING)}
    demand = make_demand({"hill": 30_000, "mill": 30_000})
    demand.imputed[:] = 1000
    kept, reasons = releasable_demand(demand, terms, 3600, 0.9)
    assert (kept.zones, list(reasons)) == ((), ["mill"])
    kept, reasons = releasable_demand(demand, terms, 3600, 0.0)
    assert (kept.zones, reasons) == (("mill",), {})
    assert np.array_equal(kept.energy_wh, [30_000])


@pytest.mark.parametrize("value", ['"no"', "0", "1"])
def test_read_meters_is_true_or_false(value):
    with pytest.raises(ZoneFileError, match="read_meters"):
        parse_zone(zone_text(forecast=f'from = "occupancy"\nread_meters = {value}'))
