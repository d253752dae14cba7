"""A played month of a predicted zone: what missing readings cost, by what silent meters count."""

from dataclasses import replace

import numpy as np
import pytest
from tests.support.predicted_zones import PredictedShard, RepeatableNoise, make_demand, plan_text

from murmurate.planning.release_terms import ReleaseTerms
from murmurate.prediction.zone_prediction import predict_zones
from murmurate.publisher.desired_state import DesiredState

HOURS, FIRST_JUDGED, LEAD = 28 * 24, 4 * 24, 2
KEEP = np.exp(-1 / np.array([36, 12]))  # of the zone's deviation, and of the share that is missing


def play(missing_share, *, counts_zero=False):
    """Return the rms error of the demand predicted for the interval that pays, relative to the forecast.

    The zone deviates from its forecast by 6 %, and the share of missing readings from its mean by a half of it.
    """
    terms = ReleaseTerms.from_json(plan_text())
    zone, shard = terms.prediction, PredictedShard({"harbour": plan_text()}, lead=LEAD, noise=RepeatableNoise(5))
    bounds_wh = sum(kind.count * kind.bound_wh for kind in terms.households)
    rng, drift = np.random.default_rng(3), np.zeros(2)
    true, predicted = [], []
    for _ in range(HOURS):
        drift = drift * KEEP + rng.normal(0, 1, 2) * np.sqrt(1 - KEEP**2)
        interval = shard.next_interval()
        forecast_wh = zone.model.expect_sum(interval).demand_wh * zone.scale
        true.append(1 + 0.06 * drift[0])
        missing = float(np.clip(missing_share * (1 + 0.5 * drift[1]), 0, 1))
        demand = make_demand({"harbour": round(forecast_wh * true[-1] * (1 - missing))})
        silent_wh = 0 if counts_zero else round(missing * bounds_wh)
        desired = DesiredState(until=interval, priced_from=interval, zones=shard.zones)
        tile = shard.write(desired, replace(demand, silent_bound_wh=np.array([silent_wh])))
        paying = zone.model.expect_demand(interval + LEAD).demand_wh * zone.scale
        predicted.append(predict_zones([zone], tile.rows["states"].astype(np.int64), interval, LEAD)[0] / paying)
    errors = np.array(predicted[FIRST_JUDGED:-LEAD]) - np.array(true[FIRST_JUDGED + LEAD :])
    return float(np.sqrt(np.mean(errors**2)))


@pytest.mark.slow
def test_a_tenth_of_missing_readings_costs_little_where_silent_meters_count_a_public_share(figure):
    none, share, zero = play(0.0), play(0.1), play(0.1, counts_zero=True)
    figure(
        f"predicted demand is off by {none:.2%}; a tenth missing: {share:.2%}, and {zero:.2%} if silent meters are 0"
    )
    assert share < 1.15 * none
    assert zero > 2 * none
