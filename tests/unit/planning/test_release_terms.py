"""What a plan says about each release, and what it costs."""

import json
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmurate.errors import MurmurateError
from murmurate.planning.plan import load_plan, make_plan, prove_plan
from murmurate.planning.privacy_cost import NoiseSchedule, release_costs
from murmurate.planning.release_terms import (
    HiddenHouseholds,
    ReleaseTerms,
    compact_plan,
    compute_plan_digest,
    parse_plan,
)
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.privacy.noise import NoiseDistribution
from murmurate.types import UNPROTECTED_KIND


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


# --- the digest of a plan, from its canonical text and from any other text of it


VALUES = st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False)
DOCUMENTS = st.dictionaries(
    st.text(), st.recursive(VALUES, lambda each: st.lists(each) | st.dictionaries(st.text(), each))
).map(lambda document: {name: value for name, value in document.items() if name != "digest"} | {"zone": "harbour"})


def with_digest(document):
    return document | {"digest": compute_plan_digest(document)}


@pytest.mark.slow
@given(DOCUMENTS)
def test_any_text_of_a_plan_has_its_digest_and_its_document(document):
    sealed = with_digest(document)
    for text in (json.dumps(sealed), json.dumps(sealed, indent=1), compact_plan(json.dumps(sealed))):
        assert parse_plan(text) == (sealed, sealed["digest"])


@pytest.mark.slow
@given(DOCUMENTS)
def test_a_changed_plan_has_another_digest_than_it_names(document):
    text = compact_plan(json.dumps(with_digest(document)))
    named = with_digest(document)["digest"]
    assert parse_plan(text.replace("harbour", "village"))[1] != named


@pytest.mark.parametrize("place", ['{"digest":"@",', '"inner":{"digest":"@",', '"list":[{"digest":"@",'])
def test_a_digest_in_another_place_than_its_own_changes_nothing_that_is_read(place):
    """Whatever the text holds, what is read as the plan is what has the digest."""
    document = {"inner": {"a": 1}, "list": [{"a": 1}], "zone": "harbour"}
    bare = compact_plan(json.dumps(document))
    digest = compute_plan_digest(document)
    before, member, after = bare.partition(place.replace('"digest":"@",', ""))
    forged = before + place.replace("@", digest) + after
    assert member
    read, computed = parse_plan(forged)
    assert compute_plan_digest(read) == computed


@pytest.mark.parametrize("text", ["3", "null", "[]", '"plan"'])
def test_json_that_is_no_object_is_not_a_plan(text):
    with pytest.raises(ValueError, match="a plan is a JSON object"):
        parse_plan(text)


# --- which households a plan hides: never one that the noise of some interval was not measured by


FLAT_WH, MARKET_WH, EPSILON = 1000, 20_000, 0.5
NAMES = ["flat", "inn", "mill"]


@st.composite
def documents(draw):
    """As much of a plan as decides who is hidden: up to three kinds, two intervals a day."""
    kinds = [
        {
            "name": name,
            "bound_wh": draw(st.integers(1, 4)),
            "public": list(draw(st.sampled_from(list(product([False, True], repeat=2))))),
            "models_sha256": draw(st.sampled_from("ab")),
        }
        for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    ]
    return {"households": kinds}


def covered(truth, bound_wh, document):
    """Whether the plan has a kind with this bound that is public when the true one is, and lives alike."""
    alike = ("public", "models_sha256")
    same = (kind for kind in document["households"] if all(kind[name] == truth[name] for name in alike))
    return any(bound_wh <= kind["bound_wh"] for kind in same)


def by_hand(document, kind, bound_wh):
    """Whether a household that a table describes so is hidden, whatever it truly is."""
    kinds = document["households"]
    if kind == UNPROTECTED_KIND:
        return any(all(one["public"]) and bound_wh <= one["bound_wh"] for one in kinds)
    if kind:
        return any(one["name"] == kind and bound_wh <= one["bound_wh"] for one in kinds)
    may_be = [one for one in kinds if not all(one["public"])]
    return bool(may_be) and all(covered(truth, bound_wh, document) for truth in may_be)


@given(documents())
def test_a_household_is_hidden_only_if_the_plan_covers_whatever_it_may_be(document):
    hides = HiddenHouseholds.from_document(document)
    for kind, bound_wh in product(["", UNPROTECTED_KIND, *NAMES, "Flat"], range(1, 6)):
        assert (hides.not_hidden_reason({kind: bound_wh}) is None) == by_hand(document, kind, bound_wh), (
            kind,
            bound_wh,
        )


@given(documents(), st.dictionaries(st.sampled_from(["", UNPROTECTED_KIND, *NAMES]), st.integers(1, 5), min_size=1))
def test_a_zone_is_hidden_if_all_its_households_are(document, bounds):
    hides = HiddenHouseholds.from_document(document)
    alone = [hides.not_hidden_reason({kind: bound_wh}) for kind, bound_wh in bounds.items()]
    assert (hides.not_hidden_reason(bounds) is None) == (not any(alone))


@given(documents())
def test_what_is_not_known_is_not_hidden(document):
    for nothing in (None, {}):
        assert "not known" in HiddenHouseholds.from_document(document).not_hidden_reason(nothing)


@pytest.fixture(scope="module")
def market():
    """A plan whose market has public hours: by day the noise is measured by the flats alone."""
    text = EXAMPLE_ZONE_FILE.replace(
        'promise = ["any 24 h: epsilon 1, delta 1e-6", "any moment: 1"]', 'promise = ["interval: 0.5"]'
    )
    plan = make_plan(parse_zone(text.replace('public = "always"', 'public = ["08:00-20:00"]')))
    return json.loads(plan.to_json()), ReleaseTerms.from_json(plan.to_json())


def test_a_flat_with_the_bound_of_a_market_is_refused(market):
    """Where its hours are public the market needs no noise: a flat with its bound would lose 10 instead of 0.5."""
    _, terms = market
    assert MARKET_WH / terms.scale_wh.min() == pytest.approx(10, rel=1e-3)
    assert f"bound_wh = {MARKET_WH}; its plan hides up to {FLAT_WH} there" in terms.not_hidden_reason({"": MARKET_WH})
    assert f"of kind 'flat' with bound_wh + export_bound_wh = {MARKET_WH}" in terms.not_hidden_reason(
        {"flat": MARKET_WH}
    )
    assert "not protected" in terms.not_hidden_reason({UNPROTECTED_KIND: 1})
    assert terms.not_hidden_reason({"": FLAT_WH, "flat": FLAT_WH, "fish market": MARKET_WH}) is None


@given(st.sampled_from(["", "flat", "fish market"]), st.integers(1, 2 * MARKET_WH))
def test_a_household_that_is_not_refused_loses_no_more_than_was_promised_at_any_interval(market, kind, bound_wh):
    document, terms = market
    if terms.not_hidden_reason({kind: bound_wh}) is not None:
        return
    for truth in document["households"]:
        if kind in {"", truth["name"]}:
            secret = ~np.array(truth["public"])
            assert (bound_wh / terms.scale_wh[secret] <= EPSILON).all()
