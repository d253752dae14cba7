"""The paper's experiment against docs/explanation/theory.md, section 5.3. Seeds are fixed."""

import numpy as np
import pytest
from research.paper.experiment import (
    PAPER_BLOWFISH_RMSRE,
    PAPER_NAIVE_RMSRE,
    PRICING_RULES,
    ExperimentSettings,
    run_experiment,
    summarize_seeds,
)
from research.paper.simulated_zones import PAPER_INTERPRETATIONS


@pytest.fixture(scope="module")
def findings():
    rows = run_experiment(ExperimentSettings(seeds=100))
    return {reading.name: summarize_seeds(reading, found) for reading, found in rows.items()}


@pytest.mark.parametrize("reading", [reading.name for reading in PAPER_INTERPRETATIONS])
def test_the_naive_error_is_the_papers_and_both_published_values_are_ordinary_runs(findings, reading):
    """Reference: naive 1.24-1.28e-3 over readings, single runs 0.98-1.59e-3."""
    seen = findings[reading]
    assert 1.20e-3 < seen.naive.mean < 1.32e-3
    assert seen.single_run == pytest.approx((0.98e-3, 1.57e-3), abs=0.08e-3)
    assert seen.single_run[0] < PAPER_BLOWFISH_RMSRE < PAPER_NAIVE_RMSRE < seen.single_run[1]


@pytest.mark.parametrize(
    ("reading", "percent", "tolerance"),
    [("steady", 0.058, 0.02), ("asleep", 0.8, 0.25), ("clipped", 0.9, 0.3), ("redrawn", 0.0, 0.0)],
)
def test_the_true_gain_of_the_paper_is_a_tenth_to_one_percent(findings, reading, percent, tolerance):
    """Reference: 0.1 %, and 0.8 % where kappa is empty in the first interval; the paper's single run says 5.2 %.

    The 0.1 % is 1 - E[max u_i] of 1,000 continuous bounds; of bounds in whole Wh it is 0.058 % (next test).
    """
    assert 100 * findings[reading].gain.mean == pytest.approx(percent, abs=tolerance)
    assert findings[reading].gain.high < 0.02


@pytest.mark.slow
def test_the_gain_of_the_steady_reading_is_nothing_but_the_largest_bound_drawn():
    """kappa is everybody: the naive rule uses u_max = 1, the paper's the largest of 1,000 bounds drawn below it."""
    whole_wh = np.arange(1, 1001)
    expected_largest = np.sum(1 - ((whole_wh - 1) / 1000) ** 1000) / 1000
    assert 1 - expected_largest == pytest.approx(0.00058, abs=1e-5)
    assert 1 - 1000 / 1001 == pytest.approx(0.001, abs=1e-5)  # continuous bounds: the reference value of 0.1 %


def test_one_run_orders_the_two_little_better_than_a_coin(findings):
    """Reference: 0.51-0.55."""
    assert findings["redrawn"].correct_order is None
    for reading in ("steady", "asleep", "clipped"):
        assert 0.42 < findings[reading].correct_order.mean < 0.62


def test_only_a_reading_that_leaks_has_a_gain_of_the_papers_size(findings):
    """Noise scaled by the bounds of the day gains 1.5 %, and 10 % if everybody starts asleep; 5.2 % lies between."""
    for name, seen in findings.items():
        assert (seen.gain.mean > 0.012) == name.startswith("peeking")
    assert findings["peeking"].gain.mean == pytest.approx(0.015, abs=0.004)
    assert findings["peeking-asleep"].gain.mean == pytest.approx(0.10, abs=0.01)
    assert findings["peeking-asleep"].correct_order.low > 0.6


def test_beside_them_a_forecast_needs_no_data_and_group_privacy_needs_a_hundred_times_the_noise(findings):
    """Reference: the forecast is off by about 4.2 kWh of 177 at N = 1000."""
    steady = findings["steady"]
    assert 1.3 < steady.forecast.mean / steady.naive.mean < 1.6
    assert steady.group.mean / steady.naive.mean == pytest.approx(96, rel=0.01)


@pytest.mark.slow
def test_seeds_decide_the_result_and_the_number_of_processes_does_not():
    settings = ExperimentSettings(seeds=12, households=50, intervals=8)
    one, two = (run_experiment(settings, jobs=jobs) for jobs in (1, 2))
    for reading in PAPER_INTERPRETATIONS:
        assert (one[reading] == two[reading]).all()
        assert one[reading].shape == (12, len(PRICING_RULES))
    assert not np.array_equal(one[PAPER_INTERPRETATIONS[0]], one[PAPER_INTERPRETATIONS[1]])
