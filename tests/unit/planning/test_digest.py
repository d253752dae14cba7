"""The digest of a plan, from its canonical text and from any other text of it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmurate.planning.release_terms import compact_plan, compute_plan_digest, parse_plan

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
