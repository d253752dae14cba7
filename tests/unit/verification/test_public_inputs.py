"""Prices that depend on weather and region: each follows from its header, also where inputs are late or lost."""

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
from murmurate.prediction.public_inputs import INPUTS, InputSeries, InputValue, select_inputs
from murmurate.public_log.tile import sign_tile

SERIES = InputSeries("Lisbon temperature", "Lisbon irradiance", "Lisbon load")
NAMED = "\n".join(f'{role} = "{name}"' for role, name in SERIES._asdict().items())
HOMES = 3000


@cache
def forecast():
    """Each K below 15 °C adds 20 Wh to what a home uses in an hour, and 300 W/m² take 600 Wh from its demand."""
    warm = public_forecast()
    sunshine = np.maximum(0.0, 300 * np.sin((np.arange(24) - 6) * np.pi / 12)) * np.ones((12, 1))
    demand = replace(
        warm.demand,
        heat_wh_per_k=np.full(24, 20.0),
        usual_cold_k=np.full(12, 3.0),
        dark_wh=40.0,
        sun_wh=-600.0,
        usual_irradiance=sunshine.round(1),
    )
    return replace(warm, demand=demand)


def read(text):
    return parse_zone(text, read_forecast=lambda _: forecast())


@cache
def plan(named=NAMED):
    text = zone_text(HOMES, elasticity=0.2, forecast=f'file = "forecast.json"\n{named}')
    text = text.replace("bound_wh = 1000", "bound_wh = 1000\nexport_bound_wh = 1000")
    text = text.replace('floor = "0"', 'floor = "-1"')
    return json.dumps(json.loads(make_plan(read(text)).to_json()), separators=(",", ":"))


def play(posted, hours=24, demand_wh=1_500_000):
    """Tiles of a day. `posted`: for each series values by interval, with the interval in which they are known."""

    def find_inputs(series, last, interval):
        assert set(series) == SERIES.names
        known = {
            name: {at: value for at, (value, since) in its.items() if since <= interval} for name, its in posted.items()
        }
        return select_inputs(known, series, interval=interval, lead=last.lead, interval_s=last.interval_s)

    shard = PredictedShard({"hill": plan()}, find_inputs=find_inputs)
    for _ in range(hours):
        shard.release({} if demand_wh is None else {"hill": demand_wh})
    return shard


def every_hour(thousandths, hours=range(-6, 30), late=0):
    return {FIRST + n: (thousandths, FIRST + n - 2 + late) for n in hours}


COLD, BRIGHT, MORE = ({series: value} for series, value in zip(SERIES, (-10_000, 700_000, 150), strict=True))
PLAYED = play(
    {
        SERIES.temperature: every_hour(5000, range(6)) | every_hour(-2500, range(9, 12), late=3),
        SERIES.irradiance: {FIRST + n: (50_000 * (n % 7), FIRST + n) for n in range(24)},
        SERIES.deviation: {FIRST + n: (40 * (n % 5 - 2), FIRST + n - 3) for n in range(0, 30, 2)},
    }
)


def post(values):
    return {series: every_hour(value) for series, value in values.items()}


@pytest.mark.slow
def test_a_day_with_inputs_on_time_late_and_lost_holds_from_tiles_and_lines():
    inputs = [tile.header.extensions.get(INPUTS, {}) for tile in PLAYED.tiles[1:]]
    stated = [each.get(SERIES.temperature) for each in inputs]
    warm, cold = {"ahead": 5000, "now": 5000}, {"ahead": -2500, "now": -2500}
    assert stated[:10] == [warm] * 10  # that of 09:00 comes at 10:00
    assert stated[10:16] == [cold] * 6
    assert stated[16:] == [{"now": -2500}] * 2 + [None] * 6  # six hours after the last one
    assert inputs[8][SERIES.irradiance] == {"ahead": 50_000, "now": 50_000}  # that of the interval is the latest one
    assert inputs[8][SERIES.deviation] == {"ahead": -80, "now": 40}
    assert check(PLAYED.items(), plans=(plan(),)).findings == []
    assert check(PLAYED.lines("hill"), plans=(plan(),)).findings == []


@pytest.mark.parametrize(("values", "rises"), [(COLD, True), (BRIGHT, False), (MORE, True)])
def test_a_price_rises_with_cold_and_with_the_region_and_falls_with_the_sun_to_come(values, rises):
    usual, other = (
        int(play(post(posted), hours=1, demand_wh=None).tiles[-1].rows["price_ticks"][0]) for posted in ({}, values)
    )
    assert usual != other
    assert (other > usual) == rises


@pytest.mark.parametrize(("values", "rises"), [(COLD, False), (BRIGHT, True), (MORE, False)])
def test_a_measurement_is_compared_with_what_the_inputs_of_its_hour_let_expect(values, rises):
    """The same demand is less than expected on a cold day, and more where the sun should have fed in."""
    usual, other = (play(post(posted), hours=1).tiles[-1].rows["states"][0] for posted in ({}, values))
    assert (other[0] > usual[0]) == rises


def test_without_a_series_the_tiles_are_those_of_a_usual_day():
    sunshine = forecast().demand.usual_irradiance[10]
    hours = {FIRST + n: (int(1000 * sunshine[(FIRST + n) % 24]), 0) for n in range(30)}  # in winter clocks show UTC
    usual = {SERIES.temperature: every_hour(12_000), SERIES.irradiance: hours, SERIES.deviation: every_hour(0)}
    for tile, other in zip(play({}).tiles[1:], play(usual).tiles[1:], strict=True):
        assert INPUTS not in tile.header.extensions
        assert tile.rows["price_ticks"].tolist() == other.rows["price_ticks"].tolist()


def test_where_a_zone_feeds_in_its_price_is_that_of_the_curve_below_no_demand():
    """Nothing is measured, so each price is that of the forecast: on a bright day, two hours ahead."""
    usual = forecast().demand.usual_irradiance[10]
    posted = {SERIES.irradiance: {FIRST + n: (int(3000 * usual[(FIRST + n) % 24]), 0) for n in range(30)}}
    shard, terms = play(posted, demand_wh=None), ReleaseTerms.from_json(plan())
    price, demand_wh = [], []
    for tile in shard.tiles[1:]:
        inputs = {series: InputValue(**its) for series, its in tile.header.extensions[INPUTS].items()}
        expected = terms.prediction.model.expect_demand(tile.header.interval + 2, inputs, "ahead")
        demand_wh.append(round(terms.prediction.scale * expected.demand_wh))
        price.append(int(tile.rows["price_ticks"][0]))
    feeds_in = np.array(demand_wh) < 0
    assert 6 <= feeds_in.sum() <= 10
    assert max(np.array(price)[feeds_in]) < 8000  # beta, the price at no demand
    assert price[int(np.argmin(demand_wh))] == min(price) < 0
    assert np.array(price)[feeds_in].tolist() == terms.curve.price_ticks(np.array(demand_wh)[feeds_in]).tolist()
    assert (np.array(price)[~feeds_in] != terms.curve.price_ticks(np.array(demand_wh)[~feeds_in])).any()  # it answers


@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize("members", [{}, {"ahead": 1}, {"now": 1}, {"then": 1}, 3])
def test_an_input_that_the_price_was_not_made_with_is_found(series, members):
    """Also where its operator signs it: the price does not follow."""
    shard = play(post(dict(zip(SERIES, (5000, 200_000, 70), strict=True))), hours=3)
    last = shard.tiles[-1]
    inputs = dict(last.header.extensions[INPUTS])
    inputs[series] = members if isinstance(members, int) else inputs[series] | members
    if not members:
        del inputs[series]
    forged = sign_tile(replace(last.header, extensions={**last.header.extensions, INPUTS: inputs}), OLD, last.rows)
    found = check(shard.items([*shard.tiles[:-1], forged]), plans=(plan(),))
    assert rules(found) == {"prediction"}


@pytest.mark.parametrize("role", SERIES._fields)
def test_a_plan_names_the_series_of_its_zone_file(role):
    document = json.loads(plan())
    document["prediction"][role] = "another town"
    document["digest"] = compute_plan_digest(document)
    with pytest.raises(PrivacyError, match="not that of the zone file"):
        load_plan(json.dumps(document))
    assert ReleaseTerms.from_json(plan()).prediction.model.series == SERIES


@pytest.mark.parametrize("role", ["temperature", "irradiance"])
def test_a_series_needs_a_forecast_that_answers_to_it(role):
    text = zone_text(HOMES, forecast=f'file = "forecast.json"\n{role} = "Lisbon"')
    with pytest.raises(ZoneFileError, match=f"{role} is 'Lisbon': needs a forecast that knows it"):
        parse_zone(text, read_forecast=lambda _: public_forecast())
    with pytest.raises(ZoneFileError, match="must be a name such as"):
        read(text.replace("Lisbon", "a/b"))
    with pytest.raises(ZoneFileError, match="must be named once each"):
        read(text + 'deviation = "Lisbon"\n')


def test_the_value_of_no_moment_is_unknown():
    model = ReleaseTerms.from_json(plan()).prediction.model
    stated = {SERIES.temperature: InputValue(now=-2500), SERIES.irradiance: InputValue(now=3000), "x": InputValue(1, 1)}
    assert [column.tolist() for column in model.weather(stated, "now")] == [[-2.5], [3.0]]
    assert list(model.weather(stated, "ahead")) == [None, None]
