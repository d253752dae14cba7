"""Which households a plan hides: never one that the noise of some interval was not measured by."""

import json
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmurate.planning.plan import make_plan
from murmurate.planning.release_terms import HiddenHouseholds, ReleaseTerms
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.types import UNPROTECTED_KIND

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
    assert f"bound_wh {MARKET_WH}; its plan hides up to {FLAT_WH} there" in terms.not_hidden_reason({"": MARKET_WH})
    assert f"of kind 'flat' with bound_wh {MARKET_WH}" in terms.not_hidden_reason({"flat": MARKET_WH})
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
