import json
from fractions import Fraction

import numpy as np
import pytest

from murmurate.curator.interval import protect
from murmurate.errors import MurmurateError, UnknownNameError
from murmurate.household.consumption import Setting, UniformConsumption
from murmurate.household.occupancy import Chains, ModelClass, OccupancyModel
from murmurate.lab import report
from murmurate.lab.metrics import estimate, gain, proportion
from murmurate.lab.paper import RULES, Settings, finding, run
from murmurate.lab.run import live
from murmurate.lab.worlds import PAPER_READINGS, Town, forecast_wh, paper_reading
from murmurate.pricing.rate import RateCurve
from murmurate.privacy.noise import RehearsalNoise
from murmurate.quantities import Meters


def town_that_answers_to_prices():
    """Fifty homes that use a tenth as much once the last price was above 0.200."""
    homes = 50
    chains = Chains.independent(
        initial=np.full(homes, 0.5), arrive=np.full((1, homes), 0.2), leave=np.full((1, homes), 0.2)
    )
    ceiling_wh = np.array([1000, 100])[:, None, None, None] * np.ones((1, 1, 2, homes), np.int64)
    law = UniformConsumption.of(ceiling_wh, setting=Setting(price_steps=(200,)))
    return Town(
        theta=ModelClass(models=(OccupancyModel(groups=(chains,)),)),
        law=law,
        meters=Meters.in_one_zone("elastic", bound_wh=law.bound_wh),
        curve=RateCurve.affine(alpha="0.01", beta=0, tick="0.001"),
        largest_bound_wh=1000,
    )


def test_a_town_hears_the_published_price_and_answers_to_it():
    town, noise = town_that_answers_to_prices(), RehearsalNoise(3)

    def publish(_, demand_wh):
        return protect(demand_wh, scale_wh=np.array([2000.0]), curve=town.curve, noise=noise).price_ticks

    day = live(town, 200, np.random.default_rng(1), np.random.default_rng(2), publish)
    dear = day.price_ticks[:-1] >= 200
    assert dear.any()
    assert day.demand_wh[1:][dear].max() < 50 * 100 < day.demand_wh[1:][~dear].min()
    deaf = live(town, 200, np.random.default_rng(1), np.random.default_rng(2))
    assert deaf.demand_wh[1:].min() > 50 * 100
    assert (deaf.price_ticks == town.curve.price_ticks(deaf.demand_wh)).all()


def test_the_demand_of_a_day_is_the_sum_of_its_readings():
    done = run(paper_reading("clipped"), Settings(households=40, intervals=12), seed=9)
    assert (done.day.demand_wh == done.day.energy_wh.sum(axis=1)).all()
    assert (done.day.energy_wh <= done.town.meters.bound_wh).all()


def test_the_forecast_is_the_mean_of_many_days():
    settings = Settings(households=30, intervals=20)
    town = run(paper_reading("steady"), settings, seed=1).town
    days = [live(town, 20, np.random.default_rng(s), np.random.default_rng(s + 10_000)).demand_wh for s in range(400)]
    spread = np.std(days, axis=0) / 20
    assert (np.abs(np.mean(days, axis=0) - forecast_wh(town, 20)) < 5 * spread + 1).all()


def test_common_random_numbers_pair_the_rules_and_a_run_alone_does_not():
    done = run(paper_reading("redrawn"), Settings(households=20, intervals=50), seed=2)
    assert (done.blowfish == done.naive).all()
    assert (done.blowfish_alone != done.naive).any()


def test_an_interval_covers_its_mean_nineteen_times_in_twenty():
    rng = np.random.default_rng(4)
    held = [estimate(rng.normal(3, 1, 50)) for _ in range(2000)]
    assert np.mean([e.low <= 3 <= e.high for e in held]) == pytest.approx(0.945, abs=0.015)
    held = [proportion(rng.random(60) < 0.55) for _ in range(2000)]
    assert np.mean([p.low <= 0.55 <= p.high for p in held]) == pytest.approx(0.95, abs=0.02)


def test_a_gain_is_the_fraction_by_which_ours_is_less():
    """Of the means, not the mean of the fractions: 1 of 2 and 9 of 10 are 2 less than 12."""
    assert gain(np.array([1.0, 9.0]), np.array([2.0, 10.0])).mean == pytest.approx(1 / 6)


def test_results_hold_what_the_table_shows_and_are_stamped_as_a_rehearsal():
    settings = Settings(seeds=3, households=5, intervals=4, epsilon=Fraction(1, 3))
    rng = np.random.default_rng(5)
    findings = {reading: finding(reading, rng.random((3, len(RULES)))) for reading in PAPER_READINGS}
    document = json.loads(report.results(findings, settings))
    assert document["rehearsal"] is True
    assert document["epsilon"] == "1/3"
    assert set(document["readings"]) == {reading.name for reading in PAPER_READINGS}
    naive = document["readings"]["steady"]["naive"]
    assert naive["rms_relative_error"]["mean"] == pytest.approx(2 * naive["paper_rmsre"]["mean"])
    assert "belong to N=1,000, T=96, epsilon=1/2" in report.conclusion(findings, settings)
    assert "belong to" not in report.conclusion(findings, Settings(seeds=7))
    alone = {reading: finding(reading, rng.random((1, len(RULES)))) for reading in PAPER_READINGS}
    assert json.loads(report.results(alone, settings))["readings"]["steady"]["naive"]["paper_rmsre"]["low"] is None
    assert report.table(findings, settings).row_count == len(PAPER_READINGS) + 1


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: Settings(seeds=0), MurmurateError, "seeds is 0: must be at least 1"),
        (
            lambda: Settings(epsilon=Fraction(0)),
            MurmurateError,
            "epsilon is 0: must lie between 1e-06 and 100, for example 0.5",
        ),
        (
            lambda: paper_reading("hopeful"),
            UnknownNameError,
            "reading is 'hopeful': must be one of steady, asleep, clipped, redrawn, peeking, peeking-asleep",
        ),
    ],
)
def test_wrong_settings_say_what_is_allowed(make, error, says):
    with pytest.raises(error) as caught:
        make()
    assert str(caught.value) == says
