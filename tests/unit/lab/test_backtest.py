"""A back-test: a world computed by hand, and laws that bills and prices of every world keep."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from tests.support.predicted_zones import FIRST, plan_text
from tests.support.reading_dialects import write_imported

from murmurate.errors import ReadingError, TariffError
from murmurate.lab.backtest.bills import (
    Rate,
    ReplayedPrices,
    change_percent,
    make_bills,
    measure_change,
    measure_noise,
    noise_deviation,
)
from murmurate.lab.backtest.zone_back_test import BackTestOptions, ZonePlan, back_test_zone, draw_noise, replay_prices
from murmurate.planning.release_terms import HiddenHouseholds, ReleaseTerms
from murmurate.pricing.rate import RateCurve
from murmurate.privacy.noise import NoiseDistribution
from murmurate.readings.imported_file import PastReadings, read_past_readings

HALF_DAY_S = 43_200
CURVE = RateCurve.affine(alpha="0.1", beta="0.1", tick="0.01")  # 0.10 + 0.10 for each kWh
TICK = Fraction("0.01")
ENERGY_WH = np.array([[1000, 0], [0, 1000], [1000, 1000], [2000, 0]], np.int32)
NOISE_WH = np.array([[0, 0], [1000, -1000], [0, 0], [0, 0]])


def echo_terms(curve=CURVE, forecast_ticks=(20, 30), scale_wh=1.0):
    """Terms of a plan without prediction: each price is that of one release. A day has two intervals."""
    slots = np.zeros(len(forecast_ticks), np.int64)
    return ReleaseTerms(
        plan_digest="",
        zone="z",
        currency="EUR",
        curve=curve,
        distribution=NoiseDistribution.LAPLACE,
        scale_wh=slots + scale_wh,
        core_wh=slots,
        epsilon_micro=slots,
        rho_micro=slots,
        forecast_ticks=np.array(forecast_ticks),
        hidden_households=HiddenHouseholds(by_kind={}, unknown_kind_wh=0, public_wh=0),
    )


def past(energy_wh, first_interval=0, interval_s=HALF_DAY_S):
    names = tuple(f"home {n}" for n in range(energy_wh.shape[1]))
    return PastReadings(energy_wh, first_interval, interval_s, names, (), 0, 0)


def test_a_world_computed_by_hand():
    """Prices and bills of two homes in four intervals; the release of an interval is priced in the next one.

    demand 1, 1, 2, 2 kWh   forecast 0.20 0.30 0.20 0.30   exact 0.20 0.20 0.20 0.30
    noise 0, +-1, 0, 0      private 0.20 0.20 0.30 0.30, or 0.20 0.20 0.10 0.30
    bills: forecast 1.0 + 0.5, exact 1.0 + 0.4, private 1.1 + 0.5: the revenue is 1.6
    """
    prices = replay_prices(echo_terms(), 0, ENERGY_WH.sum(axis=1).astype(np.int64), NOISE_WH, lead=1)
    assert prices.forecast.tolist() == [20, 30, 20, 30]
    assert prices.exact.tolist() == [20, 20, 20, 30]
    assert prices.private.T.tolist() == [[20, 20, 30, 30], [20, 20, 10, 30]]
    bills = make_bills(past(ENERGY_WH), prices, TICK, "UTC")
    assert bills.months == ("1970-01",)
    assert bills.days.tolist() == [2]
    assert bills.revenue == pytest.approx(1.6)
    assert_allclose(bills.totals(Rate.FLAT), [1.6 * 4 / 6, 1.6 * 2 / 6])
    assert_allclose(bills.totals(Rate.PRIVATE), [1.1, 0.5])
    assert_allclose(bills.totals(Rate.FORECAST), [1.0 * 1.6 / 1.5, 0.5 * 1.6 / 1.5])
    assert_allclose(bills.totals(Rate.EXACT), [1.0 * 1.6 / 1.4, 0.4 * 1.6 / 1.4])
    assert_allclose(bills.noise[:, 0], [[0.1, 0.1], [-0.1, -0.1]])
    assert_allclose(noise_deviation(bills), [np.sqrt(0.02)] * 2)
    assert_allclose(bills.day_noise_variance, [0.01, 0.01])  # 0.02 on the second day, none on the first
    assert bills.factors[Rate.FLAT] == pytest.approx(1.6 / 6)
    assert_allclose(change_percent(bills, Rate.PRIVATE), [3.125, -6.25])
    private, exact = (measure_change(bills, rate, above_percent=5) for rate in (Rate.PRIVATE, Rate.EXACT))
    assert (private.households_above, exact.households_above) == (0, 1)
    assert private.percent[1] == pytest.approx((3.125 - 6.25) / 2)
    noise = measure_noise(bills, prices)
    assert noise.period_percent == pytest.approx(100 * np.sqrt(0.02) * (1 / 1.0 + 1 / 0.4) / 2)
    assert noise.mean_percent == pytest.approx(0)
    assert noise.mean_percent_error == pytest.approx(100 * 0.2 / 1.4)


worlds = st.integers(0, 2**32 - 1).map(np.random.default_rng)


@given(worlds)
def test_every_rate_collects_the_same(rng):
    energy_wh = rng.integers(0, 3000, (12, 5)).astype(np.int32) + 1
    noise_wh = rng.integers(-500, 500, (12, 3))
    prices = replay_prices(echo_terms(), 7, energy_wh.sum(axis=1).astype(np.int64), noise_wh, lead=2)
    bills = make_bills(past(energy_wh, 7), prices, TICK, "UTC")
    paid = float(energy_wh.sum(axis=1) @ prices.private[:, 0]) * 0.01 / 1000
    for rate in Rate:
        assert bills.by_rate[rate].sum() == pytest.approx(paid, rel=1e-12)
    assert bills.energy_kwh.sum() == pytest.approx(energy_wh.sum() / 1000)


@given(worlds)
def test_with_a_level_curve_each_bill_is_that_of_the_flat_rate(rng):
    level = RateCurve.affine(alpha=0, beta="0.25", tick="0.01")
    energy_wh = rng.integers(0, 3000, (8, 4)).astype(np.int32) + 1
    noise_wh = rng.integers(-10_000, 10_000, (8, 2))
    demand_wh = energy_wh.sum(axis=1).astype(np.int64)
    prices = replay_prices(echo_terms(level, (25, 25)), 0, demand_wh, noise_wh, lead=1)
    bills = make_bills(past(energy_wh), prices, TICK, "UTC")
    for rate in Rate:
        assert_allclose(bills.by_rate[rate], bills.by_rate[Rate.FLAT])
        assert bills.factors[rate] == pytest.approx(0.25 if rate is Rate.FLAT else 1)
    assert not bills.noise.any()


@pytest.fixture(scope="module")
def predicted_terms():
    return ReleaseTerms.from_json(plan_text())


@pytest.mark.parametrize("predicted", [False, True])
def test_a_release_changes_prices_from_the_interval_that_pays_on_and_without_noise_the_private_price_is_the_exact_one(
    predicted, predicted_terms
):
    terms = predicted_terms if predicted else echo_terms()
    demand_wh = np.full(30, 900_000 if predicted else 1500)
    none = np.zeros((30, 2), np.int64)
    before = replay_prices(terms, FIRST, demand_wh, none, lead=3)
    assert_array_equal(before.private, np.stack([before.exact] * 2, axis=1))
    demand_wh[10] *= 2
    after = replay_prices(terms, FIRST, demand_wh, none, lead=3)
    assert_array_equal(np.flatnonzero(after.exact != before.exact)[0], 13)
    assert_array_equal(after.forecast, before.forecast)
    assert_array_equal(after.private[:, 0], after.exact)
    noisy = replay_prices(terms, FIRST, demand_wh, none + np.array([0, 10**6]), lead=3)
    assert_array_equal(noisy.private[:, 0], after.exact)
    assert (noisy.private[3:, 1] > after.exact[3:]).all()
    assert (noisy.private[:3, 1] == after.forecast[:3]).all()


def test_the_price_of_the_forecast_alone_is_that_of_the_demand_it_expects(predicted_terms):
    zone = predicted_terms.prediction
    expected_wh = [zone.scale * zone.model.public.demand.demand_wh(zone.model.locate(FIRST + t))[0] for t in range(30)]
    found = replay_prices(predicted_terms, FIRST, np.zeros(30, np.int64), np.zeros((30, 2), np.int64), lead=2)
    assert_array_equal(found.forecast, predicted_terms.curve.price_ticks(np.rint(expected_wh).astype(np.int64)))


@pytest.mark.parametrize("distribution", [NoiseDistribution.LAPLACE, NoiseDistribution.HUBER])
def test_noise_has_the_scale_of_its_interval_of_the_day(distribution):
    """Huber noise without a core is Laplace noise."""
    terms = replace(echo_terms(), scale_wh=np.array([100.0, 1.0]), distribution=distribution)
    drawn = draw_noise(terms, 1, 400, 50, 3)
    assert drawn[1::2].std() == pytest.approx(100 * 2**0.5, rel=0.05)  # the first interval is the second of a day
    assert drawn[::2].std() < 2
    assert_array_equal(drawn, draw_noise(terms, 1, 400, 50, 3))


def test_months_are_local_and_a_day_of_25_hours_is_one_day():
    hours = 24 * 3 + 1
    first = 20_386 * 24 - 2  # 2025-10-25 00:00 in Zurich; clocks go back on the 26th
    energy_wh = np.ones((hours, 1), np.int32)
    ticks = np.full(hours, 10)
    bills = make_bills(
        past(energy_wh, first, 3600), ReplayedPrices(ticks, ticks, np.stack([ticks] * 2, 1)), TICK, "Europe/Zurich"
    )
    assert bills.days.tolist() == [3]
    later = past(energy_wh, first + 24 * 5, 3600)  # from 23:00 on the 29th to the 1st of November
    bills = make_bills(later, ReplayedPrices(ticks, ticks, np.stack([ticks] * 2, 1)), TICK, "Europe/Zurich")
    assert bills.months == ("2025-10", "2025-11")
    assert_allclose(bills.energy_kwh[:, 0], [0.049, 0.024])


def test_rates_that_collect_nothing_are_refused():
    nothing = np.zeros(4, np.int64)
    with pytest.raises(TariffError, match="above 0"):
        make_bills(past(ENERGY_WH), ReplayedPrices(nothing, nothing, np.zeros((4, 2), np.int64)), TICK, "UTC")


def write_hours(path, energy_wh, interval_s=3600, **columns):
    return write_imported(path, energy_wh, start_s=1_767_225_600, interval_s=interval_s, **columns)


def test_gaps_are_filled_and_a_home_with_many_of_them_is_left_out(tmp_path):
    table = np.tile(100.0 + np.arange(24), 3)[:, None] * np.ones(2)
    table[29, 0] = table[48:, 1] = np.nan
    found = read_past_readings(write_hours(tmp_path / "r.parquet", table), 3600, "town")
    assert (found.names, found.left_out, found.filled, found.intervals) == (("m0",), 1, 1, 72)
    assert_array_equal(found.energy_wh[:, 0], np.tile(100 + np.arange(24), 3))


@pytest.mark.parametrize(("hours", "interval_s", "said"), [(12, 3600, "cover a day"), (25, 900, "--interval-minutes")])
def test_readings_that_cannot_be_billed_are_refused(tmp_path, hours, interval_s, said):
    with pytest.raises(ReadingError, match=said):
        read_past_readings(write_hours(tmp_path / "r.parquet", np.ones((hours, 1))), interval_s, "town")


def write_zone_readings(path, meters):
    """A day of hours of meters with household, zone and kind, each 100 Wh more than the one before."""
    texts = dict(zip(("household", "zone", "kind"), map(list, zip(*meters, strict=True)), strict=True))
    return write_hours(path, np.tile(100.0 * np.arange(1, len(meters) + 1), (24, 1)), **texts)


def test_households_of_the_zone_are_summed_over_their_meters(tmp_path):
    meters = [("a", "east", "flat"), ("b", "east", "shop"), ("a", "east", "flat"), ("c", "west", "flat")]
    path = write_zone_readings(tmp_path / "r.parquet", meters)
    found = read_past_readings(path, 3600, "east")
    assert (found.names, found.kinds) == (("a", "b"), ("flat", "shop"))
    assert_array_equal(found.energy_wh, np.tile([100 + 300, 200], (24, 1)))
    with pytest.raises(ReadingError, match=r"without a reading of zone 'hill': .* east, west"):
        read_past_readings(path, 3600, "hill")


def test_a_household_counts_up_to_the_bound_of_its_kind(tmp_path):
    path = write_zone_readings(tmp_path / "r.parquet", [("a", "z", "flat"), ("b", "z", "shop")])
    plan = ZonePlan(echo_terms(), households=2, bound_wh=150, time_zone="UTC", bounds={"flat": 60, "shop": 150})
    assert plan.zone_demand(read_past_readings(path, 3600, "z")).tolist() == [60 + 150] * 24


def test_a_household_counts_down_to_the_export_bound_of_its_kind():
    readings = replace(past(np.array([[-500, 40], [-20, -30]], np.int32)), kinds=("flat", "shop"))
    bounds = {"bounds": {"flat": 60, "shop": 150}, "export_bounds": {"flat": 100, "shop": 0}}
    plan = ZonePlan(echo_terms(), households=2, bound_wh=150, time_zone="UTC", **bounds)
    assert plan.zone_demand(readings).tolist() == [-100 + 40, -20]
    without = replace(plan, export_bounds={})
    assert without.zone_demand(readings).tolist() == [40, 0]


@pytest.mark.parametrize(("planned", "ratio"), [(8, 1.0), (10, 1.0), (12, 1.5), (15, 1.875)])
def test_a_rounded_number_of_households_does_not_scale_the_demand(planned, ratio):
    plan = ZonePlan(echo_terms(), households=planned, bound_wh=1500, time_zone="UTC")
    assert plan.scale_of(past(np.ones((4, 8), np.int32))) == ratio


def test_a_plan_for_other_numbers_of_homes_is_refused_or_scaled():
    plan = ZonePlan(echo_terms(), households=4, bound_wh=1500, time_zone="UTC")
    assert plan.zone_demand(past(ENERGY_WH)).tolist() == [2000, 2000, 4000, 3000]  # twice; 2000 counts as 1500
    with pytest.raises(ReadingError, match="6 households, with readings of 2"):
        replace(plan, households=6).zone_demand(past(ENERGY_WH))


def test_the_whole_back_test_of_a_predicted_plan():
    rng = np.random.default_rng(1)
    plan = replace(ZonePlan.from_json(plan_text()), households=40)
    scaled = replace(plan.terms.prediction, scale=40.0)
    plan = replace(plan, terms=replace(plan.terms, prediction=scaled, scale_wh=plan.terms.scale_wh / 100))
    energy_wh = rng.integers(100, 900, (24 * 20, 40)).astype(np.int32)
    steps = []
    options = BackTestOptions(lead=2, draws=4, seed=1, above_percent=5)
    test = back_test_zone(plan, past(energy_wh, FIRST, 3600), options, steps.append)
    assert sum(steps) == len(energy_wh)
    noise = test.noise
    assert 0 < noise.period_percent < noise.day_percent < noise.interval_percent  # it averages out
    assert test.period == ("2025-11-24", "2025-12-14")
    document = test.to_document()
    assert document["households"] == 40
    assert sum(month["days"] for month in document["months"]) == int(test.bills.days.sum())
