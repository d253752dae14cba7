"""Prices of a day that depend on a temperature: each follows from its header, also where it is late or lost."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.support.predicted_zones import FIRST, PredictedShard, public_forecast, zone_text
from tests.support.sample_logs import OLD, check, rules

from murmurate.errors import PrivacyError, ZoneFileError
from murmurate.planning.plan import load_plan, make_plan
from murmurate.planning.release_terms import ReleaseTerms, compute_plan_digest
from murmurate.planning.zone_file import parse_zone
from murmurate.prediction.forecast_sources import unknown_sensor
from murmurate.prediction.public_inputs import INPUTS, InputValue, select_inputs
from murmurate.public_log.noised_demand import DemandTerms, extract_demand
from murmurate.public_log.tile import sign_tile
from murmurate.public_log.zone_line import find_release

SERIES = "Lisbon temperature"
HOMES = 3000


@cache
def forecast(*, clipped=False):
    """Each K below 15 °C adds 20 Wh to what a home uses in an hour. Clipped sums show 0.9 of the demand."""
    warm = public_forecast()
    demand = replace(warm.demand, heat_wh_per_k=np.full(24, 20.0), usual_cold_k=np.full(12, 3.0))
    sensor = unknown_sensor(demand)
    if clipped:
        sensor = replace(sensor, forecast=demand.scaled(0.9), response=np.full(24, 0.8))
    return replace(warm, demand=demand, sensors=(sensor,))


def read(text, *, clipped=False):
    return parse_zone(text, read_forecast=lambda _: forecast(clipped=clipped))


@cache
def plan(*, clipped=False):
    text = zone_text(HOMES, forecast=f'file = "forecast.json"\ntemperature = "{SERIES}"')
    return json.dumps(json.loads(make_plan(read(text, clipped=clipped)).to_json()), separators=(",", ":"))


def play(posted, hours=24, demand_wh=1_500_000, *, clipped=False):
    """Tiles of a day. `posted`: values by interval, with the interval in which they are known."""

    def find_inputs(series, last, interval):
        assert set(series) == {SERIES}
        known = {at: value for at, (value, since) in posted.items() if since <= interval}
        return select_inputs({SERIES: known}, series, interval=interval, lead=last.lead, interval_s=last.interval_s)

    shard = PredictedShard({"hill": plan(clipped=clipped)}, find_inputs=find_inputs)
    for _ in range(hours):
        shard.release({"hill": demand_wh})
    return shard


def every_hour(thousandths, hours=range(-6, 30), late=0):
    return {FIRST + n: (thousandths, FIRST + n - 2 + late) for n in hours}


PLAYED = play(every_hour(5000, range(6)) | every_hour(-2500, range(9, 12), late=3))


@pytest.mark.slow
def test_a_day_with_inputs_on_time_late_and_lost_holds_from_tiles_and_lines():
    stated = [tile.header.extensions.get(INPUTS, {}).get(SERIES) for tile in PLAYED.tiles[1:]]
    warm, cold = {"ahead": 5000, "now": 5000}, {"ahead": -2500, "now": -2500}
    assert stated[:10] == [warm] * 10  # that of 09:00 comes at 10:00
    assert stated[10:16] == [cold] * 6
    assert stated[16:] == [{"now": -2500}] * 2 + [None] * 6  # six hours after the last one
    assert check(PLAYED.items(), plans=(plan(),)).findings == []
    assert check(PLAYED.lines("hill"), plans=(plan(),)).findings == []


def test_a_colder_hour_to_come_has_a_higher_price():
    mild, cold = (play(every_hour(value), hours=1).tiles[-1].rows["price_ticks"][0] for value in (15_000, 0))
    assert cold > mild


def test_a_measurement_is_compared_with_what_the_temperature_of_its_hour_lets_expect():
    """The same demand is more than expected on a mild day, and less on a cold one."""
    usual, mild, cold = (
        play(values, hours=1).tiles[-1].rows["states"][0][0] for values in ({}, every_hour(15_000), every_hour(-10_000))
    )
    assert cold < usual < mild


def test_without_a_series_the_tiles_are_those_of_a_usual_temperature():
    without, usual = play({}), play(every_hour(12_000))  # 3 K below the heating base, as usual
    for tile, other in zip(without.tiles[1:], usual.tiles[1:], strict=True):
        assert INPUTS not in tile.header.extensions
        assert tile.rows["price_ticks"].tolist() == other.rows["price_ticks"].tolist()


@pytest.mark.parametrize("changed", [{}, {SERIES: {"ahead": 6000, "now": 5000}}, {SERIES: {"now": 5000}}, {"x": 1}])
def test_an_input_that_the_price_was_not_made_with_is_found(changed):
    """Also where its operator signs it: the price does not follow."""
    shard = play(every_hour(5000), hours=3)
    last = shard.tiles[-1]
    extensions = {**last.header.extensions, INPUTS: changed}
    forged = sign_tile(replace(last.header, extensions=extensions), OLD, last.rows)
    found = check(shard.items([*shard.tiles[:-1], forged]), plans=(plan(),))
    assert "prediction" in rules(found)


def test_a_plan_names_the_series_of_its_zone_file():
    document = json.loads(plan())
    document["prediction"]["temperature"] = "another town"
    document["digest"] = compute_plan_digest(document)
    with pytest.raises(PrivacyError, match="not that of the zone file"):
        load_plan(json.dumps(document))
    assert ReleaseTerms.from_json(plan()).prediction.model.temperature == SERIES


def test_a_series_needs_a_forecast_that_answers_to_it():
    text = zone_text(HOMES, forecast=f'file = "forecast.json"\ntemperature = "{SERIES}"')
    with pytest.raises(ZoneFileError, match="murmurate forecast with --temperature"):
        parse_zone(text, read_forecast=lambda _: public_forecast())
    with pytest.raises(ZoneFileError, match="must be a name such as"):
        read(text.replace(SERIES, "a/b"))


def test_a_noised_demand_is_told_by_the_temperature_that_its_tile_states():
    """`forecast --log` undoes the clipping: the demand is D (1 + (release - E) / (0.8 E)), both at that temperature."""
    shard = play(every_hour(-10_000, range(-6, 3)), hours=12, clipped=True)
    terms = DemandTerms.from_json(plan(clipped=True))
    releases = [find_release(tile, shard.tables[tile.header.table], "hill") for tile in shard.tiles[1:]]
    found = extract_demand(releases, {terms.terms.plan_digest: terms}).history.demand_wh
    model = terms.prediction.model
    for n, (demand_wh, tile) in enumerate(zip(found, shard.tiles[1:], strict=True)):
        temperature_c = np.array([-10.0 if n < 9 else np.nan])
        expected = float(forecast().demand.demand_wh(model.locate(FIRST + n), temperature_c)[0])
        shown = tile.rows["noisy_wh"][0] / terms.households / (0.9 * expected) - 1
        assert np.isclose(demand_wh, expected * (1 + shown / 0.8), rtol=1e-4)  # a plan rounds its forecast


def test_the_value_of_no_moment_is_unknown():
    model = ReleaseTerms.from_json(plan()).prediction.model
    assert model.temperature_c({SERIES: InputValue(now=-2500)}, "now").tolist() == [-2.5]
    assert model.temperature_c({SERIES: InputValue(now=-2500)}, "ahead") is None
    assert model.temperature_c({"other": InputValue(1, 1)}, "now") is None
