"""Households that feed in: readings lie between -export_bound_wh and bound_wh, and the noise hides any two of them."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from murmurate.errors import PrivacyError, ZoneFileError
from murmurate.planning.household_bounds import MeterSummary, summarize_meters
from murmurate.planning.plan import load_plan, make_plan, prove_plan
from murmurate.planning.plan_change import PlanHistory, check_plan_change, have_same_secret, kind_paths
from murmurate.planning.promise_text import describe_promises
from murmurate.planning.release_terms import ReleaseTerms, compute_plan_digest
from murmurate.planning.utility import plan_utility
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone, read_consumption_pmf
from murmurate.privacy.divergence import GaussianCurve, huber_log_pmf
from murmurate.privacy.noise import NoiseDistribution, laplace_log_pmf
from murmurate.translations.language import ENGLISH, GERMAN

ZONE = """
name = "hill"
currency = "EUR"
interval_minutes = 360
promise = ["{promise}"]
[tariff]
alpha = "0.02"
beta = "0.08"
tick = "0.001"
{limits}
[occupancy.resident]
periods = {{ night = "00:00", day = "12:00" }}
arrive = {{ night = 0.4, day = 0.3 }}
leave = {{ night = 0.2, day = 0.5 }}
[[households]]
name = "flat"
count = {count}
bound_wh = {bound}
export_bound_wh = {export}
away = {{ uniform_from = -{export}, uniform_to = 0 }}
home = {{ uniform_to = {bound} }}
occupancy = "resident"
"""


def text(promise="interval: 0.5", bound=30, export=20, count=10, limits=""):
    return ZONE.format(promise=promise, bound=bound, export=export, count=count, limits=limits)


def zone(**terms):
    return parse_zone(text(**terms))


PROMISES = st.sampled_from(
    ["interval: 0.5", "any moment: 1", "any 24 h: epsilon 2", "any 24 h: epsilon 2, delta 1e-4", "any 12 h: epsilon 1"]
)


# --- the zone file


def test_a_range_is_read_as_it_looks():
    (flat,) = zone(bound=3000, export=2500).kinds
    assert (flat.bound_wh, flat.export_bound_wh, flat.range_wh) == (3000, 2500, 5500)
    reading = flat.secret_pair.energy_wh
    assert (reading[0], reading[-1]) == (-2500, 3000)
    assert flat.secret_pair.away[reading <= 0] == pytest.approx(1 / 2501)
    assert flat.secret_pair.home[reading >= 0] == pytest.approx(1 / 3001)
    assert not flat.secret_pair.away[reading > 0].any()
    assert not flat.secret_pair.home[reading < 0].any()


def test_without_an_export_bound_readings_begin_at_zero():
    (flat, market) = parse_zone(EXAMPLE_ZONE_FILE).kinds
    assert (flat.export_bound_wh, market.export_bound_wh) == (0, 0)
    assert (flat.range_wh, market.range_wh) == (flat.bound_wh, market.bound_wh)


BINS = st.tuples(st.integers(-12, 12), st.integers(1, 5), st.lists(st.integers(0, 3), min_size=1, max_size=6))


@given(bins=BINS, bound=st.integers(1, 10), export=st.integers(0, 10))
def test_a_law_counts_what_lies_beyond_a_bound_as_the_bound(bins, bound, export):
    first, step, weights = bins
    assume(sum(weights))
    table = {"histogram": weights, "step_wh": step, "from_wh": first}
    law = read_consumption_pmf("home", table, MeterSummary(1, bound, export), clipped=True)
    by_hand = np.zeros(export + bound + 1)
    for bin_number, weight in enumerate(weights):
        for within in range(step):
            reading = min(max(first + bin_number * step + within, -export), bound)
            by_hand[reading + export] += weight / sum(weights) / step
    assert law == pytest.approx(by_hand, abs=1e-12)
    assert law.sum() == pytest.approx(1)


@given(first=st.integers(-12, 12), length=st.integers(0, 12), bound=st.integers(1, 10), export=st.integers(0, 10))
def test_a_uniform_law_is_a_histogram_of_one_bin(first, length, bound, export):
    meters = MeterSummary(1, bound, export)
    tables = ({"uniform_from": first, "uniform_to": first + length},)
    tables += ({"histogram": [1], "step_wh": length + 1, "from_wh": first},)
    uniform, histogram = (read_consumption_pmf("home", table, meters, clipped=True) for table in tables)
    assert uniform.tolist() == histogram.tolist()


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ("export_bound_wh = 20", "export_bound_wh = -1", "export_bound_wh is -1: must be at least 0 Wh, and at most"),
        ("export_bound_wh = 20", "export_bound_wh = 999_971", "must be at least 0 Wh, and at most 1,000,000 together"),
        ("export_bound_wh = 20", 'export_bound_wh = "20"', "export_bound_wh"),
        (
            "uniform_from = -20",
            "uniform_from = -21",
            "-21 to 0 Wh: must rise from uniform_from, -20 (-export_bound_wh)",
        ),
        ("uniform_from = -20", "uniform_from = 1", "1 to 0 Wh: must rise from uniform_from"),
        ("{ uniform_to = 30 }", "{ uniform_from = 0, uniform_to = 31 }", "0 to 31 Wh: must rise"),
        ("{ uniform_to = 30 }", "{ uniform_to = -1 }", "home is -1: uniform_to must lie between 0 and bound_wh, 30"),
        (
            "{ uniform_to = 30 }",
            "{ histogram = [1, 1], step_wh = 10, from_wh = -21 }",
            "2 bins of 10 Wh: must be weights of bins of step_wh that end at bound_wh, 30, or below, and begin at -20",
        ),
        ("{ uniform_to = 30 }", "{ uniform_from = -3 }", "must be { uniform_to = 600 }"),
        ("count = 10\nbound_wh = 30", 'meters = "m.csv"', "cannot stand with meters: give that table a column"),
    ],
)
def test_a_mistake_is_reported_with_its_remedy(right, wrong, says):
    assert right in text()
    with pytest.raises(ZoneFileError) as caught:
        parse_zone(text().replace(right, wrong), lambda *_: MeterSummary(10, 30))
    assert says in str(caught.value)
    assert "line " in str(caught.value)


METERS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 50), st.integers(0, 50)), min_size=1, max_size=9)


@given(METERS)
def test_the_range_of_a_kind_contains_that_of_each_household(meters):
    household, bound_wh, export_wh = zip(*meters, strict=True)
    ones = [""] * len(meters)
    columns = {"zone_of": ["hill"] * len(meters), "kind_of": ones, "household_of": household}
    found = summarize_meters(np.array(bound_wh), np.array(export_wh), **columns, zone="hill", kind="flat")
    sums = {name: np.sum([each[1:] for each in meters if each[0] == name], axis=0) for name in set(household)}
    assert [found.bound_wh, found.export_bound_wh] == np.max(list(sums.values()), axis=0).tolist()


# --- the plan and its proof


def worst_loss(plan, slot):
    """The largest log ratio of two readings in the range, over all outputs near them and one far on each side."""
    (kind,) = plan.zone.kinds
    scale, core = float(plan.scale_wh[slot]), int(plan.core_wh[slot])
    readings = np.arange(-kind.export_bound_wh, kind.bound_wh + 1)
    out = np.concatenate([[-(10**6)], np.arange(readings[0] - core - 5, readings[-1] + core + 6), [10**6]])
    if plan.distribution is NoiseDistribution.LAPLACE:
        log_pmf = laplace_log_pmf(out[:, None] - readings, scale)
    else:
        log_pmf = huber_log_pmf(out[:, None] - readings, scale, core)
    return float((log_pmf.max(axis=1) - log_pmf.min(axis=1)).max())


@settings(max_examples=25, deadline=None)
@given(bound=st.integers(1, 25), export=st.integers(0, 25))
def test_the_cost_of_an_interval_is_the_loss_of_the_worst_two_readings(bound, export):
    plan = make_plan(zone(bound=bound, export=export))
    losses = [worst_loss(plan, slot) for slot in range(4)]
    assert max(losses) == pytest.approx(plan.costs[0].spent)
    assert max(losses) <= 0.5
    micro = plan.to_document()["cost"]["epsilon_micro"]
    assert all(1e6 * loss <= cost + 1e-3 for loss, cost in zip(losses, micro, strict=True))


@settings(max_examples=20, deadline=None)
@given(promise=PROMISES, range_wh=st.integers(2, 60), data=st.data())
def test_the_noise_depends_on_the_width_of_the_range_alone(promise, range_wh, data):
    """Shifting all readings of a household shifts the demand by a public constant."""
    export = data.draw(st.integers(1, range_wh - 1))
    one_sided = make_plan(zone(promise=promise, bound=range_wh, export=0))
    two_sided = make_plan(zone(promise=promise, bound=range_wh - export, export=export))
    assert two_sided.scale_wh.tolist() == one_sided.scale_wh.tolist()
    assert two_sided.core_wh.tolist() == one_sided.core_wh.tolist()
    assert [cost.spent for cost in two_sided.costs] == [cost.spent for cost in one_sided.costs]
    assert two_sided.absence == one_sided.absence
    assert two_sided.habits == one_sided.habits


@pytest.mark.parametrize("promise", ["interval: 0.5", "any moment: 1", "any 24 h: epsilon 2, delta 1e-4"])
def test_noise_for_the_bound_alone_is_refused(promise):
    two_sided, one_sided = zone(promise=promise), make_plan(zone(promise=promise, export=0))
    with pytest.raises(PrivacyError, match="too little"):
        prove_plan(two_sided, one_sided.distribution, one_sided.scale_wh, one_sided.core_wh)


def test_gaussian_noise_costs_the_square_of_the_range():
    gaussian = text(promise="any 24 h: epsilon 2, delta 1e-4").replace("currency", 'noise = "gaussian"\ncurrency', 1)
    plan = make_plan(parse_zone(gaussian))
    assert plan.distribution is NoiseDistribution.GAUSSIAN
    rho = 1e6 * 50**2 / (2 * plan.scale_wh**2)
    assert plan.to_document()["cost"]["rho_micro"] == np.ceil(rho).astype(int).tolist()
    worst = GaussianCurve(50, float(plan.scale_wh[0])).delta(np.array([0.3]))[0]
    assert worst > GaussianCurve(30, float(plan.scale_wh[0])).delta(np.array([0.3]))[0]


def test_a_plan_states_the_export_bound_and_is_proven_again():
    written = make_plan(zone()).to_json()
    document = json.loads(written)
    assert document["households"][0]["export_bound_wh"] == 20
    assert load_plan(written).zone.kinds[0].range_wh == 50
    del document["households"][0]["export_bound_wh"]
    document["digest"] = compute_plan_digest(document)
    with pytest.raises(PrivacyError, match="not what its zone file gives"):
        load_plan(json.dumps(document))


def test_a_plan_without_an_export_bound_does_not_name_it():
    households = make_plan(zone(export=0)).to_document()["households"]
    assert all("export_bound_wh" not in kind for kind in households)


def test_the_range_of_a_meter_table_is_in_the_plan():
    from_table = text().replace("count = 10\nbound_wh = 30\nexport_bound_wh = 20", 'meters = "m.csv"')
    written = make_plan(parse_zone(from_table, lambda *_: MeterSummary(10, 40, 25))).to_json()
    (flat,) = load_plan(written).zone.kinds
    assert (flat.bound_wh, flat.export_bound_wh) == (40, 25)


# --- what a release needs


def test_a_plan_hides_households_up_to_its_range():
    terms = ReleaseTerms.from_json(make_plan(zone()).to_json())
    assert terms.not_hidden_reason({"flat": 50}) is None
    assert "with bound_wh + export_bound_wh = 51; its plan hides up to 50 there" in terms.not_hidden_reason({"": 51})
    without = ReleaseTerms.from_json(make_plan(zone(export=0)).to_json())
    reason = without.not_hidden_reason({"flat": 50})
    assert "its plan hides up to 30 there: lower its bound_wh or export_bound_wh" in reason


def test_pages_say_that_promises_cover_what_is_fed_in():
    terms, without = (ReleaseTerms.from_json(make_plan(zone(export=wh)).to_json()) for wh in (20, 0))
    assert "uses or feeds in within its bounds" in describe_promises(terms, ENGLISH).basis[0]
    assert "verbraucht oder einspeist" in describe_promises(terms, GERMAN).basis[0]
    assert "uses below its bound" in describe_promises(without, ENGLISH).basis[0]


# --- a change of plan


def test_a_household_that_may_feed_in_is_another_one():
    plans = [make_plan(zone(export=wh)) for wh in (0, 20)]
    kinds = [plan.zone.kinds[0] for plan in plans]
    assert not have_same_secret(*kinds)
    assert have_same_secret(kinds[1], replace(kinds[1], count=3))
    assert list(kind_paths(plans)) == [tuple(kinds)]  # it may be the same household all the same


def test_windows_across_a_change_count_the_range():
    """Under the second plan's noise a reading in [0, 30] costs half a window; one in [-20, 30] costs too much."""
    promise = "any 12 h: epsilon 1"
    before, after = make_plan(zone(promise=promise)), make_plan(zone(promise=promise))
    history = PlanHistory([(before, True)] * 4, first=0, complete=True)
    check_plan_change(history, after)
    weak = prove_plan(zone(promise="any 12 h: epsilon 5/4"), after.distribution, 0.8 * after.scale_wh)
    with pytest.raises(PrivacyError, match=r"any 12 h: epsilon 1.*across the change"):
        check_plan_change(history, replace(weak, zone=replace(weak.zone, promises=after.zone.promises)))


# --- negative demand


def test_a_zone_that_feeds_in_has_a_negative_forecast_and_prices_below_zero():
    sunny = zone(bound=3000, export=20_000, count=100)
    mean_wh = sunny.forecast_moments[0]
    assert (mean_wh < 0).all()
    away = -10_000  # mean of a uniform law on -20,000, .., 0
    home = np.array([(mean - 100 * away) / 100 / (1500 - away) for mean in mean_wh])
    assert ((home > 0) & (home < 1)).all()
    plan = make_plan(sunny)
    terms = ReleaseTerms.from_json(plan.to_json())
    forecast_wh = np.array(plan.to_document()["forecast_wh"])
    assert (terms.forecast_ticks == np.floor((80_000 + 0.02 * forecast_wh * 1000) / 1000 + 0.5)).all()
    assert (terms.forecast_ticks < 0).all()
    assert plan_utility(plan).mean_price < 0
    floored = ReleaseTerms.from_json(
        make_plan(zone(bound=3000, export=20_000, count=100, limits='floor = "0"')).to_json()
    )
    assert not floored.forecast_ticks.any()
    below = make_plan(zone(bound=3000, export=20_000, count=100, limits='floor = "-0.5"'))
    assert set(ReleaseTerms.from_json(below.to_json()).forecast_ticks.tolist()) == {-500}


@given(st.lists(st.integers(-(10**6), 10**6), min_size=2, max_size=20))
def test_prices_never_fall_where_net_demand_rises(demands_wh):
    curve = zone().curve
    ticks = curve.price_ticks(sorted(demands_wh))
    assert (np.diff(ticks) >= 0).all()
    exact = [80 + wh * 0.02 for wh in sorted(demands_wh)]
    assert np.abs(ticks - exact).max() <= 0.5 + 1e-6


@settings(max_examples=30)
@given(export=st.integers(0, 6), bound=st.integers(1, 6))
def test_the_moments_of_a_household_are_those_of_its_readings(export, bound):
    (kind,) = zone(bound=bound, export=export).kinds
    mean, variance = kind.consumption_moments(4)
    readings = np.arange(-export, bound + 1)
    assert ((-export <= mean) & (mean <= bound)).all()
    home = (mean - kind.secret_pair.away @ readings) / ((kind.secret_pair.home - kind.secret_pair.away) @ readings)
    mixed = home[:, None] * kind.secret_pair.home + (1 - home)[:, None] * kind.secret_pair.away
    assert variance == pytest.approx(mixed @ readings**2 - (mixed @ readings) ** 2)
