"""The paper's experiment: simulated days, its estimates, and what the program prints and writes."""

import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from research.metrics import estimate_gain, estimate_mean, estimate_proportion
from research.paper import report
from research.paper.experiment import PRICING_RULES, ExperimentSettings, run_seed, summarize_seeds
from research.paper.simulated_zones import PAPER_INTERPRETATIONS, PaperZone, forecast_demand, simulate_day
from tests.support.paper_interpretations import paper_interpretation

from murmurate.errors import MurmurateError
from murmurate.household.consumption import RowSelector, UniformConsumption
from murmurate.household.occupancy import ModelClass, OccupancyChains, OccupancyModel
from murmurate.pricing.rate import RateCurve
from murmurate.privacy.noise import SeededNoise
from murmurate.release import protect
from murmurate.types import Meters

ROOT = Path(__file__).parents[3]
PROGRAM = [sys.executable, "-m", "research.paper"]
ENVIRONMENT = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}


def zone_that_answers_to_prices():
    """Fifty homes that use a tenth as much once the last price was above 0.200."""
    homes = 50
    chains = OccupancyChains.independent(
        initial=np.full(homes, 0.5), arrive=np.full((1, homes), 0.2), leave=np.full((1, homes), 0.2)
    )
    ceiling_wh = np.array([1000, 100])[:, None, None, None] * np.ones((1, 1, 2, homes), np.int64)
    law = UniformConsumption.from_ceilings(ceiling_wh, row_selector=RowSelector(price_steps=(200,)))
    return PaperZone(
        theta=ModelClass(models=(OccupancyModel(groups=(chains,)),)),
        consumption=law,
        meters=Meters.for_single_zone("elastic", bound_wh=law.bound_wh),
        curve=RateCurve.affine(alpha="0.01", beta=0, tick="0.001"),
        max_bound_wh=1000,
    )


def test_a_town_hears_the_published_price_and_answers_to_it():
    zone, noise = zone_that_answers_to_prices(), SeededNoise(3)

    def publish(_, demand_wh):
        return protect(demand_wh, scale_wh=np.array([2000.0]), curve=zone.curve, noise=noise).price_ticks

    day = simulate_day(zone, 200, np.random.default_rng(1), np.random.default_rng(2), publish)
    dear = day.price_ticks[:-1] >= 200
    assert dear.any()
    assert day.demand_wh[1:][dear].max() < 50 * 100 < day.demand_wh[1:][~dear].min()
    deaf = simulate_day(zone, 200, np.random.default_rng(1), np.random.default_rng(2))
    assert deaf.demand_wh[1:].min() > 50 * 100
    assert (deaf.price_ticks == zone.curve.price_ticks(deaf.demand_wh)).all()


def test_the_demand_of_a_day_is_the_sum_of_its_readings():
    done = run_seed(paper_interpretation("clipped"), ExperimentSettings(households=40, intervals=12), seed=9)
    assert (done.day.demand_wh == done.day.energy_wh.sum(axis=1)).all()
    assert (done.day.energy_wh <= done.zone.meters.bound_wh).all()


def test_the_forecast_is_the_mean_of_many_days():
    settings = ExperimentSettings(households=30, intervals=20)
    zone = run_seed(paper_interpretation("steady"), settings, seed=1).zone
    days = [
        simulate_day(zone, 20, np.random.default_rng(s), np.random.default_rng(s + 10_000)).demand_wh
        for s in range(400)
    ]
    spread = np.std(days, axis=0) / 20
    assert (np.abs(np.mean(days, axis=0) - forecast_demand(zone, 20)) < 5 * spread + 1).all()


def test_common_random_numbers_pair_the_rules_and_a_run_alone_does_not():
    done = run_seed(paper_interpretation("redrawn"), ExperimentSettings(households=20, intervals=50), seed=2)
    assert (done.blowfish == done.naive).all()
    assert (done.blowfish_alone != done.naive).any()


def test_an_interval_covers_its_mean_nineteen_times_in_twenty():
    rng = np.random.default_rng(4)
    held = [estimate_mean(rng.normal(3, 1, 50)) for _ in range(2000)]
    assert np.mean([e.low <= 3 <= e.high for e in held]) == pytest.approx(0.945, abs=0.015)
    held = [estimate_proportion(rng.random(60) < 0.55) for _ in range(2000)]
    assert np.mean([p.low <= 0.55 <= p.high for p in held]) == pytest.approx(0.95, abs=0.02)


def test_a_gain_is_the_fraction_by_which_ours_is_less():
    """Of the means, not the mean of the fractions: 1 of 2 and 9 of 10 are 2 less than 12."""
    assert estimate_gain(np.array([1.0, 9.0]), np.array([2.0, 10.0])).mean == pytest.approx(1 / 6)


def test_results_hold_what_the_table_shows_and_are_stamped_as_test_only():
    settings = ExperimentSettings(seeds=3, households=5, intervals=4, epsilon=Fraction(1, 3))
    rng = np.random.default_rng(5)
    findings = {
        reading: summarize_seeds(reading, rng.random((3, len(PRICING_RULES)))) for reading in PAPER_INTERPRETATIONS
    }
    document = json.loads(report.results_json(findings, settings))
    assert document["test_only"] is True
    assert document["epsilon"] == "1/3"
    assert set(document["readings"]) == {reading.name for reading in PAPER_INTERPRETATIONS}
    naive = document["readings"]["steady"]["naive"]
    assert naive["rms_relative_error"]["mean"] == pytest.approx(2 * naive["paper_rmsre"]["mean"])
    assert "belong to N=1,000, T=96, epsilon=1/2" in report.conclusion_text(findings, settings)
    assert "belong to" not in report.conclusion_text(findings, ExperimentSettings(seeds=7))
    alone = {
        reading: summarize_seeds(reading, rng.random((1, len(PRICING_RULES)))) for reading in PAPER_INTERPRETATIONS
    }
    assert json.loads(report.results_json(alone, settings))["readings"]["steady"]["naive"]["paper_rmsre"]["low"] is None
    assert report.results_table(findings, settings).row_count == len(PAPER_INTERPRETATIONS) + 1


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"seeds": 0}, "seeds is 0: must be at least 1"),
        ({"epsilon": Fraction(0)}, "epsilon is 0: must lie between 1e-06 and 100, for example 0.5"),
    ],
)
def test_wrong_settings_say_what_is_allowed(setting, says):
    with pytest.raises(MurmurateError) as caught:
        ExperimentSettings(**setting)
    assert str(caught.value) == says


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--epsilon", "half"], 'research.paper: epsilon is half: must be a finite number such as 0.5 or "1/3"'),
        (["--epsilon", "-1"], "research.paper: epsilon is -1: must lie between 1e-06 and 100, for example 0.5"),
        (["--epsilon", "1e99999"], 'research.paper: epsilon is 1e99999: must be a finite number such as 0.5 or "1/3"'),
        (
            ["--out", f"{__file__}/below"],
            f"research.paper: {__file__}/below is not in a folder: part of this path is a file; choose another path",
        ),
    ],
)
def test_a_wrong_option_is_answered_in_one_line(options, says, tmp_path):
    done = subprocess.run(
        [*PROGRAM, "--seeds", "1", *options], capture_output=True, text=True, cwd=tmp_path, env=ENVIRONMENT, check=False
    )
    assert done.returncode == 2
    assert done.stderr.strip() == says


@pytest.mark.slow
def test_the_experiment_writes_what_it_promises(tmp_path):
    options = ["--seeds", "2", "-N", "30", "-T", "100", "--epsilon", "1/3", "--jobs", "1", "--out", "deep/er"]
    done = subprocess.run(
        [*PROGRAM, *options], capture_output=True, text=True, cwd=tmp_path, env=ENVIRONMENT, check=True
    )
    written = {path.name for path in (tmp_path / "deep" / "er").iterdir()}
    pictures = {
        f"{name}.{kind}"
        for name in ("occupancy", "consumption", "rates", "rmsre", "leakage")
        for kind in ("png", "svg")
    }
    assert written == pictures | {"results.json"}
    for words in ("the paper, one run", "1.149", "1.089", "Not private", "epsilon T in all", "deep/er"):
        assert words in done.stdout
