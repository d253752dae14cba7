"""What a plan says about each release, and what it costs."""

import json
from fractions import Fraction

import numpy as np
import pytest

from murmurate.errors import MurmurateError
from murmurate.planning.plan import load_plan, make_plan, prove_plan
from murmurate.planning.privacy_cost import NoiseSchedule, release_costs
from murmurate.planning.release_terms import ReleaseTerms, compute_plan_digest
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.privacy.noise import NoiseDistribution


@pytest.fixture(scope="module")
def plan():
    return make_plan(parse_zone(EXAMPLE_ZONE_FILE))


def sealed(document):
    return json.dumps(document | {"digest": compute_plan_digest(document)})


def noise(law, scale_wh):
    return NoiseSchedule.from_scales(law, np.full(96, scale_wh))


@pytest.mark.slow
def test_the_terms_are_those_of_the_plan(plan):
    terms = ReleaseTerms.from_json(plan.to_json())
    assert terms.plan_digest == compute_plan_digest(plan.to_document())
    assert (terms.zone, terms.currency, terms.tick, terms.interval_s) == ("harbour", "EUR", "1/100000", 900)
    assert terms.curve == plan.zone.curve
    assert np.array_equal(terms.scale_wh, plan.scale_wh)
    expected_wh = np.rint(plan.zone.forecast_moments[0]).astype(int)
    assert terms.forecast_ticks.tolist() == plan.zone.curve.price_ticks(expected_wh).tolist()
    assert [terms.slot_of_day(interval) for interval in (0, 95, 96, 96 * 20_000 + 7)] == [0, 95, 0, 7]


@pytest.mark.slow
def test_a_laplace_release_costs_bound_over_scale_in_millionths_rounded_up(plan):
    cost = release_costs(plan.zone, noise(NoiseDistribution.LAPLACE, 32_000.0))
    assert cost == {"epsilon_micro": [31_250] * 96, "rho_micro": [0] * 96}
    assert release_costs(plan.zone, noise(NoiseDistribution.LAPLACE, 31_999.0))["epsilon_micro"][0] == 31_251
    terms = ReleaseTerms.from_json(plan.to_json())
    for scale, micro in zip(terms.scale_wh, terms.epsilon_micro, strict=True):
        exact = Fraction(1000) / Fraction(float(scale)) * 10**6
        assert exact - 1 <= int(micro) <= exact + 1


def test_a_gaussian_release_costs_half_the_squared_ratio(plan):
    cost = release_costs(plan.zone, noise(NoiseDistribution.GAUSSIAN, 10_000.0))
    assert cost == {"epsilon_micro": [0] * 96, "rho_micro": [5_000] * 96}  # 1000^2 / (2 * 10000^2)
    assert release_costs(plan.zone, noise(NoiseDistribution.GAUSSIAN, 9_999.0))["rho_micro"][0] == 5_002


def test_hours_in_which_everybody_is_public_cost_what_hides_the_smallest_household():
    always = EXAMPLE_ZONE_FILE.replace('occupancy = "resident"\n\n', 'occupancy = "resident"\npublic = "always"\n\n')
    zone = parse_zone(always.replace(', "any moment: 1"', ""))
    assert all(all(kind.public) for kind in zone.kinds)
    assert (
        release_costs(zone, noise(NoiseDistribution.LAPLACE, 40_000.0))["epsilon_micro"] == [25_001] * 96
    )  # rounded up from a double
    assert release_costs(zone, noise(NoiseDistribution.GAUSSIAN, 10_000.0))["rho_micro"] == [5_000] * 96


def test_a_changed_plan_is_refused(plan):
    document = json.loads(plan.to_json())
    document["scale_wh"][3] /= 2
    with pytest.raises(MurmurateError, match="the file was changed"):
        ReleaseTerms.from_json(json.dumps(document))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"scale_wh": [0.0] * 96}, "at least 1 Wh"),
        ({"scale_wh": [1000.0] * 95}, "one entry per interval"),
        ({"noise": "none"}, "must be a plan.json"),
        ({"cost": {}}, "must be a plan.json"),
    ],
)
def test_a_plan_that_nobody_could_publish_under_is_refused(plan, change, says):
    with pytest.raises(MurmurateError, match=says):
        ReleaseTerms.from_json(sealed(plan.to_document() | change))


@pytest.mark.slow
def test_the_proof_of_a_plan_covers_its_costs(plan):
    """A plan whose costs were understated and sealed anew is noticed when it is proven again."""
    cost = plan.to_document()["cost"]
    less = {"epsilon_micro": [micro - 2 for micro in cost["epsilon_micro"]], "rho_micro": cost["rho_micro"]}
    with pytest.raises(MurmurateError, match="not what its zone file gives"):
        load_plan(sealed(plan.to_document() | {"cost": less}))
    assert prove_plan(plan.zone, plan.distribution, plan.scale_wh, plan.core_wh).to_document()["cost"] == cost
